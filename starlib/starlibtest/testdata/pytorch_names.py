"""What the functions of PyTorch compute that drun has no names of its own for, beside the expressions that drun's messages
give instead, as pytorch_names.json. A case has the function's name; its source holds the expression.

Made with torch 2.15.0 and NumPy 2.4.6 (PyPI).
"""
import math

import torch
import torch.nn.functional as F

from cases import case, randn, record, write

matrix, other = randn(3, 4), randn(3, 4)
positive, share = matrix.abs() + 0.1, torch.rand(3, 4) * 0.8 + 0.1
square = randn(4, 2)
holed = matrix.clone()
holed[0, 1] = float("nan")


def one(name, expr, fn=None, given=None, setup="", **how):
    """Cases of one argument, a tensor x."""
    case(name, dict(x=matrix if given is None else given), expr, fn or getattr(torch, name), setup=setup, **how)


def two(name, expr, fn=None, setup="", x=matrix, y=other, **how):
    """Cases of two tensors, x and y."""
    case(name, dict(x=x, y=y), expr, fn or getattr(torch, name), setup=setup, **how)


one("rsqrt", "1 / x.sqrt()", given=positive)
one("log2", "x.log() / math.log(2)", given=positive)
one("log10", "x.log() / math.log(10)", given=positive)
one("exp2", "(x * math.log(2)).exp()")
one("sinh", "(x.expm1() - (-x).expm1()) / 2")
one("cosh", "(x.exp() + (-x).exp()) / 2")
one("atanh", "(x.log1p() - (-x).log1p()) / 2", given=share)
one("erfc", "1 - x.erf()")
one("logit", "(x / (1 - x)).log()", given=share)
one("frac", "x - x.trunc()")
two("fmod", "x.sign() * (x.abs() % y.abs())", y=positive, grad=False)
two("floor_divide", "x // y", grad=False)
two("true_divide", "x / y")
two("hypot", "(x * x + y * y).sqrt()")
for names, expr in [("add", "x + y"), ("sub subtract", "x - y"), ("mul multiply", "x * y"), ("div divide", "x / y")]:
    for name in names.split():
        two(name, expr)
for name, sign in [("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")]:
    two(name, f"x {sign} y", y=torch.where(matrix > 0, matrix, other), grad=False)
for name, expr in [("logical_and", "mask & other"), ("logical_or", "mask | other")]:
    two(name, expr, lambda x, y, f=getattr(torch, name): f(x > 0, y > 0), setup="mask, other = x > 0, y > 0", grad=False)
one("logical_not", "~mask", lambda x: torch.logical_not(x > 0), setup="mask = x > 0", grad=False)
one("amax", "x.max(dim)[0]", lambda x: x.amax(1), setup="dim = 1")
one("amin", "x.min(dim)[0]", lambda x: x.amin(0), setup="dim = 0")
one("count_nonzero", "(x != 0).sum()", given=torch.tensor([[0.0, 1.0], [-0.0, 2.0]]), grad=False)
one("nansum", "x.masked_fill(x.isnan(), 0).sum()", given=holed)
one("diff", 'x["1:"] - x[":-1"]', lambda x: torch.diff(x, dim=0))
near = matrix + torch.where(other > 0, 1e-6, 1e-9)
for y in [near, other]:
    two("allclose", "((x == y) | ((x - y).abs() <= 1e-8 + 1e-5 * y.abs()) & y.isfinite()).all()", lambda x, y: torch.tensor(torch.allclose(x, y)), y=y, grad=False)
    two("isclose", "(x == y) | ((x - y).abs() <= 1e-8 + 1e-5 * y.abs()) & y.isfinite()", y=y, grad=False)
for y in [matrix, other]:
    two("equal", "(x == y).all()", lambda x, y: torch.tensor(torch.equal(x, y)), y=y, grad=False)
one("masked_select", "x[mask]", lambda x: torch.masked_select(x, x > 0), setup="mask = x > 0")
rows = torch.tensor([2, 0])
two("index_add", "x.index_put((index,), y, accumulate = True)", lambda x, y: x.index_add(0, rows, y), y=randn(2, 4), setup="index = tensor([2, 0])")
two("index_copy", "x.index_put((index,), y)", lambda x, y: x.index_copy(0, rows, y), y=randn(2, 4), setup="index = tensor([2, 0])")
one("index_fill", "x.index_put((index,), value)", lambda x: x.index_fill(0, rows, 1.5), setup="index, value = tensor([2, 0]), tensor(1.5)")
one("take_along_dim", "x.gather(dim, index)", lambda x: torch.take_along_dim(x, x.argsort(1), 1), setup="dim, index = 1, x.argsort(1)")
two("mm", "x.matmul(y)", y=randn(4, 2))
two("bmm", "x.matmul(y)", x=randn(2, 3, 4), y=randn(2, 4, 2))
two("mv", "x.matmul(y)", y=randn(4))
for name, x, y, b in [("addmm", matrix, square, randn(3, 2)), ("baddbmm", randn(2, 3, 4), randn(2, 4, 2), randn(2, 3, 2))]:
    case(name, dict(b=b, x=x, y=y), "b + x.matmul(y)", getattr(torch, name))
