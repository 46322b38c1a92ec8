package nn

import (
	"go.starlark.net/starlark"

	"drun/starlib"
)

// inner is a module within nn: nn.init or nn.functional.
type inner struct {
	starlib.Opaque
	k       *maker
	methods *starlib.Methods
}

var _ starlark.HasAttrs = inner{}

func (m inner) String() string                           { return "<nn." + m.Type() + ">" }
func (m inner) Attr(name string) (starlark.Value, error) { return m.methods.Attr(m, name) }
func (m inner) AttrNames() []string                      { return m.methods.AttrNames() }

// Library returns the library of its rank.
func (m inner) Library() starlib.Library { return m.k.ctx.Library.(starlib.Library) }
