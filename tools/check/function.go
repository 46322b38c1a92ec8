package check

import (
	"strconv"

	"drun/starlib"

	"go.starlark.net/resolve"
	"go.starlark.net/syntax"
)

func (cs *calls) closure(node syntax.Node, fn *resolve.Function) value {
	c := &contents{fields: map[string]value{}}
	for i, p := range fn.Params {
		if p, ok := p.(*syntax.BinaryExpr); ok {
			c.fields[strconv.Itoa(i)] = cs.expr(p.Y)
		}
	}
	o := cs.alloc(node, "function", function, "function", c)
	cs.frame.captured = true
	o.fn, o.frame, o.name, o.pos = fn, cs.frame, fn.Name, fn.Pos
	cs.frame.file.functions[fn] = o
	return of(o)
}

// callFunction interprets a function of the recipe with the arguments of a call.
func (cs *calls) callFunction(o *object, c *call, certain bool) value {
	if certain {
		if err := starlib.FunctionFits(o.fn, len(c.args), c.names, c.spread); err != nil {
			cs.sure(c.pos, "%s: %v", c.text, err)
		}
	}
	for _, fn := range cs.running {
		if fn == o.fn || len(cs.running) > maxCalls {
			return cs.unknown(c.node, cs.st.deep(c.all()...))
		}
	}
	cs.stack = append(cs.stack, callSite{c.pos, cs.frame.name()})
	result := cs.enter(o, c)
	cs.stack = cs.stack[:len(cs.stack)-1]
	return result
}

func (cs *calls) enter(o *object, c *call) value {
	cs.seen[o.fn] = true
	frame, act, before := cs.frame, cs.act, cs.st
	cs.running = append(cs.running, o.fn)
	cs.frame, cs.act = cs.activation(o, c.node), &activation{}
	cs.bindParams(o, c)
	cs.block(o.fn.Body)
	if cs.st != nil {
		cs.act.results = append(cs.act.results, none)
	}
	var result union
	for _, v := range cs.act.results {
		result.add(v)
	}
	out := result.value
	if len(cs.act.results) > 1 && (out.lit == nil || len(out.refs) > 0) {
		out = differing(out, cs.act.differs)
	}
	cs.st = eitherState(cs.st, cs.act.after)
	if cs.st == nil { // it ends the run, or never returns
		cs.st = before
	}
	if own := cs.frame; !own.captured { // nothing sees its variables any more
		for _, v := range own.vars {
			if cs.st.vars.get(v.id) != nil {
				cs.st.vars.set(v.id, nil)
			}
		}
	}
	cs.doubt -= cs.act.doubt
	cs.frame, cs.act = frame, act
	cs.running = cs.running[:len(cs.running)-1]
	return out
}

func (cs *calls) bindParams(o *object, c *call) {
	defaults := cs.held(o).fields
	next, byName := 0, false
	used := map[string]bool{}
	for i, p := range o.fn.Params {
		switch p := p.(type) {
		case *syntax.Ident, *syntax.BinaryExpr:
			id, _ := p.(*syntax.Ident)
			v := differing(same, cs.st.deep(c.rest))
			if b, ok := p.(*syntax.BinaryExpr); ok {
				id, _ = b.X.(*syntax.Ident)
				v = differing(defaults[strconv.Itoa(i)], v.diff)
				if c.spread {
					v.shape, v.layer = nil, nil
					if plainTypes[v.typ] && v.typ != "None" {
						v.lit = nil
					}
				}
			}
			if id == nil {
				continue
			}
			if named, ok := c.named[id.Name]; ok {
				v = named
			} else if !byName && next < len(c.args) {
				v = c.args[next]
			}
			next++
			used[id.Name] = true
			cs.assign(id, v)
		case *syntax.UnaryExpr:
			id, _ := p.X.(*syntax.Ident)
			byName = true
			if id == nil {
				continue
			}
			held := &contents{elem: c.rest, diff: c.rest.diff, fields: map[string]value{}}
			if p.Op == syntax.STAR {
				for j := next; j < len(c.args); j++ {
					held.fields[strconv.Itoa(j-next)] = c.args[j]
				}
				cs.assign(id, of(cs.alloc(p, "args", container, "tuple", held)))
				continue
			}
			for _, name := range c.names {
				if !used[name] {
					held.fields[strconv.Quote(name)] = c.named[name]
				}
			}
			cs.assign(id, of(cs.alloc(p, "kwargs", container, "dict", held)))
		}
	}
}
