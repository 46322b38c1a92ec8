package run

import (
	"fmt"
	"slices"
	"strings"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// specification is what run.choice and run.param return: a default, and what else is known about the parameter.
type specification struct {
	starlib.Opaque
	value   starlark.Value
	choices []starlark.Value
	help    string
}

func (s *specification) String() string { return "<parameter " + s.value.String() + ">" }

const maxHelp = 2000 // bytes

func specifications() []*starlib.Def {
	return []*starlib.Def{
		{Sig: `choice(default: any, options: list, help: string = "") -> parameter`,
			Doc: "A default for run.params that may only be replaced by one of the options, which must have its type:\n" +
				"`run.params(act = run.choice(\"relu\", [\"relu\", \"gelu\"]))`. Any other value is a usage error that lists\n" +
				"them; so is a default that is not among them. help is shown by `drun run RECIPE.star --help`.",
			TopLevel: true,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				s := try.To(specify(c))
				options := c.Arg("options").(*starlark.List)
				for i := range options.Len() {
					o := options.Index(i)
					if err := checkKind(o); err != nil {
						return nil, fmt.Errorf("option %d: %w", i, err)
					}
					if _, float := s.value.(starlark.Float); float {
						o, _ = alike(o, s.value)
					}
					if s.value != starlark.None && o != starlark.None && (o == nil || o.Type() != s.value.Type()) {
						return nil, fmt.Errorf("option %d is %s: want the default's type, %s", i, options.Index(i), s.value.Type())
					}
					s.choices = append(s.choices, own(o))
				}
				try.FailIf(!slices.ContainsFunc(s.choices, func(o starlark.Value) bool { return identical(o, own(s.value)) }), "the default %s is not one of the options", s.value)
				return s, nil
			}},
		{Sig: `param(default: any, help: string = "") -> parameter`,
			Doc: "A default for run.params with a text that `drun run RECIPE.star --help` shows:\n" +
				"`run.params(lr = run.param(0.1, \"learning rate\"))`. The text has at most 2,000 bytes.",
			TopLevel: true,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return try.To(specify(c)), nil
			}},
	}
}

// specify reads the default, which may be another specification, and the help.
func specify(c *starlib.Call) (*specification, error) {
	s := &specification{Opaque: "parameter", value: c.Arg("default")}
	if inner, ok := s.value.(*specification); ok {
		*s = *inner
	}
	try.Ok(checkKind(s.value))
	if help := c.String("help"); help != "" {
		s.help = help
	}
	try.FailIf(len(s.help) > maxHelp, "the help has %d bytes: at most %d", len(s.help), maxHelp)
	return s, nil
}

// identical reports whether two parameters' values are the same, of the same type.
func identical(a, b starlark.Value) bool { return a.Type() == b.Type() && Text(a) == Text(b) }

func listed(choices []starlark.Value) string {
	texts := each.Of(choices, Text)
	return strings.Join(texts, ", ")
}
