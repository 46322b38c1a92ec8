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
	"drun/internal/each"
)

// Fields are the names that expressions can use besides params and metrics.
var Fields = []string{"id", "name", "status", "recipe", "started", "seconds", "world_size", "backend", "seed", "tags", "error", "parent", "project", "owner"}

// fields are a run's values for these names; nil: it has none.
var fields = map[string]func(*history.Summary) starlark.Value{
	"params":  func(r *history.Summary) starlark.Value { return params{"params", r} },
	"metrics": func(r *history.Summary) starlark.Value { return metrics{"metrics", r} },
	"id":      func(r *history.Summary) starlark.Value { return valueOf(r.ID) },
	"name":    func(r *history.Summary) starlark.Value { return valueOf(r.Name) },
	"status":  func(r *history.Summary) starlark.Value { return valueOf(string(r.Status)) },
	"recipe":  func(r *history.Summary) starlark.Value { return valueOf(r.Recipe) },
	"started": func(r *history.Summary) starlark.Value {
		return valueOf(r.Started.UTC().Format("2006-01-02T15:04:05.000000Z"))
	},
	"world_size": func(r *history.Summary) starlark.Value { return valueOf(int64(r.WorldSize)) },
	"backend":    func(r *history.Summary) starlark.Value { return valueOf(r.Backend) },
	"seed":       func(r *history.Summary) starlark.Value { return valueOf(r.Seed) },
	"error":      func(r *history.Summary) starlark.Value { return valueOf(r.Error) },
	"seconds": func(r *history.Summary) starlark.Value {
		if r.Seconds == nil {
			return nil
		}
		return valueOf(*r.Seconds)
	},
	"tags": func(r *history.Summary) starlark.Value {
		list := each.Of(r.Tags, func(tag string) any { return tag })
		return valueOf(list)
	},
	"project": func(r *history.Summary) starlark.Value { return textOrNone(r.ProjectName) },
	"owner":   func(r *history.Summary) starlark.Value { return textOrNone(r.Owner) },
	"parent": func(r *history.Summary) starlark.Value {
		if r.Parent == nil {
			return nil
		}
		return valueOf(r.Parent.ID)
	},
}

func textOrNone(text string) starlark.Value {
	if text == "" {
		return nil
	}
	return starlark.String(text)
}

// valueOf is a value of the history in Starlark; nil: it is not kept, like that of a secret.
func valueOf(v any) starlark.Value {
	switch v := v.(type) {
	case nil:
		return starlark.None
	case bool:
		return starlark.Bool(v)
	case int64:
		return starlark.MakeInt64(v)
	case *big.Int:
		return starlark.MakeBigInt(v)
	case float64:
		return starlark.Float(v)
	case records.Float:
		return starlark.Float(v)
	case string:
		return starlark.String(v)
	case json.Number: // in a list, as the recipe had it
		if n, ok := new(big.Int).SetString(v.String(), 10); ok {
			return starlark.MakeBigInt(n)
		}
		f, _ := v.Float64() // written by strconv
		return starlark.Float(f)
	case history.List:
		return valueOf(v.Elements())
	case []any:
		list := each.Of(v, valueOf)
		return starlark.NewList(list)
	}
	return nil
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
	if kept, ok := p.run.Params[name]; ok {
		if v := valueOf(kept); v != nil {
			return v, nil
		}
	}
	return nil, errMissing // like that of a secret
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

// MetricValues are the names of a metric's values.
var MetricValues = []string{"last", "min", "max", "first", "count"}

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

func (m metric) AttrNames() []string { return MetricValues }

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
		return each.UpTo(v.Len(), func(i int) any { return Plain(v.Index(i)) })
	case nil, starlark.NoneType:
		return nil
	}
	return v.String()
}
