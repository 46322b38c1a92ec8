package sweep

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/exit"
)

// Sweep is a set of cells to run.
type Sweep struct {
	// Options are those of every cell, without what the cell adds to Params and, as -p, to Command. Signals go to
	// all running cells; those that end a run also keep further cells from starting.
	Options        run.Options
	Cells          []Cell
	Seeds          []int64 // of each cell; nil: that of Options
	PerCombination int     // how many cells in a row differ only in their seeds; 0 is 1
	Jobs           int     // cells at a time, at least 1
	// Start runs a cell; nil: [run.Run], which may find that another process has run it meanwhile.
	Start func(o run.Options) (*run.Result, error)
	// Halving ends cells early that are worse than others; nil: all run to the end. Of cells that differ only in their
	// seeds the first is compared; the others run after it, unless it was found worse, so that none is chosen by luck.
	Halving *Halving
}

// Outcome is the result of a cell.
type Outcome struct {
	Cell   Cell
	Seed   int64
	Result *run.Result // nil: the cell was not run
	Err    error       // why the cell could not be run
	// Stopped is after how many points of the metric the cell, or that of the same combination with the first seed, was
	// found worse than others, and ended if it still ran; 0: it was not.
	Stopped int

	earlier *run.Result // an interrupted run of the cell; nil: there is none, or it does not matter
}

// Done reports whether the cell has a finished run.
func (o *Outcome) Done() bool { return o.Result != nil && o.Result.Code == exit.Done }

// Plan finds the cells that have a finished run with the same bits, or one that was interrupted after it was found
// worse than others; the others have no Result. The error is that of the first cell whose recipe or parameters are
// invalid; nothing has then been started. The recipe is read here, once for all cells.
func (s *Sweep) Plan() ([]Outcome, error) {
	if err := s.Options.Read(); err != nil { // only once: somebody may edit the recipe while its cells run
		return nil, err
	}
	outcomes := make([]Outcome, len(s.Cells))
	eachOf(s.all(), func(i int) {
		o := s.options(i)
		outcomes[i].Cell, outcomes[i].Seed = s.Cells[i], o.Seed
		outcomes[i].Result, outcomes[i].Err = run.Reusable(o, exit.Done)
		if c := &outcomes[i]; s.Halving != nil && s.first(i) == i && c.Result == nil && c.Err == nil {
			c.earlier, c.Err = run.Reusable(o, exit.Interrupted)
		}
	}, runtime.NumCPU())
	for i := range outcomes {
		if outcomes[i].Err != nil {
			return nil, outcomes[i].Err
		}
	}
	j := newJudge(s, outcomes)
	defer j.close()
	for i := range outcomes {
		if o := &outcomes[i]; o.earlier != nil {
			if stopped := j.settle(i); stopped > 0 {
				o.Result, o.Stopped = o.earlier, stopped
			}
		}
	}
	if s.Halving != nil {
		j.conclude(outcomes)
		s.spread(outcomes)
	}
	return outcomes, nil
}

// first is the cell with the first seed of a cell's combination.
func (s *Sweep) first(i int) int { return i - i%max(s.PerCombination, 1) }

// spread stops the other seeds of combinations that are stopped.
func (s *Sweep) spread(plan []Outcome) {
	for i := range plan {
		plan[i].Stopped = plan[s.first(i)].Stopped
	}
}

func (s *Sweep) options(i int) run.Options {
	o := s.Options
	o.Params = append(append([]string{}, o.Params...), s.Cells[i]...)
	if s.Seeds != nil {
		o.Seed = s.Seeds[i]
	}
	o.Command = append(slices.Clone(o.Command), "--seed", strconv.FormatInt(o.Seed, 10))
	for _, p := range o.Params {
		o.Command = append(o.Command, "-p", p)
	}
	o.Stdout, o.Stderr, o.Signals, o.SeedGiven = io.Discard, io.Discard, nil, true
	if o.Threads == 0 {
		o.Threads = max(1, runtime.NumCPU()/(o.Nproc*max(s.Jobs, 1)))
	}
	return o
}

func (s *Sweep) all() []int { return each.UpTo(len(s.Cells), func(i int) int { return i }) }

// eachOf calls fn with the numbers of cells, in order, at most jobs at a time.
func eachOf(cells []int, fn func(i int), jobs int) {
	var g errgroup.Group
	g.SetLimit(max(jobs, 1))
	for _, i := range cells {
		g.Go(func() error { fn(i); return nil })
	}
	_ = g.Wait()
}

