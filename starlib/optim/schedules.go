package optim

import (
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"
)

var schedules = []*starlib.Def{
	{Sig: "cosine(lr: number, steps: int, warmup: int = 0, end: number = 0) -> Schedule",
		Doc: "Rises linearly to lr over warmup steps, then falls along half a cosine to end after steps steps (Loshchilov, Hutter 2017), where it stays.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			steps, warmup := c.Int("steps"), c.Int("warmup")
			try.FailIf(steps < 1 || warmup < 0 || warmup > steps, "steps = %d, warmup = %d: want at least 1 step, and 0 to %d of them as warmup", steps, warmup, max(steps, 0))
			lr, end := c.Float("lr"), c.Float("end")
			try.Ok(checkRate(lr))
			return &schedule{Opaque: "Schedule", name: "cosine", base: lr, rate: cosine(lr, steps, warmup, end)}, checkRate(end)
		}},
	{Sig: "step_decay(lr: number, every: int, gamma: number = 0.1) -> Schedule",
		Doc: "lr, multiplied by gamma after each `every` steps.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			every := c.Int("every")
			try.FailIf(every < 1, "every = %d: want at least 1 step", every)
			lr, gamma := c.Float("lr"), c.Float("gamma")
			return made("step_decay", lr, func(step int) (float64, error) { return lr * power(gamma, step/every), nil })
		}},
	{Sig: "multi_step(lr: number, milestones: list | tuple, gamma: number = 0.1) -> Schedule",
		Doc: "lr, multiplied by gamma at each of the milestones: step numbers in increasing order.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			lr, gamma := c.Float("lr"), c.Float("gamma")
			at := milestones(c)
			return made("multi_step", lr, func(step int) (float64, error) { return lr * power(gamma, passed(at, step)), nil })
		}},
	{Sig: "linear(lr: number, start_factor: number = 0.3333333333333333, end_factor: number = 1.0, total_iters: int = 5) -> Schedule",
		Doc: "lr times a factor that goes linearly from start_factor to end_factor over total_iters steps, and stays there.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			lr, start, end, n := c.Float("lr"), setting(c, "start_factor"), setting(c, "end_factor"), c.Int("total_iters")
			try.FailIf(n < 1, "total_iters = %d: want at least 1 step", n)
			return made("linear", lr, func(step int) (float64, error) {
				return lr * (start + float64((end-start)*float64(min(step, n)))/float64(n)), nil
			})
		}},
	{
		Sig: `one_cycle(max_lr: number, total_steps: int, pct_start: number = 0.3, anneal_strategy: string = "cos", div_factor: number = 25.0, final_div_factor: number = 10000.0, three_phase: bool = False, cycle_momentum: bool = False, base_momentum: number = 0.85, max_momentum: number = 0.95) -> Schedule`,
		Doc: `Smith and Topin's "super-convergence" (2017), as in PyTorch's OneCycleLR: from max_lr/div_factor up to max_lr in the first pct_start of total_steps, then down to max_lr/div_factor/final_div_factor, where it stays. anneal_strategy is "cos" or "linear"; three_phase returns to the initial rate as slowly as it rose, before the last descent. With cycle_momentum the optimizer's momentum, or its first beta, moves the other way, from max_momentum down to base_momentum and back; the optimizer must have one, and the schedule cannot be part of another.`,
		Fn:  oneCycle,
	},
	{Sig: "chained(*schedules) -> Schedule",
		Doc: "All schedules at once, like PyTorch's ChainedScheduler: the initial rate, which must be the same for all, times the factors by which the schedules have changed it.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			list := try.To(scheduleList(c.Rest))
			base := list[0].base
			for _, s := range list {
				if s.base != base || base == 0 {
					return nil, fmt.Errorf("the schedules must start from one rate above 0: %s has %v, %s has %v", list[0], base, s, s.base)
				}
			}
			return &schedule{Opaque: "Schedule", name: "chained", base: base, rate: func(step int) (float64, error) {
				lr := base
				for _, s := range list {
					r, err := s.rate(step)
					if err != nil {
						return 0, err
					}
					lr *= r / base
				}
				return lr, nil
			}}, nil
		}},
	{Sig: "sequential(schedules: list | tuple, milestones: list | tuple) -> Schedule",
		Doc: "One schedule after the other, like PyTorch's SequentialLR: the first starts at once, each other one at its milestone, which is its step 0. There is one milestone fewer than schedules.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			given := c.Arg("schedules").(starlark.Indexable)
			var values starlark.Tuple
			for i := range given.Len() {
				values = append(values, given.Index(i))
			}
			list := try.To(scheduleList(values))
			at := milestones(c)
			try.FailIf(len(at) != len(list)-1, "%d milestones cannot separate %d schedules: want %d", len(at), len(list), len(list)-1)
			return &schedule{Opaque: "Schedule", name: "sequential", base: list[0].base, rate: func(step int) (float64, error) {
				i := passed(at, step)
				if i > 0 {
					step -= at[i-1]
				}
				return list[i].rate(step)
			}}, nil
		}},
	{
		Sig: `plateau(lr: number, mode: string = "min", factor: number = 0.1, patience: int = 10, threshold: number = 0.0001, threshold_mode: string = "rel", cooldown: int = 0, min_lr: number = 0, eps: number = 1e-8) -> Plateau`,
		Doc: `A rate that falls when a metric stops improving, as PyTorch's ReduceLROnPlateau: call its step(metric) with the same metric on all ranks, for instance once an epoch. After more than patience calls without an improvement the rate is multiplied by factor, down to min_lr, unless that changes it by eps or less; the next cooldown calls are then not counted. mode is "min" or "max"; an improvement must beat the best value by threshold, a fraction of that value ("rel") or a difference ("abs"). NaN is no improvement.`,
		Fn:  newPlateau,
	},
}

