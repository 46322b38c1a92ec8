// Package forecast tells how long a recipe's steps would take on more ranks than there are here. A few
// steps are run on this machine, and what a rank computes between its collectives is measured; then
// the same steps are gone through with the times that a model of drun's collectives gives for other
// numbers of ranks and a link between the nodes. The command line's `drun forecast` calls it.
package forecast

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"drun/collective"
	"drun/engine"
	"drun/engine/run"
	"drun/internal/exit"
	"drun/internal/scratch"
)

// Measured is what a recipe's steps consist of.
type Measured struct {
	Ranks int     `json:"ranks"`
	Steps int     `json:"steps"`
	Calls []Calls `json:"calls"` // of a step, the most bytes first
	Costs Costs   `json:"costs"`

	steps [][]engine.Moment
}

// Calls are a step's collectives that are made at one place with one size.
type Calls struct {
	Op    string  `json:"op"`
	Bytes int     `json:"bytes"`
	Ranks int     `json:"ranks"`
	Count float64 `json:"count"` // a step
	At    string  `json:"at"`
}

// Forecast is how a step goes on so many ranks.
type Forecast struct {
	Ranks         int     `json:"ranks"`
	Nodes         int     `json:"nodes"`
	Step          float64 `json:"step"`          // seconds
	Compute       float64 `json:"compute"`       // of these
	Communication float64 `json:"communication"` // the rest: what a rank waits for collectives
	Efficiency    float64 `json:"efficiency"`    // compute/step: the throughput of a rank, beside one that is alone
}

// warm are the steps before those that count.
const warm = 3

// Measure runs some steps of a recipe.
func Measure(o run.Options, steps int) (*Measured, error) {
	all, err := profile(o, warm, steps)
	if err != nil {
		return nil, err
	}
	m := &Measured{Ranks: all.World, Steps: len(all.Steps), steps: all.Steps}
	if m.Steps == 0 {
		return nil, exit.WithHint(exit.Errorf(exit.Recipe, "%s made fewer than %d steps: there is nothing to measure", o.Recipe, warm+1),
			"a step is an optimizer's or, in a recipe without one, a call of run.log")
	}
	if err := m.count(); err != nil {
		return nil, err
	}
	m.Costs = Costs{Ranks: m.Ranks, Message: 50e-6}
	return m, m.calibrate(o)
}

// profile gives the moments of rank 0.
func profile(o run.Options, skip, steps int) (p engine.Profiled, err error) {
	temporary, err := scratch.Make("forecast-")
	if err != nil {
		return p, err
	}
	defer temporary.Remove()
	folder := temporary.Path
	o.Home, o.Name, o.Resume = filepath.Join(folder, "home"), "", ""
	o.Profile = &engine.Profile{Dir: folder, Skip: skip, Steps: steps}
	r, err := run.Run(o)
	if err != nil {
		return p, err
	}
	data, err := os.ReadFile(o.Profile.File(0))
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.Failure != nil: // else it is of another rank, which came later
		return p, exit.Errorf(r.Code, "%s\n%s", r.Failure.Message, r.Failure.Traceback)
	case err != nil:
		return p, err
	}
	return p, json.Unmarshal(data, &p)
}

// count sums up the calls, and refuses those that there is no model for.
func (m *Measured) count() error {
	found := map[Calls]int{}
	for _, step := range m.steps {
		for _, moment := range step {
			switch kindOf(moment.Kind) {
			case collective.NoKind, collective.NewGroup:
			case collective.Send, collective.Recv:
				return exit.WithHint(exit.Errorf(exit.Recipe, "%s: a step has messages between two ranks (%s), which the model does not know", moment.At, moment.Kind),
					"a forecast is of recipes whose ranks meet in collectives")
			default:
				found[Calls{Op: moment.Kind, Bytes: moment.Bytes, Ranks: moment.Ranks, At: moment.At}]++
			}
		}
	}
	for c, n := range found {
		c.Count = float64(n) / float64(m.Steps)
		m.Calls = append(m.Calls, c)
	}
	sort.Slice(m.Calls, func(i, j int) bool {
		a, b := m.Calls[i], m.Calls[j]
		if a.Bytes != b.Bytes {
			return a.Bytes > b.Bytes
		}
		return a.Op+a.At < b.Op+b.At
	})
	return nil
}

