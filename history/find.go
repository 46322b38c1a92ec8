package history

import (
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/internal/exit"
	"drun/internal/spelling"
)

// NotFound says that a reference names no run, or a name no metric (a usage error).
type NotFound struct{ What, Near string }

func (e *NotFound) Error() string { return e.What }

// Hint lists what was probably meant.
func (e *NotFound) Hint() string { return e.Near }

// ExitCode is the exit code of a usage error.
func (e *NotFound) ExitCode() exit.Code { return exit.Usage }

// Find resolves RUN as on the command line: an id, a name, or "last" for the newest run. If there is none, the
// error is a *NotFound with the nearest names.
func (db *DB) Find(run string) (int64, error) {
	const columns = "SELECT id, name, trashed IS NOT NULL FROM runs "
	query, arg := columns+"WHERE name = ?", any(run)
	if run == "last" {
		query, arg = columns+"WHERE ? = 'last' AND trashed IS NULL ORDER BY id DESC LIMIT 1", run
	} else if id, err := strconv.ParseInt(run, 10, 64); err == nil {
		query, arg = columns+"WHERE id = ?", id
	}
	var id int64
	var name string
	var trashed bool
	err := db.read(func(rows *sql.Rows) error { return rows.Scan(&id, &name, &trashed) }, query, arg)
	switch {
	case err == nil && id == 0:
		err = db.unknown(run)
	case trashed:
		err = &NotFound{fmt.Sprintf("run %d %s is in the trash", id, name), fmt.Sprintf("to take it out: drun rm --undo %d", id)}
	}
	return id, err
}

func (db *DB) unknown(run string) error {
	type candidate struct {
		id       int64
		name     string
		distance int
	}
	all, err := list(db, func(c *candidate) []any { return []any{&c.id, &c.name} }, "SELECT id, name FROM runs WHERE trashed IS NULL ORDER BY id DESC LIMIT 10000")
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return &NotFound{fmt.Sprintf("there is no run %q: the history is empty", run), "start one with: drun run RECIPE.star"}
	}
	for i, c := range all {
		all[i].distance = nearness(run, c.name)
	}
	what, shown := "nearest", slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.distance > min(3, len(run)/2) })
	if run == "" || len(shown) == 0 { // no run can have been meant
		what, shown = "the newest", all
	} else {
		slices.SortStableFunc(shown, func(a, b candidate) int { return a.distance - b.distance })
	}
	names := []string{}
	for _, c := range shown[:min(5, len(shown))] {
		names = append(names, fmt.Sprintf("%d %s", c.id, c.name))
	}
	return &NotFound{fmt.Sprintf("there is no run %q", run), what + ": " + strings.Join(names, ", ") + "; all: drun runs --all"}
}

// nearness is the edit distance, less if the name contains what was typed.
func nearness(typed, name string) int {
	if typed != "" && strings.Contains(name, typed) {
		return 0
	}
	return spelling.Distance(typed[:min(len(typed), 100)], name)
}
