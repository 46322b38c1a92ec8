package nn

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

const (
	pairOf      = `(input: Tensor, target: Tensor`
	reduced     = `, reduction: string = "mean"`
	reducedDocs = ` reduction is "mean", "sum" or "none".`
)

var losses = []*starlib.Def{
	loss("mse_loss"+pairOf+reduced+")", "The squared difference of two tensors of the same shape."+reducedDocs, func(c *starlib.Call) (*tensor.Tensor, error) {
		return tensor.MSELoss(startensor.Arg(c, "input"), startensor.Arg(c, "target"), reduction(c))
	}),
	loss("l1_loss"+pairOf+reduced+")", "The absolute difference of two tensors of the same shape."+reducedDocs, func(c *starlib.Call) (*tensor.Tensor, error) {
		return tensor.L1Loss(startensor.Arg(c, "input"), startensor.Arg(c, "target"), reduction(c))
	}),
	{Sig: "accuracy(logits: Tensor, target: Tensor) -> float",
		Doc: "The fraction of rows whose largest logit is the target's: logits (n, classes), target (n,).",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			a, err := tensor.Accuracy(startensor.Arg(c, "logits"), startensor.Arg(c, "target"))
			return starlark.Float(a), err
		}},
	loss("cross_entropy(logits: Tensor, target: Tensor"+reduced+", weight: Tensor = None, ignore_index: int = -100, label_smoothing: number = 0)",
		"The negative logarithm of the target class's softmax: logits (n, classes) or (n, classes, …), target (n,) or (n, …) of class numbers, int64, or probabilities of the logits' shape. weight (classes,) weights each class; a sample whose target is ignore_index does not count; label_smoothing, from 0 to 1, is the share of the target that is spread evenly over all classes (Szegedy et al. 2016). The mean is weighted by the targets' weights."+reducedDocs,
		func(c *starlib.Call) (*tensor.Tensor, error) {
			x, y := startensor.Arg(c, "logits"), startensor.Arg(c, "target")
			o := tensor.ClassOptions{Weight: startensor.Optional(c, "weight"), Ignore: int64(c.Int("ignore_index")), Smoothing: c.Float("label_smoothing")}
			if o == (tensor.ClassOptions{Ignore: tensor.IgnoreTarget}) {
				return tensor.CrossEntropy(x, y, reduction(c))
			}
			return tensor.CrossEntropyWith(x, y, o, reduction(c))
		}),
	loss("nll_loss(log_probabilities: Tensor, target: Tensor"+reduced+", weight: Tensor = None, ignore_index: int = -100)",
		"The negative log-probability of the target class, as log_softmax computes it: (n, classes) or (n, classes, …), target (n,) or (n, …) of class numbers. weight (classes,) weights each class; a sample whose target is ignore_index does not count. The mean is weighted by the targets' weights."+reducedDocs,
		func(c *starlib.Call) (*tensor.Tensor, error) {
			return tensor.NLLLoss(startensor.Arg(c, "log_probabilities"), startensor.Arg(c, "target"), startensor.Optional(c, "weight"), int64(c.Int("ignore_index")), reduction(c))
		}),
	loss("bce_with_logits(logits: Tensor, target: Tensor"+reduced+", weight: Tensor = None, pos_weight: Tensor = None)",
		"Binary cross-entropy of sigmoid(logits) with targets from 0 to 1, of the same shape, computed without overflow. weight weights each element, pos_weight its positive part; both broadcast to the logits."+reducedDocs,
		func(c *starlib.Call) (*tensor.Tensor, error) {
			x, y, weight, pos := startensor.Arg(c, "logits"), startensor.Arg(c, "target"), startensor.Optional(c, "weight"), startensor.Optional(c, "pos_weight")
			if weight == nil && pos == nil {
				return tensor.BCEWithLogits(x, y, reduction(c))
			}
			return tensor.WeightedBCE(x, y, weight, pos, reduction(c))
		}),
	loss("huber_loss"+pairOf+reduced+", delta: number = 1.0)",
		"Half the squared difference of two tensors of the same shape where the difference is at most delta, and delta·(|difference| - delta/2) elsewhere (Huber 1964)."+reducedDocs,
		func(c *starlib.Call) (*tensor.Tensor, error) {
			return tensor.HuberLoss(startensor.Arg(c, "input"), startensor.Arg(c, "target"), positive(c, "delta"), reduction(c))
		}),
	loss("smooth_l1_loss"+pairOf+reduced+", beta: number = 1.0)",
		"huber_loss with delta = beta, divided by beta; l1_loss with a beta of 0 (Girshick 2015)."+reducedDocs,
		func(c *starlib.Call) (*tensor.Tensor, error) {
			beta := c.Float("beta")
			try.FailIf(!(beta >= 0) || math.IsInf(beta, 0), "beta = %v: want a finite number of 0 or more", beta)
			return tensor.SmoothL1Loss(startensor.Arg(c, "input"), startensor.Arg(c, "target"), beta, reduction(c))
		}),
	loss("kl_div"+pairOf+reduced+", log_target: bool = False)",
		`The Kullback-Leibler divergence of input, log-probabilities, from target, probabilities (with log_target, log-probabilities), of the same shape: target·(log(target) - input), and 0 where target is 0. reduction is "mean" over all elements, "batchmean" over the first dimension (the divergence itself), "sum" or "none".`,
		func(c *starlib.Call) (*tensor.Tensor, error) {
			r := tensor.ReduceBatchMean
			if c.String("reduction") != "batchmean" {
				r = reduction(c)
			}
			return tensor.KLDiv(startensor.Arg(c, "input"), startensor.Arg(c, "target"), c.Bool("log_target"), r)
		}),
	loss("cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: number = 1e-8)",
		"x1·x2 / (‖x1‖·‖x2‖) along a dimension of two tensors whose shapes broadcast; a norm below eps counts as eps.",
		func(c *starlib.Call) (*tensor.Tensor, error) {
			eps := c.Float("eps")
			try.FailIf(!(eps >= 0), "eps = %v: want 0 or more", eps)
			return tensor.CosineSimilarity(startensor.Arg(c, "x1"), startensor.Arg(c, "x2"), c.Int("dim"), eps)
		}),
	loss("cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor"+reduced+", margin: number = 0)",
		"1 - cos(input1, input2) where target is 1; cos(input1, input2) - margin, at least 0, where it is -1: inputs (n, d) or (d,), target (n,) or ()."+reducedDocs,
		func(c *starlib.Call) (*tensor.Tensor, error) {
			return tensor.CosineEmbeddingLoss(startensor.Arg(c, "input1"), startensor.Arg(c, "input2"), startensor.Arg(c, "target"), c.Float("margin"), reduction(c))
		}),
	loss("triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor"+reduced+", margin: number = 1.0, p: number = 2.0, eps: number = 1e-6, swap: bool = False)",
		"margin + d(anchor, positive) - d(anchor, negative), at least 0, where d is the p-norm of the difference plus eps over the last dimension; all have the same shape (n, d). swap measures the distance to negative from the nearer of anchor and positive (Balntas et al. 2016)."+reducedDocs,
		func(c *starlib.Call) (*tensor.Tensor, error) {
			if p := c.Float("p"); !(p > 0) {
				return nil, fmt.Errorf("p = %v: want a number above 0", p)
			}
			return tensor.TripletMarginLoss(startensor.Arg(c, "anchor"), startensor.Arg(c, "positive"), startensor.Arg(c, "negative"),
				c.Float("margin"), c.Float("p"), c.Float("eps"), c.Bool("swap"), reduction(c))
		}),
}

