"""What PyTorch computes for those functions of starlib/std that its operator samples do not have, as pytorch_std.json: layers,
other names, and what op_db leaves out.

Made with torch 2.15.0 and NumPy 2.4.6 (PyPI).
"""
import math

import torch
import torch.nn as N
import torch.nn.functional as F

from cases import case, randn, write

x, image, volume, seq = randn(3, 4), randn(2, 4, 6, 6), randn(1, 2, 4, 4, 6), randn(2, 4, 8)
positive = x.abs() + 0.2

# Layers of one tensor: the same call in both, but for the spelling.
for name, module, args, given in [
    ("hardshrink", N.Hardshrink, "0.3", x), ("hardsigmoid", N.Hardsigmoid, "", 3 * x), ("hardswish", N.Hardswish, "", 3 * x),
    ("hardtanh", N.Hardtanh, "-0.5, 0.7", x), ("relu6", N.ReLU6, "", 5 * x), ("selu", N.SELU, "", x), ("celu", N.CELU, "0.5", x),
    ("glu", N.GLU, "1", x), ("softmin", N.Softmin, "1", x), ("softshrink", N.Softshrink, "0.3", x), ("softsign", N.Softsign, "", x),
    ("tanhshrink", N.Tanhshrink, "", x), ("threshold", N.Threshold, "0.1, 20.0", x), ("logsigmoid", N.LogSigmoid, "", 3 * x),
    ("softmax2d", N.Softmax2d, "", image), ("pixel_shuffle", N.PixelShuffle, "2", image), ("pixel_unshuffle", N.PixelUnshuffle, "3", image),
    ("channel_shuffle", N.ChannelShuffle, "2", image), ("local_response_norm", N.LocalResponseNorm, "3, 0.1, 0.6, 1.5", image),
    ("unfold", N.Unfold, "(2, 3), 1, 1, 2", image), ("unflatten", N.Unflatten, "1, (2, 2)", image), ("identity", N.Identity, "3", x),
    ("fold", N.Fold, "(4, 5), (2, 2)", randn(2, 8, 12)),
    ("adaptive_avg_pool3d", N.AdaptiveAvgPool3d, "(2, 3, 4)", volume), ("adaptive_max_pool3d", N.AdaptiveMaxPool3d, "(2, 3, 4)", volume),
    ("max_pool3d", N.MaxPool3d, "2, 1, 1", volume), ("avg_pool3d", N.AvgPool3d, "(2, 3, 2), 2, 1", volume),
    ("lp_pool1d", N.LPPool1d, "2.0, 3, 2", seq), ("lp_pool2d", N.LPPool2d, "3.0, 2", image.abs()), ("lp_pool3d", N.LPPool3d, "2.0, 2", volume),
    ("reflection_pad1d", N.ReflectionPad1d, "(2, 1)", seq), ("reflection_pad2d", N.ReflectionPad2d, "(1, 2, 0, 3)", image), ("reflection_pad3d", N.ReflectionPad3d, "1", volume),
    ("replication_pad1d", N.ReplicationPad1d, "2", seq), ("replication_pad2d", N.ReplicationPad2d, "(1, 2, 0, 3)", image), ("replication_pad3d", N.ReplicationPad3d, "1", volume),
    ("circular_pad1d", N.CircularPad1d, "(2, 1)", seq), ("circular_pad2d", N.CircularPad2d, "(1, 2, 0, 3)", image), ("circular_pad3d", N.CircularPad3d, "1", volume),
    ("zero_pad1d", N.ZeroPad1d, "2", seq), ("zero_pad2d", N.ZeroPad2d, "(1, 2, 0, 3)", image), ("zero_pad3d", N.ZeroPad3d, "1", volume),
    ("constant_pad1d", N.ConstantPad1d, "2, 1.5", seq), ("constant_pad2d", N.ConstantPad2d, "(1, 2, 0, 3), 1.5", image), ("constant_pad3d", N.ConstantPad3d, "1, -2.0", volume),
]:
    case("nn." + name, dict(x=given), f"nn.{name}({args})(x)", lambda v, m=module, a=args: m(*eval(f"({a},)" if a else "()"))(v))

