package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/mattn/go-sqlite3"

	"drun/history/records"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// sqlError makes SQLite's error about a query a usage error, and says where the tables are described.
func sqlError(err error) error {
	return exit.WithHint(exit.Errorf(exit.Usage, "sql: %w", err), `queries only read; the tables: drun sql "select sql from sqlite_master", or docs/history-tables.md`)
}

// Table is the result of a query. A cell is nil, int64, float64, string or []byte.
type Table struct {
	Columns []string
	Rows    [][]any
}

// most limits the bytes of a result, all of which is in memory; one value may have a quarter of that. Tests lower it.
var most = 1 << 30

// harmless are the pragmas that only report something; true: they take an argument.
var harmless = map[string]bool{"application_id": false, "collation_list": false, "compile_options": false, "data_version": false, "database_list": false, "encoding": false,
	"foreign_key_check": true, "foreign_key_list": true, "freelist_count": false, "function_list": false, "index_info": true, "index_list": true, "index_xinfo": true,
	"integrity_check": true, "journal_mode": false, "module_list": false, "page_count": false, "page_size": false, "pragma_list": false, "quick_check": true,
	"schema_version": false, "table_info": true, "table_list": true, "table_xinfo": true, "user_version": false}

// reads allows only what reads: not ATTACH, VACUUM INTO and temporary tables, nor pragmas that change how the file
// is opened.
func reads(op int, what, argument, _ string) int {
	const recursive = 33 // SQLITE_RECURSIVE
	switch op {
	case sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, recursive:
		return sqlite3.SQLITE_OK
	case sqlite3.SQLITE_PRAGMA:
		if takes, is := harmless[strings.ToLower(what)]; is && (takes || argument == "") {
			return sqlite3.SQLITE_OK
		}
	}
	return sqlite3.SQLITE_DENY
}

// opaque matches what may contain semicolons that end no statement: quotes and comments, which the query's end closes, too.
var opaque = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?s)'[^']*('|$)|\"[^\"]*(\"|$)|`[^`]*(`|$)|\\[[^]]*(]|$)|--[^\n]*|/\\*.*?(\\*/|$)")
})

// statements splits a query at semicolons outside quotes and comments, without empty statements.
func statements(query string) (list []string) {
	plain := opaque().ReplaceAllStringFunc(query, func(part string) string { // with something of the same length
		if strings.HasPrefix(part, "--") || strings.HasPrefix(part, "/*") {
			return strings.Repeat(" ", len(part))
		}
		return strings.Repeat("x", len(part))
	})
	start := 0
	for part := range strings.SplitSeq(plain, ";") {
		if strings.TrimSpace(part) != "" {
			list = append(list, query[start:start+len(part)])
		}
		start += len(part) + 1
	}
	return list
}

// Query runs one SQL statement that only reads; db must come from OpenReadOnly. Statements that would write, here
// or elsewhere, are refused.
func (db *DB) Query(ctx context.Context, query string) (_ *Table, err error) {
	defer try.Caught(&err)
	list := statements(query) // the driver would return only the last statement's result
	if len(list) != 1 {
		return nil, sqlError(fmt.Errorf("want one query, not %d", len(list)))
	}
	conn, err := db.sql.Conn(ctx)
	if err != nil {
		return nil, sqldb.Wrap(db.path, err)
	}
	defer conn.Close()
	try.Ok(conn.Raw(func(driver any) error {
		lite := driver.(*sqlite3.SQLiteConn)
		lite.RegisterAuthorizer(reads)
		lite.SetLimit(sqlite3.SQLITE_LIMIT_LENGTH, most/4)
		return nil
	}))
	rows, err := conn.QueryContext(ctx, list[0])
	if err != nil {
		return nil, db.queryError(err)
	}
	defer rows.Close()
	table := &Table{Rows: [][]any{}}
	if table.Columns, err = rows.Columns(); err != nil {
		return nil, db.queryError(err)
	}
	size := 0
	for rows.Next() {
		row := make([]any, len(table.Columns))
		cells := each.UpTo(len(row), func(i int) any { return &row[i] })
		if err := rows.Scan(cells...); err != nil {
			return nil, db.queryError(err)
		}
		table.Rows = append(table.Rows, row)
		for _, v := range row {
			size += 24
			switch v := v.(type) {
			case string:
				size += len(v)
			case []byte:
				size += len(v)
			}
		}
		if size > most {
			return nil, sqlError(fmt.Errorf("the result is larger than %d MiB: ask for less, as with LIMIT", most>>20))
		}
	}
	return table, db.queryError(rows.Err())
}

func (db *DB) queryError(err error) error {
	if err != nil && strings.HasPrefix(err.Error(), "not enough args") {
		return sqlError(errors.New("a query cannot have parameters such as ? and :name: write their values"))
	}
	if sqldb.IsSQL(err) || sqldb.IsReadOnly(err) {
		return sqlError(err)
	}
	return sqldb.Wrap(db.path, err)
}

// MarshalJSON gives a list of objects whose members are in column order; a second column of the same name is called
// name_2.
func (t *Table) MarshalJSON() (_ []byte, err error) {
	defer try.Caught(&err)
	keys := make([][]byte, len(t.Columns))
	used := map[string]bool{}
	for i, name := range t.Columns {
		unique := name
		for n := 2; used[unique]; n++ {
			unique = fmt.Sprintf("%s_%d", name, n)
		}
		used[unique] = true
		keys[i] = try.To(records.Marshal(unique))
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
				cell = records.Float(v)
			case []byte:
				if utf8.Valid(v) { // captured sources are text; other bytes become base64
					cell = string(v)
				}
			}
			value := try.To(records.Marshal(cell))
			out.Write(keys[i])
			out.WriteByte(':')
			out.Write(value)
		}
		out.WriteByte('}')
	}
	out.WriteByte(']')
	return out.Bytes(), nil
}
