package sweep

import (
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"drun/engine/run"
	"drun/internal/exit"
)

// Sweep is a set of cells to run.
type Sweep struct {
	// Options are those of every cell, without what the cell adds to Params and, as -p, to Command. Signals go to
	// all running cells; those that end a run also keep further cells from starting.
	Options run.Options
	Cells   []Cell
	Jobs    int // cells at a time, at least 1
	// Halving ends cells early that are worse than others; nil: all run to the end.
	Halving *Halving
}

// Outcome is the result of a cell.
type Outcome struct {
	Cell   Cell
	Result *run.Result // nil: the cell was not run
	Err    error       // why the cell could not be run
	// Stopped is after how many points of the metric the cell was found worse than others, and ended if it still
	// ran; 0: it was not.
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
	s.each(func(i int) {
		o := s.options(i)
		outcomes[i].Cell = s.Cells[i]
		outcomes[i].Result, outcomes[i].Err = run.Reusable(o, exit.Done)
		if c := &outcomes[i]; s.Halving != nil && c.Result == nil && c.Err == nil {
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
	return outcomes, nil
}

func (s *Sweep) options(i int) run.Options {
	o := s.Options
	o.Params = append(append([]string{}, o.Params...), s.Cells[i]...)
	o.Command = slices.Clone(o.Command)
	for _, p := range o.Params {
		o.Command = append(o.Command, "-p", p)
	}
	o.Stdout, o.Stderr, o.Signals, o.SeedGiven = io.Discard, io.Discard, nil, true
	if o.Threads == 0 {
		o.Threads = max(1, runtime.NumCPU()/(o.Nproc*max(s.Jobs, 1)))
	}
	return o
}

// each calls fn with the number of each cell, in order, at most jobs at a time.
func (s *Sweep) each(fn func(i int), jobs int) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(jobs, 1))
	for i := range s.Cells {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			fn(i)
		})
	}
	wg.Wait()
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
		default: // it already has two signals and is ending, or is not running
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
	s.each(func(i int) {
		o, signals := s.options(i), make(chan os.Signal, 2)
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
		o.Reuse = true // another process may have run it meanwhile
		o.OnEntered = func(id int64) { judge.began(i, id) }
		result, err := run.Run(o)
		stopped := judge.ended(i, result)
		mu.Lock()
		defer mu.Unlock()
		delete(running, i)
		plan[i].Result, plan[i].Err, plan[i].Stopped = result, err, stopped
		ended(i)
	}, s.Jobs)
	close(over)
	passing.Wait()
	return interrupted
}
