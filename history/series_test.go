package history

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"drun/history/records"
)

func TestColumns(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name     string
		points   []XY
		width    int
		from, to float64
		want     string
	}{
		{"one value a column", []XY{{0, 1}, {1, 2}, {2, 3}, {3, 4}}, 4, 0, 3, "[1 2 3 4]"},
		{"extremes in their order", []XY{{0, 5}, {1, 9}, {2, -3}, {3, 5}, {4, 1}, {5, 7}, {6, 0}}, 4, 0, 6, "[9 -3 7 0]"},
		{"one point", []XY{{3, 5}}, 4, 3, 3, "[5 5 NaN NaN]"},
		{"far apart", []XY{{0, 0}, {9, 5}}, 6, 0, 9, "[0 0 1.6666666666666665 3.333333333333333 5 5]"},
		{"begins later, ends sooner", []XY{{5, 2}}, 6, 0, 10, "[NaN NaN 2 2 NaN NaN]"},
		{"a hole", []XY{{0, 1}, {5, nan}, {10, 3}}, 6, 0, 10, "[1 1 NaN NaN 3 3]"},
		{"infinity beside values", []XY{{0, 1}, {0, inf}, {1, 2}, {10, 3}}, 4, 0, 10, "[1 2 3 3]"},
		{"nothing", nil, 4, 0, 1, "[NaN NaN NaN NaN]"},
		{"outside", []XY{{-1, 7}, {0, 1}, {1, 2}, {2, 7}}, 4, 0, 1, "[1 1 2 2]"},
	} {
		if got := fmt.Sprint(Columns(c.points, c.width, c.from, c.to)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	// A spike among a million points is seen.
	points := make([]XY, 1_000_000)
	for i := range points {
		points[i] = XY{float64(i), math.Sin(float64(i))}
	}
	points[654_321].Y, points[123_456].Y = 50, -60
	text := fmt.Sprint(Columns(points, 100, 0, 999_999))
	if !strings.Contains(text, " 50 ") || !strings.Contains(text, " -60 ") {
		t.Error(text)
	}
}

func TestPointsOfOneMetric(t *testing.T) {
	db := open(t, t.TempDir())
	r := begin(t, db, RunInfo{})
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "a", Step: 1, Value: 2}, {Name: "b", Step: 1, Value: 3}, {Name: "a", Step: 2, Rank: 1, Value: 4}}}}))
	got := ""
	points, err := db.Points(r.ID, "a")
	ok(t, err)
	for _, p := range points {
		got += fmt.Sprint(p.Step, p.Rank, p.Value, " ")
	}
	if got != "1 0 2 2 1 4 " {
		t.Error(got)
	}
	if _, err := db.Points(r.ID, "c"); err == nil || !strings.Contains(err.(*NotFound).Near, "it has: a, b") {
		t.Error(err)
	}
}
