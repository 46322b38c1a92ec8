package sqldb

import (
	"database/sql"
	"fmt"
	"io/fs"
	"sort"
	"strconv"
	"strings"

	"drun/internal/exit"
)

// schemaState identifies a file and its schema.
type schemaState struct {
	application int32 // PRAGMA application_id; 0: not set
	version     int   // PRAGMA user_version: number of the last migration
	objects     int   // tables, views and indexes
}

func readState(db *sql.DB) (s schemaState, err error) {
	err = db.QueryRow(`SELECT (SELECT application_id FROM pragma_application_id),
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
	case s.version > latest:
		return exit.WithHint(&Error{Path: f.Path,
			What: fmt.Sprintf("was written by a newer drun: its schema is version %d, this drun knows up to %d", s.version, latest)},
			"use the newer drun, or "+hintElsewhere+"; the file was left as it is")
	}
	return nil
}

// migrate applies what is missing; tx holds the write lock.
func (f File) migrate(tx *sql.Tx, latest int) error {
	var s schemaState
	err := tx.QueryRow(`SELECT (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_master)`).
		Scan(&s.application, &s.version, &s.objects)
	if err != nil {
		return err
	}
	if err := f.check(s, latest); err != nil {
		return err
	}
	names, err := f.migrations()
	if err != nil {
		return err
	}
	for i := s.version; i < latest; i++ {
		text, err := fs.ReadFile(f.Migrations, names[i])
		if err != nil {
			return err
		}
		if _, err := tx.Exec(string(text)); err != nil {
			return fmt.Errorf("migration %s: %w", names[i], err)
		}
	}
	_, err = tx.Exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", f.ApplicationID, latest))
	return err
}

func (f File) latest() (int, error) {
	names, err := f.migrations()
	return len(names), err
}

// migrations lists the files in order; their numbers must be 1, 2, 3, …
func (f File) migrations() ([]string, error) {
	names, err := fs.Glob(f.Migrations, "*.sql")
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
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
	names, err := f.migrations()
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(f.Migrations, name)
		if err == nil {
			_, err = fresh.Exec(string(text))
		}
		if err != nil {
			return fmt.Errorf("migration %s: %w", name, err)
		}
	}
	// SQLite names its own tables so, such as statistics, and reserves such names.
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
