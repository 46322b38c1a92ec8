package history

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"drun/internal/sqldb"
)

// A history may be deleted, or another put in its place, while a run is on.
// SQLite goes on with the file that it has open, which has no name any more. The
// run checks this after each batch, and copies all its rows from there into the
// file that has the name now, or into a new one.

// OnMove has fn told when that happened; from within Write.
func (r *Run) OnMove(fn func(what string)) { r.moved = fn }

// follow continues in the file that is named history.db now.
func (r *Run) follow() error {
	if r.lock == nil {
		return nil // another agent's run, see unspool
	}
	now, err := os.Stat(r.db.path)
	what := "was replaced by another file"
	if errors.Is(err, fs.ErrNotExist) {
		what = "was deleted"
	} else if err != nil || os.SameFile(now, r.db.info) {
		return nil
	}
	fresh, err := Open(r.db.home)
	if err != nil {
		return err
	}
	if err := r.copyTo(fresh); err != nil {
		fresh.Close()
		return sqldb.Wrap(fresh.path, err)
	}
	r.db.Close()
	*r.db = *fresh
	if r.live != nil && r.live.gone() {
		now := r.live.now
		r.live.close()
		r.live = nil
		r.listen(now)
	}
	if r.moved != nil {
		r.moved(fmt.Sprintf("%s %s while the run was on: all of this run was written there anew, as run %d; other runs that it held are not in it", r.db.path, what, r.ID))
	}
	return nil
}

// copyTo enters the run with all that was recorded of it in another history.
func (r *Run) copyTo(fresh *DB) error {
	path, err := filepath.Abs(fresh.path)
	if err != nil {
		return err
	}
	if _, err := r.db.sql.Exec("ATTACH ? AS fresh", path); err != nil {
		return err
	}
	id, lock := r.ID, r.lock
	err = r.db.write(func(tx *sql.Tx) error {
		if id, err = r.copyRows(tx); err != nil {
			return err
		}
		held, err := os.Stat(fresh.lockPath(id))
		if own, ownErr := r.lock.Stat(); err != nil || ownErr != nil || !os.SameFile(held, own) {
			lock, err = fresh.lockRun(id)
		}
		return err
	})
	_, _ = r.db.sql.Exec("DETACH fresh") // it is closed next
	if err != nil {
		if lock != r.lock {
			dropLock(lock)
		}
		return err
	}
	if lock != r.lock {
		dropLock(r.lock)
	}
	r.ID, r.lock = id, lock
	return nil
}

