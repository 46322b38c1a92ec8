package sqldb

import (
	"database/sql"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"drun/internal/exit"
)

type schemaState struct {
	application int32 // PRAGMA application_id; 0: not set
	version     int   // PRAGMA user_version: number of the last migration
	objects     int   // tables, views and indexes
}

func readState(from interface {
	QueryRow(string, ...any) *sql.Row
}) (s schemaState, err error) {
	err = from.QueryRow(`SELECT (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version),
		(SELECT count(*) FROM sqlite_master)`).Scan(&s.application, &s.version, &s.objects)
	return s, err
}

// check refuses files that this binary must not write to.
func (f File) check(s schemaState, latest int) error {
	switch {
	case s.application != f.ApplicationID && (s.application != 0 || s.objects > 0):
		return exit.WithHint(&Error{Path: f.Path, What: "is a SQLite database, but not drun's " + f.What},
			"move the file away, or "+hintElsewhere)
	case s.version < 0:
		return exit.WithHint(&Error{Path: f.Path, What: fmt.Sprintf("is damaged: its schema has the version %d", s.version)}, hintRescue(f.Path))
	case s.version > latest:
		return exit.WithHint(&Error{Path: f.Path,
			What: fmt.Sprintf("was written by a newer drun: its schema is version %d, this drun knows up to %d", s.version, latest)},
			"use the newer drun, or "+hintElsewhere+"; the file was left as it is")
	}
	return nil
}

// migrate applies what is missing; tx holds the write lock.
func (f File) migrate(tx *sql.Tx, latest int) error {
	s, err := readState(tx)
	if err == nil {
		err = f.check(s, latest)
	}
	if err == nil {
		err = f.apply(tx, s.version)
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", f.ApplicationID, latest))
	return err
}

func (f File) apply(to interface {
	Exec(string, ...any) (sql.Result, error)
}, version int) error {
	names, err := f.migrations()
	if err != nil {
		return err
	}
	for _, name := range names[version:] {
		text, err := fs.ReadFile(f.Migrations, name)
		if err == nil {
			_, err = to.Exec(string(text))
		}
		if err != nil {
			return fmt.Errorf("migration %s: %w", name, err)
		}
	}
	return nil
}

// Latest is the version of the schema that this binary writes.
func (f File) Latest() (int, error) {
	names, err := f.migrations()
	return len(names), err
}

// migrations lists the files in order; their numbers must be 1, 2, 3, …
func (f File) migrations() ([]string, error) {
	names, err := fs.Glob(f.Migrations, "*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for i, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, fmt.Errorf("migration %s should have number %04d", name, i+1)
		}
	}
	return names, nil
}

// checkExact compares the schema with that of a new file.
func (f File) checkExact(db *sql.DB) error {
	fresh, err := sql.Open("sqlite3", ":memory:")
	if err != nil {
		return err
	}
	defer fresh.Close()
	fresh.SetMaxOpenConns(1)
	if err := f.apply(fresh, 0); err != nil {
		return err
	}
	// SQLite reserves such names for its own tables, such as statistics.
	const query = "SELECT group_concat(json_array(type, name, tbl_name, sql), char(10) ORDER BY name) FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
	var want, got string
	if err := fresh.QueryRow(query).Scan(&want); err != nil {
		return err
	}
	if err := db.QueryRow(query).Scan(&got); err != nil {
		return err
	}
	if got != want {
		return exit.WithHint(&Error{Path: f.Path, What: "does not have the tables of drun's " + f.What + ": it was changed, or made by something else"},
			"move the file away, or "+hintElsewhere)
	}
	return nil
}
