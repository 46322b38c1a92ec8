package query

import (
	"errors"
	"fmt"
	"math"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/history"
	"drun/internal/try"
)

// A condition has three values, as in SQL: a part with a name that the run lacks is unknown, and so are `not` of
// it, and `and` and `or` unless the other part decides. Starlark has only two, so its and, or and not are computed
// here, and what is between them is Starlark.
type condition func(*Evaluator, *history.Summary) (truth, error)

// truth makes `not` a minus, `or` the larger and `and` the smaller of two.
type truth int

const (
	no truth = iota - 1
	unknown
	yes
)

func branch(tree syntax.Expr) (_ condition, err error) {
	defer try.Caught(&err)
	switch e := tree.(type) {
	case *syntax.ParenExpr:
		return branch(e.X)
	case *syntax.UnaryExpr:
		if e.Op == syntax.NOT {
			x, err := branch(e.X)
			return func(ev *Evaluator, run *history.Summary) (truth, error) {
				v, err := x(ev, run)
				return -v, err
			}, err
		}
	case *syntax.BinaryExpr:
		if e.Op == syntax.AND || e.Op == syntax.OR {
			return either(e)
		}
	}
	l := try.To(newLeaf(tree))
	return l.truth, nil
}

// either makes a condition from two parts.
func either(e *syntax.BinaryExpr) (_ condition, err error) {
	defer try.Caught(&err)
	sign := yes
	if e.Op == syntax.AND {
		sign = no // x and y is not (not x or not y)
	}
	x := try.To(branch(e.X))
	y, err := branch(e.Y)
	return func(ev *Evaluator, run *history.Summary) (truth, error) {
		v, err := x(ev, run)
		if err != nil || v == sign { // it decides alone
			return v, err
		}
		w, err := y(ev, run)
		return sign * max(sign*v, sign*w), err
	}, err
}

// leaf is a Starlark expression as a function of the fields that it names.
type leaf struct {
	fn    *starlark.Function
	names []string
}

func (l *leaf) truth(ev *Evaluator, run *history.Summary) (truth, error) {
	v, err := l.eval(ev, run)
	if errors.Is(err, errMissing) {
		return unknown, nil
	}
	if err != nil {
		return unknown, err
	}
	switch v := v.(type) {
	case starlark.Bool, starlark.Int, starlark.Float, starlark.String, *starlark.List, starlark.NoneType:
		if v.Truth() {
			return yes, nil
		}
		return no, nil
	}
	return unknown, fmt.Errorf("a condition is true or false, not a %s", v.Type())
}

func (l *leaf) eval(ev *Evaluator, run *history.Summary) (starlark.Value, error) {
	args := make(starlark.Tuple, len(l.names))
	for i, name := range l.names {
		if args[i] = fields[name](run); args[i] == nil {
			return nil, errMissing
		}
	}
	return starlark.Call(&ev.thread, l.fn, args, nil)
}

// newLeaf compiles a tree as the body of a function, so that positions stay the same.
func newLeaf(tree syntax.Expr) (_ *leaf, err error) {
	defer try.Caught(&err)
	l := &leaf{}
	mentioned := map[string]bool{}
	syntax.Walk(tree, func(n syntax.Node) bool {
		if id, ok := n.(*syntax.Ident); ok {
			mentioned[id.Name] = true
		}
		return true
	})
	start, _ := tree.Span()
	lambda := &syntax.LambdaExpr{Lambda: start, Body: tree}
	for _, name := range append([]string{"params", "metrics"}, Fields...) {
		if mentioned[name] {
			l.names = append(l.names, name)
			lambda.Params = append(lambda.Params, &syntax.Ident{NamePos: start, Name: name})
		}
	}
	v := try.To(starlark.EvalExprOptions(options, new(starlark.Thread), lambda, comparisons))
	l.fn = v.(*starlark.Function)
	return l, nil
}

// order makes comparisons follow IEEE 754, as in a recipe: Starlark orders NaN above all numbers, so a run whose
// loss is NaN would match loss > 1. It turns x < y into (LESS | x) | y, where LESS is a value that compares. It
// treats operators that need limits likewise.
func order(tree syntax.Expr) {
	syntax.Walk(tree, func(n syntax.Node) bool {
		e, ok := n.(*syntax.BinaryExpr)
		if !ok {
			return true
		}
		if name := e.Op.String(); comparisons[name] != nil {
			e.X = &syntax.BinaryExpr{X: &syntax.Ident{NamePos: e.OpPos, Name: name}, OpPos: e.OpPos, Op: syntax.PIPE, Y: e.X}
			e.Op = syntax.PIPE
		}
		return true
	})
}

// comparisons are the values that compare, or compute with limits, by the name of their operator, which no
// expression can write; and str.
var comparisons = starlark.StringDict{}

func init() {
	for _, op := range []syntax.Token{syntax.LT, syntax.LE, syntax.GT, syntax.GE, syntax.EQL, syntax.NEQ, syntax.STAR, syntax.LTLT, syntax.PERCENT} {
		comparisons[op.String()] = comparison{object: "comparison", op: op}
	}
	comparisons["str"] = starlark.NewBuiltin("str", text)
}

// comparison compares its left side, once it has one, with the next operand, or computes with both.
type comparison struct {
	object
	op   syntax.Token
	left starlark.Value
}

func (c comparison) Binary(_ syntax.Token, y starlark.Value, side starlark.Side) (starlark.Value, error) {
	if side == starlark.Right {
		return nil, nil
	}
	if c.left == nil {
		return comparison{c.object, c.op, y}, nil
	}
	switch c.op {
	case syntax.STAR, syntax.LTLT, syntax.PERCENT:
		return arithmetic(c.op, c.left, y)
	}
	if isNaN(c.left) || isNaN(y) {
		return starlark.Bool(c.op == syntax.NEQ), nil
	}
	if isObject(c.left) || isObject(y) {
		return nil, fmt.Errorf("%s cannot be compared with %s", c.left.Type(), y.Type())
	}
	result, err := starlark.Compare(c.op, c.left, y)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be compared with %s (%s)", c.left.Type(), y.Type(), c.op)
	}
	return starlark.Bool(result), nil
}

// arithmetic accepts only numbers of limited size: repeated texts and lists could fill the memory.
func arithmetic(op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	for _, v := range []starlark.Value{x, y} {
		switch v := v.(type) {
		case starlark.Float:
			continue
		case starlark.Int:
			if v.BigInt().BitLen() < maxBits {
				continue
			}
			return nil, errors.New("the number is too large")
		}
		return nil, fmt.Errorf("%s %s %s is for numbers", x.Type(), op, y.Type())
	}
	return starlark.Binary(op, x, y)
}

const maxBits = 10_000

// text is str for values that are not collections, since a collection's text may be far longer than the collection.
func text(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if len(args) != 1 || len(kwargs) > 0 {
		return nil, errors.New("str wants one value")
	}
	switch v := args[0].(type) {
	case starlark.String:
		return v, nil
	case starlark.NoneType, starlark.Bool, starlark.Int, starlark.Float:
		return starlark.String(v.String()), nil
	}
	return nil, fmt.Errorf("str takes a number, a text, a bool or None, not a %s", args[0].Type())
}

func isNaN(v starlark.Value) bool {
	f, ok := v.(starlark.Float)
	return ok && math.IsNaN(float64(f))
}
