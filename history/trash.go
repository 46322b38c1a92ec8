package history

import (
	"cmp"
	"database/sql"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/spelling"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// List, Select and Find ignore a run in the trash, but it keeps everything, including its name, until Purge.

// Trash moves runs to the trash; those that are there stay. If one is running, the error is a usage error, and none
// is moved.
func (db *DB) Trash(ids []int64) error {
	return db.write(func(tx *sql.Tx) error {
		var id int64
		var name, status string
		err := tx.QueryRow("SELECT id, name, status FROM runs WHERE status IN ('running', 'pending') AND pid <> 0 AND id IN (SELECT value FROM json_each(?)) LIMIT 1", sqldb.JSON(ids)).Scan(&id, &name, &status)
		if err == nil {
			return exit.WithHint(exit.Errorf(exit.Usage, "run %d %s is %s", id, name, status), "wait for its end, or stop it (drun stop, drun jobs cancel); nothing was moved to the trash")
		}
		if err != sql.ErrNoRows {
			return err
		}
		try.Ok(there(tx, ids))
		return MoveToTrash(tx, db.who(), ofIDs, sqldb.JSON(ids))
	})
}

const ofIDs = "id IN (SELECT value FROM json_each(?))"

// who is who changes the history.
func (db *DB) who() string {
	if me, err := user.Current(); db.Who == "" && err == nil {
		return me.Username
	}
	return cmp.Or(db.Who, "somebody")
}

// MoveToTrash moves the runs that a condition selects to the trash, and notes who did that: it is told to those who send such a run
// once it is gone for good.
func MoveToTrash(tx *sql.Tx, who, where string, args ...any) error {
	now := formatTime(time.Now())
	_, err := tx.Exec("UPDATE runs SET trashed = ? WHERE trashed IS NULL AND "+where, append([]any{now}, args...)...)
	if err == nil {
		_, err = tx.Exec("INSERT OR REPLACE INTO removed SELECT uid, name, ?, trashed FROM runs WHERE trashed = ? AND "+where, append([]any{who, now}, args...)...)
	}
	return err
}

// TakeFromTrash takes the runs that a condition selects out of the trash.
func TakeFromTrash(tx *sql.Tx, where string, args ...any) error {
	_, err := tx.Exec("DELETE FROM removed WHERE uid IN (SELECT uid FROM runs WHERE "+where+")", args...)
	if err == nil {
		_, err = tx.Exec("UPDATE runs SET trashed = NULL WHERE "+where, args...)
	}
	return err
}

// ResumedFrom lists the runs, not in the trash, that were resumed from these.
func (db *DB) ResumedFrom(ids []int64) ([]Summary, error) {
	return db.summaries(&Selection{}, "WHERE parent IN (SELECT value FROM json_each(?)) AND trashed IS NULL ORDER BY id", sqldb.JSON(ids))
}

// change calls fn to change runs that were found before, unless one has since been removed: the error is then a *NotFound.
func (db *DB) change(ids []int64, fn func(*sql.Tx) error) error {
	return db.write(func(tx *sql.Tx) error {
		try.Ok(there(tx, ids))
		return fn(tx)
	})
}

// there returns a *NotFound if one of the runs is not.
func there(tx *sql.Tx, ids []int64) error {
	for _, id := range ids {
		var is bool
		if err := tx.QueryRow("SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?)", id).Scan(&is); err != nil {
			return err
		}
		if !is {
			return &NotFound{fmt.Sprintf("run %d has just been removed for good", id), "drun gc does that with the runs in the trash"}
		}
	}
	return nil
}

// Restore takes runs out of the trash.
func (db *DB) Restore(ids []int64) error {
	return db.change(ids, func(tx *sql.Tx) error { return TakeFromTrash(tx, ofIDs, sqldb.JSON(ids)) })
}

// FindTrashed is like Find, among the runs in the trash; "last" is the one most recently moved there.
func (db *DB) FindTrashed(run string) (_ int64, err error) {
	defer try.Caught(&err)
	var id int64
	err = db.read(func(rows *sql.Rows) error { return rows.Scan(&id) },
		`SELECT id FROM runs WHERE `+db.visible()+` AND trashed IS NOT NULL AND (CAST(id AS TEXT) = ?1 OR name = ?1 OR ?1 = 'last') ORDER BY trashed, id`, run)
	if err != nil || id != 0 {
		return id, err
	}
	there := try.To(db.Select(Selection{Trashed: true, Limit: 5}))
	near := each.Of(there, func(r Summary) string { return fmt.Sprintf("%d %s", r.ID, r.Name) })
	hint := "the trash is empty"
	if len(near) > 0 {
		hint = "there are: " + strings.Join(near, ", ") + "; all: drun runs --trash --all"
	}
	return 0, &NotFound{fmt.Sprintf("there is no run %q in the trash", run), hint}
}

// Purge removes a run in the trash with everything that the history has of it, unless remove, which removes what is
// kept elsewhere, says that it must stay. Nobody can restore the run meanwhile. was reports whether the run was
// there.
func (db *DB) Purge(id int64, remove func() (stays bool, err error)) (was bool, err error) {
	err = db.write(func(tx *sql.Tx) error {
		const condition = " FROM runs WHERE id = ? AND trashed IS NOT NULL AND (status NOT IN ('running', 'pending') OR pid = 0)"
		if err := tx.QueryRow("SELECT EXISTS (SELECT 1"+condition+")", id).Scan(&was); err != nil || !was {
			return err
		}
		if stays, err := remove(); stays || err != nil {
			return err
		}
		try.To(tx.Exec("DELETE"+condition, id))
		return removeUnused(tx)
	})
	return was, err
}

func removeUnused(tx *sql.Tx) error {
	_, err := tx.Exec(`DELETE FROM sources WHERE sha256 NOT IN (SELECT sha256 FROM run_sources);
		DELETE FROM contents WHERE sha256 NOT IN (SELECT sha256 FROM artifacts)`)
	return err
}

// Shrink returns the space that purged runs left in the file to the file system, and reports how many bytes. It
// does nothing during a run, whose records would have to wait.
func (db *DB) Shrink() (freed int64, err error) {
	defer try.Caught(&err)
	if on, err := db.running(); err != nil || len(on) > 0 {
		return 0, err
	}
	before := try.To(db.bytes())
	for _, statement := range []string{"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := db.sql.Exec(statement); err != nil && !sqldb.IsLocked(err) {
			return 0, sqldb.Wrap(db.path, err)
		}
	}
	after, err := db.bytes()
	return max(before-after, 0), err
}

