package debug

import (
	"strings"
	"sync"

	"go.starlark.net/lib/math"
	"go.starlark.net/starlark"

	startensor "drun/starlib/tensor"
)

// purity says which calls leave the run as it is: neither values nor random streams change, and no other rank takes part.
type purity struct{}

func (purity) Call(fn starlark.Callable) bool {
	name := fn.Name()
	b, builtin := fn.(*starlark.Builtin)
	switch {
	case builtin && b.Receiver() != nil:
		name = name[strings.LastIndexByte(name, '.')+1:]
		switch b.Receiver().(type) {
		case *startensor.Value:
			return ofTensors()[name]
		case starlark.String, starlark.Bytes, *starlark.List, starlark.Tuple, *starlark.Dict, *starlark.Set:
			return ofPlain[name] // a set's add changes it, a tensor's does not
		}
		return b.Receiver().Type() == "Module" && ofModules[name]
	case builtin || fn.Type() == "module": // a function, or one that has others within it
		return functions[name] || math.Module.Members[name] == starlark.Value(fn) || strings.HasPrefix(name, "linalg.") || strings.HasPrefix(name, "fft.")
	}
	return false
}

func (purity) Method(name string) bool { return ofTensors()[name] || ofPlain[name] || ofModules[name] }

var (
	functions = set("len abs min max any all str repr type float int bool sorted range zip enumerate sum round list tuple dict set reversed hasattr getattr dir struct tensor hash chr ord bytes " +
		"json.encode json.decode dist.rank dist.world_size dist.local_rank dist.local_size dist.node_rank dist.num_nodes dist.is_distributed dist.is_main dist.backend " +
		"tensor.is_nan tensor.isnan tensor.isinf tensor.isfinite tensor.zeros tensor.ones tensor.full tensor.eye tensor.arange tensor.linspace tensor.cat tensor.stack tensor.where tensor.allclose tensor.equal tensor.one_hot")
	// ofPlain are the methods of plain values that leave them as they are.
	ofPlain = set("get keys values items index count elems startswith endswith format join split strip lstrip rstrip lower upper replace find rfind splitlines title capitalize isdigit isalpha isspace " +
		"union intersection difference issubset issuperset")
	ofModules = set("parameters named_parameters buffers")
	// changing are the methods of tensors that change something without saying so by their name.
	changing = set("backward bernoulli multinomial register_hook retain_grad grad requires_grad grad_fn register_post_accumulate_grad_hook apply map_ share_memory")
)

var ofTensors = sync.OnceValue(func() map[string]bool {
	list := map[string]bool{}
	for _, name := range (*startensor.Value)(nil).AttrNames() {
		list[name] = !strings.HasSuffix(name, "_") && !changing[name]
	}
	return list
})

func set(names string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}
