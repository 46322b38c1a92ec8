package run

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/secret"
	"drun/internal/try"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// UsageError is the error of a parameter, given on the command line, that the recipe cannot take.
type UsageError struct{ Msg string }

func (e *UsageError) Error() string       { return e.Msg }
func (e *UsageError) ExitCode() exit.Code { return exit.Usage }

// Params are a recipe's declared parameters and the values given for them.
type Params struct {
	// Origins says where the values come from that were not given with -p.
	Origins map[string]Origin

	given    map[string]string
	declared []Param
}

// Origin is where a value comes from.
type Origin struct {
	Kind string // its type: NoneType, bool, int, float, string or list
	File string // the parameter file; "": the run that is resumed, whose unknown values are ignored
}

// Param is a declared parameter.
type Param struct {
	Name           string
	Default, Value starlark.Value
	Choices        []starlark.Value // nil: any
	Help           string
}

// Text writes a parameter's value so that -p reads it back bit for bit.
func Text(v starlark.Value) string {
	switch v := v.(type) {
	case starlark.String:
		return string(v)
	case starlark.Float:
		return strconv.FormatFloat(float64(v), 'g', -1, 64)
	case *starlark.List:
		return jsonText(v)
	}
	return v.String()
}

// NewParams returns the parameters of a run with these -p values.
func NewParams(given map[string]string) *Params { return &Params{given: given} }

// Declared lists the parameters in the order of their declaration.
func (p *Params) Declared() []Param { return p.declared }

func (p *Params) declare(defaults []starlark.Tuple) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	fields := make([]starlark.Tuple, 0, len(defaults))
	for _, kv := range defaults {
		name, value := string(kv[0].(starlark.String)), kv[1]
		try.Ok(checkName("a parameter's name", name))
		try.FailIf(slices.ContainsFunc(p.declared, func(d Param) bool { return d.Name == name }), "parameter %s is declared twice", name)
		d := Param{Name: name, Default: value}
		if spec, ok := value.(*specification); ok {
			d.Default, d.Choices, d.Help = spec.value, spec.choices, spec.help
		}
		if err := checkKind(d.Default); err != nil {
			return nil, fmt.Errorf("parameter %s: %w", name, err)
		}
		d.Default = own(d.Default)
		d.Value = d.Default
		if text, ok := p.given[name]; ok {
			d.Value = try.To(p.value(name, text, d.Default))
			if d.Choices != nil && !slices.ContainsFunc(d.Choices, func(c starlark.Value) bool { return identical(c, d.Value) }) {
				return nil, &UsageError{fmt.Sprintf("%s: the choices are %s", p.shown(name, text), listed(d.Choices))}
			}
		}
		p.declared = append(p.declared, d)
		fields = append(fields, starlark.Tuple{kv[0], d.Value})
	}
	return starlarkstruct.FromKeywords(starlarkstruct.Default, fields), nil
}

// shown names a given value in messages.
func (p *Params) shown(name, text string) string {
	text = secret.Text(name, text)
	origin, other := p.Origins[name]
	switch {
	case other && origin.File != "":
		return fmt.Sprintf("%s: %s = %s", origin.File, name, text)
	case other:
		return fmt.Sprintf("parameter %s: the resumed run had %s", name, text)
	}
	return fmt.Sprintf("-p %s=%s", name, text)
}

// value reads the text that was given for a parameter, or inherited.
func (p *Params) value(name, text string, like starlark.Value) (starlark.Value, error) {
	origin, typed := p.Origins[name]
	fault := func(err error) error {
		return &UsageError{fmt.Sprintf("%s: %v (the default is %s)", p.shown(name, text), err, like)}
	}
	kind := origin.Kind
	if !typed {
		v, err := parse(text, like)
		if err != nil {
			return nil, fault(err)
		}
		return v, nil
	}
	if kind == secret.Withheld {
		return nil, &UsageError{fmt.Sprintf("parameter %s: the resumed run did not record its value, since the name marks it as a secret: give it again with -p %s=VALUE", name, name)}
	}
	if kind == "string" && like.Type() == "float" && origin.File != "" && slices.Contains([]string{"NaN", "Infinity", "-Infinity"}, text) {
		kind = "float" // formats without such numbers have them as strings
	}
	// A default of None says nothing about the type; and a default that was an int may now be a float.
	if now := like.Type(); now != kind && now != "NoneType" && !(kind == "int" && now == "float") {
		if origin.File != "" {
			return nil, fault(fmt.Errorf("it is of type %s: want %s", kind, now))
		}
		return nil, &UsageError{fmt.Sprintf("parameter %s: the resumed run had %s, of type %s, but the recipe declares it as %s now (the default is %s): give it again with -p %s=VALUE",
			name, secret.Text(name, text), kind, now, like, name)}
	}
	if like.Type() == "NoneType" {
		switch kind {
		case "NoneType":
			return starlark.None, nil
		case "string":
			return starlark.String(text), nil
		}
		like = map[string]starlark.Value{"bool": starlark.False, "int": starlark.MakeInt(0), "float": starlark.Float(0), "list": starlark.NewList(nil)}[kind]
	}
	v, err := parse(text, like)
	if err != nil {
		return nil, fault(err)
	}
	return v, nil
}

// Unknown reports values given for undeclared parameters; it is called once the top level has run.
func (p *Params) Unknown() error {
	known := each.Of(p.declared, func(d Param) string { return d.Name })
	for _, name := range slices.Sorted(maps.Keys(p.given)) {
		origin, other := p.Origins[name]
		if other && origin.File == "" || slices.Contains(known, name) {
			continue
		}
		what := "-p " + name
		if other {
			what = origin.File + ": " + name
		}
		if len(known) == 0 {
			return &UsageError{what + ": the recipe declares no parameters"}
		}
		return &UsageError{fmt.Sprintf("%s: no such parameter; the recipe's are %s", what, strings.Join(known, ", "))}
	}
	return nil
}

func checkKind(v starlark.Value) error {
	switch v := v.(type) {
	case starlark.NoneType, starlark.Bool, starlark.Int, starlark.Float, starlark.String:
		return nil
	case *starlark.List:
		return checkElements(v, 1)
	}
	return fmt.Errorf("a default must be a number, bool, string, list or None, not a %s", v.Type())
}

// own returns a frozen copy of a list, so that a value stays as it was recorded.
func own(v starlark.Value) starlark.Value {
	list, ok := v.(*starlark.List)
	if !ok {
		return v
	}
	elements := each.UpTo(list.Len(), func(i int) starlark.Value { return own(list.Index(i)) })
	list = starlark.NewList(elements)
	list.Freeze()
	return list
}

// parse reads text as a value of the default's type.
func parse(text string, like starlark.Value) (starlark.Value, error) {
	switch like := like.(type) {
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
	case *starlark.List:
		return parseList(text, like)
	}
	if strings.HasPrefix(text, "[") {
		if v, err := parseList(text, starlark.NewList(nil)); err == nil {
			return v, nil
		}
	}
	// A default of None says nothing about the type: the value is a literal if the text is one, else the text itself.
	if v, err := literal(text); err == nil && checkKind(v) == nil {
		return v, nil
	}
	return starlark.String(text), nil
}

// literal evaluates text as a Starlark expression in which only the constants are known.
func literal(text string) (starlark.Value, error) {
	return starlark.EvalOptions(&syntax.FileOptions{}, new(starlark.Thread), "parameter", text, nil)
}