func (r *Run) copyRows(tx *sql.Tx) (id int64, err error) {
	if _, err := tx.Exec("DELETE FROM fresh.runs WHERE uid = ?", r.UID); err != nil { // of an older copy
		return 0, err
	}
	var taken int
	if err := tx.QueryRow("SELECT count(*) FROM fresh.runs WHERE id = ?", r.ID).Scan(&taken); err != nil {
		return 0, err
	}
	// NULL: the next that is free.
	given := any(r.ID)
	if taken > 0 {
		given = nil
	}
	name, err := r.nameIn(tx)
	if err != nil {
		return 0, err
	}
	columns, err := columnsOf(tx, "runs", "id", "name", "parent")
	if err != nil {
		return 0, err
	}
	result, err := tx.Exec(`INSERT INTO fresh.runs (id, name, parent, `+columns+`) SELECT ?, ?,
		(SELECT f.id FROM fresh.runs f JOIN main.runs p ON p.uid = f.uid WHERE p.id = r.parent), `+columns+`
		FROM main.runs r WHERE id = ?`, given, name, r.ID)
	if err != nil {
		return 0, err
	}
	if id, err = result.LastInsertId(); err != nil {
		return 0, err
	}
	r.Name = name
	if _, err := tx.Exec("INSERT OR IGNORE INTO fresh.sources SELECT * FROM main.sources WHERE sha256 IN (SELECT sha256 FROM main.run_sources WHERE run = ?)", r.ID); err != nil {
		return 0, err
	}
	if _, err := tx.Exec("INSERT OR IGNORE INTO fresh.contents SELECT * FROM main.contents WHERE sha256 IN (SELECT sha256 FROM main.artifacts WHERE run = ?)", r.ID); err != nil {
		return 0, err
	}
	for _, table := range []string{"params", "artifacts", "run_sources", "plugins", "rank_usage", "progress", "ranks", "data_files", "updates", "step_marks", "attempts", "tags", "checkpoints", "logs", "notes"} {
		columns, err := columnsOf(tx, table, "run", "id")
		if err != nil {
			return 0, err
		}
		order := ""
		if table == "logs" || table == "notes" {
			order = " ORDER BY id"
		}
		if _, err := tx.Exec(fmt.Sprintf("INSERT INTO fresh.%s (run, %s) SELECT ?, %s FROM main.%s WHERE run = ?%s", table, columns, columns, table, order), id, r.ID); err != nil {
			return 0, err
		}
	}
	if err := r.copyPoints(tx, id); err != nil {
		return 0, err
	}
	var shift int64 // of the snapshots' ids
	if err := tx.QueryRow("SELECT coalesce(max(id), 0) FROM fresh.snapshots").Scan(&shift); err != nil {
		return 0, err
	}
	if _, err := tx.Exec("INSERT INTO fresh.snapshots (id, run, time, reason) SELECT id + ?, ?, time, reason FROM main.snapshots WHERE run = ?", shift, id, r.ID); err != nil {
		return 0, err
	}
	for _, table := range []string{"snapshot_ranks", "snapshot_calls"} {
		columns, err := columnsOf(tx, table, "snapshot")
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(fmt.Sprintf(`INSERT INTO fresh.%s (snapshot, %s) SELECT snapshot + ?, %s FROM main.%s
			WHERE snapshot IN (SELECT id FROM main.snapshots WHERE run = ?)`, table, columns, columns, table), shift, r.ID); err != nil {
			return 0, err
		}
	}
	return id, nil
}

// copyPoints copies the points and their summaries: metrics have other numbers in the other history.
func (r *Run) copyPoints(tx *sql.Tx, id int64) error {
	from, to := blocks{tx, "main", r.ID}, blocks{tx, "fresh", id}
	numbers, err := newMetricNumbers(tx, to.schema)
	if err != nil {
		return err
	}
	defer numbers.close()
	next, _, err := from.next()
	if err != nil {
		return err
	}
	names := map[int64]string{}
	err = each(tx, func(rows *sql.Rows) error {
		var metric int64
		var name string
		err := rows.Scan(&metric, &name)
		names[metric] = name
		return err
	}, "SELECT id, name FROM main.metric_names")
	if err != nil {
		return err
	}
	for _, kind := range []bool{!superseded, superseded} {
		for at := int64(0); at < next; at += window {
			var part []numbered
			if err := from.points(kind, at, at+window, func(p *numbered) { part = append(part, *p) }); err != nil {
				return err
			}
			for i := range part {
				if part[i].metric, err = numbers.of(names[part[i].metric]); err != nil {
					return err
				}
			}
			if err := to.put(tx, kind, part); err != nil {
				return err
			}
		}
	}
	_, err = tx.Exec(`INSERT INTO fresh.run_metrics SELECT ?, f.id, s.first, s.last, s.min, s.max, s.count
		FROM main.run_metrics s JOIN main.metric_names m ON m.id = s.metric JOIN fresh.metric_names f ON f.name = m.name WHERE s.run = ?`, id, r.ID)
	return err
}

// nameIn is the run's name, with a number where the other history has that name.
func (r *Run) nameIn(tx *sql.Tx) (string, error) {
	for n := 1; ; n++ {
		name := r.Name
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		var taken int
		if err := tx.QueryRow("SELECT count(*) FROM fresh.runs WHERE name = ?", name).Scan(&taken); err != nil || taken == 0 {
			return name, err
		}
	}
}

// columnsOf lists a table's columns except some, for SQL.
func columnsOf(tx *sql.Tx, table string, but ...string) (string, error) {
	var list []string
	err := each(tx, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		if !slices.Contains(but, name) {
			list = append(list, `"`+name+`"`)
		}
		return err
	}, "SELECT name FROM pragma_table_info(?)", table)
	return strings.Join(list, ", "), err
}
