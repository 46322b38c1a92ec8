package check

import (
	"slices"
	"strings"

	"drun/starlib"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// builtins interprets calls of drun's builtins and the language's own.
type builtins struct {
	*machine
	params      map[string]syntax.Position // of run.params
	saved       map[*object]starlark.Value // the paths that save_file returned since the last synchronisation, with the names, as literals
	distributed bool                       // the recipe synchronises with other ranks somewhere
	unsynced    bool                       // the recipe turns ddp's synchronisation off somewhere
	averages    bool                       // the recipe names something that may give all ranks the same gradients
	divides     bool                       // a loader divides the samples among the ranks
	optimizers  []syntax.Position          // of one model for all ranks
	joined      bool                       // within dist.join, where ranks may make different numbers of collectives
}

// collective records a call that all ranks have to make.
func (b *builtins) collective(name string, pos syntax.Position, group *object) {
	clear(b.saved)
	if b.joined {
		return
	}
	chain := append(append([]callSite{}, b.calls.stack...), callSite{pos, b.frame.name()})
	b.trace = append(b.trace, &event{name: name, group: group, chain: chain})
}

// fits checks the shape of a call against a declaration.
func (b *builtins) fits(name string, d *starlib.Def, c *call) {
	if err := d.Fits(len(c.args), c.names, c.spread); err != nil {
		b.sure(c.pos, "%s: %v", name, err)
	}
}

func (b *builtins) callBuiltin(o *object, c *call, certain bool) value {
	if certain {
		b.fits(o.name, o.def, c)
	}
	c.spell(o.def)
	if b.loading && !o.def.TopLevel {
		b.fault(c.pos, "%s cannot be called at top level: the top level is for constants, functions, run.params and load; call it in main()", o.name)
	}
	if strings.HasPrefix(o.name, "dist.") {
		clear(b.saved) // rank 0 has written the files before it arrives here
	}
	params := o.def.Params()
	if v, ok := b.special(o.name, params, c); ok {
		return v
	}
	group := b.groupOf(params, c)
	if _, given := c.arg(params, "lr"); !given && !c.spread && certain && o.def.Returns() == "Optimizer" && strings.Contains(o.def.Sig, "lr = None") && plainParameters(c) {
		b.sure(c.pos, "%s: lr is missing", o.name)
	}
	if _, given := c.arg(params, "weight_decay"); o.name == "optim.adamw" && !given && !c.spread && plainParameters(c) {
		b.warn(c.pos, "optim.adamw: weight_decay is 0 unless it is given, where PyTorch's is 0.01: say which")
	}
	if local, given := c.arg(params, "local"); o.def.Returns() == "Optimizer" && !c.spread && (!given || local.lit == starlark.False) {
		b.optimizers = append(b.optimizers, c.pos)
	}
	t, known := traits[o.name]
	if t.collective || b.hasArgument(params, c, t.with) {
		b.collective(o.name, c.pos, group)
	}
	if t.inPlace {
		b.clean(c)
	}
	if !known {
		b.callbacks(c)
	}
	out := b.carried(b.made(c.node, o.def.Returns(), b.resultDiffers(o.name, t, c, group)), c.all()...)
	if g := b.graphOf(c.first()); t.back && g != nil && !plainTypes[out.typ] {
		out.graph = merged(g, b.graph(graph{calls: "the backward of " + o.name, pos: c.pos, group: group}))
	}
	switch o.name {
	case "nn.parameter":
		out.graph = merged(out.graph, learned)
	case "dist.join_hook":
		out.graph = b.graph(graph{group: group})
	}
	return out
}

// plainParameters reports whether the first argument is the parameters of a model, which have no rates of their own.
func plainParameters(c *call) bool {
	if len(c.exprs) == 0 {
		return false
	}
	made, is := c.exprs[0].(*syntax.CallExpr)
	if !is {
		return false
	}
	dot, is := made.Fn.(*syntax.DotExpr)
	return is && dot.Name.Name == "parameters"
}

// resultDiffers returns why a builtin's result differs between ranks, nil if it does not.
func (b *builtins) resultDiffers(name string, t trait, c *call, group *object) *reason {
	switch {
	case t.own:
		what := t.why
		if what == "" {
			if what = b.frame.text(c.node); strings.Contains(what, "...") || t.data {
				what = name + "()"
			}
		}
		return b.reason(reason{what: what, pos: c.pos, group: group})
	case t.equal, t.collective:
		return nil
	}
	return b.st.deep(c.all()...)
}

// groupOf returns the group of ranks that a call names; nil: the world, or unknown.
func (b *builtins) groupOf(params []string, c *call) *object {
	v, ok := c.arg(params, "group")
	if !ok || v.lit == starlark.None {
		return nil
	}
	if len(v.refs) > 0 {
		return v.refs[0]
	}
	// The argument is unknown: a group that no branch can depend on.
	return b.alloc(c.node, "group", instance, "Group", &contents{})
}

func (b *builtins) hasArgument(params []string, c *call, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		v, ok := c.arg(params, name)
		return ok && v.lit != starlark.None
	})
}

// callbacks calls the functions among the arguments, as the builtin may do.
func (b *builtins) callbacks(c *call) {
	b.deaf++ // it is unknown what a builtin passes to them, and whether an error is intended
	b.doubt++
	defer func() { b.deaf--; b.doubt-- }()
	for _, v := range c.all() {
		for _, o := range v.refs {
			if o.kind == function {
				b.calls.callFunction(o, &call{node: c.node, pos: c.pos, spread: true, rest: value{diff: b.st.deep(c.args...)}}, false)
			}
		}
	}
}

// clean records that the tensors of the first argument are now equal on all ranks.
func (b *builtins) clean(c *call) {
	if len(c.args) == 0 {
		return
	}
	seen := map[*object]bool{}
	var objects func(v value)
	objects = func(v value) {
		for _, o := range v.refs {
			if seen[o] || (o.kind != container && o.kind != instance) {
				continue
			}
			seen[o] = true
			held := b.held(o)
			for _, key := range sortedKeys(held.fields) {
				objects(held.fields[key])
			}
			objects(held.elem)
			now := held.clone()
			if o.kind == instance {
				now.diff = nil
			} else {
				for key, v := range now.fields {
					now.fields[key] = cleaned(v)
				}
				now.elem = cleaned(now.elem)
			}
			b.hold(o, now)
		}
	}
	objects(c.args[0])
	// A variable of unknown type may be a tensor; a number is not changed.
	var paths func(e syntax.Expr)
	paths = func(e syntax.Expr) {
		switch e := e.(type) {
		case *syntax.Ident:
			if v := b.names.lookup(e); v.diff != nil && !plainTypes[v.typ] {
				b.assign(e, cleaned(v))
			}
		case *syntax.ParenExpr:
			paths(e.X)
		case *syntax.ListExpr:
			for _, x := range e.List {
				paths(x)
			}
		case *syntax.TupleExpr:
			for _, x := range e.List {
				paths(x)
			}
		}
	}
	paths(c.exprs[0])
}

func cleaned(v value) value {
	if !plainTypes[v.typ] {
		v.diff = nil
	}
	return v
}
