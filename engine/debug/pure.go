package debug

import (
	"fmt"
	"strings"
	"sync"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	startensor "drun/starlib/tensor"
)

// purity says which calls leave the run as it is: neither values nor random streams change, and no other rank takes part.
type purity struct{}

func (purity) Callee(callee string) bool {
	lists := pure()
	if lists[callee] {
		return true
	}
	module, _, dotted := strings.Cut(callee, ".")
	name := callee[strings.LastIndexByte(callee, '.')+1:]
	switch {
	case !dotted || strings.HasSuffix(name, "_"):
		return false
	case module == "math" || module == "linalg" || module == "fft":
		return true
	case modules[module]:
		return false
	}
	return lists["."+name] // a method: of a tensor, or of a plain value
}

func (p purity) Receiver(v starlark.Value, method string) error {
	switch v.(type) {
	case *startensor.Value, *starlarkstruct.Module: // math and json
		return nil
	case starlark.String, starlark.Bytes, *starlark.List, starlark.Tuple, *starlark.Dict, *starlark.Set:
		if plain[method] { // a set's add changes it, a tensor's does not
			return nil
		}
	}
	switch {
	case v.Type() == "module" && p.Callee(strings.TrimSuffix(strings.TrimPrefix(v.String(), "<module "), ">")+"."+method):
		return nil
	case v.Type() == "Module" && (method == "parameters" || method == "named_parameters" || method == "buffers"):
		return nil
	}
	return fmt.Errorf("a call of .%s of a %s may change something", method, v.Type())
}

// modules are those whose builtins are not methods.
var modules = set("run dist tensor nn optim data checkpoint random json testing")

var pure = sync.OnceValue(func() map[string]bool {
	lists := set("len abs min max any all str repr type float int bool sorted range zip enumerate sum round list tuple dict set reversed hasattr getattr dir struct tensor hash chr ord bytes " +
		"json.encode json.decode dist.rank dist.world_size dist.local_rank dist.local_size dist.node_rank dist.num_nodes dist.is_distributed dist.is_main dist.backend " +
		"tensor.is_nan tensor.isnan tensor.isinf tensor.isfinite tensor.zeros tensor.ones tensor.full tensor.eye tensor.arange tensor.linspace tensor.cat tensor.stack tensor.where tensor.allclose tensor.equal tensor.one_hot " +
		".parameters .named_parameters .buffers")
	for name := range plain {
		lists["."+name] = true
	}
	for _, name := range (*startensor.Value)(nil).AttrNames() {
		if !strings.HasSuffix(name, "_") && !changing[name] {
			lists["."+name] = true
		}
	}
	return lists
})

// plain are the methods of plain values that leave them as they are.
var plain = set("get keys values items index count elems startswith endswith format join split strip lstrip rstrip lower upper replace find rfind splitlines title capitalize isdigit isalpha isspace " +
	"union intersection difference issubset issuperset")

// changing are the methods of tensors that change something without saying so by their name.
var changing = set("backward bernoulli multinomial register_hook retain_grad grad requires_grad grad_fn register_post_accumulate_grad_hook apply map_ share_memory")

func set(names string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}
