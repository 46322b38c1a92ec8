package sqldb

import (
	"database/sql"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the schemas anew, but for the lines that insert rows")

// A new file has exactly what an old one has after all migrations.
func TestSchemasAreThoseOfTheMigrations(t *testing.T) {
	for _, dir := range []string{"../../history/migrations", "../../checkpoints/migrations"} {
		f := File{Migrations: os.DirFS(dir)}
		migrated, fresh := memory(t), memory(t)
		names, err := f.migrations()
		ok(t, err)
		for _, name := range names {
			text, err := fs.ReadFile(f.Migrations, name)
			ok(t, err)
			_, err = migrated.Exec(string(text))
			ok(t, err)
		}
		made := column(t, migrated, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid")
		path := filepath.Join(dir, schemaFile)
		text, err := os.ReadFile(path)
		ok(t, err)
		if *update {
			rows := "-- What all migrations make: go test ./internal/sqldb -run Schemas -update\n"
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "INSERT ") {
					rows += line
				}
			}
			head, rows, _ := strings.Cut(rows, "\n")
			text = []byte(head + "\n" + strings.Join(made, ";\n") + ";\n" + rows)
			ok(t, os.WriteFile(path, text, 0o644))
		}
		_, err = fresh.Exec(string(text))
		ok(t, err)
		for _, db := range []*sql.DB{migrated, fresh} {
			_, err := db.Exec("UPDATE catalog SET store = length(store)") // which is random
			if err != nil && !strings.Contains(err.Error(), "no such table") {
				t.Fatal(err)
			}
		}
		want, got := contents(t, migrated), contents(t, fresh)
		if want != got {
			t.Errorf("%s does not make what the migrations make: run this test with -update, and add or remove rows by hand\nthe migrations make:\n%s\nit makes:\n%s", path, want, got)
		}
	}
}

func memory(t *testing.T) *sql.DB {
	db, err := sql.Open("sqlite3", ":memory:")
	ok(t, err)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	return db
}

func column(t *testing.T, db *sql.DB, query string) (list []string) {
	t.Helper()
	rows, err := db.Query(query)
	ok(t, err)
	defer rows.Close()
	for rows.Next() {
		var s string
		ok(t, rows.Scan(&s))
		list = append(list, s)
	}
	ok(t, rows.Err())
	return list
}

// contents describes all tables and their rows, also SQLite's own.
func contents(t *testing.T, db *sql.DB) string {
	list := column(t, db, "SELECT json_array(type, name, tbl_name, sql) FROM sqlite_schema ORDER BY type, name")
	for _, table := range column(t, db, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") {
		fields := column(t, db, fmt.Sprintf("SELECT 'quote([' || name || '])' FROM pragma_table_info('%s')", table))
		for _, row := range column(t, db, fmt.Sprintf("SELECT json_array(%s) FROM %q", strings.Join(fields, ", "), table)) {
			list = append(list, table+" "+row)
		}
	}
	return strings.Join(list, "\n")
}
