package optim

import (
	"fmt"
	"math"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// rate is a learning rate as a function of the step, counted from 0. It takes a thread,
// since it may be a recipe's function.
type rate interface {
	at(thread *starlark.Thread, step int) (float64, error)
}

func rateOf(v starlark.Value) (rate, error) {
	switch v := v.(type) {
	case starlark.Int, starlark.Float:
		return newConstant(v)
	case *schedule:
		return v, nil
	case *plateau:
		return v, nil
	case starlark.Callable:
		return function{v}, nil
	}
	return nil, fmt.Errorf("lr: want a number, a schedule or a function of the step, got %s", v.Type())
}

type constant float64

func newConstant(v starlark.Value) (rate, error) {
	f, _ := starlark.AsFloat(v)
	return constant(f), checkRate(f)
}

func (c constant) at(*starlark.Thread, int) (float64, error) { return float64(c), nil }

func checkRate(lr float64) error {
	if !(lr >= 0) || math.IsInf(lr, 0) {
		return fmt.Errorf("lr = %v: want a finite number of 0 or more", lr)
	}
	return nil
}

// function is a recipe's fn(step).
type function struct{ fn starlark.Callable }

func (f function) at(thread *starlark.Thread, step int) (_ float64, err error) {
	defer try.Caught(&err)
	v := try.To(starlark.Call(thread, f.fn, starlark.Tuple{starlark.MakeInt(step)}, nil))
	lr, ok := starlark.AsFloat(v)
	if _, isBool := v.(starlark.Bool); !ok || isBool {
		return 0, fmt.Errorf("lr: the function %s returned a %s for step %d, not a number", f.fn.Name(), v.Type(), step)
	}
	return lr, checkRate(lr)
}

// schedule is what optim.cosine and the like return; a recipe can call it to see a step's rate.
type schedule struct {
	starlib.Opaque
	name string
	base float64 // the rate that it was made with
	rate func(step int) (float64, error)

	momentum func(step int) (float64, error) // the momentum that it also sets; may be nil
}

var _ starlark.Callable = (*schedule)(nil)

func (s *schedule) String() string { return "<schedule " + s.name + ">" }
func (s *schedule) Name() string   { return "optim." + s.name }

func (s *schedule) at(_ *starlark.Thread, step int) (_ float64, err error) {
	defer try.Caught(&err)
	try.FailIf(step < 0, "step = %d: steps count from 0", step)
	lr := try.To(s.rate(step))
	return lr, checkRate(lr)
}

func (s *schedule) CallInternal(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var step int
	if err := starlark.UnpackArgs(s.Name(), args, kwargs, "step", &step); err != nil {
		return nil, err
	}
	lr, err := s.at(thread, step)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	return starlark.Float(lr), nil
}

// parameters reads params: a sequence of tensors, or of dicts with params and their own lr and weight_decay.
func parameters(params starlark.Value, lr starlark.Value, weightDecay float64) []group {
	iterable, ok := params.(starlark.Iterable)
	_, single := params.(*startensor.Value)
	try.FailIf(!ok || single, "params: want a list of Tensors or dicts, such as model.parameters(); got %s", params.Type())
	main := group{decay: weightDecay}
	var groups []group
	iter := iterable.Iterate()
	defer iter.Done()
	for v, i := starlark.Value(nil), 0; iter.Next(&v); i++ {
		switch v := v.(type) {
		case *startensor.Value:
			main.params = append(main.params, v.Tensor())
		case *starlark.Dict:
			g, err := groupOf(v, weightDecay)
			try.FailIf(err != nil, "params, element %d: %w", i, err)
			groups = append(groups, g)
		default:
			try.FailIf(true, "params, element %d: want a Tensor or a dict, got %s", i, v.Type())
		}
	}
	if main.params != nil {
		groups = append([]group{main}, groups...)
	}
	try.FailIf(len(groups) == 0, "params is empty: there is nothing to optimize")
	for i := range groups {
		if groups[i].rate == nil {
			try.FailIf(lr == starlark.None, "lr is missing")
			groups[i].rate = try.To(rateOf(lr))
		}
	}
	return groups
}

// momentum returns the momentum that the group's schedule sets at a step; 0: none.
func (g *group) momentum(step int) (float64, error) {
	if s, ok := g.rate.(*schedule); ok && s.momentum != nil {
		return s.momentum(step)
	}
	return 0, nil
}

// group is a group of parameters with its own rate and weight decay.
type group struct {
	params []*tensor.Tensor
	rate   rate
	decay  float64
	lr     float64 // of the last step; before any, of the first
}

func groupOf(d *starlark.Dict, weightDecay float64) (group, error) {
	g := group{decay: weightDecay}
	for k, v := range d.Entries() {
		var err error
		switch name, _ := starlark.AsString(k); name {
		case "params":
			g.params, err = startensor.List(v)
		case "lr":
			g.rate, err = rateOf(v)
		case "weight_decay":
			g.decay, err = decayOf(v)
		default:
			err = fmt.Errorf("unknown key %s: a group has params, lr, weight_decay", k)
		}
		if err != nil {
			return g, err
		}
	}
	if len(g.params) == 0 {
		return g, fmt.Errorf("the group has no params")
	}
	return g, nil
}

func decayOf(v starlark.Value) (float64, error) {
	f, ok := starlark.AsFloat(v)
	if !ok || !(f >= 0) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("weight_decay = %s: want a finite number of 0 or more", v)
	}
	return f, nil
}
