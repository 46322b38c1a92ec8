package nn

import (
	"fmt"
	"math"

	"go.starlark.net/starlark"

	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

const (
	reduced     = `, reduction: string = "mean"`
	reducedDocs = ` reduction is "mean", "sum" or "none".`
)

// moreLosses are the losses that have settings.
var moreLosses = []*starlib.Def{
	{
		Sig: "cross_entropy(logits: Tensor, target: Tensor" + reduced + ", weight: Tensor = None, ignore_index: int = -100, label_smoothing: number = 0) -> Tensor",
		Doc: "The negative logarithm of the target class's softmax: logits (n, classes) or (n, classes, …), target (n,) or (n, …) of class numbers, int64, or probabilities of the logits' shape. weight (classes,) weights each class; a sample whose target is ignore_index does not count; label_smoothing, from 0 to 1, is the share of the target that is spread evenly over all classes (Szegedy et al. 2016). The mean is weighted by the targets' weights." + reducedDocs,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			x, y := startensor.Arg(c, "logits"), startensor.Arg(c, "target")
			o := tensor.ClassOptions{Weight: optional(c, "weight"), Ignore: int64(c.Int("ignore_index")), Smoothing: c.Float("label_smoothing")}
			if o == (tensor.ClassOptions{Ignore: tensor.IgnoreTarget}) {
				return startensor.Result(tensor.CrossEntropy(x, y, reduction(c)))
			}
			return startensor.Result(tensor.CrossEntropyWith(x, y, o, reduction(c)))
		},
	},
	{
		Sig: "nll_loss(log_probabilities: Tensor, target: Tensor" + reduced + ", weight: Tensor = None, ignore_index: int = -100) -> Tensor",
		Doc: "The negative log-probability of the target class, as log_softmax computes it: (n, classes) or (n, classes, …), target (n,) or (n, …) of class numbers. weight (classes,) weights each class; a sample whose target is ignore_index does not count. The mean is weighted by the targets' weights." + reducedDocs,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return startensor.Result(tensor.NLLLossWith(startensor.Arg(c, "log_probabilities"), startensor.Arg(c, "target"), optional(c, "weight"), int64(c.Int("ignore_index")), reduction(c)))
		},
	},
	{
		Sig: "bce_with_logits(logits: Tensor, target: Tensor" + reduced + ", weight: Tensor = None, pos_weight: Tensor = None) -> Tensor",
		Doc: "Binary cross-entropy of sigmoid(logits) with targets from 0 to 1, of one shape, computed without overflow. weight weights each element, pos_weight its positive part; both broadcast to the logits." + reducedDocs,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			x, y, weight, pos := startensor.Arg(c, "logits"), startensor.Arg(c, "target"), optional(c, "weight"), optional(c, "pos_weight")
			if weight == nil && pos == nil {
				return startensor.Result(tensor.BCEWithLogits(x, y, reduction(c)))
			}
			return startensor.Result(tensor.WeightedBCE(x, y, weight, pos, reduction(c)))
		},
	},
	{
		Sig: "huber_loss(input: Tensor, target: Tensor" + reduced + ", delta: number = 1.0) -> Tensor",
		Doc: "Half the squared difference of two tensors of one shape where it is at most delta, and delta·(|difference| - delta/2) beyond (Huber 1964)." + reducedDocs,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			delta := c.Float("delta")
			if !(delta > 0) || math.IsInf(delta, 0) {
				return nil, fmt.Errorf("delta = %v: want a finite number above 0", delta)
			}
			return startensor.Result(tensor.HuberLoss(startensor.Arg(c, "input"), startensor.Arg(c, "target"), delta, reduction(c)))
		},
	},
	{
		Sig: "smooth_l1_loss(input: Tensor, target: Tensor" + reduced + ", beta: number = 1.0) -> Tensor",
		Doc: "huber_loss with delta = beta, divided by beta; l1_loss with a beta of 0 (Girshick 2015)." + reducedDocs,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			beta := c.Float("beta")
			if !(beta >= 0) || math.IsInf(beta, 0) {
				return nil, fmt.Errorf("beta = %v: want a finite number of 0 or more", beta)
			}
			return startensor.Result(tensor.SmoothL1Loss(startensor.Arg(c, "input"), startensor.Arg(c, "target"), beta, reduction(c)))
		},
	},
	{
		Sig: "kl_div(input: Tensor, target: Tensor" + reduced + ", log_target: bool = False) -> Tensor",
		Doc: `The Kullback-Leibler divergence of input, log-probabilities, from target, probabilities (with log_target, log-probabilities), of one shape: target·(log(target) - input), and 0 where target is 0. reduction is "mean" over all elements, "batchmean" over the first dimension (the divergence itself), "sum" or "none".`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			r := tensor.ReduceBatchMean
			if c.String("reduction") != "batchmean" {
				r = reduction(c)
			}
			return startensor.Result(tensor.KLDiv(startensor.Arg(c, "input"), startensor.Arg(c, "target"), c.Bool("log_target"), r))
		},
	},
	{
		Sig: "cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: number = 1e-8) -> Tensor",
		Doc: "x1·x2 / (‖x1‖·‖x2‖) along a dimension of two tensors whose shapes broadcast; a norm below eps counts as eps.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			eps := c.Float("eps")
			if !(eps >= 0) {
				return nil, fmt.Errorf("eps = %v: want 0 or more", eps)
			}
			return startensor.Result(tensor.CosineSimilarity(startensor.Arg(c, "x1"), startensor.Arg(c, "x2"), c.Int("dim"), eps))
		},
	},
	{
		Sig: "cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor" + reduced + ", margin: number = 0) -> Tensor",
		Doc: "1 - cos(input1, input2) where target is 1; cos(input1, input2) - margin, at least 0, where it is -1: inputs (n, d) or (d,), target (n,) or ()." + reducedDocs,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return startensor.Result(tensor.CosineEmbeddingLoss(startensor.Arg(c, "input1"), startensor.Arg(c, "input2"), startensor.Arg(c, "target"), c.Float("margin"), reduction(c)))
		},
	},
	{
		Sig: "triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor" + reduced + ", margin: number = 1.0, p: number = 2.0, eps: number = 1e-6, swap: bool = False) -> Tensor",
		Doc: "margin + d(anchor, positive) - d(anchor, negative), at least 0, where d is the p-norm of the difference plus eps over the last dimension; of one shape (n, d). swap measures the distance to negative from the nearer of anchor and positive (Balntas et al. 2016)." + reducedDocs,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			if p := c.Float("p"); !(p > 0) {
				return nil, fmt.Errorf("p = %v: want a number above 0", p)
			}
			return startensor.Result(tensor.TripletMarginLoss(startensor.Arg(c, "anchor"), startensor.Arg(c, "positive"), startensor.Arg(c, "negative"),
				c.Float("margin"), c.Float("p"), c.Float("eps"), c.Bool("swap"), reduction(c)))
		},
	},
}

// optional is a tensor that may be None.
func optional(c *starlib.Call, name string) *tensor.Tensor {
	if c.IsNone(name) {
		return nil
	}
	return startensor.Arg(c, name)
}
