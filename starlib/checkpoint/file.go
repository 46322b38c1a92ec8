package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/data"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

// files are the builtins that exchange weights with other programs.
func files(rank *starlib.Rank, ctx *tensor.Context) []*starlib.Def {
	return []*starlib.Def{
		{Sig: `save_file(state: dict | Module | DDP | FSDP, path: string) -> string`,
			Doc: "Writes the tensors of a module, its weights, or of a dict of modules, tensors and such dicts, into a file that\n" +
				"other programs read: path ends in .safetensors or .npz, and is in the run's own folder\n" +
				"<home>/outputs/<run id>. Returns the full path. Names are those of PyTorch's state_dict: \"model.0.weight\"\n" +
				"for the key \"model\"; a tensor that is in several places has an entry for each. Rank 0 writes, the\n" +
				"other ranks only check, and do not wait. The file is durable, and never partly written. Non-tensors,\n" +
				"duplicate names, and bfloat16 in .npz are an error that lists them all.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				name := c.String("path")
				format := try.To(data.FormatOf(name))
				path := try.To(rank.Outputs.Path(name))
				var w weights
				w.add("", c.Arg("state"), nil)
				if faults := append(w.faults, format.Check(w.tensors)...); faults != nil {
					return nil, fmt.Errorf("the state cannot be written to %s:\n  %s", name, strings.Join(faults, "\n  "))
				}
				if rank.Rank == 0 {
					try.Ok(rank.Outputs.Write(name, func(out io.Writer) error { return format.Write(out, w.tensors) }))
				}
				return starlark.String(path), nil
			}},
		{Sig: `load_file(path: string) -> dict`,
			Doc: "The tensors of a .safetensors or .npz file by name, in the order of the file, for load_state. The path is\n" +
				"looked up beneath the run's own folder of outputs, the recipe's folder and the --data folders; a name that\n" +
				"is found both in the outputs and elsewhere is an error: give the full path instead. int16 and uint16 become int32,\n" +
				"uint32 and uint64 become int64.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				name := c.String("path")
				format := try.To(data.FormatOf(name))
				file := try.To(find(rank, name))
				defer file.Close()
				tensors, err := format.Read(ctx, file)
				try.FailIf(err != nil, "%s: %w", name, err)
				return tensors, nil
			}},
	}
}

// find opens a file of weights. A name must not mean the run's own file on one rank and, before rank 0 has written that, another file on a faster rank.
func find(rank *starlib.Rank, name string) (*starlib.File, error) {
	path, outside := rank.Outputs.Path(name)
	if outside != nil {
		return rank.Files.Open(name)
	}
	own, err := rank.Outputs.Open(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if own != nil && name == path {
		return own, nil
	}
	other, notThere := rank.Files.Open(name)
	switch {
	case own == nil && notThere != nil && name == path && rank.Rank != 0:
		return nil, fmt.Errorf("%s does not exist yet: in checkpoint.save_file rank 0 writes the file, and the other ranks do not wait; call dist.barrier() in between", name)
	case own == nil && notThere != nil:
		return nil, fmt.Errorf("%w; nor is it among the run's outputs in %s", notThere, rank.Outputs.Dir())
	case own == nil:
		return other, nil
	case notThere != nil:
		return own, nil
	}
	own.Close()
	other.Close()
	return nil, fmt.Errorf("there are two files %s: the run's own, %s, and one in the recipe's folder or a --data folder; give the full path", name, path)
}

// weights collects the tensors of a state under PyTorch's names.
type weights struct {
	tensors []data.Named
	faults  []string
}

// module is a value that has weights of its own.
type module interface {
	Weights() []starlib.Entry
}

// add finds the tensors in a value; within are the dicts around it.
func (w *weights) add(name string, v starlark.Value, within []*starlark.Dict) {
	prefix := name
	if name != "" {
		prefix += "."
	}
	switch v := v.(type) {
	case *startensor.Value:
		if v.Tensor().Share() != nil {
			w.faults = append(w.faults, name+": this rank holds a part of it: gather it first, as state() of dist.fsdp does")
			return
		}
		if p := v.Tensor().Placement(); p != nil && (p.Part || p.Stage) {
			w.faults = append(w.faults, name+": ranks divide the model that it belongs to, and a file would hold this rank's part: checkpoint.save keeps all ranks' parts")
			return
		}
		w.tensors = append(w.tensors, data.Named{Name: name, Tensor: v.Tensor()})
	case module:
		for _, e := range v.Weights() {
			w.add(prefix+e.Name, e.Value, within)
		}
	case *starlark.Dict:
		for _, outer := range within {
			if outer == v {
				w.faults = append(w.faults, name+": the dict contains itself")
				return
			}
		}
		for _, kv := range v.Items() {
			key, err := key(kv[0])
			if err != nil {
				w.faults = append(w.faults, strings.TrimPrefix(name+": ", ": ")+err.Error())
				continue
			}
			w.add(prefix+key, kv[1], append(within, v))
		}
	default:
		w.faults = append(w.faults, fmt.Sprintf("%s: want a tensor, a module or a dict of these, got %s", name, v.Type()))
	}
}
