package optim

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
	"drun/tensor/optim"
)

// average is what optim.ema and optim.swa return.
type average struct {
	starlib.Opaque
	kind string
	*optim.Average
	params []*tensor.Tensor
	maker
}

var _ starlib.Stateful = (*average)(nil)

func (k maker) averages() []*starlib.Def {
	averaging := func(c *starlib.Call, kind string, decay float64) (starlark.Value, error) {
		params := tensors(c, "params")
		try.FailIf(len(params) == 0, "params is empty: there is nothing to average")
		a, err := optim.NewAverage(params, decay)
		if err == nil {
			a.Equal = kind == "swa"
		}
		return &average{"Average", kind, a, params, k}, err
	}
	return []*starlib.Def{{
		Sig: "ema(params: iterable, decay: number = 0.999) -> Average",
		Doc: "An exponential moving average of parameters, as PyTorch's AveragedModel with get_ema_multi_avg_fn: call its update() after each step of the optimizer, and swap() before and after an evaluation with the averages. Its first update copies the parameters. Put it in the checkpoint's state.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			decay := c.Float("decay")
			try.FailIf(!(decay >= 0 && decay <= 1), "decay = %v: want a number from 0 to 1", decay)
			return averaging(c, "ema", decay)
		},
	}, {
		Sig: "swa(params: iterable) -> Average",
		Doc: "The mean of parameters over all updates (stochastic weight averaging, Izmailov et al. 2018), as PyTorch's AveragedModel: used as optim.ema. A model with batch_norm must see the training data once more in training mode, with the averages swapped in and without gradients, so that the running statistics fit them.",
		Fn:  func(c *starlib.Call) (starlark.Value, error) { return averaging(c, "swa", 0) },
	}}
}

var averageMethods = &starlib.Methods{
	Type: "Average",
	Doc:  "An average of parameters over updates. Its state is part of a checkpoint.",
	Attrs: [][2]string{
		{"averages", "the averages, a list of tensors in the order of the parameters; while they are swapped, the parameters' own values"},
		{"decay", "the share of the average that an update of optim.ema keeps"},
		{"updates", "the number of updates done"},
		{"swapped", "True while the parameters hold the averages"},
	},
	Defs: []*starlib.Def{
		{Sig: "update()",
			Doc: "Moves the averages: average += (1 - decay)·(parameter - average), or for optim.swa (parameter - average)/(updates + 1). It is an error while they are swapped.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				a := c.Recv.(*average)
				a.ctx.BeginNoGrad()
				defer a.ctx.EndNoGrad()
				return nil, a.Update()
			}},
		{Sig: "swap()",
			Doc: "Exchanges the parameters' values with the averages, in place; a second call puts them back.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				a := c.Recv.(*average)
				a.ctx.BeginNoGrad()
				defer a.ctx.EndNoGrad()
				err := a.Swap()
				a.exchanged()
				return nil, err
			}},
	},
}

func (a *average) String() string {
	return fmt.Sprintf("<optim.%s after %d updates>", a.kind, a.Updates)
}

func (a *average) Attr(name string) (starlark.Value, error) {
	switch name {
	case "averages":
		list := each.Of(a.Averages(), func(t *tensor.Tensor) starlark.Value { return (*startensor.Value)(t) })
		return starlark.NewList(list), nil
	case "decay":
		return starlark.Float(a.Decay), nil
	case "updates":
		return starlark.MakeInt(a.Updates), nil
	case "swapped":
		return starlark.Bool(a.Swapped), nil
	}
	return averageMethods.Attr(a, name)
}

func (a *average) AttrNames() []string { return averageMethods.AttrNames() }

// State returns the averages, the number of updates, and whether they are swapped.
func (a *average) State() []starlib.Entry {
	entries := []starlib.Entry{{Name: "updates", Value: starlark.MakeInt(a.Updates)}, {Name: "swapped", Value: starlark.Bool(a.Swapped)}}
	for i, t := range a.Averages() {
		entries = append(entries, starlib.Entry{Name: fmt.Sprintf("average.%d", i), Value: (*startensor.Value)(t)})
	}
	return entries
}

// SetState copies saved averages into the live ones.
func (a *average) SetState(entries []starlib.Entry) (err error) {
	defer try.Caught(&err)
	live := make(map[string]*tensor.Tensor)
	for i, t := range a.Averages() {
		live[fmt.Sprintf("average.%d", i)] = t
	}
	updates, swapped := a.Updates, a.Swapped
	var rest []starlib.Entry
	for _, e := range entries {
		switch e.Name {
		case "updates":
			n, err := starlark.AsInt32(e.Value)
			try.FailIf(err != nil || n < 0, "optim.%s: updates must be a number of 0 or more, not %s", a.kind, e.Value)
			updates = n
		case "swapped":
			b, ok := e.Value.(starlark.Bool)
			try.FailIf(!ok, "optim.%s: swapped must be True or False, not %s", a.kind, e.Value)
			swapped = bool(b)
		default:
			rest = append(rest, e)
		}
	}
	try.Ok(startensor.Restore(a.ctx, "optim."+a.kind, live, rest))
	a.Updates, a.Swapped = updates, swapped
	a.exchanged()
	return nil
}

// exchanged records, for optimizers, whether the parameters hold the averages, which must not be trained.
func (a *average) exchanged() {
	for _, p := range a.params {
		if delete(a.averaged, p); a.Swapped {
			a.averaged[p] = true
		}
	}
}