func (db *DB) bytes() (n int64, err error) {
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(db.path + suffix); err == nil {
			n += info.Size()
		} else if suffix == "" {
			return 0, sqldb.Wrap(db.path, err)
		}
	}
	return n, nil
}

// MaxTag is how many bytes a tag may have, as for run.tag.
const MaxTag = 200

// CheckTag refuses what cannot be a tag.
func CheckTag(tag string) error {
	if tag == "" || len(tag) > MaxTag {
		return exit.Errorf(exit.Usage, "a label has 1 to %d bytes: %.40q has %d", MaxTag, tag, len(tag))
	}
	return nil
}

func (db *DB) Label(id int64, add, remove []string) error {
	return db.change([]int64{id}, func(tx *sql.Tx) error {
		try.Ok(execute(tx, "DELETE FROM tags WHERE run = ? AND tag = ?", remove, func(tag *string) []any { return []any{id, *tag} }))
		return execute(tx, "INSERT OR IGNORE INTO tags VALUES (?, ?)", add, func(tag *string) []any { return []any{id, *tag} })
	})
}

// Rename gives a run another name. The error is a *NameError if the name is not valid, or taken.
func (db *DB) Rename(id int64, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return db.change([]int64{id}, func(tx *sql.Tx) error {
		try.Ok(nameTaken(tx, name))
		try.To(tx.Exec("UPDATE runs SET name = ? WHERE id = ?", name, id))
		return nil
	})
}

func (db *DB) AddNote(id int64, text string) error {
	return db.change([]int64{id}, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO notes (run, time, text) VALUES (?, ?, ?)", id, formatTime(time.Now()), text)
		return err
	})
}

// AddReplay records that a run was repeated here now.
func (db *DB) AddReplay(id int64, r Replay) error {
	return db.change([]int64{id}, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO replays (run, time, host, version, same, result) VALUES (?, ?, ?, ?, ?, ?)", id, formatTime(time.Now()), r.Host, r.Version, r.Same, r.Result)
		return err
	})
}

// EndEarly notes why a sweep has interrupted a run, or will: its status says so.
func (db *DB) EndEarly(id int64, why string) error {
	return db.exec("UPDATE runs SET ended_early = ?, status = iif(status = 'interrupted', 'stopped early', status) WHERE id = ?", why, id)
}

// NotFound says that a reference names no run, or a name no metric (a usage error).
type NotFound struct{ What, Near string }

func (e *NotFound) Error() string { return e.What }

// Hint lists what was probably meant.
func (e *NotFound) Hint() string { return e.Near }

func (e *NotFound) ExitCode() exit.Code { return exit.Usage }

// Find resolves RUN as on the command line: an id, a name, or "last" for the newest run. If there is none, the
// error is a *NotFound with the nearest names.
func (db *DB) Find(run string) (int64, error) {
	columns := "SELECT id, name, trashed IS NOT NULL FROM runs WHERE " + db.visible() + " AND "
	query, arg := columns+"name = ?", any(run)
	if run == "last" {
		query, arg = columns+"? = 'last' AND trashed IS NULL ORDER BY id DESC LIMIT 1", run
	} else if id, err := strconv.ParseInt(run, 10, 64); err == nil {
		query, arg = columns+"id = ?", id
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

func (db *DB) unknown(run string) (err error) {
	defer try.Caught(&err)
	type candidate struct {
		id       int64
		name     string
		distance int
	}
	all := try.To(list(db, func(c *candidate) []any { return []any{&c.id, &c.name} }, "SELECT id, name FROM runs WHERE trashed IS NULL AND "+db.visible()+" ORDER BY id DESC LIMIT 10000"))
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
	names := each.Of(shown[:min(5, len(shown))], func(c candidate) string { return fmt.Sprintf("%d %s", c.id, c.name) })
	return &NotFound{fmt.Sprintf("there is no run %q", run), what + ": " + strings.Join(names, ", ") + "; all: drun runs --all"}
}

// nearness is the edit distance, less if the name contains what was typed.
func nearness(typed, name string) int {
	if typed != "" && strings.Contains(name, typed) {
		return 0
	}
	return spelling.Distance(typed[:min(len(typed), 100)], name)
}
