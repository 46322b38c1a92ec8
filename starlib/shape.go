package starlib

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/each"
)

// Fits returns the error that a call with such arguments would return: too many, an unknown or repeated name, a
// missing one. spread says that *args or **kwargs are passed too, which may hold any argument not given otherwise.
func (d *Def) Fits(positional int, names []string, spread bool) error {
	sig, err := d.signature()
	if err != nil {
		return err
	}
	return sig.fits(positional, names, spread)
}

// FunctionFits is [Def.Fits] for a function of a recipe.
func FunctionFits(fn *resolve.Function, positional int, names []string, spread bool) error {
	sig := &signature{recipe: true, rest: fn.HasVarargs, kwargs: fn.HasKwargs}
	var params []string
	byName := false
	for _, p := range fn.Params {
		var own param
		switch p := p.(type) {
		case *syntax.Ident:
			own.name = p.Name
		case *syntax.BinaryExpr: // name = default
			own.name, own.value = p.X.(*syntax.Ident).Name, starlark.None
		default: // *args, *, **kwargs
			byName = true
			continue
		}
		sig.params, params = append(sig.params, own), append(params, own.name)
		if !byName {
			sig.positional++
		}
	}
	sig.text = fn.Name + "(" + strings.Join(params, ", ") + ")"
	return sig.fits(positional, names, spread)
}

func (s *signature) fits(positional int, names []string, spread bool) error {
	if positional > s.positional && !s.rest {
		return fmt.Errorf("got %d arguments, want at most %d: %s", positional, s.positional, s.text)
	}
	given := make([]bool, len(s.params))
	for i, name := range names {
		at := s.index(name)
		switch {
		case at < 0 && name == s.restName && name != "" && positional <= s.positional:
		case at < 0 && !s.kwargs:
			return s.unexpected(name)
		case at >= 0 && (at < min(positional, s.positional) || given[at]), slices.Contains(names[:i], name):
			return fmt.Errorf("argument %s is given twice", name)
		case at >= 0:
			given[at] = true
		}
	}
	var missing []string
	for i, p := range s.params {
		if p.value == nil && !spread && (i >= s.positional || i >= positional) && !given[i] {
			missing = append(missing, p.name)
		}
	}
	if missing != nil {
		return fmt.Errorf("missing argument %s: %s", strings.Join(missing, ", "), s.text)
	}
	return nil
}

// Spelled returns the declared name of the parameter that a name stands for; a name that stands for none is returned as it is.
func (d *Def) Spelled(name string) string {
	sig, err := d.signature()
	if err != nil {
		return name
	}
	if i := sig.index(name); i >= 0 {
		return sig.params[i].name
	}
	return name
}

// Params lists the names of the parameters, in order.
func (d *Def) Params() []string {
	sig, err := d.signature()
	if err != nil {
		return nil
	}
	return each.Of(sig.params, func(p param) string { return p.name })
}

// Returns returns the declared type of the result, "" if there is none.
func (d *Def) Returns() string {
	_, result, _ := strings.Cut(d.Sig, "->")
	return strings.TrimSpace(result)
}