// losses are the functions; those of tensors alone give a module when they are called without.
func (k *maker) losses() []*starlib.Def {
	list := slices.Clone(losses)
	for i, d := range losses {
		head, rest, ok := strings.Cut(d.Sig, "(")
		params, _, _ := strings.Cut(rest, `, reduction`)
		if !ok || !strings.Contains(rest, "reduction") {
			continue
		}
		fn := d.Fn
		tensors := strings.Split(params, ", ")
		list[i] = &starlib.Def{
			Sig: head + "(" + strings.Join(tensors, " = None, ") + " = None" + strings.TrimPrefix(rest, params),
			Doc: d.Doc + " Without tensors it gives a module, which is called with them.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				if c.At(0) == starlark.None {
					return k.lossModule(d, c, tensors)
				}
				for i, t := range tensors {
					name, _, _ := strings.Cut(t, ":")
					try.FailIf(c.At(i) == starlark.None, "missing argument %s: %s", name, d.Sig)
				}
				return fn(c)
			},
		}
	}
	return list
}

// lossModule makes the module of a loss with the other arguments of a call.
func (k *maker) lossModule(d *starlib.Def, c *starlib.Call, tensors []string) (starlark.Value, error) {
	var given []starlark.Tuple
	for i, name := range d.Params()[len(tensors):] {
		given = append(given, starlark.Tuple{starlark.String(name), c.At(len(tensors) + i)})
	}
	function := d.Builtin(nil)
	return k.makeCall(d.Name(), c.Given(), nil, "("+strings.Join(tensors, ", ")+") -> Tensor", func(_ *Model, c *starlib.Call) (starlark.Value, error) {
		args := starlark.Tuple(each.UpTo(len(tensors), c.At))
		return function.(starlark.Callable).CallInternal(c.Thread, args, given)
	}), nil
}

func loss(sig, doc string, fn func(c *starlib.Call) (*tensor.Tensor, error)) *starlib.Def {
	return &starlib.Def{Sig: sig + " -> Tensor", Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		return startensor.Result(fn(c))
	}}
}

func reduction(c *starlib.Call) tensor.Reduction {
	r := slices.Index([]string{"mean", "sum", "none"}, c.String("reduction"))
	try.FailIf(r < 0, `reduction = %s: want "mean", "sum" or "none"`, c.Arg("reduction"))
	return tensor.Reduction(r)
}
