package ui

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/try"
)

// A history keeps the points of all metrics of a run in the order of recording, so reading one metric reads all of
// them. The server therefore keeps the metrics shown most recently in memory, and reads only what follows.
const (
	pointsInMemory = 2_500_000 // 24 bytes each
	fewPoints      = 500_000   // for a run with more, only the metrics that are shown are kept
)

// series is a metric of a run in the order of recording.
type series struct {
	step, at []int64 // at: microseconds since 1970
	rank     []int32 // nil: all are of rank 0
	value    []float64

	notFinite int // number of such values

	// reading changes if the points were read again from the start, not only extended.
	reading int64
}

func (s *series) add(p *records.Point) {
	if p.Rank != 0 && s.rank == nil {
		s.rank = make([]int32, len(s.step), cap(s.step))
	}
	s.step, s.at, s.value = append(s.step, p.Step), append(s.at, p.Time.UnixMicro()), append(s.value, p.Value)
	if s.rank != nil {
		s.rank = append(s.rank, int32(p.Rank))
	}
	if p.Value-p.Value != 0 {
		s.notFinite++
	}
}

// held is what the cache keeps of a run.
type held struct {
	mu      sync.Mutex
	names   history.Names
	cursor  history.Cursor
	reading int64
	stamp   history.Stamp
	taken   time.Time
	read    bool
	series  map[string]*series
	points  int

	used int64 // guarded by the cache's mutex
	size int   // likewise: number of points when last used
}

// key identifies a run, or one metric of a run with many points.
type key struct {
	run    int64
	metric string
}

// readings counts how often points were read from the start.
var readings atomic.Int64

type cache struct {
	mu   sync.Mutex
	most int // points to keep
	held map[key]*held
	uses int64
}

func newCache(most int) *cache { return &cache{most: most, held: map[key]*held{}} }

