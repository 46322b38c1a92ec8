package main

import (
	"fmt"
	"strings"
	"testing"

	"drun/history"
	"drun/history/records"
)

// A folder of pictures does not bury what else is known of a run.
func TestShowFoldsDataFiles(t *testing.T) {
	for _, n := range []int{manyFiles, manyFiles + 1} {
		home := t.TempDir()
		db, err := history.Open(home)
		ok(t, err)
		r, err := db.Begin(history.RunInfo{Name: "calm-otter", Recipe: "r.star", WorldSize: 1, Backend: "shm"})
		ok(t, err)
		var files []records.DataFile
		for i := range n {
			files = append(files, records.DataFile{Path: fmt.Sprintf("%03d.png", i), SHA256: fmt.Sprint(i), Bytes: 1024})
		}
		ok(t, r.Write(&history.Batch{Batch: records.Batch{DataFiles: files}}))
		ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Done}}))
		ok(t, db.Close())
		want, rest := manyFiles, ""
		if n > manyFiles {
			want, rest = manyFiles/2, fmt.Sprintf("\nwith --json: %d data files more, of %d KiB\n", n-manyFiles/2, n-manyFiles/2)
		}
		out, errs, code := drun("show", "last", "--home", home)
		if code != 0 || strings.Count(out, ".png") != want || !strings.HasSuffix(out, rest) || rest == "" && strings.Contains(out, "--json") {
			t.Errorf("of %d files: %d, %s\n%s", n, code, errs, out)
		}
		if out, _, _ := drun("show", "last", "--json", "--home", home); strings.Count(out, ".png") != n {
			t.Errorf("--json has %d of %d files", strings.Count(out, ".png"), n)
		}
	}
}

// Values get all their digits where fewer show different ones as the same, wherever these are.
func TestTextsTellValuesApart(t *testing.T) {
	const a, b, c = 0.12345678, 0.12345679, 5.0
	for _, values := range [][]any{{records.Float(a), records.Float(b), records.Float(c)}, {records.Float(c), records.Float(a), records.Float(b)}, {records.Float(a), nil, records.Float(b), records.Float(a)}} {
		for i, text := range texts(history.Difference{Kind: "metric", Values: values}) {
			want := "-"
			if f, is := values[i].(records.Float); is {
				want = f.String()
			}
			if text != want {
				t.Errorf("%v: %q", values, text)
			}
		}
	}
	if short := texts(history.Difference{Kind: "metric", Values: []any{records.Float(a), records.Float(c), records.Float(a)}}); len(short[0]) >= len(fmt.Sprint(a)) || short[0] != short[2] {
		t.Errorf("%q", short)
	}
}
