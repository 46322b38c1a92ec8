package check

import (
	"fmt"
	"slices"
	"strconv"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// special interprets the builtins whose results contain their arguments.
func (b *builtins) special(name string, params []string, c *call) (value, bool) {
	positional := len(c.args) > 0
	switch name {
	case "run.choice", "run.param":
		v := c.first()
		if fallback, ok := c.named["default"]; ok {
			v = fallback
		}
		return v, true
	case "run.params":
		return b.declare(c), true
	case "run.progress":
		return c.first(), positional
	case "nn.autocast", "tensor.no_grad":
		o := c.first().only()
		if o == nil || name == "tensor.no_grad" && o.kind != function && o.kind != builtin && o.kind != method {
			return c.first(), positional
		}
		inner := *c
		inner.args, inner.exprs = c.args[1:], c.exprs[1:]
		out := b.calls.callObject(o, &inner, true)
		if name == "tensor.no_grad" {
			out.graph = nil
		}
		return out, true
	case "checkpoint.save_file":
		return b.savedFile(params, c), true
	case "checkpoint.load_file":
		b.loadedFile(params, c)
	case "dist.ddp":
		group := b.groupOf(params, c)
		b.collective(name, c.pos, group)
		out := c.first()
		out.graph = b.graph(graph{calls: "the backward of dist.ddp", pos: c.pos, group: group}) // of the module's results
		return out, positional
	case "dist.unwrap":
		return c.first(), positional
	case "dist.master_first", "dist.local_master_first":
		return b.masterFirst(name, c), true
	case "data.loader":
		return b.loader(params, c), true
	case "nn.module", "nn.sequential":
		return b.model(name, c), true
	case "dist.coalescing":
		return b.given(c), true
	case "dist.join":
		outer := b.joined
		b.joined = true
		out := b.given(c)
		if b.joined = outer; !outer {
			b.collective(name, c.pos, groupOfObjects(c))
		}
		return out, true
	case "dist.local_group", "dist.new_group", "dist.new_subgroups", "dist.new_subgroups_by_enumeration", "dist.split_group", "dist.init_parallelism":
		if name != "dist.local_group" { // this group exists from the start
			b.collective(name, c.pos, nil)
		}
		return b.groups(name, c), true
	}
	return same, false
}

// savedFile returns the path that checkpoint.save_file returns, of a file that rank 0 writes.
func (b *builtins) savedFile(params []string, c *call) value {
	path, _ := c.arg(params, "path")
	o := b.alloc(c.node, "saved", instance, "", &contents{})
	b.saved[o] = path.lit
	return of(o)
}

// loadedFile warns if no synchronisation separates the writing of a file from its reading.
func (b *builtins) loadedFile(params []string, c *call) {
	path, _ := c.arg(params, "path")
	for o, name := range b.saved {
		if b.distributed && b.st.heap.get(o.id) != nil && (name != nil && alike(name, path.lit) || slices.Contains(path.refs, o)) {
			b.warnOnce(c.pos, "load_file", "only rank 0 writes the file of checkpoint.save_file: other ranks may get here before it exists, or find an older one: call dist.barrier() in between")
		}
	}
}

func (b *builtins) declare(c *call) value {
	fields := map[string]value{}
	for _, name := range c.names {
		v := c.named[name]
		v.lit = nil // another value may be given on the command line
		fields[name] = v
		pos := syntax.Start(c.byName[name])
		if first, twice := b.params[name]; twice && first != pos {
			b.fault(pos, "parameter %s is declared twice, first at %s", name, first)
		} else {
			b.params[name] = pos
		}
	}
	return of(b.alloc(c.node, "params", container, "struct", &contents{fields: fields, closed: !c.spread}))
}

// given interprets the function that a call passes first.
func (b *builtins) given(c *call) value {
	return b.calls.call(c.first(), &call{node: c.node, pos: c.pos, text: "the function"})
}

// masterFirst calls a function that must not call a collective: the first rank would wait for ranks that wait for it.
func (b *builtins) masterFirst(name string, c *call) value {
	var result value
	depth := len(b.calls.stack)
	events, _ := b.watch(func() { result = b.given(c) })
	collectives(events, func(e *event) {
		inner := e.chain[min(depth+1, len(e.chain)-1)]
		b.warnOnce(inner.pos, e.name, "%s is called inside %s (%s), which runs its function on one rank before the others: they will hang each other",
			e.name, name, lineOf(c.pos, inner.pos))
	})
	b.collective(name, c.pos, nil)
	return result
}

// apart warns about an optimizer that trains a separate model on each rank.
func (b *builtins) apart() {
	if b.divides && !b.averages && len(b.optimizers) > 0 {
		b.warnOnce(b.optimizers[0], "apart", "with several ranks, each trains a model of its own: data.loader divides the samples, and nothing averages the gradients: dist.sync_grad(model.parameters()) before each step, or dist.ddp(model); or local = True here")
	}
}

// loader gives each rank its own batches, unless every rank gets all samples;
// without shuffle the ranks' numbers of batches may differ by one.
func (b *builtins) loader(params []string, c *call) value {
	arg := func(name string) value { v, _ := c.arg(params, name); return v }
	held := &contents{diff: b.st.shallow(arg("ds"))}
	held.elem = value{diff: b.st.deep(arg("ds"), arg("batch"))}
	if shard, ok := c.arg(params, "shard"); !c.spread && (!ok || shard.lit == starlark.True) {
		b.divides = true
		batches := reason{what: "batches of data.loader, each rank's own", pos: c.pos}
		held.elem.diff = either(held.elem.diff, b.reason(batches))
		_, sampled := c.arg(params, "sampler")
		if shuffle, ok := c.arg(params, "shuffle"); !sampled && (!ok || shuffle.lit == starlark.False) {
			count := reason{what: "the number of batches of data.loader without shuffle", pos: c.pos}
			held.diff = either(held.diff, b.reason(count))
		}
	}
	return of(b.alloc(c.node, "loader", instance, "Loader", held))
}

// model makes a module defined by the recipe, or a sequence of modules: calling it calls its functions.
func (b *builtins) model(name string, c *call) value {
	held := &contents{fields: map[string]value{}}
	for i, v := range c.args {
		held.fields["call "+strconv.Itoa(i)] = v
	}
	for _, n := range c.names {
		if n == "forward" && name == "nn.module" {
			held.fields["call 0"] = c.named[n]
		} else {
			held.fields[n] = c.named[n]
		}
	}
	o := b.alloc(c.node, "module", instance, "Module", held)
	o.name = name
	return of(o)
}

func (cs *calls) callInstance(o *object, c *call) value {
	held := cs.held(o)
	forward, ok := held.fields["call 0"]
	switch {
	case !ok:
	case o.name == "nn.module":
		inner := *c
		inner.text, inner.args, inner.exprs = "forward", append([]value{of(o)}, c.args...), append([]syntax.Expr{nil}, c.exprs...)
		return cs.call(forward, &inner)
	case o.name == "nn.sequential":
		out := c.first()
		for i := 0; ; i++ {
			layer, ok := held.fields[fmt.Sprintf("call %d", i)]
			if !ok {
				return out
			}
			out = cs.call(layer, &call{node: c.node, pos: c.pos, text: "the layer", args: []value{out}, exprs: []syntax.Expr{nil}})
		}
	}
	typ := ""
	if o.typ == "Module" {
		typ = "Tensor"
	}
	out := cs.carried(cs.made(c.node, typ, either(held.diff, cs.st.deep(c.all()...))), c.all()...)
	if o.typ == "Module" {
		out.graph = merged(out.graph, learned)
	}
	return out
}

func (b *builtins) groups(name string, c *call) value {
	group := func(role string) value { return of(b.alloc(c.node, role, instance, "Group", &contents{})) }
	if name != "dist.init_parallelism" {
		return group("group")
	}
	fields := map[string]value{"mp": group("mp"), "pp": group("pp"), "dp": group("dp")}
	return of(b.alloc(c.node, "parallel", container, "struct", &contents{fields: fields}))
}
