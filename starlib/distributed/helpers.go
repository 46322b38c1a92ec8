package distributed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

func helpers(w *World) []*starlib.Def {
	return []*starlib.Def{
		{Sig: `broadcast_tensors(tensors: iterable, src: int = 0, group: Group = None, timeout: number = None)`, Fn: w.withRank("src", broadcastTensors),
			Doc: "Copies src's float and complex tensors to all ranks, in place; other tensors are left alone. Number,\n" +
				"dtypes and shapes are compared first: if they differ, every rank gets an error."},
		{Sig: `sync_grad(params: iterable, group: Group = None, timeout: number = None)`, Fn: w.inGroup(syncGrad),
			Doc: "Averages the .grad of every parameter, of any float dtype or complex64, over the ranks. A grad that\n" +
				"is None on all ranks stays None; one that is None on some ranks only is an error that names the\n" +
				"parameter."},
		{Sig: `sync_buffer(buffers: iterable, average: bool = True, group: Group = None, timeout: number = None)`, Fn: w.inGroup(syncBuffer),
			Doc: "Averages float and complex buffers over the ranks or, with average = False, copies the first rank's\n" +
				"to all; integer buffers are left alone."},
		{Sig: `average_metrics(metrics: dict, count: number = 1.0, group: Group = None, timeout: number = None) -> dict`, Fn: w.inGroup(averageMetrics),
			Doc: "The mean of every metric over the ranks, weighted by each rank's count, in float64. All ranks must pass\n" +
				"the same keys; a total count of 0 is an error."},
		{Sig: `reduce_dict(d: dict, average: bool = True, group: Group = None, timeout: number = None) -> dict`, Fn: w.inGroup(reduceDict),
			Doc: "The mean (or sum) of every number over the ranks, with sorted keys, on the group's first rank; the\n" +
				"other ranks get None. Floats are added in float64; a sum of integers is an exact integer. All ranks\n" +
				"pass the same keys."},
		{Sig: `shared_random_seed(group: Group = None, timeout: number = None) -> int`, Fn: w.inGroup(sharedRandomSeed),
			Doc: "An integer from 0 to 2³¹ - 1, the same on all ranks and different in each call. It is derived from\n" +
				"the run's seed."},
		{Sig: `master_first(fn: callable, timeout: number = None)`, Fn: func(c *starlib.Call) (starlark.Value, error) { return masterFirst(w, c, w.all) },
			Doc: "Calls fn() on rank 0 and, once it has returned there, on the other ranks; returns fn's value. If it\n" +
				"fails on rank 0, the other ranks get that error."},
		{Sig: `local_master_first(fn: callable, timeout: number = None)`, Fn: func(c *starlib.Call) (starlark.Value, error) { return masterFirst(w, c, w.local) },
			Doc: "Like master_first, but on the first rank of each node; only the other ranks of that node wait for\n" +
				"it. For work that is done once per node, such as filling a cache."},
		{Sig: `read_file(path: string, timeout: number = None) -> bytes`, Fn: func(c *starlib.Call) (starlark.Value, error) { return readFile(w, c) },
			Doc: "A file's contents, read once on rank 0 and given to all ranks. If it cannot be read, every rank gets\n" +
				"the same error."},
	}
}

// masterFirst runs fn on the group's first rank, then on the others. If it fails
// there, the run is aborted with that error, which ends the others' wait.
func masterFirst(w *World, c *starlib.Call, g *Group) (starlark.Value, error) {
	fn := c.Callable("fn")
	ctx := try.To(w.until(c))
	if g.comm == nil {
		return starlark.Call(c.Thread, fn, nil, nil)
	}
	at, leader := origin(c), g.own == 0
	result := starlark.Value(starlark.None)
	if leader {
		result = try.To(starlark.Call(c.Thread, fn, nil, nil))
	}
	// Not a barrier: a barrier that fn calls could be mistaken for it.
	call := collective.NewBroadcast(collective.Of([]bool{true}), 0)
	if err := g.do(ctx, call, at.In(collective.Step)); err != nil || leader {
		return result, err
	}
	return starlark.Call(c.Thread, fn, nil, nil)
}

// readings holds a dict's numbers, Ints and Floats, by its sorted names.
type readings struct {
	names  []string
	values starlark.Tuple
}

func (r *readings) Len() int           { return len(r.names) }
func (r *readings) Less(i, j int) bool { return r.names[i] < r.names[j] }
func (r *readings) Swap(i, j int) {
	r.names[i], r.names[j] = r.names[j], r.names[i]
	r.values[i], r.values[j] = r.values[j], r.values[i]
}

