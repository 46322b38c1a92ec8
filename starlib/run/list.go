package run

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"drun/history/records"
	"drun/internal/each"
	"drun/internal/try"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// The limits of a list as a parameter: larger ones are data, which a recipe reads from files.
const (
	maxListText  = 1 << 20 // bytes
	maxListDepth = 16
)

// parseList reads a list given with -p: a Starlark or JSON literal, without anything to compute. like determines
// the elements' type.
func parseList(text string, like *starlark.List) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	if len(text) > maxListText {
		return nil, fmt.Errorf("a list of %d bytes: at most %d are allowed; put data into files that the recipe reads", len(text), maxListText)
	}
	tree, err := (&syntax.FileOptions{}).ParseExpr("parameter", strings.TrimSpace(text), 0)
	if err != nil {
		return nil, wantList(like)
	}
	if paren, ok := tree.(*syntax.ParenExpr); ok {
		tree = paren.X
	}
	if _, ok := tree.(*syntax.ListExpr); !ok {
		return nil, wantList(like)
	}
	try.Ok(checkLiteral(tree))
	v, err := starlark.EvalExprOptions(&syntax.FileOptions{}, new(starlark.Thread), tree, constants)
	if err == nil {
		err = checkKind(v)
	}
	if err == nil {
		v, err = alike(v, like)
	}
	if err != nil {
		return nil, err
	}
	v.Freeze()
	return v, nil
}

func wantList(like *starlark.List) error {
	example := "[64, 64]"
	if like.Len() > 0 {
		example = jsonText(like)
	}
	return fmt.Errorf(`want a list, such as '%s'; strings in it need quotes`, example)
}

// constants are JSON's.
var constants = starlark.StringDict{"true": starlark.True, "false": starlark.False, "null": starlark.None}

// checkLiteral refuses an expression that computes something, or that is not a list that a parameter may be.
func checkLiteral(tree syntax.Expr) (err error) {
	defer try.Caught(&err)
	switch x := tree.(type) {
	case *syntax.Literal:
		if x.Token != syntax.BYTES {
			return nil
		}
	case *syntax.UnaryExpr:
		if lit, ok := x.X.(*syntax.Literal); ok && lit.Token != syntax.BYTES && (x.Op == syntax.MINUS || x.Op == syntax.PLUS) {
			return nil
		}
	case *syntax.Ident:
		if constants.Has(x.Name) || slices.Contains([]string{"True", "False", "None"}, x.Name) {
			return nil
		}
		return fmt.Errorf(`%s in a list is not a number: strings need quotes, as in '["%s"]'`, x.Name, x.Name)
	case *syntax.ListExpr:
		for _, e := range x.List {
			try.Ok(checkLiteral(e))
		}
		return nil
	}
	return errors.New("a list holds numbers, bools, strings, None and lists of these")
}

// alike converts a value to the types of the default: if all elements of the default are floats, a whole number
// becomes one. An empty or mixed default takes anything.
func alike(v starlark.Value, like starlark.Value) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	list, ok := like.(*starlark.List)
	if !ok {
		switch like.(type) {
		case starlark.Float:
			if n, ok := v.(starlark.Int); ok {
				if f := n.Float(); !math.IsInf(float64(f), 0) {
					return f, nil
				}
			}
		case starlark.NoneType:
			return v, nil
		}
		try.FailIf(v.Type() != like.Type(), "an element is %s, of type %s: want %s", v, v.Type(), like.Type())
		return v, nil
	}
	given, ok := v.(*starlark.List)
	try.FailIf(!ok, "an element is %s, of type %s: want a list", v, v.Type())
	if list.Len() == 0 {
		return v, nil
	}
	first := list.Index(0)
	for i := range list.Len() {
		if list.Index(i).Type() != first.Type() {
			return v, nil
		}
	}
	out := make([]starlark.Value, given.Len())
	for i := range given.Len() {
		e := try.To(alike(given.Index(i), first))
		out[i] = e
	}
	return starlark.NewList(out), nil
}

// checkElements checks that a list can be recorded as JSON: its floats are finite, its strings UTF-8.
func checkElements(list *starlark.List, depth int) (err error) {
	defer try.Caught(&err)
	try.FailIf(depth > maxListDepth, "lists are nested deeper than %d", maxListDepth)
	for i := range list.Len() {
		switch v := list.Index(i).(type) {
		case starlark.NoneType, starlark.Bool, starlark.Int:
		case starlark.Float:
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("element %d of the list is %s: the numbers in a list must be finite", i, v)
			}
		case starlark.String:
			try.FailIf(!utf8.ValidString(string(v)), "element %d of the list is not UTF-8", i)
		case *starlark.List:
			try.Ok(checkElements(v, depth+1))
		default:
			return fmt.Errorf("element %d of the list is a %s: a list holds numbers, bools, strings, None and lists of these", i, v.Type())
		}
	}
	return nil
}

// jsonText writes a value as JSON that parseList reads back bit for bit: a whole float has a decimal point.
func jsonText(v starlark.Value) string {
	switch v := v.(type) {
	case starlark.NoneType:
		return "null"
	case starlark.Bool:
		return strings.ToLower(v.String())
	case starlark.String:
		text, _ := records.Marshal(string(v)) // cannot fail for a string
		return string(text)
	case *starlark.List:
		parts := each.UpTo(v.Len(), func(i int) string { return jsonText(v.Index(i)) })
		return "[" + strings.Join(parts, ",") + "]"
	}
	return v.String()
}