// scheduleList reads schedules, of which there must be one.
func scheduleList(values starlark.Tuple) (_ []*schedule, err error) {
	defer try.Caught(&err)
	list := make([]*schedule, len(values))
	for i, v := range values {
		s, ok := v.(*schedule)
		try.FailIf(!ok, "schedule %d: want a Schedule, such as optim.cosine(...), got %s", i, v.Type())
		try.FailIf(s.momentum != nil, "schedule %d: one_cycle with cycle_momentum sets the optimizer's momentum, and cannot be a part of another schedule", i)
		list[i] = s
	}
	try.FailIf(len(list) == 0, "want at least one schedule")
	return list, nil
}

// milestones reads the argument milestones: increasing numbers of steps.
func milestones(c *starlib.Call) []int {
	given := c.Arg("milestones").(starlark.Indexable)
	at := make([]int, given.Len())
	for i := range at {
		n, err := starlark.AsInt32(given.Index(i))
		if err != nil || n < 0 || i > 0 && n < at[i-1] {
			try.Fail("milestones = %s: want numbers of steps in increasing order", c.Arg("milestones"))
		}
		at[i] = n
	}
	return at
}

// passed returns how many milestones are at or before step.
func passed(at []int, step int) int {
	n, _ := slices.BinarySearch(at, step+1)
	return n
}

// power returns x to the power of n, by squaring, so that its bits do not depend on a library.
func power(x float64, n int) float64 {
	result := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result *= x
		}
		x *= x
	}
	return result
}

// halfCosine goes from 1 to 0 as the angle goes from 0 to π.
func halfCosine(angle float64) (float64, error) {
	c, err := byTensors(angle, func(t *tensor.Tensor) (*tensor.Tensor, error) { return tensor.Unary(tensor.OpCos, t) })
	return float64(0.5 * (1 + c)), err
}

// cosine rises from 0 to lr over warmup steps and falls along half a cosine to end at step steps, where it stays.
func cosine(lr float64, steps, warmup int, end float64) func(int) (float64, error) {
	return func(step int) (float64, error) {
		if step < warmup {
			return lr * float64(step+1) / float64(warmup), nil
		}
		if step >= steps {
			return end, nil
		}
		half, err := halfCosine(math.Pi * float64(step-warmup) / float64(steps-warmup))
		return end + float64((lr-end)*half), err
	}
}

func oneCycle(c *starlib.Call) (starlark.Value, error) {
	top, total, part := c.Float("max_lr"), c.Int("total_steps"), c.Float("pct_start")
	strategy := c.String("anneal_strategy")
	switch {
	case total < 1:
		return nil, fmt.Errorf("total_steps = %d: want at least 1 step", total)
	case !(part >= 0 && part <= 1):
		return nil, fmt.Errorf("pct_start = %v: want a number from 0 to 1", part)
	case strategy != "cos" && strategy != "linear":
		return nil, fmt.Errorf(`anneal_strategy = %q: want "cos" or "linear"`, strategy)
	}
	for _, name := range []string{"div_factor", "final_div_factor"} {
		if v := c.Float(name); !(v > 0) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%s = %v: want a number above 0", name, v)
		}
	}
	begin := top / c.Float("div_factor")
	end := begin / c.Float("final_div_factor")
	low, high := c.Float("base_momentum"), c.Float("max_momentum")
	try.FailIf(!(low > 0 && low <= high && high < 1), "base_momentum = %v, max_momentum = %v: want numbers above 0 and below 1, and base_momentum not above max_momentum", low, high)
	// The rate (from, to) and the momentum (heavy, light) at the ends of each phase.
	type phase struct{ until, from, to, heavy, light float64 }
	rise := float64(part*float64(total)) - 1
	phases := []phase{{rise, begin, top, high, low}, {float64(total) - 1, top, end, low, high}}
	if c.Bool("three_phase") {
		phases = []phase{phases[0], {float64(2*part*float64(total)) - 2, top, begin, low, high}, {float64(total) - 1, begin, end, high, high}}
	}
	// at finds the phase of a step, and how far along it is: from 0 to 1 on a line, from 1 to 0 on a cosine.
	at := func(step int) (p phase, along float64, err error) {
		from, now := 0.0, float64(step)
		for i := range phases {
			if p = phases[i]; now <= p.until || i == len(phases)-1 {
				break
			}
			from = p.until
		}
		part := 1.0
		if p.until > from {
			part = min(1, (now-from)/(p.until-from))
		}
		if strategy == "linear" {
			return p, part, nil
		}
		along, err = halfCosine(math.Pi * part)
		return p, along, err
	}
	between := func(from, to, along float64) float64 {
		if strategy == "linear" {
			return from + float64((to-from)*along)
		}
		return to + float64((from-to)*along)
	}
	s := &schedule{Opaque: "Schedule", name: "one_cycle", base: top, rate: func(step int) (float64, error) {
		p, along, err := at(step)
		return between(p.from, p.to, along), err
	}}
	if c.Bool("cycle_momentum") {
		s.momentum = func(step int) (float64, error) {
			p, along, err := at(step)
			return between(p.heavy, p.light, along), err
		}
	}
	return s, checkRate(top)
}
