package debug

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"drun/engine"
	agent "drun/engine/debug"
	"drun/internal/terminal"
	"drun/internal/try"
)

func (c *Console) print(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	try.Ok(c.checkExpression(expr, nil))
	try.To(c.frame())
	a := try.To(c.Look(ctx, c.Rank, engine.Look{Frame: c.Frame, Expr: expr}))
	return ShowValue(a.Values[0]), nil
}

func scope(name string) func(*Console, context.Context, string) (string, error) {
	return func(c *Console, ctx context.Context, _ string) (_ string, err error) {
		defer try.Caught(&err)
		try.To(c.frame())
		a := try.To(c.Look(ctx, c.Rank, engine.Look{Frame: c.Frame, Scope: name}))
		var lines []string
		for _, v := range a.Values {
			lines = append(lines, v.Name+" = "+ShowValue(v))
		}
		return cmp.Or(strings.Join(lines, "\n"), "there are none"), nil
	}
}

// ShowValue is a value in a line.
func ShowValue(v engine.DebugValue) string {
	t := v.Tensor
	if t == nil {
		text, _, more := strings.Cut(v.Text, "\n")
		if more {
			text += " …"
		}
		return terminal.Escape(text)
	}
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	var values []string
	for _, x := range t.Values {
		values = append(values, strconv.FormatFloat(x, 'g', 6, 64))
	}
	if n > len(t.Values) {
		values = append(values, "…")
	}
	text := fmt.Sprintf("%s [%s]", v.Type, strings.Join(values, " "))
	if !math.IsNaN(t.Min) {
		text += fmt.Sprintf(", min %.6g, max %.6g", t.Min, t.Max)
	}
	if t.NaN > 0 {
		text += fmt.Sprintf(", %d NaN", t.NaN)
	}
	if t.Inf > 0 {
		text += fmt.Sprintf(", %d infinite", t.Inf)
	}
	return text + fmt.Sprintf(", digest %016x", v.Digest)
}

// Compare shows an expression on all ranks that stand still, in the call of the same function.
func (c *Console) across(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	try.Ok(c.checkExpression(expr, nil))
	frame := try.To(c.frame())
	ranks := c.Ranks()
	values := make([]*engine.Debugged, len(ranks))
	frames := make([]int, len(ranks))
	var lines []string
	for rank, r := range ranks {
		if r.State != Held {
			lines = append(lines, fmt.Sprintf("rank %d: does not stand still", rank))
			continue
		}
		frames[rank] = max(0, slices.IndexFunc(r.Stop.Frames, func(f engine.DebugFrame) bool { return f.Func == frame.Func && f.At == frame.At }))
		a, err := c.Look(ctx, rank, engine.Look{Frame: frames[rank], Expr: expr})
		if err != nil {
			lines = append(lines, fmt.Sprintf("rank %d: %v", rank, err))
			continue
		}
		values[rank] = a
		lines = append(lines, fmt.Sprintf("rank %d: %s", rank, ShowValue(a.Values[0])))
	}
	first := slices.IndexFunc(values, func(a *engine.Debugged) bool { return a != nil })
	if first < 0 {
		return strings.Join(lines, "\n"), nil
	}
	var other []int
	for rank, a := range values {
		if a != nil && a.Values[0].Digest != values[first].Values[0].Digest {
			other = append(other, rank)
		}
	}
	if len(other) == 0 {
		return strings.Join(append(lines, "they are equal"), "\n"), nil
	}
	lines = append(lines, fmt.Sprintf("they differ: rank %d and rank %d%s", first, other[0], c.difference(ctx, expr, first, other[0], values, frames)))
	return strings.Join(lines, "\n"), nil
}

// difference says in which element the tensors of two ranks differ first.
func (c *Console) difference(ctx context.Context, expr string, a, b int, values []*engine.Debugged, frames []int) string {
	x, y := values[a].Values[0].Tensor, values[b].Values[0].Tensor
	if x == nil || y == nil || x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) {
		return ""
	}
	n := 1
	for _, d := range x.Shape {
		n *= d
	}
	per := agent.BlockSize(n)
	for i := range min(len(values[a].Blocks), len(values[b].Blocks)) {
		if values[a].Blocks[i] == values[b].Blocks[i] {
			continue
		}
		var parts [2][]float64
		for k, rank := range []int{a, b} {
			got, err := c.Look(ctx, rank, engine.Look{Frame: frames[rank], Expr: expr, From: i * per, Count: per})
			if err != nil {
				return ""
			}
			parts[k] = got.Numbers
		}
		for k := range min(len(parts[0]), len(parts[1])) {
			if p, q := parts[0][k], parts[1][k]; math.Float64bits(p) != math.Float64bits(q) {
				return fmt.Sprintf(", first at element %s: %v and %v", index(i*per+k, x.Shape), p, q)
			}
		}
	}
	return ""
}

// index is an element's place in a tensor of that shape, such as [2, 0].
func index(n int, shape []int) string {
	at := make([]string, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		at[i] = strconv.Itoa(n % shape[i])
		n /= shape[i]
	}
	return "[" + strings.Join(at, ", ") + "]"
}
