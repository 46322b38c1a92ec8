package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"drun/engine"
	"drun/engine/board"
	"drun/internal/exit"
)

// replicas compares the parameters of optimizers that have equal ones on several ranks before their first step. An
// update that leaves them different means that gradients are not averaged, the commonest mistake in data-parallel
// training: an error where a loader divides the samples among the ranks, otherwise a warning.
type replicas struct {
	began   map[optimizer]map[int]uint64 // digests by rank
	open    map[moment]map[int]uint64    // not of all ranks yet
	agreed  map[optimizer]int64          // steps after which they were equal
	divides map[optimizer][]int          // see engine.Replica
	apart   map[optimizer]bool           // a difference was found
}

// optimizer is one that each rank has.
type optimizer struct {
	file      string
	line, col int32
	id        uint64
	first     int // of the ranks among which the samples are divided
}

type moment struct {
	optimizer
	steps, update int64
}

// mostOpen limits the moments of ranks that make different numbers of updates.
const mostOpen = 10000

// add takes what a rank reports, and returns what differs: nil while nothing does.
func (r *replicas) add(rank, world int, told []engine.Replica) (d *difference) {
	if r.began == nil {
		*r = replicas{map[optimizer]map[int]uint64{}, map[moment]map[int]uint64{}, map[optimizer]int64{}, map[optimizer][]int{}, map[optimizer]bool{}}
	}
	for _, t := range told {
		o, ranks := optimizer{t.File, t.Line, t.Col, t.ID, -1}, world
		if t.Divides != nil {
			o.first, ranks = slices.Min(t.Divides), len(t.Divides)
			r.divides[o] = t.Divides
		}
		m := moment{o, t.Steps, t.Update}
		if t.Steps == 0 {
			o.first = -1 // the loader may be made later
			put(r.began, o, rank, t.Sum)
		} else if put(r.open, m, rank, t.Sum); len(r.open[m]) == ranks {
			d = cmp.Or(d, r.judge(m))
		} else if len(r.open) > mostOpen {
			clear(r.open)
		}
	}
	return d
}

func put[K comparable](of map[K]map[int]uint64, key K, rank int, sum uint64) {
	if of[key] == nil {
		of[key] = map[int]uint64{}
	}
	of[key][rank] = sum
}

// rest judges the moments that not all ranks have reported, once all have returned.
func (r *replicas) rest() (d *difference) {
	order := func(a, b moment) int {
		return cmp.Or(cmp.Compare(a.steps, b.steps), cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.col, b.col), cmp.Compare(a.id, b.id), cmp.Compare(a.first, b.first))
	}
	for _, m := range slices.SortedFunc(maps.Keys(r.open), order) {
		d = cmp.Or(d, r.judge(m))
	}
	return d
}

// difference is a pair of ranks whose parameters were equal and no longer are.
type difference struct {
	moment
	ranks   [2]int
	agreed  int64
	divided bool
	odd     int // the only rank that differs from all others; -1: which are right cannot be told
}

func (r *replicas) judge(m moment) *difference {
	sums := r.open[m]
	delete(r.open, m)
	whole := m.optimizer
	whole.first = -1
	if r.apart[m.optimizer] {
		return nil
	}
	equal := map[uint64]int{} // the lowest rank, by its first digest
	for _, rank := range slices.Sorted(maps.Keys(sums)) {
		began, known := r.began[whole][rank]
		first, other := equal[began]
		switch {
		case !known:
		case !other:
			equal[began] = rank
		case sums[first] != sums[rank]:
			r.apart[m.optimizer] = true
			return &difference{m, [2]int{first, rank}, r.agreed[m.optimizer], r.divides[m.optimizer] != nil, oddOf(sums)}
		}
	}
	r.agreed[m.optimizer] = max(r.agreed[m.optimizer], m.steps)
	return nil
}

// oddOf is the rank whose digest alone differs, where at least two others agree; -1: there is none.
func oddOf(sums map[int]uint64) (odd int) {
	count := map[uint64]int{}
	for _, sum := range sums {
		count[sum]++
	}
	odd = -1
	for rank, sum := range sums {
		if len(count) == 2 && len(sums) > 2 && count[sum] == 1 {
			odd = rank
		}
	}
	return odd
}

// apart is the failure of ranks whose parameters were equal until a step, in a run that is audited: a processor computed
// wrongly after the gradients were averaged.
func (c *coordinator) apart(d *difference) *engine.Failure {
	before := fmt.Sprintf("after update %d", d.agreed)
	if d.agreed == 0 {
		before = "before the first update"
	}
	of := "the parameters"
	if d.update > 0 {
		of = "the optimizers' states" // which a save has compared
	}
	what := fmt.Sprintf("%s of ranks %d and %d, which were equal %s, differ after update %d", of, d.ranks[0], d.ranks[1], before, d.steps)
	f := &engine.Failure{Rank: d.odd, Code: exit.RankLost, When: board.Now(), Doubt: &engine.Doubt{}}
	if f.Rank < 0 {
		f.Rank = board.Observer
		what += ": a processor of one of them computed wrongly"
	} else {
		what = fmt.Sprintf("%s, which were equal on all ranks %s, differ from those of all others after update %d: a processor of this rank computed wrongly", of, before, d.steps)
	}
	f.Message, f.Traceback = c.bundle.Fault(d.file, d.line, d.col, what)
	return f
}

// told fails the run, or warns, because of a difference between ranks; nil is none.
func (c *coordinator) told(d *difference) {
	if d == nil || !c.ended.IsZero() {
		return
	}
	if c.Audit > 0 && (d.agreed > 0 || d.odd >= 0) { // of ranks that do not average, each differs from all others
		c.fail(c.apart(d))
		return
	}
	when := fmt.Sprintf("since an update between %d and %d", d.agreed+1, d.steps)
	if d.agreed+1 == d.steps {
		when = fmt.Sprintf("since update %d", d.steps)
	}
	what := fmt.Sprintf("ranks %d and %d have different parameters %s: gradients are not averaged", d.ranks[0], d.ranks[1], when)
	const hint = "dist.sync_grad(model.parameters()) before each step, or dist.ddp(model), averages them; local = True, given to the optimizer, says that each rank trains a model of its own"
	f := &engine.Failure{Rank: board.Observer, Code: exit.Recipe, When: board.Now(), Permanent: true, Hint: hint}
	f.Message, f.Traceback = c.bundle.Fault(d.file, d.line, d.col, what)
	if d.divided && c.Replay == nil {
		c.fail(f)
		return
	}
	c.console.Note("drun: warning: " + f.Message + " (" + hint + ")")
}
