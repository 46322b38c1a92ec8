package optim

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"
	"drun/tensor/optim"
)

// adaptive are the optimizers with adaptive rates that are used less often.
func (k maker) adaptive() []*starlib.Def {
	const decay = "weight_decay·p is added to the gradient"
	const decoupled = decay + ", or with decoupled_weight_decay p -= lr·weight_decay·p before each step"
	return []*starlib.Def{
		{Sig: "nadam(params: iterable, lr = 0.002, betas: tuple | list = (0.9, 0.999), eps: number = 1e-8, weight_decay: number = 0, momentum_decay: number = 0.004, decoupled_weight_decay: bool = False, local: bool = False) -> Optimizer",
			Doc: "Adam with Nesterov's momentum (Dozat 2016); " + decoupled + ".",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				first, second := betas(c)
				return k.make(c, "nadam", optim.NewNAdam(optim.NAdam{Beta1: first, Beta2: second, Eps: setting(c, "eps"), MomentumDecay: setting(c, "momentum_decay"), Decoupled: c.Bool("decoupled_weight_decay")}))
			}},
		{Sig: "radam(params: iterable, lr = 0.001, betas: tuple | list = (0.9, 0.999), eps: number = 1e-8, weight_decay: number = 0, decoupled_weight_decay: bool = False, local: bool = False) -> Optimizer",
			Doc: "Adam with a rectified rate, which needs no warmup (Liu et al. 2020); " + decoupled + ".",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				first, second := betas(c)
				return k.make(c, "radam", optim.RAdam{Beta1: first, Beta2: second, Eps: setting(c, "eps"), Decoupled: c.Bool("decoupled_weight_decay")})
			}},
		{Sig: "adamax(params: iterable, lr = 0.002, betas: tuple | list = (0.9, 0.999), eps: number = 1e-8, weight_decay: number = 0, local: bool = False) -> Optimizer",
			Doc: "Adam with the infinity norm instead of the second moment (Kingma, Ba 2015); " + decay + ".",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				first, second := betas(c)
				return k.make(c, "adamax", optim.Adamax{Beta1: first, Beta2: second, Eps: setting(c, "eps")})
			}},
		{Sig: "adadelta(params: iterable, lr = 1.0, rho: number = 0.9, eps: number = 1e-6, weight_decay: number = 0, local: bool = False) -> Optimizer",
			Doc: "Adadelta (Zeiler 2012): p -= lr·g·√(u + eps)/√(v + eps), where v and u are moving averages, with decay rho, of g² and of the steps' squares; " + decay + ".",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				r := optim.Adadelta{Rho: setting(c, "rho"), Eps: setting(c, "eps")}
				try.FailIf(r.Rho > 1, "rho = %v: want a number from 0 to 1", r.Rho)
				return k.make(c, "adadelta", r)
			}},
		{Sig: "adafactor(params: iterable, lr = 0.01, beta2_decay: number = -0.8, eps: tuple | list = (None, 0.001), d: number = 1.0, weight_decay: number = 0, local: bool = False) -> Optimizer",
			Doc: "Adafactor (Shazeer, Stern 2018) as in PyTorch: of a matrix's squared gradients it keeps only moving averages of rows and columns, so its state is small. A step is lr, at most 1/√step, times the root mean square of the parameter, at least eps[1], and d clips the step's own; eps[0], by default the dtype's epsilon, keeps divisors from 0. Weight decay is decoupled. It needs whole parameters, so neither dist.zero nor dist.fsdp divides it.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				r := optim.Adafactor{Beta2Decay: c.Float("beta2_decay"), Clip: setting(c, "d")}
				pair := c.Arg("eps").(starlark.Indexable)
				try.FailIf(pair.Len() != 2 || r.Beta2Decay > 0 || r.Clip < 1, "eps = %s, beta2_decay = %v, d = %v: want two numbers, one of at most 0, and one of at least 1", c.Arg("eps"), r.Beta2Decay, r.Clip)
				if pair.Index(0) != starlark.None {
					r.Eps = starlib.Number(pair.Index(0))
				}
				r.Floor = starlib.Number(pair.Index(1))
				try.FailIf(!(r.Eps >= 0 && r.Floor >= 0), "eps = %s: want numbers of 0 or more", c.Arg("eps"))
				return k.make(c, "adafactor", r)
			}},
		{Sig: "muon(params: iterable, lr = 0.001, weight_decay: number = 0.1, momentum: number = 0.95, nesterov: bool = True, ns_coefficients: tuple | list = (3.4445, -4.775, 2.0315), eps: number = 1e-7, ns_steps: int = 5, adjust_lr_fn: string = None, local: bool = False) -> Optimizer",
			Doc: `Muon (Jordan et al. 2024) as in PyTorch: matrices move by their momentum, made nearly orthogonal by ns_steps of a Newton-Schulz iteration in bfloat16. Its parameters are matrices; others belong to an optimizer such as adamw beside it. lr is multiplied by the root of rows/columns, at least 1; with adjust_lr_fn = "match_rms_adamw" by 0.2 times the root of the larger of both, so that adamw's lr fits. Weight decay is decoupled. It needs whole parameters, so neither dist.zero nor dist.fsdp divides it.`,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				r := optim.Muon{Momentum: setting(c, "momentum"), Eps: setting(c, "eps"), Nesterov: c.Bool("nesterov"), Steps: c.Int("ns_steps"), Adjust: "original"}
				list := c.Arg("ns_coefficients").(starlark.Indexable)
				try.FailIf(list.Len() != 3 || r.Momentum >= 1 || r.Steps < 1 || r.Steps > 99, "ns_coefficients = %s, momentum = %v, ns_steps = %d: want three numbers, one below 1, and one from 1 to 99", list, r.Momentum, r.Steps)
				for i := range r.Coefficients {
					r.Coefficients[i] = starlib.Number(list.Index(i))
				}
				if !c.IsNone("adjust_lr_fn") {
					r.Adjust = c.String("adjust_lr_fn")
				}
				switch r.Adjust {
				case "original", "match_rms_adamw", "spectral_unclamped":
				default:
					return nil, fmt.Errorf(`adjust_lr_fn = %s: want "original", "match_rms_adamw" or "spectral_unclamped"`, c.Arg("adjust_lr_fn"))
				}
				return k.newOptimizer(c, "muon", c.Arg("weight_decay"), func(groups []optim.ParamGroup) (*optim.Optimizer, error) {
					for _, g := range groups {
						for i, p := range g.Params {
							try.FailIf(p.Dim() != 2, "parameter %d has shape %s: muon is for matrices; give the others to optim.adamw", i, tensor.ShapeString(p.Shape()))
						}
					}
					return optim.New(groups, r)
				})
			}},
	}
}