# Layers with weights, which are given.
def layer(name, module, expr, inputs, **weights):
    given = dict(inputs)
    alias = {}
    m = module
    for key in weights:
        given[key], alias[key] = weights[key], f"m.{key}"
    names = list(inputs)

    def run(*values):
        values = list(values)
        params = dict(zip(weights, values[len(names):]))
        return torch.func.functional_call(m, params, tuple(values[:len(names)]))
    case("nn." + name, given, f"m({', '.join(names)})", run, setup=f"m = {expr}", alias=alias, tolerance=2e-5)


layer("prelu", N.PReLU(4), "nn.prelu(4)", dict(x=image), weight=randn(4))
layer("bilinear", N.Bilinear(3, 4, 2), "nn.bilinear(3, 4, 2)", dict(a=randn(5, 3), b=randn(5, 4)), weight=randn(2, 3, 4), bias=randn(2))
layer("conv_transpose1d", N.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2), "nn.conv_transpose1d(4, 6, 3, 2, 1, 1, 2)", dict(x=seq), weight=randn(4, 3, 3), bias=randn(6))
layer("conv_transpose3d", N.ConvTranspose3d(2, 4, 2, 2, 1, 1, 2, dilation=2), "nn.conv_transpose3d(2, 4, 2, 2, 1, 1, 2, dilation = 2)", dict(x=volume), weight=randn(2, 2, 2, 2, 2), bias=randn(4))
for cell, gates in [("rnn", 1), ("gru", 3)]:
    module = {"rnn": N.RNNCell, "gru": N.GRUCell}[cell](3, 5)
    layer(cell + "_cell", module, f"nn.{cell}_cell(3, 5)", dict(x=randn(2, 3), h=randn(2, 5)),
          weight_ih=randn(5 * gates, 3), weight_hh=randn(5 * gates, 5), bias_ih=randn(5 * gates), bias_hh=randn(5 * gates))

# Unpooling: where the maxima came from.
for n, given in [(1, seq), (2, image), (3, volume)]:
    def back(v, n=n):
        y, at = getattr(F, f"max_pool{n}d")(v, 2, return_indices=True)
        return getattr(N, f"MaxUnpool{n}d")(2)(y, at)
    case(f"nn.max_unpool{n}d", dict(x=given), f"nn.max_unpool{n}d(2)(*nn.functional.max_pool{n}d(x, 2, return_indices = True))", back)

# Losses as modules and as functions.
p, q = torch.rand(3, 4) * 0.9 + 0.05, torch.rand(3, 4)
sign = torch.where(randn(3, 4) > 0, 1.0, -1.0)
for name, module, args, values in [
    ("bce_loss", N.BCELoss(reduction="sum"), 'reduction = "sum"', (p, q)), ("gaussian_nll_loss", N.GaussianNLLLoss(full=True), "full = True", (x, q, p)),
    ("poisson_nll_loss", N.PoissonNLLLoss(full=True), "full = True", (x, 5 * q)), ("hinge_embedding_loss", N.HingeEmbeddingLoss(0.5), "0.5", (x, sign)),
    ("margin_ranking_loss", N.MarginRankingLoss(0.3), "0.3", (x, q, sign)), ("soft_margin_loss", N.SoftMarginLoss(), "", (x, sign)),
    ("multilabel_soft_margin_loss", N.MultiLabelSoftMarginLoss(), "", (x, (q > 0.5).float())),
    ("triplet_margin_with_distance_loss", N.TripletMarginWithDistanceLoss(margin=0.7, swap=True), "margin = 0.7, swap = True", (x, p, q)),
    ("pairwise_distance", N.PairwiseDistance(3.0), "3.0", (x, p)),
]:
    names = "abc"[:len(values)]
    last = name not in ("pairwise_distance", "triplet_margin_with_distance_loss", "gaussian_nll_loss")
    case("nn." + name, dict(zip(names, values)), f"nn.{name}({args})({', '.join(names)})",
         lambda *v, m=module, last=last: m(*v[:-1], v[-1].detach() if last else v[-1]))