case("addcmul", dict(b=randn(3, 4), x=matrix, y=other), "b + value * x * y", lambda b, x, y: torch.addcmul(b, x, y, value=0.5), setup="value = 0.5")
case("addcdiv", dict(b=randn(3, 4), x=matrix, y=other), "b + value * x / y", lambda b, x, y: torch.addcdiv(b, x, y, value=0.5), setup="value = 0.5")
two("kron", 'tensor.einsum("ij,kl->ikjl", x, y).reshape(x.shape[0] * y.shape[0], -1)', y=randn(2, 3))
two("tensordot", 'tensor.einsum("ij,jk->ik", x, y)', lambda x, y: torch.tensordot(x, y, dims=1), y=randn(4, 2))
two("logaddexp", "tensor.stack([x, y]).logsumexp(0)")
two("lerp", "x + weight * (y - x)", lambda x, y: torch.lerp(x, y, 0.3), setup="weight = 0.3")
one("clip", "x.clamp(low, high)", lambda x: torch.clip(x, -0.5, 0.5), setup="low, high = -0.5, 0.5")
one("clamp_min", "x.clamp(min = low)", lambda x: torch.clamp_min(x, 0.1), setup="low = 0.1")
one("clamp_max", "x.clamp(max = high)", lambda x: torch.clamp_max(x, 0.1), setup="high = 0.1")
one("view_as", "x.view(y.shape)", lambda x: x.view_as(torch.zeros(4, 3)), setup="y = tensor.zeros(4, 3)")
one("reshape_as", "x.reshape(y.shape)", lambda x: x.reshape_as(torch.zeros(4, 3)), setup="y = tensor.zeros(4, 3)")
one("expand_as", "x.expand(y.shape)", lambda x: x.expand_as(torch.zeros(2, 3, 4)), setup="y = tensor.zeros(2, 3, 4)")
one("type_as", "x.to(y.dtype)", lambda x: x.type_as(torch.zeros(1, dtype=torch.int64)), setup='y = tensor.zeros(1, dtype = "int64")', grad=False)
one("half", 'x.to("float16").to("float32")', lambda x: x.half().float(), grad=False)
one("new_zeros", "tensor.zeros(shape, dtype = x.dtype)", lambda x: x.new_zeros(2, 3), setup="shape = (2, 3)", given=matrix.double(), grad=False)
one("new_ones", "tensor.ones(shape, dtype = x.dtype)", lambda x: x.new_ones(2, 3), setup="shape = (2, 3)", given=matrix.double(), grad=False)
one("new_full", "tensor.full(shape, value, dtype = x.dtype)", lambda x: x.new_full((2, 3), 0.5), setup="shape, value = (2, 3), 0.5", given=matrix.double(), grad=False)
one("ravel", "x.flatten()")
one("swapaxes", "x.transpose(0, 1)", lambda x: x.swapaxes(0, 1))
one("tile", "x.repeat(*sizes)", lambda x: x.tile(2, 3), setup="sizes = (2, 3)")
two("hstack", "tensor.cat(parts, 1)", lambda x, y: torch.hstack([x, y]), setup="parts = [x, y]")
two("vstack", "tensor.cat(parts, 0)", lambda x, y: torch.vstack([x, y]), setup="parts = [x, y]")
for name in ["concat", "concatenate"]:
    two(name, "tensor.cat(parts, dim)", lambda x, y, f=getattr(torch, name): f([x, y], 1), setup="parts, dim = [x, y], 1")
edges = "edges = tensor([-1.0, 0.0, 0.5])"
for name in ["searchsorted", "bucketize"]:
    for given in [matrix, torch.tensor([-1.0, 0.0, 0.5, 9.0])]:
        one(name, "(edges < x.unsqueeze(-1)).sum(-1)", lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])), given=given, setup=edges, grad=False)
two("cdist", "(x.unsqueeze(1) - y.unsqueeze(0)).square().sum(2).sqrt()", y=randn(5, 4))