func kindOf(name string) collective.Kind {
	for k := collective.AllReduce; k <= collective.NewGroup; k++ {
		if k.String() == name {
			return k
		}
	}
	return collective.NoKind
}

const calibration = `def main():
    small, large = tensor.ones(1), tensor.ones(1 << 20)
    for i in range(23):
        for t in [small, large]:
            dist.barrier()
            dist.all_reduce(t)
        run.log(i = i)
`

// calibrate measures the collectives of shared memory.
func (m *Measured) calibrate(o run.Options) error {
	if m.Ranks < 2 {
		return nil
	}
	temporary, err := scratch.Make("forecast-")
	if err != nil {
		return err
	}
	defer temporary.Remove()
	recipe := filepath.Join(temporary.Path, "calibration.star")
	if err := os.WriteFile(recipe, []byte(calibration), 0o600); err != nil {
		return err
	}
	p, err := profile(run.Options{Recipe: recipe, Nproc: m.Ranks, Threads: o.Threads, Timeout: o.Timeout, Grace: o.Grace, Exe: o.Exe,
		Signals: o.Signals, Stdout: io.Discard, Stderr: io.Discard, Version: o.Version}, warm, 20)
	if err != nil {
		return err
	}
	var small, large []float64
	for _, step := range p.Steps {
		for _, moment := range step {
			switch {
			case moment.Kind != collective.AllReduce.String():
			case moment.Bytes == 4:
				small = append(small, moment.Took)
			default:
				large = append(large, moment.Took/float64(moment.Bytes))
			}
		}
	}
	if len(small) == 0 || len(large) == 0 {
		return errors.New("the collectives of shared memory could not be measured")
	}
	m.Costs.Call, m.Costs.PerByte = median(small), median(large)
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// Predict goes through the steps on so many ranks, perNode on each node, and gives the median.
func (m *Measured) Predict(ranks, perNode int, link Link) Forecast {
	link.Bandwidth *= payload
	model := &Model{Link: link, Costs: m.Costs, PerNode: perNode}
	all := make([]Forecast, len(m.steps))
	for i, step := range m.steps {
		f := Forecast{Ranks: ranks, Nodes: (ranks + perNode - 1) / perNode}
		f.Step, f.Compute = m.replay(step, ranks, model)
		f.Communication = f.Step - f.Compute
		if f.Efficiency = 1; f.Step > 0 {
			f.Efficiency = f.Compute / f.Step
		}
		all[i] = f
	}
	slices.SortFunc(all, func(a, b Forecast) int {
		switch {
		case a.Step < b.Step:
			return -1
		case a.Step > b.Step:
			return 1
		}
		return 0
	})
	return all[len(all)/2]
}

// replay goes through a step. Calls are carried out one after the other, in the order in which they
// were started; an asynchronous one while the rank computes.
func (m *Measured) replay(step []engine.Moment, ranks int, model *Model) (now, compute float64) {
	free := 0.0               // when the call before is over
	ends := map[int]float64{} // of asynchronous calls
	for _, moment := range step {
		now += moment.Compute
		compute += moment.Compute
		if moment.Waits != 0 {
			now = max(now, ends[moment.Waits])
		}
		kind := kindOf(moment.Kind)
		if kind == collective.NoKind || kind == collective.NewGroup {
			continue
		}
		members := moment.Ranks
		if members == m.Ranks {
			members = ranks
		}
		bytes := float64(moment.Bytes)
		if kind == collective.ReduceScatter {
			bytes *= float64(moment.Ranks) // what a rank gives in all
		}
		free = max(free, now) + model.call(kind, bytes, members)
		if moment.Async != 0 {
			ends[moment.Async] = free
		} else {
			now = free
		}
	}
	return now, compute
}

// Check finds what is wrong with the numbers of a forecast.
func Check(ranks []int, perNode int) error {
	for _, n := range ranks {
		if n < 1 || n > 1<<20 {
			return fmt.Errorf("%d ranks: want 1 to %d", n, 1<<20)
		}
	}
	if perNode < 1 {
		return fmt.Errorf("%d ranks a node: want at least 1", perNode)
	}
	return nil
}
