package dist

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"drun/collective"
	"drun/starlib"

	"go.starlark.net/starlark"
)

func (w *World) helpers() []*starlib.Def {
	return []*starlib.Def{
		{
			Sig: `broadcast_tensors(tensors: iterable, src: int = 0, group: Group = None, timeout: number = None)`,
			Doc: "Gives src's float and complex tensors to all, in place; others are left alone. Count, dtypes and\n" +
				"shapes are compared first: where they differ, every rank gets an error.",
			Fn: w.broadcastTensors,
		},
		{
			Sig: `sync_grad(params: iterable, group: Group = None, timeout: number = None)`,
			Doc: "Averages the .grad of every parameter over the ranks. A grad that is None on all ranks stays\n" +
				"None; None on some ranks is an error that names the parameter.",
			Fn: w.syncGrad,
		},
		{
			Sig: `sync_buffer(buffers: iterable, average: bool = True, group: Group = None, timeout: number = None)`,
			Doc: "Averages float buffers over the ranks, or gives rank 0's to all; integer buffers are left alone.",
			Fn:  w.syncBuffer,
		},
		{
			Sig: `average_metrics(metrics: dict, count: number = 1.0, group: Group = None, timeout: number = None) -> dict`,
			Doc: "The mean of every metric over the ranks, weighted by each rank's count, in float64. The keys are\n" +
				"the same on all ranks; a total count of 0 is an error.",
			Fn: w.averageMetrics,
		},
		{
			Sig: `master_first(fn: callable, timeout: number = None)`,
			Doc: "Calls fn() on rank 0, then, when it has returned there, on the others; returns fn's value.\n" +
				"If it fails on rank 0, the others get that error.",
			Fn: func(c *starlib.Call) (starlark.Value, error) { return w.masterFirst(c, w.rank.Rank == 0) },
		},
		{
			Sig: `local_master_first(fn: callable, timeout: number = None)`,
			Doc: "Like master_first, for the first rank of each node: for what is kept once a node.",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return w.masterFirst(c, w.rank.LocalRank == 0) },
		},
	}
}

// masterFirst runs the function of argument 0, on the leader before the others.
// When it fails there the run is aborted with that error, which ends the
// others' wait.
func (w *World) masterFirst(c *starlib.Call, leader bool) (starlark.Value, error) {
	fn := c.Callable(0)
	limit, err := timeout(c, 1)
	if err != nil {
		return nil, err
	}
	if w.comm == nil {
		return starlark.Call(c.Thread, fn, nil, nil)
	}
	result := starlark.Value(starlark.None)
	if leader {
		if result, err = starlark.Call(c.Thread, fn, nil, nil); err != nil {
			return nil, err
		}
	}
	// Not a barrier: one that fn itself called would be taken for this.
	call := collective.NewBroadcast(collective.Of([]bool{true}), 0)
	if err := w.do(c, &call, limit); err != nil || leader {
		return result, err
	}
	return starlark.Call(c.Thread, fn, nil, nil)
}

func (w *World) averageMetrics(c *starlib.Call) (starlark.Value, error) {
	limit, err := timeout(c, 3)
	if err != nil {
		return nil, err
	}
	metrics := c.Args[0].(*starlark.Dict)
	names := make([]string, 0, metrics.Len())
	for _, k := range metrics.Keys() {
		s, ok := starlark.AsString(k)
		if !ok {
			return nil, fmt.Errorf("a metric's name is a string, not %s", k.Type())
		}
		names = append(names, s)
	}
	sort.Strings(names) // ranks may have filled their dicts in another order
	if err := w.agreeOnNames(c, names, limit); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return starlark.NewDict(0), nil
	}
	count := c.Float(1)
	if !(count >= 0) || math.IsInf(count, 0) {
		return nil, fmt.Errorf("argument count: want a number from 0 on, got %v", c.Args[1])
	}
	sums := make([]float64, len(names)+1)
	for i, name := range names {
		v, _, _ := metrics.Get(starlark.String(name))
		x, err := starlib.AsNumber(v)
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", name, err)
		}
		if count > 0 { // a rank without samples adds nothing, whatever its mean is
			sums[i] = x * count
		}
	}
	sums[len(names)] = count
	if w.comm != nil {
		call := collective.NewAllReduce(collective.Of(sums), collective.Sum)
		if err := w.do(c, &call, limit); err != nil {
			return nil, err
		}
	}
	total := sums[len(names)]
	if total == 0 {
		return nil, fmt.Errorf("the total count over all ranks is 0: there is nothing to average")
	}
	mean := make(map[string]starlark.Float, len(names))
	for i, name := range names {
		mean[name] = starlark.Float(sums[i] / total)
	}
	out := starlark.NewDict(len(names))
	for _, k := range metrics.Keys() {
		if err := out.SetKey(k, mean[string(k.(starlark.String))]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// agreeOnNames checks that all ranks have the same sorted names.
func (w *World) agreeOnNames(c *starlib.Call, names []string, limit time.Duration) error {
	var key []byte
	for _, name := range names {
		key = binary.AppendUvarint(key, uint64(len(name)))
		key = append(key, name...)
	}
	keys, same, err := w.agree(c, key, limit)
	if err != nil || same {
		return err
	}
	lists := make([]string, len(keys))
	for r, key := range keys {
		var quoted []string
		for len(key) > 0 {
			n, k := binary.Uvarint(key)
			quoted, key = append(quoted, strconv.Quote(string(key[k:k+int(n)]))), key[k+int(n):]
		}
		lists[r] = "[" + strings.Join(quoted, ", ") + "]"
	}
	return disagree("the ranks' keys differ", lists)
}

// disagree makes the error that every rank gets: what differs, then a line a rank.
func disagree(what string, lines []string) error {
	var b bytes.Buffer
	b.WriteString(what)
	for r, line := range lines {
		fmt.Fprintf(&b, "\n  rank %d: %s", r, line)
	}
	return &DisagreementError{b.String()}
}
