package worker

import (
	"slices"

	"drun/engine"
	"drun/starlib"

	"github.com/zeebo/xxh3"
)

// replicas sends the coordinator digests of the parameters that should be equal on all ranks: one of all of them before
// an optimizer's first step; and after steps 1, 2, 4, 8 and so on, at each save and at the end of main, one of the part
// that an update digests anyway. They go with the rank's next message, as digests do.
type replicas struct {
	rank    *starlib.Rank
	digests *digests
	record  *recorder
	audit   bool             // digests of all parameters are sent after every step
	made    []*replica       // the latest of each place in the recipe
	pending []engine.Replica // guarded by digests.mu
}

// replica is an optimizer after its latest step.
type replica struct {
	*starlib.Replica
	update int64
	sum    uint64
	told   bool
}

func (r *replicas) begin(of *starlib.Replica, params []starlib.Memory) {
	if r.rank.WorldSize == 1 {
		return
	}
	r.made = append(slices.DeleteFunc(r.made, func(old *replica) bool { return old.At == of.At }), &replica{Replica: of, told: true})
	r.tell(of, 0, sumOf(params))
}

func (r *replicas) stepped(of *starlib.Replica, params []starlib.Memory) {
	for _, made := range r.made {
		if made.Replica != of {
			continue
		}
		n := of.Steps
		if r.audit {
			r.tell(of, 0, sumOf(params))
			return
		}
		if made.told = n&(n-1) == 0; made.told {
			r.tell(of, 0, digestOf(params, n))
		} else {
			made.update, made.sum = r.rank.Updates, r.digests.latest
		}
	}
}

// flush sends what has not been sent, and in an audit digests of the optimizers' states: a wrong one may show in the parameters only after
// it was saved.
func (r *replicas) flush() {
	for _, made := range r.made {
		if r.audit && made.State != nil {
			r.tell(made.Replica, r.rank.Updates, sumOf(made.State()))
		}
		if !made.told {
			made.told = true
			r.tell(made.Replica, made.update, made.sum)
		}
	}
	if len(r.made) > 0 {
		r.record.flush()
	}
}

func (r *replicas) tell(of *starlib.Replica, update int64, sum uint64) {
	r.digests.mu.Lock()
	defer r.digests.mu.Unlock()
	r.pending = append(r.pending, engine.Replica{File: of.At.Filename(), Line: of.At.Line, Col: of.At.Col, ID: xxh3.HashStringSeed(of.Calls, uint64(of.Nth)),
		Steps: of.Steps, Update: update, Sum: sum, Divides: r.rank.Divides})
}

func (r *replicas) taken() []engine.Replica {
	r.digests.mu.Lock()
	defer r.digests.mu.Unlock()
	pending := r.pending
	r.pending = nil
	return pending
}
