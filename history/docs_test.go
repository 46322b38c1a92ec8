package history

import (
	"context"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"drun/history/records"
)

func TestDocumentedQueriesAndTables(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes on one goroutine")
	}
	home := t.TempDir()
	db := open(t, home)
	for i, loss := range []float64{math.NaN(), math.Copysign(0, -1), 0} {
		r := begin(t, db, RunInfo{})
		ok(t, r.Write(&Batch{Params: []Param{{"lr", 0.01 * float64(i+1)}}}))
		ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "acc", Value: float64(i), Exact: true}, {Name: "loss", Value: loss, Exact: true}}}}))
	}
	text, err := os.ReadFile("../docs/history-tables.md")
	ok(t, err)
	queries := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(text, -1)
	if len(queries) != 4 {
		t.Fatalf("%d queries", len(queries))
	}
	run := func(query string) *Table {
		t.Helper()
		table, err := reader(t, home).Query(context.Background(), query)
		ok(t, err)
		return table
	}
	compare := string(queries[2][1])
	for second, want := range map[string]int{"1": 0, "2": 2, "3": 2} {
		if table := run(strings.Replace(compare, "run = 2", "run = "+second, 1)); len(table.Rows) != want {
			t.Errorf("runs 1 and %s: %v", second, table.Rows)
		}
	}
	if table := run(strings.Replace(compare, "run = 1", "run = 3", 1)); len(table.Rows) != 2 {
		t.Errorf("0.0 and -0.0 do not differ: %v", table.Rows)
	}
	if table := run(string(queries[3][1])); len(table.Rows) != 3 || table.Rows[0][1] != 0.03 {
		t.Errorf("by accuracy: %v", table.Rows)
	}
	snapshot := records.Snapshot{Reason: "failed", Ranks: []records.RankState{{Rank: 0, State: "waiting"}, {Rank: 1, State: "gone"}}}
	ok(t, begin(t, db, RunInfo{}).Write(&Batch{Snapshots: []records.Snapshot{snapshot}}))
	if table := run(strings.Replace(string(queries[0][1]), "= 7", "= 4", 1)); len(table.Rows) != 2 || table.Rows[1][1] != "gone" {
		t.Errorf("where the ranks were: %v", table.Rows)
	}
	for i, files := range [][]records.DataFile{{{Path: "a.csv", SHA256: "1", Bytes: 9}, {Path: "b.csv", SHA256: "2", Bytes: 9}}, {{Path: "a.csv", SHA256: "1", Bytes: 9}, {Path: "b.csv", SHA256: "3", Bytes: 9}}} {
		ok(t, (&Run{ID: int64(i + 1), db: db}).Write(&Batch{Number: 9, Batch: records.Batch{DataFiles: files}}))
	}
	if table := run(string(queries[1][1])); len(table.Rows) != 1 || table.Rows[0][0] != "b.csv" || table.Rows[0][1] != "3" {
		t.Errorf("other data: %v", table.Rows)
	}
	// Every table and column has its line, those of the slots of a block once.
	for _, row := range run(`SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p
		WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%' AND NOT p.name GLOB '[pv][1-9]*'`).Rows {
		line := regexp.MustCompile("(?m)^\\| `" + row[0].(string) + "`( \\(view\\))? \\|.*`" + row[1].(string) + "`.*$")
		if !line.Match(text) {
			t.Errorf("%s.%s is not documented", row[0], row[1])
		}
	}
}
