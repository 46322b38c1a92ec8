package distributed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"drun/collective"
	"drun/kernel/dtype"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// agree checks that all ranks call a helper with compatible arguments, which key
// describes. If they do not, every rank gets an error: what differs, then one line
// per rank with the text of its key.
func (g *Group) agree(ctx *collective.WaitLimit, key []byte, at collective.Origin, what string, text func(key []byte) string) error {
	keys, err := g.compare(ctx, key, at)
	if err != nil || keys == nil {
		return err
	}
	return g.differ(what, keys, text)
}

// differ is disagree with the texts of the ranks' keys.
func (g *Group) differ(what string, keys [][]byte, text func(key []byte) string) error {
	lines := make([]string, len(keys))
	for r, key := range keys {
		lines[r] = text(key)
	}
	return g.disagree(what, lines)
}

// compare returns all ranks' keys on every rank if they differ, else nil. It costs one small collective if they are equal.
func (g *Group) compare(ctx *collective.WaitLimit, key []byte, at collective.Origin) (keys [][]byte, err error) {
	return g.compareHash(ctx, fnv(key), key, at.In(collective.Step))
}

// compareHash returns all ranks' keys on every rank if the hashes differ, else nil.
func (g *Group) compareHash(ctx *collective.WaitLimit, h uint64, key []byte, at collective.Origin) (keys [][]byte, err error) {
	sums, err := g.gatherSizes(ctx, int64(h), nil, dtype.None, at)
	if err != nil {
		return nil, err
	}
	for _, s := range sums {
		if uint64(s) != h {
			return g.gatherKeys(ctx, key, at)
		}
	}
	return nil, nil
}

// gatherKeys returns all ranks' keys on every rank.
func (g *Group) gatherKeys(ctx *collective.WaitLimit, key []byte, at collective.Origin) (keys [][]byte, err error) {
	place := append([]byte(at.Pos.String()), 0)
	if keys, err = g.gatherBytes(ctx, append(place, key...), everyone, at); err == nil {
		g.places = make([]string, len(keys))
		for r, key := range keys {
			place, rest, _ := bytes.Cut(key, []byte{0})
			g.places[r], keys[r] = string(place), rest
		}
		// The barrier ensures that all ranks have the keys before one of them ends the run because of them; its error
		// would add nothing.
		_ = g.do(ctx, collective.NewBarrier(), at)
	}
	return keys, err
}

// compareWith is compare followed by the calls. If the backend can compare keys as part of the first call, equal ones
// cost nothing. layout is a hash of how the calls divide the data, which may differ between ranks: then alike is false,
// and the calls must follow from the key alone.
func (g *Group) compareWith(ctx *collective.WaitLimit, key []byte, layout uint64, at collective.Origin, calls func(alike bool) error) (keys [][]byte, err error) {
	at = at.In(collective.Step)
	h := fnv(key) ^ layout
	if collective.VerifiesArguments(g.comm) {
		g.arguments = max(1, h)
		if err = calls(true); err == nil && g.arguments != 0 { // nothing to exchange on this rank
			err = g.do(ctx, collective.NewBarrier(), at)
		}
		g.arguments = 0
		if !errors.Is(err, collective.ErrArguments) {
			return nil, err
		}
		keys, err = g.gatherKeys(ctx, key, at)
	} else if keys, err = g.compareHash(ctx, h, key, at); err == nil && keys == nil {
		return nil, calls(true)
	}
	if err != nil || slices.ContainsFunc(keys, func(other []byte) bool { return !bytes.Equal(other, key) }) {
		return keys, err
	}
	// The layouts differ, or the calls themselves: then the first call, made by itself, says so.
	if err = calls(false); err == nil {
		err = g.do(ctx, collective.NewBarrier(), at)
	}
	return nil, err
}

// agreeWith is agree followed by the calls, as in compareWith.
func (g *Group) agreeWith(ctx *collective.WaitLimit, key []byte, at collective.Origin, what string, text func(key []byte) string, calls func() error) error {
	keys, err := g.compareWith(ctx, key, 0, at, func(bool) error { return calls() })
	if err != nil || keys == nil {
		return err
	}
	return g.differ(what, keys, text)
}

// disagree makes the error that every rank gets after compare has found a
// difference: what differs, then one line per rank.
func (g *Group) disagree(what string, lines []string) error {
	var b strings.Builder
	b.WriteString(what)
	for i, line := range lines {
		fmt.Fprintf(&b, "\n  rank %d: %s", g.ranks[i], line)
		if len(slices.Compact(slices.Clone(g.places))) > 1 { // otherwise the error's own place is that of all ranks
			fmt.Fprintf(&b, ", at %s", g.places[i])
		}
	}
	return &DisagreementError{b.String()}
}

// AgreeOnSave checks that all ranks save the same step in the same way, before any of
// them does.
func (w *World) AgreeOnSave(c *starlib.Call, step int64, memory bool) error {
	key := fmt.Appendf(nil, "step %d", step)
	if memory {
		key = append(key, " in memory"...)
	}
	return w.all.agree(w.within, key, origin(c), "the ranks save different steps", func(key []byte) string { return string(key) })
}

// Sum adds a number over the ranks of a group (None: the world), for builtins of
// other modules.
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

// fnv is the FNV-1a hash, eight bytes at a time where it can.
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
