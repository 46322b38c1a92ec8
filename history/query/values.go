package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"math/big"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/history"
	"drun/history/records"
)

// fieldNames are the names that expressions can use besides params and metrics.
var fieldNames = []string{"id", "name", "status", "recipe", "started", "seconds", "world_size", "backend", "seed", "tags", "error", "parent"}

// field is a run's value for a name; the error is errMissing if it has none.
func field(run *history.Summary, name string) (starlark.Value, error) {
	switch name {
	case "params":
		return params{"params", run}, nil
	case "metrics":
		return metrics{"metrics", run}, nil
	case "id":
		return starlark.MakeInt64(run.ID), nil
	case "name":
		return starlark.String(run.Name), nil
	case "status":
		return starlark.String(run.Status), nil
	case "recipe":
		return starlark.String(run.Recipe), nil
	case "started":
		return starlark.String(run.Started.UTC().Format("2006-01-02T15:04:05.000000Z")), nil
	case "seconds":
		if run.Seconds == nil {
			return nil, errMissing
		}
		return starlark.Float(*run.Seconds), nil
	case "world_size":
		return starlark.MakeInt(run.WorldSize), nil
	case "backend":
		return starlark.String(run.Backend), nil
	case "seed":
		return starlark.MakeInt64(run.Seed), nil
	case "tags":
		list := make([]starlark.Value, len(run.Tags))
		for i, tag := range run.Tags {
			list[i] = starlark.String(tag)
		}
		return starlark.NewList(list), nil
	case "error":
		return starlark.String(run.Error), nil
	case "parent":
		if run.Parent == nil {
			return nil, errMissing
		}
		return starlark.MakeInt64(run.Parent.ID), nil
	}
	return nil, fmt.Errorf("no field %q", name)
}

// object is the common part of values that stand for a part of a run.
type object string

func (o object) String() string        { return string(o) }
func (o object) Type() string          { return string(o) }
func (o object) Freeze()               {}
func (o object) Truth() starlark.Bool  { return true }
func (o object) Hash() (uint32, error) { return 0, errors.New("unhashable: " + string(o)) }

type (
	params struct {
		object
		run *history.Summary
	}
	metrics struct {
		object
		run *history.Summary
	}
	metric struct {
		object
		history.MetricSummary
	}
)

// isObject reports whether v stands for a part of a run and has no value of its own.
func isObject(v starlark.Value) bool {
	switch v.(type) {
	case params, metrics, metric:
		return true
	}
	return false
}

func (p params) Attr(name string) (starlark.Value, error) {
	v, ok := p.run.Params[name]
	if !ok {
		return nil, errMissing
	}
	switch v := v.(type) {
	case nil:
		return starlark.None, nil
	case bool:
		return starlark.Bool(v), nil
	case int64:
		return starlark.MakeInt64(v), nil
	case *big.Int:
		return starlark.MakeBigInt(v), nil
	case float64:
		return starlark.Float(v), nil
	case string:
		return starlark.String(v), nil
	case history.List:
		return list(v.Elements()), nil
	}
	return nil, errMissing // a secret's value is not kept
}

// list is a list parameter as the recipe had it.
func list(elements []any) *starlark.List {
	out := make([]starlark.Value, len(elements))
	for i, e := range elements {
		switch e := e.(type) {
		case nil:
			out[i] = starlark.None
		case bool:
			out[i] = starlark.Bool(e)
		case string:
			out[i] = starlark.String(e)
		case json.Number:
			if n, ok := new(big.Int).SetString(e.String(), 10); ok {
				out[i] = starlark.MakeBigInt(n)
			} else {
				f, _ := e.Float64() // written by strconv
				out[i] = starlark.Float(f)
			}
		case []any:
			out[i] = list(e)
		}
	}
	return starlark.NewList(out)
}

func (p params) AttrNames() []string { return slices.Sorted(maps.Keys(p.run.Params)) }

func (p params) Get(key starlark.Value) (starlark.Value, bool, error) { return get(p, key) }

func (m metrics) Attr(name string) (starlark.Value, error) {
	s, ok := m.run.Metrics[name]
	if !ok {
		return nil, errMissing
	}
	return metric{"metric", s}, nil
}

func (m metrics) AttrNames() []string { return slices.Sorted(maps.Keys(m.run.Metrics)) }

func (m metrics) Get(key starlark.Value) (starlark.Value, bool, error) { return get(m, key) }

// get evaluates x["name"].
func get(x starlark.HasAttrs, key starlark.Value) (starlark.Value, bool, error) {
	name, ok := key.(starlark.String)
	if !ok {
		return nil, false, fmt.Errorf("%s[…] wants a name, not a %s", x.Type(), key.Type())
	}
	v, err := x.Attr(string(name))
	return v, err == nil, err
}

var metricAttrs = []string{"last", "min", "max", "first", "count"}

func (m metric) Attr(name string) (starlark.Value, error) {
	switch name {
	case "last":
		return starlark.Float(m.Last), nil
	case "min":
		return starlark.Float(m.Min), nil
	case "max":
		return starlark.Float(m.Max), nil
	case "first":
		return starlark.Float(m.First), nil
	case "count":
		return starlark.MakeInt64(m.Count), nil
	}
	return nil, nil
}

func (m metric) AttrNames() []string { return metricAttrs }

// Order compares values of an expression for sorting: numbers, then texts, then everything else. Missing values and
// NaN come last in both directions.
func Order(a, b starlark.Value, descending bool) int {
	rank := func(v starlark.Value) int {
		switch v.(type) {
		case nil:
			return 4
		case starlark.Bool, starlark.Int:
			return 0
		case starlark.Float:
			if isNaN(v) {
				return 3
			}
			return 0
		case starlark.String:
			return 1
		}
		return 2
	}
	i, j := rank(a), rank(b)
	if i != j {
		return i - j
	}
	c := 0
	switch i {
	case 0:
		c = compareNumbers(a, b)
	case 1:
		c = slices.Compare([]byte(a.(starlark.String)), []byte(b.(starlark.String)))
	case 2:
		c = slices.Compare([]byte(a.String()), []byte(b.String()))
	}
	if descending {
		c = -c
	}
	return c
}

func compareNumbers(a, b starlark.Value) int {
	number := func(v starlark.Value) starlark.Value {
		if truth, ok := v.(starlark.Bool); ok {
			n := 0
			if truth {
				n = 1
			}
			return starlark.MakeInt(n)
		}
		return v
	}
	a, b = number(a), number(b)
	if less, err := starlark.Compare(syntax.LT, a, b); err == nil && less {
		return -1
	}
	if less, err := starlark.Compare(syntax.LT, b, a); err == nil && less {
		return 1
	}
	return 0
}

// Plain converts a value for JSON: nil, bool, a whole number, records.Float, string, or a list.
func Plain(v starlark.Value) any {
	switch v := v.(type) {
	case starlark.Bool:
		return bool(v)
	case starlark.Int:
		return v.BigInt()
	case starlark.Float:
		return records.Float(v)
	case starlark.String:
		return string(v)
	case *starlark.List:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = Plain(v.Index(i))
		}
		return list
	case nil, starlark.NoneType:
		return nil
	}
	return v.String()
}
