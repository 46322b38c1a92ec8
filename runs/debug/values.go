package debug

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/engine"
	"drun/internal/try"
)

func (c *Console) print(ctx context.Context, expr string) string {
	c.frame()
	return try.To(c.value(ctx, c.Rank, c.Frame, expr)).Text
}

func (c *Console) value(ctx context.Context, rank, frame int, expr string) (v engine.DebugValue, err error) {
	list, err := c.Look(ctx, rank, engine.Look{Frame: frame, Expr: expr})
	if err == nil {
		v = list[0]
	}
	return v, err
}

func scope(name string) func(*Console, context.Context, string) string {
	return func(c *Console, ctx context.Context, _ string) string {
		c.frame()
		var lines []string
		for _, v := range try.To(c.Look(ctx, c.Rank, engine.Look{Frame: c.Frame, Scope: name})) {
			lines = append(lines, v.Name+" = "+v.Text)
		}
		return cmp.Or(strings.Join(lines, "\n"), "there are none")
	}
}

// across shows an expression on all ranks that stand still, in the call of the same function.
func (c *Console) across(ctx context.Context, expr string) string {
	try.Ok(c.checkExpression(expr, nil))
	frame := c.frame()
	var lines []string
	var all []seen
	for rank, r := range c.Now().Ranks {
		if r.State != Held {
			lines = append(lines, fmt.Sprintf("rank %d: does not stand still", rank))
			continue
		}
		at, who := slices.IndexFunc(r.Stop.Frames, func(f engine.DebugFrame) bool { return f.Func == frame.Func && f.At == frame.At }), fmt.Sprintf("rank %d", rank)
		if at < 0 && len(r.Stop.Frames) > 0 {
			who += ", in " + r.Stop.Frames[0].Func
		}
		at = max(at, 0)
		v, err := c.value(ctx, rank, at, expr)
		if err != nil {
			lines = append(lines, fmt.Sprintf("%s: %v", who, err))
			continue
		}
		all = append(all, seen{rank, at, v})
		lines = append(lines, fmt.Sprintf("%s: %s", who, v.Text))
	}
	differs := slices.IndexFunc(all, func(s seen) bool { return s.Digest != all[0].Digest })
	switch left := len(lines) - len(all); {
	case differs > 0:
		lines = append(lines, fmt.Sprintf("they differ: rank %d and rank %d%s", all[0].rank, all[differs].rank, c.difference(ctx, expr, all[0], all[differs])))
	case left == 0:
		lines = append(lines, "they are equal")
	case len(all) > 1:
		lines = append(lines, fmt.Sprintf("those of %d ranks are equal", len(all)))
	}
	return strings.Join(lines, "\n")
}

// seen is a value that a rank has in one of its calls.
type seen struct {
	rank, frame int
	engine.DebugValue
}

// difference says in which element the tensors of two ranks differ first. Their digests tell which half that is in.
func (c *Console) difference(ctx context.Context, expr string, a, b seen) string {
	if a.Shape == nil || a.Type != b.Type {
		return ""
	}
	part := func(s seen, from, to int) engine.DebugValue {
		return try.To(c.value(ctx, s.rank, s.frame, fmt.Sprintf("(%s).flatten()[%d:%d]", expr, from, to)))
	}
	from, to := 0, 1
	for _, n := range a.Shape {
		to *= n
	}
	for to-from > 1 {
		if half := (from + to) / 2; part(a, from, half).Digest != part(b, from, half).Digest {
			to = half
		} else {
			from = half
		}
	}
	at := make([]string, len(a.Shape))
	for i, n := len(at)-1, from; i >= 0; i-- {
		at[i] = strconv.Itoa(n % a.Shape[i])
		n /= a.Shape[i]
	}
	item := func(s seen) string {
		return try.To(c.value(ctx, s.rank, s.frame, fmt.Sprintf("(%s).flatten()[%d].item()", expr, from))).Text
	}
	return fmt.Sprintf(", first at element [%s]: %s and %s", strings.Join(at, ", "), item(a), item(b))
}