# Hard values: small results keep their relative precision, and what is infinite or undefined is so on both sides.
tiny = torch.tensor([1e-5, -1e-5, 1e-20, 0.3, 0.0])
hard = dict(grad=False, scale=0)
one("sinh", "(x.expm1() - (-x).expm1()) / 2", given=tiny, **hard)
one("atanh", "(x.log1p() - (-x).log1p()) / 2", given=tiny, **hard)
top, bottom = torch.tensor([1.0, 1e10, -7.5, 7.5, 5.0, -0.5]), torch.tensor([0.1, 3.0, 2.0, -2.0, math.inf, 3.0])
two("fmod", "x.sign() * (x.abs() % y.abs())", x=top, y=bottom, **hard)
ends, others = torch.tensor([math.inf, -math.inf, math.inf, 1.0, math.nan, 1.0, 0.0]), torch.tensor([math.inf, -math.inf, -math.inf, math.inf, math.nan, 1.0 + 9e-6, 1e-8])
two("isclose", "(x == y) | ((x - y).abs() <= 1e-8 + 1e-5 * y.abs()) & y.isfinite()", x=ends, y=others, grad=False)
for n in [2, 3]:
    two("allclose", "((x == y) | ((x - y).abs() <= 1e-8 + 1e-5 * y.abs()) & y.isfinite()).all()", lambda x, y: torch.tensor(torch.allclose(x, y)), x=ends[:n], y=others[:n], grad=False)
case("gaussian_nll_loss", dict(x=torch.tensor([1.0, 2.0]), y=torch.tensor([1.0, 2.5]), var=torch.tensor([0.0, 2.0])),
     "((x - y).square() / var.clamp(min = 1e-6) + var.clamp(min = 1e-6).log()).mean() / 2", F.gaussian_nll_loss, grad=False)
two("logaddexp", "tensor.stack([x, y]).logsumexp(0)", x=torch.tensor([1000.0, -1000.0, -math.inf]), y=torch.tensor([1000.0, -1001.0, 0.0]), grad=False)
one("logsigmoid", "-nn.softplus()(-x)", F.logsigmoid, given=torch.tensor([-100.0, 100.0, 0.0, -15.0]), grad=False)
one("softsign", "x / (1 + x.abs())", F.softsign, given=torch.tensor([1e-20, 1e20, -1e5]), **hard)
one("frac", "x - x.trunc()", given=torch.tensor([1e10, -2.5, 3.75]), **hard)

# Layers and losses.
one("relu6", "x.clamp(0, 6)", F.relu6, given=matrix * 5)
one("hardtanh", "x.clamp(-1, 1)", F.hardtanh)
one("hardswish", "x * (x + 3).clamp(0, 6) / 6", F.hardswish, given=matrix * 3)
one("hardsigmoid", "((x + 3) / 6).clamp(0, 1)", F.hardsigmoid, given=matrix * 3)
one("softsign", "x / (1 + x.abs())", F.softsign)
one("logsigmoid", "-nn.softplus()(-x)", F.logsigmoid)
one("glu", "x.chunk(2, dim = -1)[0] * x.chunk(2, dim = -1)[1].sigmoid()", F.glu)
one("selu", "1.0507009873554805 * nn.elu(1.6732632423543772)(x)", F.selu)
case("prelu", dict(x=matrix, weight=torch.tensor([0.25])), "tensor.where(x > 0, x, weight * x)", F.prelu)
one("swish", "x.silu()", F.silu)
one("softmin", "(-x).softmax(dim)", lambda x: F.softmin(x, 1), setup="dim = 1")
one("tanhshrink", "x - x.tanh()", F.tanhshrink)
one("pixel_shuffle", "x.reshape(n, c, r, r, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c, h * r, w * r)", lambda x: F.pixel_shuffle(x, 2), given=randn(2, 12, 3, 5), setup="n, c, r, h, w = 2, 3, 2, 3, 5")
one("normalize", "x / x.norm(dim = dim, keepdim = True).clamp(min = 1e-12)", lambda x: F.normalize(x, dim=1), setup="dim = 1")
two("pairwise_distance", "(x - y + 1e-6).norm(dim = 1)", F.pairwise_distance)
two("poisson_nll_loss", "(x.exp() - y * x).mean()", F.poisson_nll_loss, y=positive)
case("gaussian_nll_loss", dict(x=matrix, y=other, var=positive), "((x - y).square() / var.clamp(min = 1e-6) + var.clamp(min = 1e-6).log()).mean() / 2", F.gaussian_nll_loss)
case("margin_ranking_loss", dict(a=matrix, b=other), "(margin - y * (a - b)).relu().mean()", lambda a, b: F.margin_ranking_loss(a, b, torch.ones(3, 4), margin=0.5), setup="y, margin = 1, 0.5")

# What stands in a sentence rather than as an expression.
two("meshgrid", "(x.unsqueeze(1).expand(n, m), y.unsqueeze(0).expand(n, m))", lambda x, y: torch.meshgrid(x, y, indexing="ij"), x=randn(3), y=randn(4), setup="n, m = 3, 4", through=(0, 1))

write("pytorch_names.json")
