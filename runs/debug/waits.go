package debug

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/history"
	"drun/history/records"
	"drun/internal/try"
)

func (c *Console) waits(ctx context.Context, _ string) string {
	list := try.To(c.calls(ctx))
	if list == nil {
		return "the ranks have not started, or have ended"
	}
	ranks := c.Now().Ranks
	var lines []string
	for _, r := range list {
		text := doing(r.Rank, ranks[r.Rank])
		if ranks[r.Rank].State != Ended && r.Call != "" && r.State == "waiting" {
			text = fmt.Sprintf("rank %d: waits in %s at %s", r.Rank, r.Call, r.Position)
			if missing := missing(r, list); missing != nil {
				text += ", for rank " + strings.Join(missing, ", ")
			}
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

// calls are those in which the ranks are, as the board says; nil: there are none.
func (c *Console) calls(ctx context.Context) (_ []records.RankState, err error) {
	w := c.shown()
	db, err := history.OpenReadOnly(w.home)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	s, err := db.Doing(ctx, w.id)
	if s == nil {
		return nil, err
	}
	return s.Ranks, err
}

// missing lists the ranks that have not come to a collective in which one waits.
func missing(r records.RankState, all []records.RankState) (list []string) {
	for _, other := range all {
		if other.Rank != r.Rank && !reached(other, r.Group, r.Number) {
			list = append(list, strconv.Itoa(other.Rank))
		}
	}
	return list
}

// reached reports whether a rank has come to a collective of a group, as far as its latest calls tell, or does not belong to it.
func reached(r records.RankState, group uint32, number uint64) bool {
	belongs := group == 0
	for _, p := range append(r.Recent, records.PastCall{Group: r.Group, Number: r.Number}) {
		if p.Group == group && p.Number >= number {
			return true
		}
		belongs = belongs || p.Group == group
	}
	return !belongs
}

// released waits until ranks go on whose wait is over, or is for nobody who is still to come, and reports whether there were some.
func (c *Console) released(ctx context.Context) bool {
	ranks := c.Now().Ranks
	list, _ := c.calls(ctx) // without an answer, the present may be back already
	var soon []int
	for _, r := range list {
		if ranks[r.Rank].State == Waits && (r.State != "waiting" || r.Number > 0 && missing(r, list) == nil) {
			soon = append(soon, r.Rank)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, circling)
	defer cancel()
	err := c.await(ctx, func() bool {
		w := c.shown()
		return w.over || !slices.ContainsFunc(soon, func(rank int) bool { return w.ranks[rank].State == Waits })
	})
	return soon != nil && err == nil
}