// Run runs the cells of a plan that have no result, and fills these in. ended is called for each cell that has
// ended, one at a time. interrupted reports whether a signal ended the sweep.
func (s *Sweep) Run(plan []Outcome, ended func(i int)) (interrupted bool) {
	over := make(chan struct{})
	var mu sync.Mutex // guards running, interrupted and ended
	running := map[int]chan os.Signal{}
	judge := newJudge(s, plan)
	defer judge.close()
	tell := func(i int, sig os.Signal) { // mu is held
		select {
		case running[i] <- sig:
		default: // it has already had two signals and is ending, or is not running
		}
	}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			select {
			case <-over:
				return
			case sig, ok := <-s.Options.Signals:
				if !ok {
					return
				}
				mu.Lock()
				interrupted = interrupted || run.Ends(sig)
				for i := range running {
					tell(i, sig)
				}
				mu.Unlock()
			}
		}
	})
	passing.Go(func() {
		judge.watch(over, func(i int) {
			mu.Lock()
			defer mu.Unlock()
			tell(i, syscall.SIGINT)
		})
	})
	var taken []int // by other sweeps, which may end them
	one := func(i int, wait bool) {
		o, signals := s.options(i), make(chan os.Signal, 2)
		release, err := history.Claim(o.Home, fmt.Sprintf("%q in %s", o.Command, o.Recipe))
		for ; release == nil && err == nil; release, err = history.Claim(o.Home, fmt.Sprintf("%q in %s", o.Command, o.Recipe)) {
			mu.Lock()
			if ending := interrupted; !wait || ending {
				taken = append(taken, i)
				mu.Unlock()
				return
			}
			mu.Unlock()
			time.Sleep(200 * time.Millisecond)
		}
		if release != nil { // without it, two sweeps may run the cell
			defer release()
		}
		mu.Lock()
		ending := interrupted || plan[i].Result != nil
		if !ending {
			running[i] = signals
		}
		mu.Unlock()
		if ending {
			return
		}
		if plan[i].earlier != nil {
			if stopped := judge.settle(i); stopped > 0 { // earlier runs have decided it
				mu.Lock()
				defer mu.Unlock()
				delete(running, i)
				plan[i].Result, plan[i].Stopped = plan[i].earlier, stopped
				ended(i)
				return
			}
		}
		o.Signals = signals
		start := s.Start
		if start == nil {
			start, o.Reuse = run.Run, true
		}
		entered := o.OnEntered
		o.OnEntered = func(id int64) {
			judge.began(i, id)
			if entered != nil {
				entered(id)
			}
		}
		result, err := start(o)
		stopped := judge.ended(i, result)
		if stopped > 0 {
			judge.note(result.ID, stopped)
		}
		mu.Lock()
		defer mu.Unlock()
		delete(running, i)
		plan[i].Result, plan[i].Err, plan[i].Stopped = result, err, stopped
		ended(i)
	}
	runAll := func(cells []int) {
		taken = nil
		eachOf(cells, func(i int) { one(i, false) }, s.Jobs)
		eachOf(slices.Sorted(slices.Values(taken)), func(i int) { one(i, true) }, s.Jobs)
	}
	if s.Halving == nil {
		runAll(s.all())
	} else {
		isFirst := func(i int) bool { return s.first(i) == i }
		runAll(slices.DeleteFunc(s.all(), func(i int) bool { return !isFirst(i) }))
		judge.conclude(plan)
		s.spread(plan)
		runAll(slices.DeleteFunc(s.all(), func(i int) bool { return isFirst(i) || plan[i].Stopped > 0 }))
	}
	close(over)
	passing.Wait()
	return interrupted
}

// Halving is successive halving without waiting (ASHA). When a cell has logged First points of a metric, then
// Factor times as many, and so on, its value there is compared with those of the earlier cells, in sweep order,
// that got that far. It goes on if it is in the best one-in-Factor of them; otherwise it is ended.
//
// Which cells are ended depends only on their values: a cell runs on until all earlier ones have reached that point
// or never will, and is judged only then. So the decisions do not depend on which cells were faster.
type Halving struct {
	Metric  string // of rank 0
	Largest bool   // the largest value is best, otherwise the smallest
	First   int
	Factor  int // at least 2
}

// better reports whether a is better than b. NaN is worse than everything else.
func (h *Halving) better(a, b float64) bool {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.IsNaN(b) && !math.IsNaN(a)
	}
	return h.Largest && a > b || !h.Largest && a < b
}

// contender is what is known about a cell.
type contender struct {
	run      int64 // 0: not begun
	over     bool  // no further values will come
	ended    bool  // the run has ended, and its last points are still to be read
	earlier  bool  // it is an interrupted run, which counts only if its points show that it was to be ended
	read     history.Cursor
	step     int64 // of the last point that counted; a rank that starts again logs its steps again
	points   int
	values   []float64 // at the rungs that it reached
	judged   int       // rungs after which it may go on
	stopped  int       // points at the rung after which it may not; 0: none
	reported bool
}

