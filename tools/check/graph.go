package check

import (
	"strings"

	"go.starlark.net/syntax"
)

// A graph is what is known about how a tensor was computed, as far as backward depends on it.
type graph struct {
	// calls is the collective that backward calls, "" for none: ddp's, or the backward of another collective.
	calls string
	pos   syntax.Position
	group *object // of ranks that call it, or of a dist.join_hook; nil: the world
}

// learned is the graph of a result computed from parameters alone.
var learned = &graph{}

// graph returns the one graph with this content.
func (m *memory) graph(g graph) *graph {
	if known := m.graphs[g]; known != nil {
		return known
	}
	m.graphs[g] = &g
	return &g
}

// merged returns the graph of a result computed from both; the first collective wins.
func merged(a, b *graph) *graph {
	if a == nil || b != nil && a.calls == "" {
		return b
	}
	return a
}

// graphOf returns the graph of a value, or of the elements of one that holds several.
func (m *memory) graphOf(values ...value) (g *graph) {
	for _, v := range values {
		g = merged(g, v.graph)
		for _, o := range v.refs {
			if o.kind == container && o.typ != "struct" {
				g = merged(g, m.held(o).every().graph)
			}
		}
	}
	return g
}

// carried returns out as a result whose graph contains those of the operands.
func (m *memory) carried(out value, from ...value) value {
	if !plainTypes[out.typ] {
		out.graph = merged(out.graph, m.graphOf(from...))
	}
	return out
}

// ownGraph are methods whose results are not part of their operand's graph.
var ownGraph = map[string]bool{"detach": true, "backward": true, "zero_": true}

// groupOfObjects returns the group of a call's objects that exchange something, such as modules of dist.ddp; nil: the
// world, or unknown.
func groupOfObjects(c *call) *object {
	for _, v := range c.all() {
		if v.graph != nil && v.graph.group != nil {
			return v.graph.group
		}
	}
	return nil
}

// mentions reports whether a word occurs in a recipe. For example, without set_sync it is known which backward synchronises.
func mentions(files map[string]*source, word string) bool {
	for _, s := range files {
		if strings.Contains(string(s.file.Source), word) {
			return true
		}
	}
	return false
}
