package starlib

import (
	"fmt"
	"slices"
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
	kwargs     bool // **kwargs
}

type param struct {
	name  string
	types []string       // empty: any
	value starlark.Value // the default; nil when the argument is required
}

func (s *signature) index(name string) int {
	return slices.IndexFunc(s.params, func(p param) bool { return p.name == name })
}

// accepts tells whether v is of one of the declared types. A default is accepted
// whatever its type, so None may be passed where it is the default.
func (p *param) accepts(v starlark.Value) bool {
	if len(p.types) == 0 || (v == starlark.None && p.value == starlark.None) {
		return true
	}
	for _, t := range p.types {
		ok := false
		switch t {
		case "any":
			ok = true
		case "int":
			_, ok = v.(starlark.Int)
		case "float", "number":
			switch v.(type) {
			case starlark.Int, starlark.Float:
				ok = true
			}
		case "bool":
			_, ok = v.(starlark.Bool)
		case "string":
			_, ok = v.(starlark.String)
		case "callable":
			_, ok = v.(starlark.Callable)
		case "iterable":
			_, ok = v.(starlark.Iterable)
		case "None":
			ok = v == starlark.None
		default:
			ok = v.Type() == t
		}
		if ok {
			return true
		}
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
			s.rest, byName = field != "*", true
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
			p.types = append(p.types, strings.TrimSpace(t))
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

// splitTop splits at commas that stand in no bracket and no string.
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
