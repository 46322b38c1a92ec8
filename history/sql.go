package history

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mattn/go-sqlite3"

	"drun/internal/exit"
	"drun/internal/sqldb"
)

// SQLError is SQLite's complaint about a query (a usage error).
type SQLError struct{ Err error }

func (e *SQLError) Error() string { return "sql: " + e.Err.Error() }
func (e *SQLError) Unwrap() error { return e.Err }

// Hint says where the tables are described.
func (e *SQLError) Hint() string {
	return `queries only read; the tables: drun sql "select sql from sqlite_master", or docs/history.md`
}

// ExitCode is that of a usage error.
func (e *SQLError) ExitCode() exit.Code { return exit.Usage }

// Table is the result of a query. A cell is nil, int64, float64, string or
// []byte.
type Table struct {
	Columns []string
	Rows    [][]any
}

// Query runs SQL that reads; db must come from OpenReadOnly. Statements that
// would write, here or elsewhere (ATTACH, VACUUM INTO), are refused.
func (db *DB) Query(ctx context.Context, query string) (*Table, error) {
	conn, err := db.sql.Conn(ctx)
	if err != nil {
		return nil, sqldb.Wrap(db.path, err)
	}
	defer conn.Close()
	err = conn.Raw(func(driver any) error {
		driver.(*sqlite3.SQLiteConn).RegisterAuthorizer(func(op int, name, value, _ string) int {
			if op == sqlite3.SQLITE_ATTACH || op == sqlite3.SQLITE_DETACH { // VACUUM INTO attaches, too
				return sqlite3.SQLITE_DENY
			}
			if op == sqlite3.SQLITE_PRAGMA && (value != "" && !describes(name) || name == "wal_checkpoint") {
				return sqlite3.SQLITE_DENY // it would set something
			}
			return sqlite3.SQLITE_OK
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, db.queryError(err)
	}
	defer rows.Close()
	table := &Table{Rows: [][]any{}}
	if table.Columns, err = rows.Columns(); err != nil {
		return nil, db.queryError(err)
	}
	for rows.Next() {
		row := make([]any, len(table.Columns))
		cells := make([]any, len(row))
		for i := range row {
			cells[i] = &row[i]
		}
		if err := rows.Scan(cells...); err != nil {
			return nil, db.queryError(err)
		}
		table.Rows = append(table.Rows, row)
	}
	return table, db.queryError(rows.Err())
}

// describes tells whether a pragma's argument is what it describes.
func describes(pragma string) bool {
	switch strings.ToLower(pragma) {
	case "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list", "foreign_key_check", "integrity_check", "quick_check":
		return true
	}
	return false
}

func (db *DB) queryError(err error) error {
	if sqldb.IsSQL(err) || sqldb.IsReadOnly(err) {
		return &SQLError{err}
	}
	return sqldb.Wrap(db.path, err)
}

// MarshalJSON gives a list of objects whose members are in the order of the
// columns; a second column of the same name is called name_2.
func (t *Table) MarshalJSON() ([]byte, error) {
	keys := make([][]byte, len(t.Columns))
	used := map[string]bool{}
	for i, name := range t.Columns {
		unique := name
		for n := 2; used[unique]; n++ {
			unique = fmt.Sprintf("%s_%d", name, n)
		}
		used[unique] = true
		key, err := marshal(unique)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	var out bytes.Buffer
	out.WriteByte('[')
	for r, row := range t.Rows {
		if r > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('{')
		for i, cell := range row {
			if i > 0 {
				out.WriteByte(',')
			}
			switch v := cell.(type) {
			case float64:
				cell = Float(v)
			case []byte:
				if utf8.Valid(v) { // captured sources are text; other bytes go as base64
					cell = string(v)
				}
			}
			value, err := marshal(cell)
			if err != nil {
				return nil, err
			}
			out.Write(keys[i])
			out.WriteByte(':')
			out.Write(value)
		}
		out.WriteByte('}')
	}
	out.WriteByte(']')
	return out.Bytes(), nil
}