// judge decides which cells end early.
type judge struct {
	h    *Halving
	home string

	mu    sync.Mutex
	db    *history.DB // nil: it does not exist yet
	cells []contender
}

func newJudge(s *Sweep, plan []Outcome) *judge {
	j := &judge{h: s.Halving, home: s.Options.Home, cells: make([]contender, len(plan))}
	for i := range plan {
		if s.first(i) != i {
			j.cells[i] = contender{over: true} // not compared
		} else if r := plan[i].Result; r != nil {
			j.cells[i] = contender{run: r.ID, ended: true}
		} else if r := plan[i].earlier; r != nil {
			j.cells[i] = contender{run: r.ID, ended: true, earlier: true}
		}
	}
	return j
}

func (j *judge) began(i int, id int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cells[i].run = id
}

// ended notes the end of a cell's run, and returns where the run was stopped if the judge ended it.
func (j *judge) ended(i int, r *run.Result) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := &j.cells[i]
	c.ended = true
	if r != nil {
		c.run = r.ID
	}
	if r != nil && r.Code == exit.Interrupted && c.reported {
		return c.stopped
	}
	return 0
}

// conclude judges the cells that had finished before they could be ended, as if they had not.
func (j *judge) conclude(plan []Outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.read()
	for i := range plan {
		if plan[i].Done() {
			plan[i].Stopped = j.cells[i].stopped
		}
	}
}

// note says in the history why a run was interrupted. It may fail: the run is interrupted with or without that.
func (j *judge) note(run int64, stopped int) {
	if db, err := history.Open(j.home); err == nil {
		_ = db.EndEarly(run, fmt.Sprintf("worse than others of the sweep after %d points of %s", stopped, j.h.Metric))
		db.Close()
	}
}

// watch reads what the cells log and calls stop for those that are to end, until over is closed.
func (j *judge) watch(over <-chan struct{}, stop func(i int)) {
	if j.h == nil {
		return
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return
		case <-ticker.C:
		}
		for _, i := range j.look() {
			stop(i)
		}
	}
}

func (j *judge) close() {
	if j.db != nil {
		j.db.Close()
	}
}

// settle returns after how many points an interrupted run of a cell would be ended, judging by what is known now.
// 0: the run does not count, and the cell must be run.
func (j *judge) settle(i int) (stopped int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.read()
	c := &j.cells[i]
	if c.stopped == 0 {
		*c = contender{}
	}
	return c.stopped
}

// look reads new points, and returns the cells to be ended now.
func (j *judge) look() (stop []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.read()
	for i := range j.cells {
		if c := &j.cells[i]; c.stopped > 0 && !c.reported && !c.ended {
			c.reported = true
			stop = append(stop, i)
		}
	}
	return stop
}

// read reads new points and judges by them. mu is held.
func (j *judge) read() {
	if j.db == nil {
		j.db, _ = history.OpenReadOnly(j.home) // the first run creates it
	}
	if j.db == nil {
		return
	}
	for i := range j.cells {
		c := &j.cells[i]
		if c.over || c.run == 0 {
			c.over = c.over || c.ended
			continue
		}
		ended := c.ended // read before the points, so that these are then complete
		// If points are read again, those at later steps count.
		read, err := j.db.Tail(c.run, c.read, history.Names{Some: []string{j.h.Metric}}, func() {}, func(p *records.Point) { j.add(c, p) })
		if err != nil {
			continue // it is read again next time
		}
		c.read, c.over = read, ended
	}
	j.decide()
}

func (j *judge) add(c *contender, p *records.Point) {
	if p.Rank != 0 || c.points > 0 && p.Step <= c.step {
		return
	}
	c.points++
	c.step = p.Step
	if c.points == j.rung(len(c.values)) {
		c.values = append(c.values, p.Value)
	}
}

// rung returns the number of points at comparison k, from 0.
func (j *judge) rung(k int) int {
	n := j.h.First
	for range k {
		if n > math.MaxInt/j.h.Factor {
			return math.MaxInt
		}
		n *= j.h.Factor
	}
	return n
}

func (j *judge) decide() {
	for i := range j.cells {
		c := &j.cells[i]
		for c.stopped == 0 && c.judged < len(c.values) {
			k := c.judged
			better, all, known := 0, 1, true
			for p := range j.cells[:i] {
				before := &j.cells[p]
				switch {
				case before.stopped > 0 && len(before.values) <= k, before.stopped > 0 && j.rung(k) > before.stopped:
				case before.judged >= k && len(before.values) > k:
					all++
					if j.h.better(before.values[k], c.values[k]) {
						better++
					}
				case before.over && !before.earlier && before.judged == len(before.values):
				default:
					known = false
				}
			}
			if !known {
				break
			}
			if better < (all+j.h.Factor-1)/j.h.Factor {
				c.judged++
			} else {
				c.stopped = j.rung(k)
			}
		}
	}
}
