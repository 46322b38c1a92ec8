package starlib

import (
	"fmt"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// signature is a Def's Sig, parsed.
type signature struct {
	text       string
	params     []param
	positional int  // how many of params may be passed by position
	rest       bool // *args
	restName   string
	kwargs     bool // **kwargs
	recipe     bool // of a recipe's function, whose parameters have one name
}

type param struct {
	name   string
	types  []string                    // empty: any
	checks []func(starlark.Value) bool // one for each type
	value  starlark.Value              // the default; nil when the argument is required
}

// index returns the parameter of a name, or of another spelling of it; -1 if there is none.
func (s *signature) index(name string) int {
	for i := range s.params {
		if s.params[i].name == name {
			return i
		}
	}
	if here := renamed[name]; here != "" && !s.recipe {
		return s.index(here)
	}
	return -1
}

// accepts reports whether v is of one of the declared types. A default is accepted whatever its type, so None may be
// passed where it is the default.
func (p *param) accepts(v starlark.Value) bool {
	if len(p.checks) == 0 || (v == starlark.None && p.value == starlark.None) {
		return true
	}
	for _, is := range p.checks {
		if is(v) {
			return true
		}
	}
	return false
}

// kinds maps the type names of signatures that are not a value's own Type to their checks.
var kinds = map[string]func(starlark.Value) bool{
	"any":      func(starlark.Value) bool { return true },
	"int":      func(v starlark.Value) bool { _, ok := v.(starlark.Int); return ok },
	"float":    isNumber,
	"number":   isNumber,
	"bool":     func(v starlark.Value) bool { _, ok := v.(starlark.Bool); return ok },
	"string":   func(v starlark.Value) bool { _, ok := v.(starlark.String); return ok },
	"callable": func(v starlark.Value) bool { _, ok := v.(starlark.Callable); return ok },
	"iterable": func(v starlark.Value) bool { _, ok := v.(starlark.Iterable); return ok },
	"None":     func(v starlark.Value) bool { return v == starlark.None },
}

func isNumber(v starlark.Value) bool {
	switch v.(type) {
	case starlark.Int, starlark.Float:
		return true
	}
	return false
}

// parseSignature reads `name(a, b: type | type = default, *args, c = 1, **kw) -> type`.
func parseSignature(text string) (*signature, error) {
	head, _, _ := strings.Cut(text, "->")
	open, end := strings.IndexByte(head, '('), strings.LastIndexByte(head, ')')
	if open <= 0 || end < open {
		return nil, fmt.Errorf("signature %q: want name(parameters)", text)
	}
	s := &signature{text: strings.TrimSpace(text)}
	byName := false
	for _, field := range splitTop(head[open+1 : end]) {
		switch field = strings.TrimSpace(field); {
		case field == "":
			continue
		case strings.HasPrefix(field, "**"):
			s.kwargs = true
		case strings.HasPrefix(field, "*"):
			s.rest, s.restName, byName = field != "*", field[1:], true
		default:
			p, err := parseParam(field)
			if err != nil {
				return nil, fmt.Errorf("signature %q: %w", text, err)
			}
			s.params = append(s.params, p)
			if !byName {
				s.positional++
			}
		}
	}
	return s, nil
}

func parseParam(field string) (param, error) {
	decl, value, hasDefault := strings.Cut(field, "=")
	name, types, typed := strings.Cut(decl, ":")
	p := param{name: strings.TrimSpace(name)}
	if typed {
		for _, t := range strings.Split(types, "|") {
			name := strings.TrimSpace(t)
			is := kinds[name]
			if is == nil {
				is = func(v starlark.Value) bool { return v.Type() == name }
			}
			p.types, p.checks = append(p.types, name), append(p.checks, is)
		}
	}
	if hasDefault {
		v, err := starlark.EvalOptions(&syntax.FileOptions{}, new(starlark.Thread), "signature", strings.TrimSpace(value), nil)
		if err != nil {
			return p, fmt.Errorf("default of %s: %w", p.name, err)
		}
		v.Freeze()
		p.value = v
	}
	return p, nil
}

// splitTop splits at the commas that are outside brackets and strings.
func splitTop(s string) []string {
	var fields []string
	depth, start, quoted := 0, 0, false
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			quoted = !quoted
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth == 0 && !quoted {
				fields = append(fields, s[start:i])
				start = i + 1
			}
		}
	}
	return append(fields, s[start:])
}
