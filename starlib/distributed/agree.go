package distributed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// agree checks that all ranks call a helper with compatible arguments, which key describes. If they do not, every
// rank gets an error: what differs, then one line per rank with its text; if text is nil, the key is shown.
func (g *Group) agree(ctx *collective.WaitLimit, key []byte, at collective.Origin, what string, text func() string) error {
	texts, err := g.compare(ctx, key, text, at)
	if err != nil || texts == nil {
		return err
	}
	return g.disagree(what, texts)
}

// compare returns all ranks' texts on every rank if their keys differ, else nil. It costs one small collective if they are
// equal.
func (g *Group) compare(ctx *collective.WaitLimit, key []byte, text func() string, at collective.Origin) (texts []string, err error) {
	at = at.In(collective.Step)
	if same, err := g.sameHash(ctx, fnv(key), at); same || err != nil {
		return nil, err
	}
	texts, _, err = g.gatherTexts(ctx, key, text, at)
	return texts, err
}

func (g *Group) sameHash(ctx *collective.WaitLimit, h uint64, at collective.Origin) (bool, error) {
	sums, err := g.gatherSizes(ctx, int64(h), nil, dtype.None, at)
	return !slices.ContainsFunc(sums, func(s int64) bool { return uint64(s) != h }), err
}

// gatherTexts returns all ranks' texts on every rank, and whether their keys are equal.
func (g *Group) gatherTexts(ctx *collective.WaitLimit, key []byte, text func() string, at collective.Origin) (texts []string, equal bool, err error) {
	defer try.Caught(&err)
	if text == nil {
		text = func() string { return string(key) }
	}
	const digits = 16
	own := fmt.Appendf(nil, "%016x%s\x00%s", fnv(key), at.Pos, text())
	all := try.To(g.gatherBytes(ctx, own, everyone, at))
	texts, g.places, equal = make([]string, len(all)), make([]string, len(all)), true
	for r, said := range all {
		equal = equal && bytes.Equal(said[:digits], own[:digits])
		g.places[r], texts[r], _ = strings.Cut(string(said[digits:]), "\x00")
	}
	// The barrier ensures that all ranks have the texts before one of them ends the run because of them; its error
	// would add nothing.
	_ = g.do(ctx, collective.NewBarrier(), at)
	return texts, equal, nil
}

// compareWith is compare followed by the calls. If the backend can compare keys as part of the first call, equal ones
// cost nothing. layout is a hash of how the calls divide the data, which may differ between ranks: then alike is false,
// and the calls must follow from the key alone.
func (g *Group) compareWith(ctx *collective.WaitLimit, key []byte, text func() string, layout uint64, at collective.Origin, calls func(alike bool) error) (texts []string, err error) {
	at = at.In(collective.Step)
	h := fnv(key) ^ layout
	if collective.VerifiesArguments(g.comm) {
		g.arguments = max(1, h)
		if err = calls(true); err == nil && g.arguments != 0 { // the calls exchanged nothing on this rank
			err = g.do(ctx, collective.NewBarrier(), at)
		}
		g.arguments = 0
		if !errors.Is(err, collective.ErrArguments) {
			return nil, err
		}
	} else if same, err := g.sameHash(ctx, h, at); err != nil {
		return nil, err
	} else if same {
		return nil, calls(true)
	}
	texts, equal, err := g.gatherTexts(ctx, key, text, at)
	if err != nil || !equal {
		return texts, err
	}
	// Either the layouts differ or the calls themselves do; in the latter case the first call, made by itself, reports it.
	if err = calls(false); err == nil {
		err = g.do(ctx, collective.NewBarrier(), at)
	}
	return nil, err
}

// disagree makes the error that every rank gets after compare has found a
// difference: what differs, then one line per rank.
func (g *Group) disagree(what string, lines []string) error {
	var b strings.Builder
	b.WriteString(what)
	for i, line := range lines {
		fmt.Fprintf(&b, "\n  rank %d: %s", g.ranks[i], line)
		if len(slices.Compact(slices.Clone(g.places))) > 1 { // otherwise all ranks are where the error says
			fmt.Fprintf(&b, ", at %s", g.places[i])
		}
	}
	return &DisagreementError{b.String()}
}

// AgreeOnState checks that all ranks save, or restore, the same state.
func (w *World) AgreeOnState(c *starlib.Call, key, what string) error {
	return w.all.agree(w.within, []byte(key), origin(c), what, nil)
}

// Sum adds a number over the ranks of a group (None: the world), for builtins of other modules.
func (w *World) Sum(c *starlib.Call, group starlark.Value, x float64) (float64, error) {
	g := w.all
	if group != starlark.None {
		var ok bool
		if g, ok = group.(*Group); !ok || g.own < 0 {
			return 0, fmt.Errorf("argument group: want a group that this rank is in, got %s", group)
		}
	}
	sum := []float64{x}
	err := sumFloats(g, c, w.within, sum)
	return sum[0], err
}

// Any reports whether the flag is set on some rank, for builtins of other modules.
func (w *World) Any(c *starlib.Call, flag bool) (bool, error) {
	set := []uint8{0}
	if flag {
		set[0] = 1
	}
	err := w.all.do(w.within, collective.NewAllReduce(collective.Of(set), dtype.Max), origin(c).In(collective.Step))
	return set[0] != 0, err
}

// fnv returns a hash like FNV-1a, eight bytes at a time as far as possible.
func fnv(data []byte) uint64 {
	h := uint64(14695981039346656037)
	for ; len(data) >= 8; data = data[8:] {
		h = (h ^ binary.LittleEndian.Uint64(data)) * 1099511628211
		h ^= h >> 32
	}
	for _, b := range data {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}
