package optim

import (
	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"
)

// decays are PyTorch's ExponentialLR, PolynomialLR, CyclicLR and CosineAnnealingWarmRestarts.
var decays = []*starlib.Def{
	{Sig: "exponential(lr: number, gamma: number) -> Schedule",
		Doc: "lr, multiplied by gamma after each step.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			lr, gamma := c.Float("lr"), setting(c, "gamma")
			return made("exponential", lr, func(step int) (float64, error) { return lr * power(gamma, step), nil })
		}},
	{Sig: "polynomial(lr: number, total_iters: int = 5, power: number = 1.0) -> Schedule",
		Doc: "lr·(1 - step/total_iters)^power, and 0 from total_iters steps on.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			lr, n, exponent := c.Float("lr"), c.Int("total_iters"), setting(c, "power")
			try.FailIf(n < 1, "total_iters = %d: want at least 1 step", n)
			return made("polynomial", lr, func(step int) (float64, error) {
				left, err := raised(float64(max(n-step, 0))/float64(n), exponent)
				return lr * left, err
			})
		}},
	{Sig: `cyclic(base_lr: number, max_lr: number, step_size_up: int = 2000, step_size_down: int = None, mode: string = "triangular", gamma: number = 1.0) -> Schedule`,
		Doc: `From base_lr linearly to max_lr over step_size_up steps and back over step_size_down, as many by default, again and again (Smith 2017). mode "triangular2" halves the height with each cycle, and "exp_range" multiplies it by gamma at each step.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			low, high, up, gamma := setting(c, "base_lr"), setting(c, "max_lr"), c.Int("step_size_up"), setting(c, "gamma")
			down, mode := up, c.String("mode")
			if !c.IsNone("step_size_down") {
				down = c.Int("step_size_down")
			}
			try.FailIf(up < 1 || down < 1 || up > 1<<50 || down > 1<<50, "step_size_up = %d, step_size_down = %d: want at least 1 step of each", up, down)
			try.FailIf(mode != "triangular" && mode != "triangular2" && mode != "exp_range", `mode = %q: want "triangular", "triangular2" or "exp_range"`, mode)
			return made("cyclic", low, func(step int) (float64, error) {
				cycle, at := step/(up+down), step%(up+down)
				height := float64(at) / float64(up)
				if at > up {
					height = float64(up+down-at) / float64(down)
				}
				switch mode {
				case "triangular2":
					height *= power(0.5, cycle)
				case "exp_range":
					height *= power(gamma, step)
				}
				return low + float64((high-low)*height), nil
			})
		}},
	{Sig: "cosine_warm_restarts(lr: number, T_0: int, T_mult: int = 1, eta_min: number = 0) -> Schedule",
		Doc: "Half a cosine from lr to eta_min over T_0 steps, then again from lr, each time over T_mult times as many steps (Loshchilov, Hutter 2017).",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			lr, first, times, end := c.Float("lr"), c.Int("T_0"), c.Int("T_mult"), setting(c, "eta_min")
			try.FailIf(first < 1 || times < 1 || first > 1<<30 || times > 1<<30, "T_0 = %d, T_mult = %d: want at least 1, and at most %d", first, times, 1<<30)
			return made("cosine_warm_restarts", lr, func(step int) (float64, error) {
				at, n := step, first
				if times == 1 {
					at %= n
				}
				for at >= n {
					at -= n
					n *= times
				}
				return cosine(lr, n, 0, end)(at)
			})
		}},
}

func made(name string, lr float64, rate func(int) (float64, error)) (starlark.Value, error) {
	return &schedule{Opaque: "Schedule", name: name, base: lr, rate: rate}, checkRate(lr)
}

func raised(x, y float64) (float64, error) {
	return byTensors(x, func(t *tensor.Tensor) (*tensor.Tensor, error) {
		return tensor.BinaryScalar(tensor.OpPow, t, tensor.Float(y), false)
	})
}

// byTensors computes a function of a number as tensors do: those of package math may differ between processors.
func byTensors(x float64, fn func(*tensor.Tensor) (*tensor.Tensor, error)) (float64, error) {
	t, err := tensor.Full(nil, nil, tensor.Float(x), dtype.Float64)
	if err == nil {
		t, err = fn(t)
	}
	if err != nil {
		return 0, err
	}
	s, err := t.Item()
	return s.Float(), err
}
