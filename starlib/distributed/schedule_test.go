package distributed

import (
	"fmt"
	"math"
	"testing"
)

// played is what a schedule does if all turns take equally long and messages no time.
type played struct {
	length, held int
	stuck        error
}

// play lets the ranks of a pipeline take their turns as soon as what they wait for is there. A backward pass takes twice as
// long as a forward pass, unless it is done in halves.
func play(s schedule, ranks, chunks, micros int) (p played) {
	type key struct {
		pass
		stage, micro int
	}
	done := map[key]int{}
	lists, clock, held := make([][]turn, ranks), make([]int, ranks), make([]int, ranks)
	left := 0
	for r := range ranks {
		lists[r] = s.turns(r, ranks, chunks, micros)
		left += len(lists[r])
	}
	for left > 0 {
		before := left
		for r := range ranks {
			for len(lists[r]) > 0 {
				t := lists[r][0]
				stage := t.chunk*ranks + r
				if chunks == 1 {
					stage = r
				}
				needs, length := []key{}, 1
				switch t.pass {
				case forward:
					if stage > 0 {
						needs = append(needs, key{forward, stage - 1, t.micro})
					}
				case backward:
					needs = append(needs, key{forward, stage, t.micro})
					if stage < ranks*chunks-1 {
						needs = append(needs, key{backward, stage + 1, t.micro})
					}
					if t.micro > 0 {
						needs = append(needs, key{backward, stage, t.micro - 1}) // the order in which gradients are added
					}
					if !s.halves {
						length = 2
					}
				case weights:
					needs = append(needs, key{backward, stage, t.micro})
					if t.micro > 0 {
						needs = append(needs, key{weights, stage, t.micro - 1})
					}
				}
				at, ready := clock[r], true
				for _, k := range needs {
					end, is := done[k]
					ready = ready && is
					at = max(at, end)
				}
				if !ready {
					break
				}
				k := key{t.pass, stage, t.micro}
				if _, twice := done[k]; twice {
					p.stuck = fmt.Errorf("%v is done twice", k)
					return p
				}
				clock[r] = at + length
				done[k] = clock[r]
				switch {
				case t.pass == forward:
					held[r]++
					p.held = max(p.held, held[r])
				case t.pass == weights || !s.halves:
					held[r]--
				}
				p.length = max(p.length, clock[r])
				lists[r] = lists[r][1:]
				left--
			}
		}
		if left == before {
			p.stuck = fmt.Errorf("every rank waits: %v", lists)
			return p
		}
	}
	passes := 2
	if s.halves {
		passes = 3
	}
	if len(done) != passes*ranks*chunks*micros {
		p.stuck = fmt.Errorf("%d turns, want %d", len(done), passes*ranks*chunks*micros)
	}
	return p
}

func TestSchedules(t *testing.T) {
	for name, s := range schedules {
		for ranks := 1; ranks <= 6; ranks++ {
			for chunks := 1; chunks <= 4; chunks++ {
				if chunks > 1 && !s.interleaved {
					continue
				}
				for micros := 1; micros <= 19; micros++ {
					p := play(s, ranks, chunks, micros)
					if p.stuck != nil {
						t.Fatalf("%s, %d ranks, %d chunks, %d micro-batches: %v", name, ranks, chunks, micros, p.stuck)
					}
					work := 3 * chunks * micros
					share := 1 - float64(work)/float64(p.length)
					want := s.bubble(float64(ranks), float64(chunks), float64(micros))
					if micros%ranks == 0 && math.Abs(share-want) > 1e-12 {
						t.Errorf("%s, %d ranks, %d chunks, %d micro-batches: idle %.4f, formula %.4f", name, ranks, chunks, micros, share, want)
					}
					if name == "zero_bubble" && p.held > min(ranks, micros) {
						t.Errorf("zero_bubble, %d ranks, %d micro-batches: %d activations are held", ranks, micros, p.held)
					}
				}
			}
		}
	}
}