labels = torch.tensor([3, 0, 1])
case("nn.multi_margin_loss", dict(x=x, y=labels), "nn.multi_margin_loss(2, 0.8)(x, y)", lambda v, y: N.MultiMarginLoss(2, 0.8)(v, labels))
many = torch.tensor([[3, 0, -1, 1], [1, -1, 2, 0], [0, 1, 2, 3]])
case("nn.multilabel_margin_loss", dict(x=x, y=many), "nn.multilabel_margin_loss()(x, y)", lambda v, y: N.MultiLabelMarginLoss()(v, many))
scores = randn(7, 3, 5)
targets, sizes = torch.tensor([[1, 2, 2, 4], [3, 1, 0, 0], [2, 2, 2, 0]]), [4, 2, 3]
for reduction in ["mean", "sum", "none"]:
    for lengths in [[7, 7, 7], [7, 3, 5]]:
        case("nn.functional.ctc_loss", dict(x=scores, y=targets), f'nn.functional.ctc_loss(x.log_softmax(2), y, {lengths}, {sizes}, reduction = "{reduction}")',
             lambda v, y: F.ctc_loss(v.log_softmax(2), targets, lengths, sizes, reduction=reduction), tolerance=5e-5)
case("nn.ctc_loss", dict(x=scores, y=torch.tensor([1, 2, 4, 3, 3, 2])), 'nn.ctc_loss(blank = 0)(x.log_softmax(2), y, [7, 6, 7], [3, 1, 2])',
     lambda v, y: N.CTCLoss()(v.log_softmax(2), torch.tensor([1, 2, 4, 3, 3, 2]), [7, 6, 7], [3, 1, 2]), tolerance=5e-5)
case("nn.functional.ctc_loss impossible", dict(x=scores, y=targets), f'nn.functional.ctc_loss(x.log_softmax(2), y, [7, 7, 3], {sizes}, zero_infinity = True)',
     lambda v, y: F.ctc_loss(v.log_softmax(2), targets, [7, 7, 3], sizes, zero_infinity=True), tolerance=5e-5)

# Functions without samples.
theta = randn(2, 2, 3)
for corners in ["True", "False"]:
    case("nn.functional.affine_grid", dict(x=theta), f"nn.functional.affine_grid(x, (2, 1, 3, 4), {corners})", lambda v, c=eval(corners): F.affine_grid(v, (2, 1, 3, 4), align_corners=c))
    case("nn.functional.affine_grid of volumes", dict(x=randn(1, 3, 4)), f"nn.functional.affine_grid(x, (1, 1, 2, 3, 4), {corners})", lambda v, c=eval(corners): F.affine_grid(v, (1, 1, 2, 3, 4), align_corners=c))
case("nn.functional.upsample", dict(x=image), 'nn.functional.upsample(x, (9, 4), mode = "bilinear")', lambda v: F.interpolate(v, (9, 4), mode="bilinear", align_corners=False))
for name in ["sigmoid", "tanh"]:
    case("nn.functional." + name, dict(x=x), f"nn.functional.{name}(x)", getattr(torch, name))
for n, given in [(1, seq), (2, image), (3, volume)]:
    case(f"nn.functional.lp_pool{n}d", dict(x=given), f"nn.functional.lp_pool{n}d(x, 2.0, 2, 2, True)", lambda v, f=getattr(F, f"lp_pool{n}d"): f(v, 2.0, 2, 2, True))
case("slice_scatter", dict(x=x, y=randn(3, 2)), "x.slice_scatter(y, 1, 0, 4, 2)", lambda v, w: v.slice_scatter(w, 1, 0, 4, 2))
case("slice_scatter from the end", dict(x=x, y=randn(1, 4)), "x.slice_scatter(y, start = -1)", lambda v, w: v.slice_scatter(w, start=-1))
case("select_scatter of the last", dict(x=x, y=randn(3)), "x.select_scatter(y, 1, -1)", lambda v, w: v.select_scatter(w, 1, -1))
case("chain_matmul", dict(x=x, y=randn(4, 2), z=randn(2, 5)), "tensor.chain_matmul(x, y, z)", lambda a, b, c: a @ b @ c)
case("matrix_exp", dict(x=randn(3, 3)), "linalg.matrix_exp(x)", torch.linalg.matrix_exp, tolerance=5e-5)

