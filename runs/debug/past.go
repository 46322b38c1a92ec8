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
	"drun/internal/try"
)

func (c *Console) back(ctx context.Context, args string) string {
	ranks := c.ranksOf(args)
	if rank, is := c.Failed(); is {
		c.Rank = rank
	} else {
		c.stop()
	}
	try.Ok(c.StepBack(ctx, c.Rank, ranks, c.Say))
	if ranks != nil {
		return c.alone(ctx, ranks)
	}
	return c.after(ctx)
}

// after waits a moment for all ranks of a repetition to come to a stop.
func (c *Console) after(ctx context.Context) string {
	soon, cancel := context.WithTimeout(ctx, together)
	defer cancel()
	_ = c.Settle(soon, nil)
	return c.here()
}

func (c *Console) reverse(ctx context.Context, _ string) string {
	c.stop()
	if try.To(c.ReverseContinue(ctx, c.Rank, c.Say)) {
		return c.after(ctx)
	}
	return c.alone(ctx, []int{c.Rank})
}

// alone is after for a command that has taken some ranks back.
func (c *Console) alone(ctx context.Context, moved []int) string {
	text := c.after(ctx)
	if living := c.living(); len(living) > len(moved) {
		text += fmt.Sprintf("\nonly rank %s went back: the others are where they were, or wait on their way there", strings.Trim(strings.ReplaceAll(fmt.Sprint(moved), " ", ", "), "[]"))
	}
	return text
}

// found is a moment that a search has found.
type found struct {
	rank int
	to   map[int]engine.Moment // of that rank, and where others are to be then
}

func (c *Console) goBack(ctx context.Context, args string) string {
	n, _ := strconv.Atoi(args)
	if n < 1 || n > len(c.found) {
		refuse("no search has found a moment %s", args)
	}
	m := c.found[n-1]
	c.Rank = m.rank
	try.Ok(c.GoTo(ctx, m.rank, m.to, c.Say))
	return c.alone(ctx, slices.Sorted(maps.Keys(m.to)))
}

// at describes a moment, and numbers it for go.
func (c *Console) at(rank int, m engine.Met) string {
	text := fmt.Sprintf("%s:%d", m.File, m.Line)
	if m.Updates > 0 {
		text += fmt.Sprintf(", after update %d", m.Updates)
	}
	c.found = append(c.found, found{rank, map[int]engine.Moment{rank: m.Moment}})
	return text + fmt.Sprintf(" (go %d)\n%s", len(c.found), c.around(engine.DebugFrame{File: m.File, Line: m.Line}, 0))
}

// changes searches for changes of a value, and for operations whose results are not finite, by their breakpoints' numbers.
func (c *Console) changes(ctx context.Context, ranks []int, expr string, which Which, more ...engine.Breakpoint) []*engine.Stopped {
	f := c.frame()
	try.Ok(c.checkExpression(expr, c.Bundle.Lines(f.File, c.marks)))
	breaks := append(more, engine.Breakpoint{ID: ofValue, Changes: expr, Func: f.Func, At: f.At})
	return try.To(c.Search(ctx, ranks, breaks, which, c.Say))
}

const ofValue, ofOperation = 1, 2

func (c *Console) changed(ctx context.Context, expr string) string {
	which, verb := Last, "last changed"
	if rest, is := strings.CutPrefix(expr, "next "); is {
		which, verb, expr = Next, "changes next", strings.TrimSpace(rest)
	}
	list := c.changes(ctx, []int{c.Rank}, expr, which)[c.Rank].Met
	if which == Next {
		now, err := c.value(ctx, c.Rank, c.Frame, expr)
		list = slices.DeleteFunc(list, func(m engine.Met) bool { return err == nil && m.Value == now.Digest })
		list = list[:min(len(list), 1)]
	}
	switch {
	case len(list) == 0 && which == Next:
		return expr + " does not change between here and the present"
	case len(list) == 0:
		return expr + " has had no value yet"
	case list[len(list)-1].First && which == Last:
		verb = "got its value"
	}
	return fmt.Sprintf("%s %s on rank %d at %s", expr, verb, c.Rank, c.at(c.Rank, list[len(list)-1]))
}

// asFar says so if there may have been more breakpoints on the way.
func asFar(list []engine.Met) string {
	if len(list) < engine.MetAtMost {
		return ""
	}
	return fmt.Sprintf(", as far as its first %d changes tell", len(list))
}

func (c *Console) notFinite(ctx context.Context, expr string) string {
	operations := engine.Breakpoint{ID: ofOperation, NotFinite: true}
	if expr == "" {
		var lines []string
		ends := try.To(c.Search(ctx, c.living(), []engine.Breakpoint{operations}, First, c.Say))
		for _, rank := range c.living() {
			if list := ends[rank].Met; len(list) > 0 {
				lines = append(lines, fmt.Sprintf("rank %d: %s, at %s", rank, list[0].Text, c.at(rank, list[0])))
			}
		}
		return cmp.Or(strings.Join(lines, "\n"), "no operation has given NaN or an infinity so far")
	}
	list := c.changes(ctx, []int{c.Rank}, expr, First, operations)[c.Rank].Met
	i := slices.IndexFunc(list, func(m engine.Met) bool { return m.Break == ofValue && m.NotFinite })
	switch {
	case i < 0 && !slices.ContainsFunc(list, func(m engine.Met) bool { return m.Break == ofValue }):
		return expr + " has had no value yet"
	case i < 0:
		return expr + " has always been finite" + asFar(list)
	}
	text := fmt.Sprintf("%s was not finite first on rank %d at %s", expr, c.Rank, c.at(c.Rank, list[i]))
	for _, m := range list[:i] { // the first operation of the statement
		if m.Break == ofOperation && !m.Moment.Before(list[i].Moment) {
			return text + "\n" + m.Text
		}
	}
	return text
}

// living lists the ranks that have not ended.
func (c *Console) living() (list []int) {
	for rank, r := range c.Now().Ranks {
		if r.State != Ended {
			list = append(list, rank)
		}
	}
	return list
}
