package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"drun/history"
	"drun/history/records"
)

// plotted runs drun plot on metrics of these values, one run each.
func plotted(t *testing.T, flags string, values ...[]float64) string {
	t.Helper()
	home := t.TempDir()
	db, err := history.Open(home)
	ok(t, err)
	args := []string{"plot"}
	for i, list := range values {
		name := string(rune('a' + i))
		r, err := db.Begin(history.RunInfo{Name: name, Recipe: "a.star", WorldSize: 1, Backend: "shm", Started: time.Unix(1000, 0)})
		ok(t, err)
		b := &history.Batch{}
		for step, v := range list {
			b.Points = append(b.Points, records.Point{Name: "m\x1b[31m", Step: int64(step), Value: v, Time: time.Unix(1000+10*int64(step), 0)})
		}
		ok(t, r.Write(b))
		args = append(args, name)
	}
	ok(t, db.Close())
	out, errs, code := drun(append(append(args, "m\x1b[31m", "--home", home), strings.Fields(flags)...)...)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	return out
}

func TestPlot(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	out := plotted(t, "--width 20 --height 4", []float64{0, 1, 2}, []float64{2, 1, 0})
	if !strings.HasPrefix(out, "m\\x1b[31m over step\n   2 ┼") || !strings.Contains(out, "\n   0 ┼**") || !strings.Contains(out, "* 1 a: 3 points\n+ 2 b: 3 points\n") {
		t.Error(out)
	}
	for name, values := range map[string][]float64{
		"huge": {-math.MaxFloat64, math.MaxFloat64}, "tiny": {5e-324, 0}, "close": {1, math.Nextafter(1, 2), 1}, "one": {7}, "same": {3, 3, 3},
		"holes": {nan, 1, inf, -inf, 2, nan}, "large steps": {1e300, 1e-300},
	} {
		out := plotted(t, "--width 30 --height 5", values)
		if lines := strings.Count(out, "\n"); lines < 4 || lines > 12 || strings.Contains(out, "NaN") {
			t.Errorf("%s:\n%s", name, out)
		}
	}
	if out := plotted(t, "--width 30", []float64{nan, 1, inf}); !strings.Contains(out, "3 points, 2 of them not shown: not finite\n") {
		t.Error(out)
	}
	out = plotted(t, "--log --time --width 40 --height 4", []float64{100, 1, 0.01, 0, -5})
	if !strings.Contains(out, "over seconds\n  100 ┼") || !strings.Contains(out, "\n    1 ┤") || !strings.Contains(out, " 0.01 ") || !strings.Contains(out, "2 of them not shown: not finite, or not above 0") || !strings.Contains(out, " 40\n") {
		t.Error(out)
	}
	var shown []struct{ X, Value float64 }
	ok(t, json.Unmarshal([]byte(plotted(t, "--log --time --width 20 --json", []float64{100, 1, 0.01})), &shown))
	if first, last := shown[0], shown[len(shown)-1]; first.X != 0 || first.Value != 100 || last.X < 18 || math.Abs(last.Value-0.01) > 1e-12 {
		t.Errorf("a logarithmic chart from %v to %v, of values from 100 at 0 s to 0.01 at 20 s", first, last)
	}
}
