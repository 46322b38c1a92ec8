package distributed

import (
	"bytes"
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/nn"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// dataParallel is a module that processes a batch in parts on one rank, as that many ranks would. The kernels use all
// the rank's threads for each part, so the parts run one after the other, from last to first: backward goes the other
// way, and so adds the parts' gradients in the order in which shm adds the ranks'.
type dataParallel struct {
	*nn.Model
	parts   int
	buffers []*tensor.Tensor
}

func dataParallelism(w *World) []*starlib.Def {
	return []*starlib.Def{{
		Sig: `data_parallel(module: Module, parts: int = 2) -> DataParallel`,
		Doc: "The module with its batch divided as over that many ranks, but on this rank alone: tensors among its\n" +
			"arguments are cut along dimension 0 into parts of consecutive rows (the first ones have one row more\n" +
			"where parts does not divide them; fewer rows than parts make fewer parts), other arguments go to all\n" +
			"parts, and the results are joined along dimension 0; numbers become a vector. batch_norm\n" +
			"normalizes each part by itself, and keeps the statistics of the first. Gradients of a parameter are\n" +
			"added in the order of the parts: they have the same bits as a sum over that many ranks, one part each,\n" +
			"if the module uses each parameter once. The kernels use all the rank's threads (--threads) for each\n" +
			"part, so this is no faster.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			d := &dataParallel{Model: c.Arg("module").(*nn.Model), parts: c.Int("parts")}
			try.FailIf(d.parts < 1, "argument parts: want at least 1, got %d", d.parts)
			_, params := d.Parameters()
			for _, e := range d.State() {
				if t := e.Value.(*startensor.Value).Tensor(); !slices.Contains(params, t) {
					d.buffers = append(d.buffers, t)
				}
			}
			return d, nil
		},
	}}
}

func (d *dataParallel) Type() string { return "DataParallel" }

func (d *dataParallel) String() string {
	return fmt.Sprintf("%s in %d parts", d.Model, d.parts)
}

func (d *dataParallel) CallInternal(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	rows, err := rowsOf(args, kwargs)
	try.Ok(within("DataParallel", err))
	if rows < 2 || d.parts == 1 {
		return d.Model.CallInternal(thread, args, kwargs)
	}
	before := make([][]byte, len(d.buffers))
	for i, t := range d.buffers {
		data := try.To(tensor.Contiguous(t.Detach()))
		before[i] = bytes.Clone(data.Bytes())
	}
	outs := make([]starlark.Value, min(d.parts, rows))
	for part := len(outs) - 1; part >= 0; part-- {
		start, n := share(rows, len(outs), part)
		ownArgs, ownKwargs, err := cut(args, kwargs, start, n)
		try.Ok(within("DataParallel", err))
		outs[part] = try.To(d.Model.CallInternal(thread, ownArgs, ownKwargs))
		for i, t := range d.buffers {
			if data := try.To(tensor.Contiguous(t.Detach())); part > 0 && !bytes.Equal(data.Bytes(), before[i]) {
				try.Ok(writeRaw(t, before[i]))
			}
		}
	}
	out, err := join(outs)
	return out, within("DataParallel", err)
}

// share returns where part number part begins, and how many rows it has: the first ones have one more if the parts
// cannot be equal.
func share(rows, parts, part int) (start, n int) {
	n, more := rows/parts, rows%parts
	start = part*n + min(part, more)
	if part < more {
		n++
	}
	return start, n
}

// batched returns an argument that is cut, as a tensor; nil for another.
func batched(v starlark.Value) *tensor.Tensor {
	if t, ok := v.(*startensor.Value); ok && t.Tensor().Dim() > 0 {
		return t.Tensor()
	}
	return nil
}

// rowsOf returns the number of rows of the arguments that are cut; 0 if there are none.
func rowsOf(args starlark.Tuple, kwargs []starlark.Tuple) (rows int, err error) {
	all := slices.Clone(args)
	for _, kv := range kwargs {
		all = append(all, kv[1])
	}
	first := true
	for _, v := range all {
		t := batched(v)
		if t == nil {
			continue
		}
		if n := t.Shape()[0]; first {
			rows, first = n, false
		} else if n != rows {
			return 0, fmt.Errorf("the arguments have %d and %d rows: all tensors must have the same size in dimension 0", rows, n)
		}
	}
	return rows, nil
}

func cut(args starlark.Tuple, kwargs []starlark.Tuple, start, n int) (_ starlark.Tuple, _ []starlark.Tuple, err error) {
	defer try.Caught(&err)
	one := func(v starlark.Value) (starlark.Value, error) {
		if t := batched(v); t != nil {
			return startensor.Result(tensor.Narrow(t, 0, start, n))
		}
		return v, nil
	}
	args, kwargs = slices.Clone(args), slices.Clone(kwargs)
	for i := range args {
		args[i] = try.To(one(args[i]))
	}
	for i, kv := range kwargs {
		kwargs[i] = starlark.Tuple{kv[0], try.To(one(kv[1]))}
	}
	return args, kwargs, nil
}

// join puts the results of the parts together.
func join(outs []starlark.Value) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	switch first := outs[0].(type) {
	case *startensor.Value:
		ts := make([]*tensor.Tensor, len(outs))
		for i, out := range outs {
			v, ok := out.(*startensor.Value)
			try.FailIf(!ok, "part 0 returned a Tensor, part %d a %s", i, out.Type())
			ts[i] = v.Tensor()
			if ts[i].Dim() == 0 {
				ts[i] = try.To(tensor.View(ts[i], []int{1}))
			}
		}
		return startensor.Result(tensor.Cat(ts, 0))
	case starlark.Tuple:
		joined := make(starlark.Tuple, len(first))
		for k := range joined {
			same := make([]starlark.Value, len(outs))
			for i, out := range outs {
				t, ok := out.(starlark.Tuple)
				try.FailIf(!ok || len(t) != len(first), "part 0 returned a tuple of %d, part %d something else", len(first), i)
				same[i] = t[k]
			}
			joined[k] = try.To(join(same))
		}
		return joined, nil
	}
	return nil, fmt.Errorf("a part returned a %s: want a Tensor or a tuple of Tensors", outs[0].Type())
}
