package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"drun/history"
	"drun/history/records"
)

// made is a series of the points step, rank, value.
func made(points ...[3]float64) *series {
	s := &series{}
	for _, p := range points {
		s.add(&records.Point{Step: int64(p[0]), Rank: int(p[1]), Value: p[2], Time: time.Unix(int64(p[0])*10+int64(p[1]), 0)})
	}
	return s
}

func TestAlong(t *testing.T) {
	nan, started := math.NaN(), time.Unix(10, 0)
	for name, c := range map[string]struct {
		s            *series
		axis         string
		x, y, lo, hi string
	}{
		"one rank":          {made([3]float64{0, 0, 1}, [3]float64{1, 0, 2}), "step", "[0,1]", "[1,2]", "[]", "[]"},
		"ranks":             {made([3]float64{0, 0, 1}, [3]float64{0, 1, 3}, [3]float64{1, 1, 8}, [3]float64{1, 0, 4}), "step", "[0,1]", "[2,6]", "[1,4]", "[3,8]"},
		"ranks over time":   {made([3]float64{1, 0, 1}, [3]float64{1, 1, 3}), "relative", "[0]", "[2]", "[1]", "[3]"},
		"a rank apart":      {made([3]float64{1, 0, 1}, [3]float64{2, 0, 2}, [3]float64{1, 1, 3}), "step", "[1,2]", "[2,2]", "[1,2]", "[3,2]"},
		"NaN of one rank":   {made([3]float64{0, 0, 1}, [3]float64{0, 1, nan}), "step", "[0]", "[null]", "[null]", "[null]"},
		"logged twice":      {made([3]float64{5, 0, 1}, [3]float64{5, 0, 2}), "step", "[5]", "[1.5]", "[1]", "[2]"},
		"steps that return": {made([3]float64{5, 0, 1}, [3]float64{4, 0, 2}), "step", "[4,5]", "[2,1]", "[2,1]", "[2,1]"},
		"time of day":       {made([3]float64{3, 0, 7}), "time", "[30]", "[7]", "[]", "[]"},
	} {
		l := c.s.along(c.axis, started)
		for i, got := range [][]float64{l.x, l.y, l.low, l.high} {
			raw, err := json.Marshal(numbers(got))
			if want := []string{c.x, c.y, c.lo, c.hi}[i]; err != nil || string(raw) != want {
				t.Errorf("%s: part %d is %s, want %s (%v)", name, i, raw, want, err)
			}
		}
	}
}

// The page says how many points cannot be drawn: those that are NaN or infinite.
func TestNotFinite(t *testing.T) {
	s := made([3]float64{0, 0, math.NaN()}, [3]float64{1, 0, math.Inf(1)}, [3]float64{2, 0, math.Inf(-1)}, [3]float64{3, 0, math.MaxFloat64}, [3]float64{4, 0, 0})
	c := view{axis: "step", from: math.Inf(-1), to: math.Inf(1), points: 100}.of(s, &history.Summary{})
	raw, err := json.Marshal(c.Y)
	if want := "[null,null,null,1.7976931348623157e+308,0]"; err != nil || c.Points != 5 || c.NotFinite != 3 || string(raw) != want {
		t.Errorf("of %d points %d are not finite: %s, want %s (%v)", c.Points, c.NotFinite, raw, want, err)
	}
}

// A spike among 100,000 points is in the chart, also when it is zoomed out, and the zoomed part reaches over its ends.
func TestSpikesAreKept(t *testing.T) {
	s := &series{}
	for i := range 100_000 {
		v := math.Sin(float64(i))
		switch i {
		case 54_321:
			v = 100
		case 77_777:
			v = -100
		}
		s.add(&records.Point{Step: int64(i), Value: v, Time: time.Unix(int64(i), 0)})
	}
	v := view{axis: "step", from: math.Inf(-1), to: math.Inf(1), points: 400}
	c := v.of(s, &history.Summary{})
	if len(c.X) > 400 || slices.Max(c.Y) != 100 || slices.Min(c.Y) != -100 || c.X[0] != 0 || c.X[len(c.X)-1] != 99_999 {
		t.Errorf("%d points from %v to %v", len(c.X), slices.Min(c.Y), slices.Max(c.Y))
	}
	v.from, v.to = 1000.5, 1009.5
	if c = v.of(s, &history.Summary{}); c.X[0] != 1000 || c.X[len(c.X)-1] != 1010 || len(c.X) != 11 {
		t.Errorf("zoomed: %v", c.X)
	}
	v.from, v.to = 2e5, 3e5
	if c = v.of(s, &history.Summary{}); len(c.X) > 1 {
		t.Errorf("beyond the end: %v", c.X)
	}
}

