package run

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"drun/internal/exit"
	"drun/internal/secret"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// UsageError is a parameter on the command line that the recipe cannot take.
type UsageError struct{ Msg string }

func (e *UsageError) Error() string { return e.Msg }

// ExitCode is that of a usage error.
func (e *UsageError) ExitCode() exit.Code { return exit.Usage }

// Params are a recipe's declared parameters and the values given for them.
type Params struct {
	// Inherited are the types of those values that were not given, but had by the
	// run that is resumed. Unknown ones are ignored.
	Inherited map[string]string

	given    map[string]string
	declared []Param
}

// Param is a declared parameter.
type Param struct {
	Name           string
	Default, Value starlark.Value
}

// NewParams makes the parameters of a run with these -p values.
func NewParams(given map[string]string) *Params { return &Params{given: given} }

// Declared lists the parameters in the order of their declaration.
func (p *Params) Declared() []Param { return p.declared }

func (p *Params) declare(defaults []starlark.Tuple) (starlark.Value, error) {
	fields := make([]starlark.Tuple, 0, len(defaults))
	for _, kv := range defaults {
		name, value := string(kv[0].(starlark.String)), kv[1]
		if err := checkName("a parameter's name", name); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(p.declared, func(d Param) bool { return d.Name == name }) {
			return nil, fmt.Errorf("parameter %s is declared twice", name)
		}
		if err := checkKind(value); err != nil {
			return nil, fmt.Errorf("parameter %s: %w", name, err)
		}
		if text, ok := p.given[name]; ok {
			var err error
			if value, err = p.value(name, text, value); err != nil {
				return nil, err
			}
		}
		p.declared = append(p.declared, Param{name, kv[1], value})
		fields = append(fields, starlark.Tuple{kv[0], value})
	}
	return starlarkstruct.FromKeywords(starlarkstruct.Default, fields), nil
}

// value reads the text that was given for a parameter, or inherited.
func (p *Params) value(name, text string, like starlark.Value) (starlark.Value, error) {
	kind, inherited := p.Inherited[name]
	if !inherited {
		v, err := parse(text, like)
		if err != nil {
			return nil, &UsageError{fmt.Sprintf("-p %s=%s: %v (the default is %s)", name, secret.Text(name, text), err, like)}
		}
		return v, nil
	}
	if kind == secret.Withheld {
		return nil, &UsageError{fmt.Sprintf("parameter %s: the run that is resumed did not keep its value, as the name says that it is a secret: give it again with -p %s=VALUE", name, name)}
	}
	// A None says nothing of the type; a whole number may have become a float.
	if now := like.Type(); now != kind && now != "NoneType" && !(kind == "int" && now == "float") {
		return nil, &UsageError{fmt.Sprintf("parameter %s: the run that is resumed had %s, of type %s, but the recipe declares it as %s now (the default is %s): give it anew with -p %s=VALUE",
			name, secret.Text(name, text), kind, now, like, name)}
	}
	if like.Type() != "NoneType" {
		return parse(text, like)
	}
	if kind == "string" {
		return starlark.String(text), nil
	}
	return parse(text, map[string]starlark.Value{"bool": starlark.False, "int": starlark.MakeInt(0), "float": starlark.Float(0)}[kind])
}

// Unknown reports values that were given for no declared parameter; it is asked
// once the top level has run.
func (p *Params) Unknown() error {
	known := []string{}
	for _, d := range p.declared {
		known = append(known, d.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(p.given)) {
		if _, inherited := p.Inherited[name]; inherited || slices.Contains(known, name) {
			continue
		}
		if len(known) == 0 {
			return &UsageError{fmt.Sprintf("-p %s: the recipe declares no parameters", name)}
		}
		return &UsageError{fmt.Sprintf("-p %s: no such parameter; the recipe's are %s", name, strings.Join(known, ", "))}
	}
	return nil
}

func checkKind(v starlark.Value) error {
	switch v.(type) {
	case starlark.NoneType, starlark.Bool, starlark.Int, starlark.Float, starlark.String:
		return nil
	}
	return fmt.Errorf("a default must be a number, bool, string or None, not a %s", v.Type())
}

// parse reads text as a value of the default's type.
func parse(text string, like starlark.Value) (starlark.Value, error) {
	switch like.(type) {
	case starlark.String:
		return starlark.String(text), nil
	case starlark.Bool:
		switch strings.ToLower(text) {
		case "true", "1", "yes", "on":
			return starlark.True, nil
		case "false", "0", "no", "off":
			return starlark.False, nil
		}
		return nil, fmt.Errorf("want a bool (true or false)")
	case starlark.Float:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("want a float")
		}
		return starlark.Float(f), nil
	case starlark.Int:
		v, err := literal(text)
		if n, ok := v.(starlark.Int); ok && err == nil {
			return n, nil
		}
		return nil, fmt.Errorf("want an int")
	}
	// The default None says nothing: a literal if it is one, else the text.
	if v, err := literal(text); err == nil && checkKind(v) == nil {
		return v, nil
	}
	return starlark.String(text), nil
}

// literal evaluates text as a Starlark expression in which no name is known
// but the constants.
func literal(text string) (starlark.Value, error) {
	return starlark.EvalOptions(&syntax.FileOptions{}, new(starlark.Thread), "parameter", text, nil)
}