// with calls fn with a metric in its current state; nil if the run lacks it.
func (c *cache) with(db *history.DB, home string, run int64, metric string, fn func(*series)) (err error) {
	defer try.Caught(&err)
	k, h := c.find(run, metric)
	if h == nil {
		k, h = c.enter(db, run, metric)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now, taken := history.StampOf(home), time.Now()
	if !h.read || h.stamp != now || !h.stamp.Settled(h.taken) {
		cursor, err := db.Tail(run, h.cursor, h.names, func() {
			h.series, h.points, h.reading = map[string]*series{}, 0, readings.Add(1)
		}, func(p *records.Point) {
			s := h.series[p.Name]
			if s == nil {
				s = &series{reading: h.reading}
				h.series[p.Name] = s
			}
			s.add(p)
			h.points++
		})
		if err != nil {
			h.cursor = history.Cursor{} // what was read in part is read again
			return err
		}
		h.cursor, h.stamp, h.taken, h.read = cursor, now, taken, true
	}
	c.drop(k, h, h.points)
	fn(h.series[metric])
	return nil
}

func (c *cache) find(run int64, metric string) (key, *held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range []key{{run, ""}, {run, metric}} {
		if h := c.held[k]; h != nil {
			return k, h
		}
	}
	return key{}, nil
}

// enter makes an entry for a run, or for one of its metrics if it has many points.
func (c *cache) enter(db *history.DB, run int64, metric string) (key, *held) {
	points := int64(0)
	for _, r := range try.To(db.Select(history.Selection{IDs: []int64{run}, Metrics: history.Names{All: true}})) {
		for _, m := range r.Metrics {
			points += m.Count
		}
	}
	k, names := key{run, ""}, history.Names{All: true}
	if points > fewPoints && metric != "" {
		k, names = key{run, metric}, history.Names{Some: []string{metric}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held[k]
	if h == nil {
		h = &held{names: names, series: map[string]*series{}}
		c.held[k] = h
	}
	return k, h
}

// drop records that h was used, and drops the least recently used entries while there are too many points.
func (c *cache) drop(k key, h *held, points int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses++
	h.used, h.size = c.uses, points
	if c.held[k] == nil {
		c.held[k] = h // another request may have dropped it while this one read
	}
	for {
		sum, oldest := 0, key{}
		for k, o := range c.held {
			sum += o.size
			if o != h && o.size > 0 && (c.held[oldest] == nil || o.used < c.held[oldest].used) {
				oldest = k
			}
		}
		if sum <= c.most || c.held[oldest] == nil {
			return
		}
		delete(c.held, oldest)
	}
}

// line is a metric of one run along an axis. If several ranks logged a step, or one did several times, it has their
// mean with the smallest and the largest.
type line struct {
	x, y, low, high []float64 // low and high: nil if each step has only one value
}

// along places a series along an axis: "step", "time" in seconds since 1970, or "relative" in seconds since the
// start.
func (s *series) along(axis string, started time.Time) *line {
	x := make([]float64, len(s.step))
	if axis == "step" {
		ascending := true
		for i, step := range s.step {
			x[i] = float64(step)
			ascending = ascending && (i == 0 || step > s.step[i-1])
		}
		if ascending { // most are, which saves merging and sorting
			return &line{x: x, y: s.value}
		}
	} else {
		from := int64(0)
		if axis == "relative" {
			from = started.UnixMicro()
		}
		for i, at := range s.at {
			x[i] = float64(at-from) / 1e6
		}
	}
	l := &line{x: x, y: s.value}
	if axis == "step" || s.rank != nil {
		l = s.merged(x)
	}
	if !slices.IsSorted(l.x) {
		l = l.choose(ordered(l.x))
	}
	return l
}

// merged merges the points of the same step into one, at the position of the first.
func (s *series) merged(x []float64) *line {
	order := []int(nil) // nil: unchanged
	if !slices.IsSorted(s.step) {
		order = ordered(s.step)
	}
	at := func(i int) int {
		if order == nil {
			return i
		}
		return order[i]
	}
	l := &line{}
	if order == nil && !repeats(s.step) {
		l.x, l.y = x, s.value
		return l
	}
	for i := 0; i < len(s.step); {
		first := at(i)
		from, sum, low, high, n := x[first], 0.0, math.Inf(1), math.Inf(-1), 0
		for ; i < len(s.step) && s.step[at(i)] == s.step[first]; i++ {
			v := s.value[at(i)]
			from, sum, n = min(from, x[at(i)]), sum+v, n+1
			low, high = min(low, v), max(high, v) // NaN if any value is
		}
		l.x, l.y = append(l.x, from), append(l.y, sum/float64(n))
		l.low, l.high = append(l.low, low), append(l.high, high)
	}
	return l
}

func repeats(steps []int64) bool {
	for i := 1; i < len(steps); i++ {
		if steps[i] == steps[i-1] {
			return true
		}
	}
	return false
}

// ordered returns the indexes that sort values in ascending order; equal values keep their order.
func ordered[V cmp.Ordered](values []V) []int {
	order := each.UpTo(len(values), func(i int) int { return i })
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	return order
}

// choose keeps the points with these indexes.
func (l *line) choose(at []int) *line {
	pick := func(from []float64) []float64 {
		if from == nil {
			return nil
		}
		return each.Of(at, func(k int) float64 { return from[k] })
	}
	return &line{pick(l.x), pick(l.y), pick(l.low), pick(l.high)}
}

// smoothed returns, for each point, the mean of the points up to it, in which a point's weight falls by the factor w with each that
// follows. Values that are not finite stay as they are and have no weight.
func smoothed(y []float64, w float64) []float64 {
	to := make([]float64, len(y))
	mean, weight := 0.0, 0.0
	for i, v := range y {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			to[i] = v
			continue
		}
		mean, weight = w*mean+(1-w)*v, w*weight+(1-w)
		to[i] = mean / weight
	}
	return to
}

// within returns the range of points between from and to, with one more on each side, to which the line leads.
func (l *line) within(from, to float64) (first, end int) {
	first, _ = slices.BinarySearch(l.x, from)
	end, _ = slices.BinarySearch(l.x, math.Nextafter(to, math.Inf(1)))
	return max(first-1, 0), max(min(end+1, len(l.x)), max(first-1, 0))
}
