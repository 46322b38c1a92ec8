package starlib

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/spelling"
)

// renamed maps PyTorch's names of parameters to those used here; both can be written.
var renamed = map[string]string{
	"batch_size": "batch", "dataset": "ds", "collate_fn": "collate", "prefetch_factor": "prefetch",
	"in_features": "i", "out_features": "o", "in_channels": "i", "out_channels": "o", "kernel_size": "kernel",
	"num_embeddings": "n", "embedding_dim": "dim", "normalized_shape": "dim",
	"num_features": "channels", "num_channels": "channels", "num_groups": "groups", "output_size": "size",
	"is_causal": "causal", "attn_mask": "mask", "dropout_p": "dropout",
	"device_mesh": "group", "parallelize_plan": "plan", "mesh_dim_names": "names", "mesh_shape": "shape",
	"T_max": "steps", "step_size": "every", "eta_min": "end", "axis": "dim", "keepdims": "keepdim", "A": "a", "B": "b", "tensor": "t", "num_classes": "classes", "self": "t",
}

// needless maps PyTorch's parameters that are not needed here to the reason.
var needless = map[string]string{
	"device":             "drun run --device says where tensors are: leave it out",
	"pin_memory":         "tensors are in main memory: leave it out",
	"num_workers":        "files are read and decoded on the rank's own threads (--threads): leave it out",
	"persistent_workers": "files are read and decoded on the rank's own threads (--threads): leave it out",
	"inplace":            "layers return new tensors: leave it out",
	"generator":          "--seed seeds everything; random.generator(seed) has functions of its own",
	"set_to_none":        "gradients are None afterwards: leave it out",
	"weights_only":       "files hold nothing but tensors: leave it out",
}

// foreignTo explains Python's parameters of single builtins.
var foreignTo = map[string]string{
	"print.end":   ": each call prints a line of its own: join the parts before",
	"print.file":  ": it is the run's log",
	"zip.strict":  ": compare len() of the parts before",
	"max.default": ": write max(items) if items else 0", "min.default": ": write min(items) if items else 0",
}

// unexpected is the error of an argument that no parameter has the name of.
func (s *signature) unexpected(name string) error {
	builtin, _, _ := strings.Cut(s.text, "(")
	hint := foreignTo[builtin+"."+name]
	if hint == "" && needless[name] != "" {
		hint = ": " + needless[name]
	}
	if hint == "" && name == "dtype" && strings.HasSuffix(s.text, "-> Module") {
		hint = ": m.to(dtype) converts a module"
	}
	if hint == "" {
		names := each.Of(s.params, func(p param) string { return p.name })
		if near := spelling.Nearest(name, names); near != "" {
			hint = " (did you mean " + near + "?)"
		}
	}
	return fmt.Errorf("unexpected argument %s%s: %s", name, hint, s.text)
}

// instead says what a call should get instead of a module or a table, such as its parameters.
func instead(types []string, v starlark.Value) string {
	if v.Type() == "Table" && slices.Contains(types, "Dataset") {
		return ": t.dataset(label = …) makes a dataset of a table t"
	}
	if t := v.Type(); (t == "DDP" || t == "FSDP") && slices.Contains(types, "Module") {
		return ": dist.unwrap(m) is the module in it"
	}
	if v.Type() != "Module" || !slices.Contains(types, "iterable") {
		return ""
	}
	return ": m.parameters() gives the parameters of a module m"
}

// layered explains to a call that makes a layer, but got a tensor, that the layer takes the tensor.
func layered(name string, d *Def, args starlark.Tuple, err error) error {
	if d.Returns() != "Module" || !strings.HasPrefix(name, "nn.") || !slices.ContainsFunc(args, func(v starlark.Value) bool { _, is := v.(Scalar); return is }) {
		return err
	}
	return fmt.Errorf("%w: it makes a layer, and the layer is called with the tensor: layer = %s(…), then layer(x)", err, name)
}
