package debug

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"drun/engine"
	"drun/internal/exit"
	"drun/internal/try"
)

type foundAt struct {
	rank int
	engine.FoundMoment
	others map[int]engine.Moment // where other ranks are to be then
}

// remember numbers a moment for go.
func (c *Console) remember(rank int, m engine.FoundMoment) int {
	c.found = append(c.found, foundAt{rank: rank, FoundMoment: m})
	return len(c.found)
}

func (c *Console) goBack(ctx context.Context, args string) (_ string, err error) {
	defer try.Caught(&err)
	n, err := strconv.Atoi(args)
	if err != nil || n < 1 || n > len(c.found) {
		return "", exit.Errorf(exit.Usage, "no search has found a moment %s", args)
	}
	m := c.found[n-1]
	c.Rank = m.rank
	to := map[int]engine.Moment{m.rank: m.Moment}
	maps.Copy(to, m.others)
	try.Ok(c.GoTo(ctx, m.rank, to, c.Say))
	return c.after(ctx), nil
}

// at describes a moment.
func (c *Console) at(rank int, m engine.FoundMoment) string {
	text := fmt.Sprintf("%s:%d", m.File, m.Line)
	if m.Updates > 0 {
		text += fmt.Sprintf(", after update %d", m.Updates)
	}
	text += fmt.Sprintf(" (go %d)", c.remember(rank, m))
	return text + "\n" + c.around(m.File, int(m.Line), 0)
}

func (c *Console) changed(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	frame := try.To(c.frame())
	c.found = nil
	list := try.To(c.Changes(ctx, []int{c.Rank}, frame, expr, true, c.Say))[c.Rank]
	if len(list) == 0 {
		return expr + " has had no value yet", nil
	}
	m := list[len(list)-1]
	verb := "last changed"
	if len(list) == 1 {
		verb = "got its value"
	}
	return fmt.Sprintf("%s %s on rank %d at %s", expr, verb, c.Rank, c.at(c.Rank, m)), nil
}

func (c *Console) notFinite(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	c.found = nil
	if expr == "" {
		all := try.To(c.NotFinite(ctx, c.living(), c.Say))
		var lines []string
		for rank, list := range all {
			if len(list) > 0 {
				lines = append(lines, fmt.Sprintf("rank %d: %s, at %s", rank, list[0].Text, c.at(rank, list[0])))
			}
		}
		return cmp.Or(strings.Join(lines, "\n"), "no operation has given NaN or an infinity so far"), nil
	}
	frame := try.To(c.frame())
	list := try.To(c.Changes(ctx, []int{c.Rank}, frame, expr, false, c.Say))[c.Rank]
	i := slices.IndexFunc(list, func(m engine.FoundMoment) bool { return m.NotFinite })
	if i < 0 {
		return expr + " has always been finite", nil
	}
	text := fmt.Sprintf("%s was not finite first on rank %d at %s", expr, c.Rank, c.at(c.Rank, list[i]))
	if list[i].Text != "" {
		text += "\n" + list[i].Text
	}
	return text, nil
}

// living lists the ranks that have not ended.
func (c *Console) living() (list []int) {
	for rank, r := range c.Ranks() {
		if r.State != Ended {
			list = append(list, rank)
		}
	}
	return list
}

func (c *Console) differ(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	frame := try.To(c.frame())
	c.found = nil
	ranks := c.living()
	all := try.To(c.Changes(ctx, ranks, frame, expr, false, c.Say))
	for i := 0; ; i++ {
		first := -1
		for _, rank := range ranks {
			switch {
			case i >= len(all[rank]):
				return expr + " has had the same values on all ranks so far", nil
			case first < 0:
				first = rank
			case all[rank][i].Value != all[first][i].Value:
				text := fmt.Sprintf("%s differs first between rank %d and rank %d: at %s", expr, first, rank, c.at(rank, all[rank][i]))
				c.found[0].others = map[int]engine.Moment{}
				for _, r := range ranks {
					if i < len(all[r]) {
						c.found[0].others[r] = all[r][i].Moment
					}
				}
				if other := all[first][i]; other.Line != all[rank][i].Line || other.Updates != all[rank][i].Updates {
					text += fmt.Sprintf("\nrank %d was at %s", first, c.at(first, other))
				}
				return text, nil
			}
		}
	}
}
