package debug

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"drun/engine"
)

// differ finds the first moment at which an expression has different values on ranks. Ranks that run alike change it as often
// between two calls of all of them. Where one changes it and another does not, they differ once both have gone on to the next
// call, or stand at the same line.
func (c *Console) differ(ctx context.Context, expr string) string {
	ranks := c.living()
	ends := c.changes(ctx, ranks, expr, First)
	first, other, at := ranks[0], -1, difference{}
	for _, rank := range ranks[1:] {
		if d := compare(ends[first], ends[rank]); d.is && (other < 0 || d.calls < at.calls) {
			other, at = rank, d
		}
	}
	if other < 0 {
		most := slices.MaxFunc(ranks, func(a, b int) int { return len(ends[a].Met) - len(ends[b].Met) })
		if len(ends[most].Met) == 0 {
			return expr + " has had no value on any rank yet"
		}
		return expr + " has had the same values on all ranks so far" + asFar(ends[most].Met)
	}
	changes := func(rank, n int) (list []engine.Met) { // the one of the difference, if the rank has it
		for _, m := range ends[rank].Met {
			if m.Calls == at.calls {
				list = append(list, m)
			}
		}
		return list[min(n, len(list)):min(n+1, len(list))]
	}
	text := fmt.Sprintf("%s differs first between rank %d and rank %d: ", expr, first, other)
	a, b := changes(first, at.n), changes(other, at.n)
	switch {
	case len(a) == 0:
		text += fmt.Sprintf("rank %d did not change it, and rank %d did at %s", first, other, c.at(other, b[0]))
	case len(b) == 0:
		text += fmt.Sprintf("rank %d did not change it, and rank %d did at %s", other, first, c.at(first, a[0]))
	default:
		text += "at " + c.at(other, b[0])
	}
	to := map[int]engine.Moment{}
	for _, rank := range ranks {
		for _, m := range changes(rank, at.n) {
			to[rank] = m.Moment
		}
	}
	maps.Copy(c.found[len(c.found)-1].to, to)
	if len(a) > 0 && len(b) > 0 && (a[0].Line != b[0].Line || a[0].Updates != b[0].Updates) {
		text += fmt.Sprintf("\nrank %d was at %s", first, c.at(first, a[0]))
	}
	return text
}

// difference is the nth change after so many calls of all ranks.
type difference struct {
	is    bool
	calls int64
	n     int
}

// compare finds the first difference between the changes of an expression on two ranks, as far as both are known.
func compare(a, b *engine.Stopped) difference {
	until := min(known(a), known(b))
	together := a.Calls == b.Calls && slices.EqualFunc(a.Frames, b.Frames, func(f, g engine.DebugFrame) bool { return f.Func == g.Func && f.Line == g.Line })
	left := [2][]engine.Met{a.Met, b.Met}
	var value [2]engine.Met // the latest ones
	for len(left[0])+len(left[1]) > 0 {
		calls := int64(-1)
		for _, list := range left {
			if len(list) > 0 && (calls < 0 || list[0].Calls < calls) {
				calls = list[0].Calls
			}
		}
		var now [2][]engine.Met
		for i, list := range left {
			n := len(list)
			if more := slices.IndexFunc(list, func(m engine.Met) bool { return m.Calls > calls }); more >= 0 {
				n = more
			}
			if now[i], left[i] = list[:n], list[n:]; n > 0 {
				value[i] = list[n-1]
			}
		}
		both := min(len(now[0]), len(now[1]))
		for n := range both {
			if now[0][n].Value != now[1][n].Value {
				return difference{true, calls, n}
			}
		}
		if calls >= until {
			break
		}
		over := together || calls < a.Calls && calls < b.Calls
		if len(now[0]) != len(now[1]) && over && value[0].Value != value[1].Value {
			return difference{true, calls, both}
		}
	}
	return difference{}
}

// known is the number of calls from which on changes may not have been kept.
func known(s *engine.Stopped) int64 {
	if len(s.Met) < engine.MetAtMost {
		return s.Calls + 1
	}
	return s.Met[len(s.Met)-1].Calls
}