# Other names of what there is.
square = randn(3, 3)
for name, args, given in [
    ("absolute", "", x), ("adjoint", "", x), ("arccos", "", x / 4), ("arccosh", "", positive + 1), ("arcsin", "", x / 4), ("arcsinh", "", x), ("arctan", "", x),
    ("arctanh", "", x / 4), ("clip", "-0.5, 0.6", x), ("fix", "", x), ("negative", "", x), ("inverse", "", square), ("moveaxis", "0, 1", image),
    ("swapaxes", "0, 1", x), ("swapdims", "0, 1", x), ("contiguous", "", x), ("multiply", "2.0", x), ("subtract", "2.0, alpha = 3", x), ("divide", "2.0", x),
    ("greater", "0.1", x), ("greater_equal", "0.1", x), ("less", "0.1", x), ("less_equal", "0.1", x), ("not_equal", "0.1", x), ("isreal", "", x), ("half", "", x),
]:
    case(name, dict(x=given), f"x.{name}({args})", lambda v, n=name, a=args: eval(f"v.{n}({a})"), grad=name not in ("greater", "greater_equal", "less", "less_equal", "not_equal", "isreal", "half"))
case("arctan2", dict(x=x, y=positive), "x.arctan2(y)", torch.arctan2)
case("ger", dict(x=randn(3), y=randn(2)), "x.ger(y)", torch.outer)
case("type_as", dict(x=x, y=torch.ones(2, dtype=torch.float64)), "x.type_as(y)", lambda v, w: v.type_as(w), grad=False)
for name in ["concat", "concatenate"]:
    case(name, dict(x=x, y=randn(3, 2)), f"tensor.{name}([x, y], 1)", lambda v, w: torch.cat([v, w], 1))
case("row_stack", dict(x=x, y=randn(4)), "tensor.row_stack([x, y])", lambda v, w: torch.vstack([v, w]))

# Distributions.
D = torch.distributions
a, b, unit = positive, randn(4).abs() + 0.3, torch.rand(3, 4, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.1
for name, kind, args, given, at in [
    ("normal", D.Normal, "p, q", dict(p=x, q=b), x + 0.5), ("uniform", D.Uniform, "p, q", dict(p=x, q=x + b), x + b / 3),
    ("exponential", D.Exponential, "p", dict(p=a), positive), ("gamma", D.Gamma, "p, q", dict(p=a, q=b), positive + 0.1), ("beta", D.Beta, "p, q", dict(p=a, q=b), unit),
    ("bernoulli", lambda p: D.Bernoulli(p), "p", dict(p=unit), (unit > 0.5).float()), ("bernoulli", lambda p: D.Bernoulli(logits=p), "logits = p", dict(p=3 * x), (unit > 0.5).float()),
]:
    case(f"random.{name} log_prob {args}", given | dict(v=at), f"random.{name}({args}).log_prob(v)", lambda *t, k=kind: k(*t[:-1]).log_prob(t[-1]), tolerance=5e-5)
    case(f"random.{name} entropy {args}", given, f"random.{name}({args}).entropy()", lambda *t, k=kind: k(*t).entropy(), tolerance=5e-5)
classes = torch.tensor([2, 0, 3])
case("random.categorical log_prob", dict(p=unit, v=classes), "random.categorical(p).log_prob(v)", lambda p, v: D.Categorical(p).log_prob(v))
case("random.categorical logits", dict(p=3 * x, v=classes), "random.categorical(logits = p).log_prob(v)", lambda p, v: D.Categorical(logits=p).log_prob(v))
case("random.categorical entropy", dict(p=unit), "random.categorical(p).entropy()", lambda p: D.Categorical(p).entropy())
case("random.categorical of many", dict(p=3 * x, v=torch.tensor([[1], [3]])), "random.categorical(logits = p).log_prob(v)", lambda p, v: D.Categorical(logits=p).log_prob(v))
write("pytorch_std.json")
