package history

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"drun/history/records"
)

// dump is all that the tables of a history hold, with the names of their columns.
func dump(t *testing.T, db *DB) string {
	t.Helper()
	text := ""
	tables, err := list(db, func(name *string) []any { return []any{name} },
		"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
	ok(t, err)
	for _, table := range tables {
		all, err := allRows(db.sql, "SELECT * FROM "+table)
		ok(t, err)
		text += fmt.Sprintln(table, all)
	}
	return text
}

// No kind of records is left out by what writes a batch, nor by the spool.
func TestEveryKindIsStored(t *testing.T) {
	whole := everything()
	step, inputs := int64(3), "key"
	whole.Inputs, whole.WorldSize, whole.Git = &inputs, 7, &Git{Commit: "abc"}
	whole.AttemptBegins = []AttemptBegin{{Attempt: 1, Started: time.Unix(1, 0)}}
	whole.AttemptEnds = []AttemptEnd{{Attempt: 0, Status: Failed, Error: "why"}}
	whole.Supersedes = []Supersede{{Attempt: 0, FromStep: &step}}
	whole.Updates = append(whole.Updates, full(t, whole.Updates)...)
	whole.Marks = append(whole.Marks, full(t, whole.Marks)...)
	for _, kind := range reflect.VisibleFields(reflect.TypeFor[Batch]()) {
		if slices.Contains([]string{"Number", "Batch", "Removed", "Repeats"}, kind.Name) { // they remove
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			db := open(t, t.TempDir())
			r := begin(t, db, RunInfo{})
			ok(t, r.BeginAttempt())
			ok(t, r.Write(&Batch{}))
			before := dump(t, db)
			only := &Batch{Number: 9}
			given := reflect.ValueOf(whole).Elem().FieldByIndex(kind.Index)
			if given.IsZero() {
				t.Fatal("the test has none")
			}
			reflect.ValueOf(only).Elem().FieldByIndex(kind.Index).Set(given)
			data, err := encodeBatch(only)
			ok(t, err)
			only, err = decodeBatch(data[frameSize:])
			ok(t, err)
			ok(t, r.Write(only))
			ok(t, r.db.exec("UPDATE runs SET batch = 1"))
			if after := dump(t, db); after == before {
				t.Error("nothing of it is in the tables")
			}
		})
	}
}

// Every field of what is a row of a table has a column, or a tag that says it has none.
func TestEveryFieldHasAColumn(t *testing.T) {
	for _, kind := range reflect.VisibleFields(reflect.TypeFor[Batch]()) {
		if kind.Tag.Get("table") == "" || kind.Type.Elem().Kind() != reflect.Struct {
			continue
		}
		columns := columnsOf(kind.Type.Elem())
		for _, f := range reflect.VisibleFields(kind.Type.Elem()) {
			has := slices.ContainsFunc(columns, func(c column) bool { return slices.Equal(c.field, f.Index) })
			if !has && f.Tag.Get("db") != "-" && f.Tag.Get("json") != "-" {
				t.Errorf("%s.%s has no column", kind.Name, f.Name)
			}
		}
	}
}

// full is a list of one record, none of whose fields is zero.
func full[T any](t *testing.T, _ []T) []T {
	t.Helper()
	var record T
	v := reflect.ValueOf(&record).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Slice:
			f.SetBytes([]byte("12345678"))
		default:
			f.SetInt(int64(i + 1))
		}
	}
	return []T{record}
}

// A column that a damaged table lacks is an error, not a text.
func TestMissingColumn(t *testing.T) {
	db := open(t, t.TempDir())
	r := begin(t, db, RunInfo{})
	ok(t, r.Write(&Batch{Batch: records.Batch{Notes: []records.Note{{Time: time.Unix(1, 0), Text: "went well"}}}}))
	ok(t, r.db.exec("ALTER TABLE notes DROP COLUMN text"))
	if d, err := db.Get(r.ID); err == nil {
		t.Errorf("the notes are %v", d.Notes)
	}
}
