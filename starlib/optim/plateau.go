package optim

import (
	"fmt"
	"math"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
)

// plateau is a rate that falls when a metric, which the recipe passes, stops improving.
type plateau struct {
	starlib.Opaque
	lr, best                           float64
	bad, pause                         int // calls without improvement; calls that will not be counted
	largest, relative                  bool
	factor, threshold, least, smallest float64
	patience, cooldown                 int
}

var _ rate = (*plateau)(nil)

func (p *plateau) String() string { return fmt.Sprintf("<plateau at lr %v>", p.lr) }

func (p *plateau) at(*starlark.Thread, int) (float64, error) { return p.lr, nil }

var plateauMethods = &starlib.Methods{
	Type:  "Plateau",
	Doc:   "A learning rate that falls when a metric stops improving. Given to an optimizer, its state is part of the optimizer's in a checkpoint.",
	Attrs: [][2]string{{"lr", "the rate of the next step"}},
	Defs: []*starlib.Def{{
		Sig: "step(metric: number | Tensor)",
		Doc: "Takes a metric, which must be the same on all ranks, and lowers the rate after too many calls without improvement.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			metric, err := lossOf(c.Arg("metric"))
			if err == nil {
				c.Recv.(*plateau).take(metric)
			}
			return nil, err
		},
	}},
}

func (p *plateau) Attr(name string) (starlark.Value, error) {
	if name == "lr" {
		return starlark.Float(p.lr), nil
	}
	return plateauMethods.Attr(p, name)
}

func (p *plateau) AttrNames() []string { return plateauMethods.AttrNames() }

func newPlateau(c *starlib.Call) (starlark.Value, error) {
	p := &plateau{Opaque: "Plateau", lr: c.Float("lr"), factor: c.Float("factor"), threshold: setting(c, "threshold"), least: setting(c, "min_lr"),
		smallest: setting(c, "eps"), patience: c.Int("patience"), cooldown: c.Int("cooldown")}
	mode, threshold := c.String("mode"), c.String("threshold_mode")
	switch {
	case mode != "min" && mode != "max":
		return nil, fmt.Errorf(`mode = %q: want "min" or "max"`, mode)
	case threshold != "rel" && threshold != "abs":
		return nil, fmt.Errorf(`threshold_mode = %q: want "rel" or "abs"`, threshold)
	case !(p.factor >= 0 && p.factor < 1):
		return nil, fmt.Errorf("factor = %v: want a number of at least 0 and below 1", p.factor)
	case p.patience < 0 || p.cooldown < 0:
		return nil, fmt.Errorf("patience = %d, cooldown = %d: want numbers of 0 or more", p.patience, p.cooldown)
	}
	p.largest, p.relative = mode == "max", threshold == "rel"
	p.best = math.Inf(1)
	if p.largest {
		p.best = math.Inf(-1)
	}
	return p, checkRate(p.lr)
}

func (p *plateau) take(metric float64) {
	by := p.threshold
	if p.relative {
		by = float64(p.threshold * p.best)
		if math.IsInf(p.best, 0) {
			by = 0
		}
	}
	better := metric < p.best-by
	if p.largest {
		better = metric > p.best+by
	}
	if better {
		p.best, p.bad = metric, 0
	} else {
		p.bad++
	}
	if p.pause > 0 {
		p.pause--
		p.bad = 0
	}
	if p.bad > p.patience {
		if lower := max(p.lr*p.factor, p.least); p.lr-lower > p.smallest {
			p.lr = lower
		}
		p.pause, p.bad = p.cooldown, 0
	}
}

// plateaus returns the state of the groups' plateaus, nil if there are none.
func (o *Optimizer) plateaus() starlark.Value {
	var found bool
	states := make(starlark.Tuple, len(o.groups))
	for i, g := range o.groups {
		states[i] = starlark.None
		if p, ok := g.rate.(*plateau); ok {
			found = true
			states[i] = starlark.Tuple{starlark.Float(p.lr), starlark.Float(p.best), starlark.MakeInt(p.bad), starlark.MakeInt(p.pause)}
		}
	}
	if !found {
		return nil
	}
	return states
}

// setPlateaus checks a state, and with apply sets it.
func (o *Optimizer) setPlateaus(v starlark.Value, apply bool) (err error) {
	defer try.Caught(&err)
	states, ok := v.(starlark.Tuple)
	try.FailIf(!ok || len(states) != len(o.groups), "optim.%s has %d groups of parameters, but plateau is %s", o.kind, len(o.groups), v)
	for i, s := range states {
		if s == starlark.None {
			continue
		}
		p, ok := o.groups[i].rate.(*plateau)
		try.FailIf(!ok, "optim.%s: group %d was saved with optim.plateau as its lr, and now has something else", o.kind, i)
		t, ok := s.(starlark.Tuple)
		try.FailIf(!ok || len(t) != 4, "optim.%s: the state of a plateau must be four numbers, not %s", o.kind, s)
		lr, ok1 := starlark.AsFloat(t[0])
		best, ok2 := starlark.AsFloat(t[1])
		bad, err1 := starlark.AsInt32(t[2])
		pause, err2 := starlark.AsInt32(t[3])
		try.FailIf(!ok1 || !ok2 || err1 != nil || err2 != nil || checkRate(lr) != nil, "optim.%s: the state of a plateau must be four numbers, not %s", o.kind, s)
		if apply {
			p.lr, p.best, p.bad, p.pause = lr, best, bad, pause // the group's rate is still that of the last step
		}
	}
	return nil
}
