package check

import (
	"math/rand/v2"
	"testing"
)

// Pages that are copied, changed and merged in any order hold what maps would.
func TestPages(t *testing.T) {
	type pair struct {
		tree *pages[int]
		want map[int]int
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := 1 << (1 + r.IntN(12))
		all := []pair{{&pages[int]{}, map[int]int{}}}
		for range 300 {
			p := all[r.IntN(len(all))]
			switch i := r.IntN(limit); r.IntN(6) {
			case 0:
				if len(all) < 8 {
					c, held := p.tree.clone(), map[int]int{}
					for k, v := range p.want {
						held[k] = v
					}
					all = append(all, pair{&c, held})
				}
			case 1:
				other := all[r.IntN(len(all))]
				changed := false
				for k, v := range other.want {
					if mine, ok := p.want[k]; !ok || v > mine {
						p.want[k], changed = v, true
					}
				}
				// The greater of two, in a place of its own: what is equal counts as unchanged.
				if got := p.tree.merge(other.tree, func(a, b *int) bool { return *a == *b }, func(a, b *int) *int {
					if *b > *a {
						v := *b
						return &v
					}
					return a
				}); got != changed {
					t.Fatalf("seed %d: merge says %v, not %v", seed, got, changed)
				}
			case 2:
				p.tree.set(i, nil)
				delete(p.want, i)
			default:
				v := r.IntN(100)
				p.tree.set(i, &v)
				p.want[i] = v
			}
			for n, p := range all {
				for _, i := range []int{r.IntN(limit), r.IntN(limit), limit + r.IntN(1<<20)} {
					got := p.tree.get(i)
					if want, ok := p.want[i]; ok != (got != nil) || ok && *got != want {
						t.Fatalf("seed %d, pages %d: %d is %v, not %d (%v)", seed, n, i, got, want, ok)
					}
				}
			}
		}
		for n, p := range all {
			for i := range limit {
				got := p.tree.get(i)
				if want, ok := p.want[i]; ok != (got != nil) || ok && *got != want {
					t.Fatalf("seed %d, pages %d: %d is %v, not %d (%v)", seed, n, i, got, want, ok)
				}
			}
		}
	}
}