func readingsOf(c *starlib.Call, dict string) (*readings, error) {
	d := c.Arg(dict).(*starlark.Dict)
	r := &readings{make([]string, 0, d.Len()), make(starlark.Tuple, 0, d.Len())}
	for key, v := range d.Entries() {
		name, ok := starlark.AsString(key)
		try.FailIf(!ok, "keys must be strings, not %s", key.Type())
		x, err := starlib.AsPlain(v)
		if err == nil {
			_, err = starlib.AsNumber(x)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		r.names, r.values = append(r.names, name), append(r.values, x)
	}
	sort.Sort(r) // ranks may have filled their dicts in different orders
	return r, nil
}

// sumFloats adds numbers over the ranks, in place.
func sumFloats(g *Group, c *starlib.Call, ctx *collective.WaitLimit, numbers []float64) error {
	return g.do(ctx, collective.NewAllReduce(collective.Of(numbers), dtype.Sum), origin(c).In(collective.Step))
}

func averageMetrics(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	count := c.Float("count")
	try.FailIf(!(count >= 0) || math.IsInf(count, 0), "argument count: want a number of at least 0, got %v", c.Arg("count"))
	r := try.To(readingsOf(c, "metrics"))
	sums := make([]float64, len(r.names)+1)
	for i, x := range r.values {
		if count > 0 { // a rank without samples adds nothing, even if its mean is NaN
			sums[i] = starlib.Number(x) * count
		}
	}
	sums[len(r.names)] = count
	g.key = appendNames(g.key[:0], r.names)
	texts, err := g.compareWith(ctx, g.key, r.text, 0, origin(c), func(bool) error {
		if len(r.names) == 0 {
			return nil
		}
		return sumFloats(g, c, ctx, sums)
	})
	if err == nil && texts != nil {
		err = g.disagree(keysDiffer, texts)
	}
	if err != nil || len(r.names) == 0 {
		return starlark.NewDict(0), err
	}
	total := sums[len(r.names)]
	try.FailIf(total == 0, "the total count over all ranks is 0: there is nothing to average")
	try.FailIf(math.IsInf(total, 0), "the total count over all ranks is too large for a float")
	out := starlark.NewDict(len(r.names))
	for k := range c.Arg("metrics").(*starlark.Dict).Entries() {
		i, _ := slices.BinarySearch(r.names, string(k.(starlark.String)))
		try.Ok(out.SetKey(k, starlark.Float(sums[i]/total)))
	}
	return out, nil
}

func reduceDict(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	r := try.To(readingsOf(c, "d"))
	g.key = appendNames(g.key[:0], r.names)
	try.Ok(g.agree(ctx, g.key, origin(c), keysDiffer, r.text))
	all, err := gatherValues(g, c, ctx, r.values, 0)
	if err != nil || g.own != 0 {
		return starlark.None, err
	}
	out := starlark.NewDict(len(r.names))
	for i, name := range r.names {
		// Add in rank order; integers stay exact.
		total := all[0].(starlark.Tuple)[i]
		for _, values := range all[1:] {
			if total, err = starlark.Binary(syntax.PLUS, total, values.(starlark.Tuple)[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if c.Bool("average") {
			if total, err = starlark.Binary(syntax.SLASH, total, starlark.MakeInt(g.Size())); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		try.Ok(out.SetKey(starlark.String(name), total))
	}
	return out, nil
}

func sharedRandomSeed(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	// The first rank draws, since ranks may have drawn different numbers of seeds in other groups.
	seed := []int64{g.world.drawSeed()}
	err := g.do(ctx, collective.NewBroadcast(collective.Of(seed), 0), origin(c).In(collective.Step))
	return starlark.MakeInt64(seed[0]), err
}

func readFile(w *World, c *starlib.Call) (starlark.Value, error) {
	ctx := try.To(w.until(c))
	g := w.all
	var data []byte
	var failed error
	if g.own == 0 {
		data, failed = readAll(w, c.String("path"))
	}
	if g.comm == nil {
		return starlark.Bytes(data), failed
	}
	// The first byte says whether an error's text or the file's content follows.
	message := append([]byte{0}, data...)
	if failed != nil {
		message = append([]byte{1}, failed.Error()...)
	}
	message = try.To(g.broadcastBytes(ctx, message, 0, origin(c).In(collective.Step)))
	if message[0] != 0 {
		return nil, errors.New(string(message[1:]))
	}
	return starlark.Bytes(message[1:]), nil
}

func readAll(w *World, name string) (_ []byte, err error) {
	defer try.Caught(&err)
	f := try.To(w.rank.Files.Open(name))
	defer f.Close()
	return io.ReadAll(f)
}

const keysDiffer = "the ranks' keys differ"

func appendNames(key []byte, names []string) []byte {
	for _, name := range names {
		key = binary.AppendUvarint(key, uint64(len(name)))
		key = append(key, name...)
	}
	return key
}

// text returns the names, for an error.
func (r *readings) text() string {
	quoted := each.Of(r.names, strconv.Quote)
	return "[" + strings.Join(quoted, ", ") + "]"
}
