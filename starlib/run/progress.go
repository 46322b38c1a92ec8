package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"drun/history/records"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// progressEvery is the shortest time between two updates of the bar.
const progressEvery = 50 * time.Millisecond

func (r *Run) progress(c *starlib.Call) (starlark.Value, error) {
	items := c.Arg("items").(starlark.Iterable)
	if r.rank.Rank != 0 {
		return items, nil
	}
	return &progress{Iterable: items, run: r, label: c.String("label")}, nil
}

// progress is an iterable that reports how far a loop over it has come.
type progress struct {
	starlark.Iterable
	run   *Run
	label string
}

var _ starlark.Sequence = (*progress)(nil)

func (p *progress) String() string { return "progress(" + p.Iterable.String() + ")" }
func (p *progress) Type() string   { return "progress" }

// Len returns the number of items, or -1 if it is unknown.
func (p *progress) Len() int { return max(-1, starlark.Len(p.Iterable)) }

func (p *progress) Iterate() starlark.Iterator {
	it := &progressIterator{Iterator: p.Iterable.Iterate(), p: p, total: int64(p.Len())}
	for _, outer := range p.run.loops {
		it.within += strings.TrimSuffix(strings.TrimSpace(fmt.Sprintf("%s %d/%d", outer.p.label, outer.n, outer.total)), "/-1") + " "
	}
	p.run.loops = append(p.run.loops, it)
	return it
}

type progressIterator struct {
	starlark.Iterator
	p        *progress
	within   string // the loops around it
	n, total int64
	shown    time.Time
}

func (it *progressIterator) Next(v *starlark.Value) bool {
	if !it.Iterator.Next(v) {
		return false
	}
	if now := time.Now(); now.Sub(it.shown) >= progressEvery {
		it.shown = now
		it.report(false)
	}
	it.n++
	return true
}

func (it *progressIterator) Done() {
	it.report(true)
	it.p.run.loops = slices.DeleteFunc(it.p.run.loops, func(other *progressIterator) bool { return other == it })
	it.Iterator.Done()
}

func (it *progressIterator) report(finished bool) {
	it.p.run.recorder.Progress(records.Progress{Label: it.within + it.p.label, Current: it.n, Total: it.total, Finished: finished})
}