func TestSmoothed(t *testing.T) {
	got := smoothed([]float64{1, math.NaN(), 3, math.Inf(1), 3}, 0.5)
	want := []float64{1, math.NaN(), (0.5*0.5*1 + 0.5*3) / 0.75, math.Inf(1), (0.25*0.5*1 + 0.25*3 + 0.5*3) / 0.875}
	for i := range want {
		if math.IsNaN(want[i]) != math.IsNaN(got[i]) || math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// A chart that adds what is new to what it has shows what it would show if it loaded everything: along each axis, smoothed or not, with
// ranks that log the same steps one after another, late, twice and in any order.
func TestNewPointsAreAdded(t *testing.T) {
	seed := time.Now().UnixNano()
	if text := os.Getenv("DRUN_TEST_SEED"); text != "" {
		seed, _ = strconv.ParseInt(text, 10, 64)
	}
	t.Logf("DRUN_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	run := &history.Summary{Started: time.Unix(5, 0)}
	added := 0
	for range 400 {
		ranks, back, clock := 1+random.IntN(3), random.IntN(4), int64(10)
		v := view{axis: []string{"step", "time", "relative"}[random.IntN(3)], from: math.Inf(-1), to: math.Inf(1), points: 1000}
		if random.IntN(2) == 0 {
			v.smooth = 0.7
		}
		s := &series{reading: 7}
		log := func(n int) {
			for range n {
				clock += random.Int64N(3)
				value := random.Float64()
				if random.IntN(20) == 0 {
					value = math.NaN()
				}
				s.add(&records.Point{Step: int64(len(s.step)/ranks) - int64(random.IntN(back+1)), Rank: random.IntN(ranks), Value: value, Time: time.Unix(clock, 0)})
			}
		}
		log(1 + random.IntN(20))
		shown := v.of(s, run)
		for range 5 {
			log(1 + random.IntN(6))
			want, news := v.of(s, run), v.after(stateOf(shown.Seen), s, run)
			if news == nil { // as where a band appears
				shown = want
				continue
			}
			added++
			keep, _ := slices.BinarySearch(shown.X, *news.Since)
			join := func(old, more numbers) numbers {
				if old == nil {
					return more
				}
				return append(slices.Clone(old[:keep]), more...)
			}
			if news.After != shown.Seen || news.Seen != want.Seen || news.Points != want.Points || news.NotFinite != want.NotFinite {
				t.Fatalf("%+v after %s, want %+v", news, shown.Seen, want)
			}
			for i, part := range [][3]numbers{{shown.X, news.X, want.X}, {shown.Y, news.Y, want.Y}, {shown.Low, news.Low, want.Low}, {shown.High, news.High, want.High}, {shown.Smooth, news.Smooth, want.Smooth}} {
				got, _ := json.Marshal(join(part[0], part[1]))
				if all, _ := json.Marshal(part[2]); string(got) != string(all) {
					t.Fatalf("part %d along %s with %d ranks is\n%s, want\n%s", i, v.axis, ranks, got, all)
				}
			}
			shown = want
		}
	}
	if added < 500 {
		t.Errorf("only %d times was anything added", added)
	}
	// What does not go on from these points is not added to.
	s := made([3]float64{0, 0, 1}, [3]float64{1, 0, 2})
	s.reading = 7
	v := view{axis: "step", from: math.Inf(-1), to: math.Inf(1), points: 1000}
	for _, seen := range []string{"-", "", "6.1.false", "7.1.true", "7.2.false", "7.3.false", "7.-1.false", "7.9999999999999999999.false", "7.1"} {
		if c := v.after(stateOf(seen), s, run); c != nil {
			t.Errorf("after %q: %+v", seen, c)
		}
	}
	if c := v.after(stateOf("7.1.false"), s, run); c == nil || len(c.X) != 1 {
		t.Errorf("%+v", c)
	}
}

// Along another metric, a point stands where that has its value at the same step, in its order; steps that it lacks are left out.
func TestOverMetric(t *testing.T) {
	home := t.TempDir()
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	r, err := db.Begin(history.RunInfo{Name: "one", Recipe: "r.star", WorldSize: 1})
	if err == nil {
		err = r.BeginAttempt()
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &history.Batch{End: &history.End{Status: history.Done}}
	for step, lr := range []float64{0.3, 0.1, math.NaN(), 0.2} {
		b.Points = append(b.Points, records.Point{Name: "lr", Step: int64(step), Value: lr, Exact: true, Time: time.Now()})
	}
	for step := range 5 {
		b.Points = append(b.Points, records.Point{Name: "loss", Step: int64(step), Value: float64(10 * step), Exact: true, Time: time.Now()})
	}
	if err := errors.Join(r.Write(b), db.Close()); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	for query, want := range map[string]string{"x=metric:lr": `"x":[0.1,0.2,0.3],"y":[10,30,0]`, "x=metric:none": `"x":[],"y":[]`, "x=metric:lr&group=name": `"x":[0.1,0.2,0.3],"y":[10,30,0]`} {
		if status, body, _ := get(t, c, base+"/api/v1/curves?run=1&metric=loss&"+query); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", query, status, body, want)
		}
	}
}

// The objective of a sweep is what its command judges by.
func TestObjective(t *testing.T) {
	for command, want := range map[string]string{"--minimize loss": "loss false", "--minimize=-acc": "acc true", "--early-stop -acc -p lr=1,2": "acc true", "--sort -metrics.acc.last": "acc true", "--sort metrics.val.min": "val false", "--sort name": " false", "-p lr=1,2": " false", "--minimize": " false"} {
		metric, largest := objective(strings.Fields("drun sweep r.star " + command))
		if got := fmt.Sprint(metric, " ", largest); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// A part of a line has the points at its ends, and one more on each side.
func TestWithin(t *testing.T) {
	l := &line{x: []float64{1, 2, 2, 3, 4, 5}}
	for _, c := range []struct {
		from, to   float64
		first, end int
	}{{2, 3, 0, 5}, {2.5, 3.5, 2, 5}, {2, 2, 0, 4}, {math.Inf(-1), math.Inf(1), 0, 6}, {6, 7, 5, 6}, {-1, 0, 0, 1}} {
		if first, end := l.within(c.from, c.to); first != c.first || end != c.end {
			t.Errorf("from %v to %v: %d to %d", c.from, c.to, first, end)
		}
	}
}
