package dist

import (
	"encoding/binary"
	"fmt"
	"time"

	"drun/collective"
	"drun/starlib"
	"drun/starlib/plain"

	"go.starlark.net/starlark"
)

// broadcastValue gives src's plain value to all ranks.
func (w *World) broadcastValue(c *starlib.Call, v starlark.Value, src int, limit time.Duration) (starlark.Value, error) {
	if w.comm == nil {
		return v, nil
	}
	var data []byte
	if w.rank.Rank == src {
		var err error
		if data, err = plain.Encode(v); err != nil {
			return nil, err
		}
	}
	size := []int64{int64(len(data))}
	call := collective.NewBroadcast(collective.Of(size), src)
	if err := w.do(c, &call, limit); err != nil {
		return nil, err
	}
	if data == nil {
		data = make([]byte, size[0])
	}
	call = collective.NewBroadcast(collective.Of(data), src)
	if err := w.do(c, &call, limit); err != nil {
		return nil, err
	}
	if w.rank.Rank == src {
		return v, nil
	}
	return (&plain.Decoder{Tensors: w.tensors}).Decode(data)
}

// gatherValues gives every rank's plain value, in rank order.
func (w *World) gatherValues(c *starlib.Call, v starlark.Value, limit time.Duration) ([]starlark.Value, error) {
	if w.comm == nil {
		return []starlark.Value{v}, nil
	}
	data, err := plain.Encode(v)
	if err != nil {
		return nil, err
	}
	all, err := w.gatherBytes(c, data, limit)
	if err != nil {
		return nil, err
	}
	values := make([]starlark.Value, len(all))
	for r, data := range all {
		if values[r], err = (&plain.Decoder{Tensors: w.tensors}).Decode(data); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// gatherBytes gives every rank's bytes, in rank order.
func (w *World) gatherBytes(c *starlib.Call, data []byte, limit time.Duration) ([][]byte, error) {
	sizes, err := w.gatherInts(c, int64(len(data)), limit)
	if err != nil {
		return nil, err
	}
	counts, total := make([]int, len(sizes)), 0
	for r, n := range sizes {
		counts[r] = int(n)
		total += int(n)
	}
	joined := make([]byte, total)
	call := collective.NewAllGather(collective.Of(data), collective.Of(joined))
	call.Counts = counts
	if err := w.do(c, &call, limit); err != nil {
		return nil, err
	}
	all := make([][]byte, len(counts))
	for r, n := range counts {
		all[r], joined = joined[:n:n], joined[n:]
	}
	return all, nil
}

// gatherInts gives every rank's number, in rank order.
func (w *World) gatherInts(c *starlib.Call, n int64, limit time.Duration) ([]int64, error) {
	all := make([]int64, w.rank.WorldSize)
	call := collective.NewAllGather(collective.Of([]int64{n}), collective.Of(all))
	return all, w.do(c, &call, limit)
}

// agree checks that all ranks call a helper with arguments that fit together:
// key describes them. Where the keys differ, every rank gets all of them.
// It costs one small collective when they agree.
func (w *World) agree(c *starlib.Call, key []byte, limit time.Duration) (keys [][]byte, same bool, err error) {
	if w.comm == nil {
		return nil, true, nil
	}
	h := fnv(key)
	sums, err := w.gatherInts(c, int64(h), limit)
	if err != nil {
		return nil, false, err
	}
	for _, s := range sums {
		if uint64(s) != h {
			keys, err = w.gatherBytes(c, key, limit)
			return keys, false, err
		}
	}
	return nil, true, nil
}

// AgreeOnStep checks that all ranks save the same step, before any of them does.
func (w *World) AgreeOnStep(c *starlib.Call, step int64) error {
	if w.comm == nil {
		return nil
	}
	steps, err := w.gatherInts(c, step, 0)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if s != step {
			lines := make([]string, len(steps))
			for r, s := range steps {
				lines[r] = fmt.Sprintf("step %d", s)
			}
			return disagree("the ranks save different steps", lines)
		}
	}
	return nil
}

// Sum adds a number over the ranks, for builtins of other modules.
func (w *World) Sum(c *starlib.Call, _ starlark.Value, x float64) (float64, error) {
	if w.comm == nil {
		return x, nil
	}
	sum := []float64{x}
	call := collective.NewAllReduce(collective.Of(sum), collective.Sum)
	err := w.do(c, &call, 0)
	return sum[0], err
}

// Any tells whether the flag is set on some rank, for builtins of other modules.
func (w *World) Any(c *starlib.Call, flag bool) (bool, error) {
	set := []uint8{0}
	if flag {
		set[0] = 1
	}
	if w.comm == nil {
		return flag, nil
	}
	call := collective.NewAllReduce(collective.Of(set), collective.Max)
	err := w.do(c, &call, 0)
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
