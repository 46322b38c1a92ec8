package worker

import (
	"cmp"
	"maps"
	"slices"

	"drun/engine"
	"drun/starlib"

	"github.com/zeebo/xxh3"
	"go.starlark.net/syntax"
)

// replicas tells the coordinator digests of the parameters that should be equal on all ranks: of all of them before an
// optimizer's first step, and after steps 1, 2, 4, 8 and so on, at each save and at the end of main of as many as one
// update digests anyway.
type replicas struct {
	rank    *starlib.Rank
	digests *digests
	tell    func([]engine.Replica) error
	latest  map[syntax.Position]engine.Replica // after steps that have not been told; of optimizers made at one place, the last
}

func (r *replicas) begin(of *starlib.Replica, params [][]byte) error {
	if r.rank.WorldSize == 1 {
		return nil
	}
	var sum uint64
	for _, p := range params {
		sum = xxh3.HashSeed(p, sum) + uint64(len(p))
	}
	return r.tell([]engine.Replica{r.replica(of, 0, sum)})
}

func (r *replicas) stepped(of *starlib.Replica, params [][]byte) error {
	switch n := of.Steps; {
	case r.rank.WorldSize == 1:
	case n&(n-1) == 0:
		delete(r.latest, of.At)
		return r.tell([]engine.Replica{r.replica(of, 0, digestOf(params, n))})
	default:
		if r.latest == nil {
			r.latest = map[syntax.Position]engine.Replica{}
		}
		r.latest[of.At] = r.replica(of, r.rank.Updates, r.digests.latest)
	}
	return nil
}

// flush tells what has not been told.
func (r *replicas) flush() error {
	if len(r.latest) == 0 {
		return nil
	}
	list := slices.SortedFunc(maps.Values(r.latest), func(a, b engine.Replica) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	clear(r.latest)
	return r.tell(list)
}

func (r *replicas) replica(of *starlib.Replica, update int64, sum uint64) engine.Replica {
	return engine.Replica{File: of.At.Filename(), Line: of.At.Line, Col: of.At.Col, ID: xxh3.HashStringSeed(of.Calls, uint64(of.Nth)), Steps: of.Steps, Update: update, Sum: sum, Divides: r.rank.Divides}
}
