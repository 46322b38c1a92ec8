package history

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"drun/internal/each"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// column is a field of a record that a table keeps in a column of its own: see package records.
type column struct {
	name        string
	field       []int // index of the field; nil: the record itself
	micro, null bool
	json        bool // it is stored as JSON
}

var columnsOfTypes sync.Map // reflect.Type → []column

func columnsOf(t reflect.Type) []column {
	if known, is := columnsOfTypes.Load(t); is {
		return known.([]column)
	}
	var all []column
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name, how, _ := strings.Cut(f.Tag.Get("db"), ",")
		if name == "" {
			name = tag
		}
		if name != "" && name != "-" {
			all = append(all, column{name, f.Index, how == "micro", how == "null", how == "json"})
		}
	}
	columnsOfTypes.Store(t, all)
	return all
}

// names are the columns in SQL. In double quotes, one that a damaged table lacks would count as a text, not an error.
func names(columns []column) string {
	list := each.Of(columns, func(c column) string { return "`" + c.name + "`" })
	return strings.Join(list, ", ")
}

func (c column) value(record reflect.Value) any {
	v := record.FieldByIndex(c.field)
	if c.null && v.IsZero() {
		return nil
	}
	if c.json {
		text, _ := json.Marshal(v.Interface()) // plain data: it cannot fail
		return string(text)
	}
	switch at := v.Interface().(type) {
	case time.Time:
		if c.micro {
			return at.UnixMicro()
		}
		return formatTime(at)
	case *time.Time:
		if at == nil {
			return nil
		}
		return formatTime(*at)
	default:
		return at
	}
}

// cell is where a query's result is read to.
func (c column) cell(record reflect.Value) any {
	v := record.FieldByIndex(c.field)
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		if c.micro {
			return microColumn{at}
		}
		return timeColumn{at}
	case **time.Time:
		return timeOrNone{at}
	default:
		switch {
		case c.null:
			return zeroColumn{v}
		case c.json:
			return jsonColumn{at}
		}
		return at
	}
}

// insert adds records to a table. or says what happens to a row that is there already: REPLACE, IGNORE, or "" for an
// error; keys are columns, each followed by a comma, that all of them have before their own.
func insert(tx *sql.Tx, or, table string, records reflect.Value, columns []column, keys string, values ...any) (err error) {
	defer try.Caught(&err)
	if records.Len() == 0 {
		return nil
	}
	if or != "" {
		or = "OR " + or + " "
	}
	statement := try.To(tx.Prepare("INSERT " + or + "INTO " + table + " (" + keys + names(columns) + ") VALUES (" +
		strings.TrimSuffix(strings.Repeat("?, ", len(values)+len(columns)), ", ") + ")"))
	defer statement.Close()
	row := append(values, make([]any, len(columns))...)
	for i := range records.Len() {
		record := records.Index(i)
		for k, c := range columns {
			if c.field == nil {
				row[len(values)+k] = record.Interface()
			} else {
				row[len(values)+k] = c.value(record)
			}
		}
		try.To(statement.Exec(row...))
	}
	return nil
}

func insertAll[T any](tx *sql.Tx, or, table string, records []T, keys string, values ...any) error {
	return insert(tx, or, table, reflect.ValueOf(records), columnsOf(reflect.TypeFor[T]()), keys, values...)
}

// putRows stores the kinds of records that are rows of one table.
func (r *Run) putRows(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	v := reflect.ValueOf(b).Elem()
	for _, kind := range reflect.VisibleFields(v.Type()) {
		table := kind.Tag.Get("table")
		if table == "" {
			continue
		}
		columns := []column{{name: kind.Tag.Get("db")}}
		if t := kind.Type.Elem(); t.Kind() == reflect.Struct {
			columns = columnsOf(t)
		}
		try.Ok(insert(tx, kind.Tag.Get("or"), table, v.FieldByIndex(kind.Index), columns, "run, ", r.ID))
	}
	return nil
}

// rows reads records of one type. from is the rest of the query after the columns.
func rows[T any](db *DB, from string, args ...any) ([]T, error) {
	all, err := rowsIn[T](db.sql, from, args...)
	return all, sqldb.Wrap(db.path, err)
}

func rowsIn[T any](in sqldb.Queryer, from string, args ...any) ([]T, error) {
	columns := columnsOf(reflect.TypeFor[T]())
	return sqldb.List(in, func(record *T) []any {
		v := reflect.ValueOf(record).Elem()
		return each.Of(columns, func(c column) any { return c.cell(v) })
	}, "SELECT "+names(columns)+" FROM "+from, args...)
}

// into is like rows, but sets a list.
func into[T any](db *DB, to *[]T, from string, run int64) (err error) {
	*to, err = rows[T](db, from, run)
	return err
}

// microColumn reads a time in microseconds since 1970.
type microColumn struct{ to *time.Time }

func (c microColumn) Scan(value any) error {
	at, is := value.(int64)
	if !is {
		return fmt.Errorf("%v in place of a time", value)
	}
	*c.to = time.UnixMicro(at).UTC()
	return nil
}

// jsonColumn reads a value that is stored as JSON, or NULL.
type jsonColumn struct{ to any }

func (c jsonColumn) Scan(value any) error {
	if value == nil {
		return nil
	}
	text, is := value.(string)
	if !is {
		return fmt.Errorf("a %T in place of JSON", value)
	}
	return json.Unmarshal([]byte(text), c.to)
}

// zeroColumn reads a text, a number or a bool that may be NULL.
type zeroColumn struct{ to reflect.Value }

func (c zeroColumn) Scan(value any) error {
	n, isInt := value.(int64)
	f, isFloat := value.(float64)
	text, isText := value.(string)
	truth, isBool := value.(bool)
	switch {
	case value == nil:
	case isInt && c.to.CanInt():
		c.to.SetInt(n)
	case isInt && c.to.Kind() == reflect.Bool:
		c.to.SetBool(n != 0)
	case isBool && c.to.Kind() == reflect.Bool: // of a column declared BOOLEAN
		c.to.SetBool(truth)
	case isFloat && c.to.CanFloat():
		c.to.SetFloat(f)
	case isText && c.to.Kind() == reflect.String:
		c.to.SetString(text)
	default:
		return fmt.Errorf("a %T in place of %s", value, c.to.Type())
	}
	return nil
}
