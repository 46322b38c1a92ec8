"""Computes with PyTorch what the methods of tensors and the functions of linalg must compute too, and writes it as
pytorch_tensor.json.

Made with torch 2.15.0 and NumPy 2.4.6 (PyPI).
"""
import math

import torch
import torch.nn.functional as F

from cases import case, randn, record, same, write

inf, nan = math.inf, math.nan
cube, matrix, vector = randn(2, 3, 4), randn(3, 4), randn(5)
counted = torch.arange(24).reshape(2, 3, 4)
holed = torch.tensor([[3.0, nan, 1.0], [2.0, 5.0, 2.0], [nan, nan, 0.0]])
ties = torch.tensor([[2.0, 1.0, 2.0, 1.0], [0.0, -0.0, 3.0, 3.0]])
empty = torch.zeros(0, 3)


def tuples(name, given, expr, **how):
    """A case whose result is several tensors, through all of which gradients flow."""
    outs = eval(expr, {"torch": torch}, given)
    how = {"through": tuple(range(len(outs)))} | how
    case(name, given, expr.replace("torch.", "tensor."), lambda *v: tuple(eval(expr, {"torch": torch}, dict(zip(given, v)))), **how)


# Sizes and types.
same("ndim, dim, numel, size", dict(x=cube), "(x.ndim, x.dim(), x.numel(), x.size(-1), x.size(0))", grad=False)
for t in ["float", "double", "long", "int", "bool"]:
    same(f"x.{t}()", dict(x=torch.tensor([-1.5, 0.0, 2.7])), f"x.{t}()")

# Parts.
for call in ["chunk(2)", "chunk(3, dim = -1)", "chunk(5, 1)", "split(2, dim = 1)", "split([1, 3], -1)", "split([0, 2, 1], 1)", "unbind()", "unbind(1)", "unbind(-1)"]:
    tuples(call, dict(x=cube), f"x.{call}")
tuples("chunk of views", dict(x=cube), "x.transpose(0, 2).chunk(3)")
tuples("parts of nothing", dict(x=empty), "x.chunk(2) + x.split(4) + x.split(0)")
tuples("unbind with one part used", dict(x=matrix), "x.unbind(1)", through=(2,))

# Matrices and vectors.
for expr in ["x.diag()", "x.diag(1)", "x.diag(-2)", "x.diag(diagonal = 7)"]:
    same(f"{expr} of a matrix", dict(x=matrix), expr)
for expr in ["x.diag()", "x.diag(2)", "x.diag(-1)"]:
    same(f"{expr} of a vector", dict(x=vector), expr)
same("diag of a view", dict(x=matrix), "x.transpose(0, 1).diag(1)")
for arguments in ["", "1", "-1, 1, 2", "offset = 1, dim1 = 2, dim2 = 0", "9"]:
    same(f"diagonal {arguments}", dict(x=cube), f"x.diagonal({arguments})")
same("trace", dict(x=matrix), "x.trace()")
same("trace of integers", dict(x=counted[0].int()), "x.trace()")
same("outer", dict(x=vector, y=randn(3)), "x.outer(y)")
same("outer of types", dict(x=torch.arange(3), y=randn(2).double()), "x.outer(y)", grad=False)
same("dot", dict(x=vector, y=randn(5)), "x.dot(y)")
same("dot with itself", dict(x=vector), "x.dot(x)")
same("dot of integers", dict(x=torch.arange(5)), "x.dot(x)")
for f in ["tril_indices", "triu_indices"]:
    for arguments in ["3, 4", "4, 3, 1", "3, 3, -1", "2, 5, offset = 9", "0, 3", "3, 2, -7"]:
        same(f"{f} {arguments}", {}, f"torch.{f}({arguments})")
for op in ["minimum", "maximum"]:
    same(op, dict(x=matrix, y=randn(4)), f"x.{op}(y)")
    same(f"{op} of ties", dict(x=ties, y=ties.flip(1)), f"x.{op}(y)")
    same(f"{op} with NaN", dict(x=holed, y=torch.tensor([1.0, 2.0, nan])), f"x.{op}(y)", grad=False)
    same(f"{op} of types", dict(x=torch.arange(4), y=torch.tensor([1.5, -1.0, 9.0, 2.0])), f"x.{op}(y)", grad=False)
for op in ["any", "all"]:
    for arguments in ["", "0", "-1, keepdim = True", "dim = (0, 2)"]:
        same(f"{op} {arguments}", dict(x=counted % 5 * (counted > 4)), f"x.{op}({arguments})")
    same(f"{op} of nothing", dict(x=empty), f"(x.{op}(), x.{op}(0))", grad=False)
    same(f"{op} of NaN", dict(x=holed), f"x.{op}(1)", grad=False)

# Copies in other places.
for expr in ["x.repeat(1, 2, 1)", "x.repeat((2, 1, 3, 1))", "x.repeat(2, 0, 1)", "x.transpose(0, 2).repeat(2, 2, 2)"]:
    same(expr, dict(x=cube), expr)
same("repeat a number", dict(x=torch.tensor(2.5)), "x.repeat(3, 2)")
for expr in ["x.repeat_interleave(2)", "x.repeat_interleave(3, dim = 1)", "x.repeat_interleave(0, dim = 0)", "x.repeat_interleave(n, dim = 1)", "x.transpose(0, 1).repeat_interleave(2, 0)"]:
    same(expr, dict(x=cube, n=torch.tensor([2, 0, 1])), expr)
for arguments in ["1", "-2", "1, 0", "-5, 2", "(1, 2), (0, 1)", "shifts = 100, dims = 1", "(1, 1), (2, 2)"]:
    same(f"roll {arguments}", dict(x=cube), f"x.roll({arguments})")
same("roll nothing", dict(x=empty), "x.roll(1, 0)")

# Order.
for arguments in ["", "0", "dim = 1, descending = True"]:
    same(f"argsort {arguments}", dict(x=cube), f"x.argsort({arguments})", grad=False)
case("sort with NaN", dict(x=holed), "x.sort(1)", lambda x: tuple(x.sort(stable=True, dim=1)), grad=False)
case("sort descending with NaN", dict(x=holed), "x.sort(1, descending = True)", lambda x: tuple(x.sort(stable=True, dim=1, descending=True)), grad=False)
repeated = torch.tensor([[3, 1, 3], [1, 1, 2], [3, 1, 3]])
for arguments in ["", "return_inverse = True", "return_counts = True", "return_inverse = True, return_counts = True, dim = 0", "dim = 1, return_inverse = True"]:
    same(f"unique {arguments}", dict(x=repeated), f"x.unique({arguments})")
same("unique of views", dict(x=repeated.float()), "x.transpose(0, 1).unique(dim = 1, return_counts = True)", grad=False)
same("unique of bools", dict(x=repeated > 1), "x.unique(return_counts = True)")
same("unique with NaN", dict(x=holed), "x.unique(return_counts = True)", grad=False)
same("unique of nothing", dict(x=torch.zeros(0)), "x.unique(return_inverse = True, return_counts = True)", grad=False)
for expr in ["x.nonzero()", "x.nonzero(as_tuple = True)"]:
    same(expr, dict(x=counted % 3), expr)
    same(f"{expr} of a view", dict(x=counted % 3), expr.replace("x.", "x.transpose(0, 2)."))
    same(f"{expr} of NaN", dict(x=holed), expr, grad=False)
same("nonzero of numbers", {}, "(torch.tensor(3).nonzero(), torch.tensor(0).nonzero(), torch.zeros(0, 2).nonzero())")

odd = torch.tensor([[3.0, -1.0, 2.0, 7.0, 5.0], [9.0, 8.0, 4.0, 0.5, 1.0]])
for x in [odd, cube[0].contiguous(), torch.tensor([[5, 1, 4], [2, 2, 9]]), holed]:
    given, grad = dict(x=x), x.dtype == torch.float32 and not bool(x.isnan().any())
    same("median", given, "x.median()", grad=grad)
    for arguments in ["0", "1", "-1, keepdim = True"]:
        tuples(f"median {arguments}", given, f"x.median({arguments})", grad=grad, through=(0,))
same("median with ties", dict(x=torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0])), "x.median()")
same("median of NaN and its gradient", dict(x=torch.tensor([1.0, nan, 2.0, nan])), "x.median()")
for q in ["0.5", "0.0", "1", "0.3", "[0.25, 0.5, 0.9]"]:
    for arguments in ["", ", dim = 1", ", dim = 0, keepdim = True"]:
        case(f"quantile {q}{arguments}", dict(x=odd), f"x.quantile({q}{arguments})",
             lambda x, q=eval(q), a=arguments: eval(f"x.quantile(q{a})", {}, dict(x=x, q=torch.tensor(q, dtype=x.dtype))))
for mode in ["lower", "higher", "midpoint", "nearest"]:
    case(f"quantile {mode}", dict(x=cube), f'x.quantile([0.1, 0.4, 0.65], dim = 2, interpolation = "{mode}")',
         lambda x, m=mode: x.quantile(torch.tensor([0.1, 0.4, 0.65]), dim=2, interpolation=m))
same("quantile of a tensor", dict(x=odd.double()), "x.quantile(torch.tensor([0.2, 0.7], dtype = torch.float64), dim = 1)", grad=False)
same("quantile with NaN", dict(x=holed), "x.quantile(0.5, dim = 0)", grad=False)
same("quantile of a number", dict(x=torch.tensor(2.5)), "x.quantile(0.3)")
grid = torch.tensor([0.1, 0.2, 0.25, 0.5, 0.7, 0.9, 1.0, 0.0, -3.0, 0.3, nan])
for arguments in ["4, 0, 1", "bins = 5, min = -1, max = 2", "3, 0.25, 0.75"]:
    same(f"histc {arguments}", dict(x=grid), f"x.histc({arguments})", grad=False)
same("histc of the elements' range", dict(x=cube), "x.histc(7)", grad=False)
same("histc of one value", dict(x=torch.full((3,), 2.0)), "x.histc(4)", grad=False)
for arguments in ["5", "4, range = (-1, 1)", "4, range = (-1, 1), density = True", "6, weight = w", "6, weight = w, density = True"]:
    same(f"histogram {arguments}", dict(x=cube, w=cube.abs()), f"x.histogram({arguments})", grad=False)
same("histogram between edges", dict(x=cube, e=torch.tensor([-1.0, -0.25, 0.5, 2.0])), "x.histogram(e)", grad=False)
same("histogram of one value", dict(x=torch.full((3,), 2.0)), "x.histogram(4)", grad=False)

# Elementwise functions.
half, edges = torch.linspace(-0.95, 0.95, 9), torch.tensor([0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 1e-30, -1e30, inf, -inf, nan])
for op in "expm1 tan asin acos atan erf neg".split():
    same(op, dict(x=half), f"x.{op}()")
    same(f"{op} at the edges", dict(x=edges), f"x.{op}()", grad=False)
    same(f"{op} in float64", dict(x=half.double()), f"x.{op}()", tolerance=1e-12)
for op in "log1p reciprocal".split():
    same(op, dict(x=half), f"x.{op}()")
    same(f"{op} at the edges", dict(x=edges), f"x.{op}()", grad=False)
for op in "tan asin acos atan expm1 log1p erf sin cos".split():
    same(f"{op} of integers", dict(x=torch.tensor([0, 1])), f"x.{op}()")
for op in "floor ceil round trunc sign".split():
    same(f"{op} and its gradient", dict(x=torch.tensor([-2.5, -1.5, -0.4, 0.0, 0.5, 1.5, 2.6])), f"x.{op}() * x")
    same(f"{op} alone", dict(x=half * 3), f"x.{op}()")
    same(f"{op} at the edges", dict(x=edges if op != "sign" else edges[:-1]), f"x.{op}()", grad=False)  # of NaN it is NaN here
    same(f"{op} of integers", dict(x=torch.tensor([-3, 0, 2])), f"x.{op}()")
same("trunc of large numbers", dict(x=torch.tensor([8388609.0, -16777217.0, 8388607.5, 4194304.5, -0.9999999])), "x.trunc()", grad=False)
same("atan2", dict(x=matrix, y=randn(4)), "x.atan2(y)")
signs = torch.tensor([0.0, -0.0, 1.0, -1.0, inf, -inf, nan])
same("atan2 at the edges", dict(x=signs.reshape(7, 1), y=signs), "x.atan2(y)", grad=False)
same("atan2 of integers", dict(x=torch.tensor([1, -1, 0]), y=torch.tensor([1, 0, -2])), "x.atan2(y)")
same("remainder", dict(x=matrix * 5, y=randn(4)), "x.remainder(y)")
same("remainder of a number", dict(x=matrix * 5), "x.remainder(-2.5)")
same("remainder of integers", dict(x=torch.tensor([-7, 7, -7, 7]), y=torch.tensor([3, -3, -3, 3])), "x.remainder(y)")
same("remainder at the edges", dict(x=edges.reshape(11, 1), y=torch.tensor([2.0, -2.0, 0.0, inf, -inf, nan])), "x.remainder(y)", grad=False)
for op in ["isnan", "isinf", "isfinite"]:
    same(op, dict(x=edges), f"(x.{op}(), x.double().{op}(), torch.tensor([1, 2]).{op}())", grad=False)
    case(f"tensor.{op}", dict(x=edges), f"tensor.is_{op[2:]}(x)", getattr(torch, op), grad=False)

# Reductions.
for arguments in ["0", "-1", "(0, 2)", "dim = 1, keepdim = True", "(0, 1, 2)"]:
    same(f"logsumexp {arguments}", dict(x=cube * 3), f"x.logsumexp({arguments})")
same("logsumexp of large numbers", dict(x=torch.tensor([[1000.0, 1001.0], [-1000.0, -1002.0]])), "x.logsumexp(1)")
infinite = torch.tensor([[-inf, -inf], [0.0, -inf], [inf, 1.0], [nan, 0.0], [inf, -inf]])
same("logsumexp with infinities", dict(x=infinite), "x.logsumexp(1)", grad=False)
same("gradients of logsumexp with minus infinity", dict(x=infinite[1:2]), "x.logsumexp(1)")
same("logsumexp of nothing", dict(x=torch.zeros(2, 0)), "x.logsumexp(1)")
same("logsumexp of integers", dict(x=torch.tensor([[1, 2], [3, 4]])), "x.logsumexp(0)")
same("logsumexp of a view", dict(x=cube), "x.transpose(0, 2).logsumexp(1)")
zeros = torch.tensor([[1.5, 0.0, 2.0], [0.0, 3.0, 0.0], [1.0, -2.0, 0.5]])
for x in [cube, zeros, holed]:
    for arguments in ["", "0", "dim = 1", "-1, keepdim = True"]:
        same(f"prod {arguments}", dict(x=x), f"x.prod({arguments})")
    for dim in [0, 1]:
        same(f"cumprod {dim}", dict(x=x), f"x.cumprod({dim})", grad=x is not holed)  # NaN does not spread to other factors here
for x in [counted + 1, torch.tensor([[2, 127], [3, 100]], dtype=torch.int8), torch.tensor([[True, False], [True, True]])]:
    same("prod of integers", dict(x=x), "(x.prod(), x.prod(0))")
    same("cumprod of integers", dict(x=x), "x.cumprod(-1)")
same("prod of nothing", dict(x=empty), "(x.prod(), x.prod(0), x.prod(1))", grad=False)
same("gradient of the product of nothing", dict(x=empty), "x.prod(0)")
same("cumprod of nothing", dict(x=empty), "x.cumprod(0)")
same("prod of a number", dict(x=torch.tensor(2.5)), "x.prod() + x.prod(0) + x.cumprod(0)")
same("prod of a view", dict(x=cube), "x.transpose(0, 2).prod(1)")
same("cumprod of a view", dict(x=cube), "x.transpose(0, 2).cumprod(1)")

# Sums of products.
for equation, shapes in [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ij->ji", [(2, 3)]), ("ba", [(2, 3)]), ("ij->", [(2, 3)]), ("ij->j", [(2, 3)]),
    ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("bii->b", [(2, 3, 3)]), ("iji->j", [(3, 2, 3)]), ("iii->i", [(3, 3, 3)]), ("i,j->ij", [(2,), (3,)]), ("i,i", [(3,), (3,)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]), ("bij,bjk->ik", [(2, 3, 4), (2, 4, 5)]), ("ij,ij->i", [(2, 3), (2, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]), ("a,b,c->cab", [(2,), (3,), (4,)]), ("ij,kl->", [(2, 3), (2, 2)]), ("abc,cde,ae->bd", [(2, 3, 2), (2, 3, 2), (2, 2)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]), ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]), ("b...,b...->...", [(2, 3, 4), (2, 3, 4)]), ("...,...", [(2, 3), (3,)]),
    ("i...->...", [(2, 3, 4)]), ("...i->...", [(2, 3)]), ("i...j->j...i", [(2, 3, 4)]), ("...ij->ij", [(2, 3, 4)]), ("ij,ij->ij", [(2, 1), (2, 3)]), ("ij,jk->ik", [(2, 1), (3, 4)]),
    ("bn,anm,bm->ba", [(2, 3), (4, 3, 5), (2, 5)]), (" i j , j k -> i k ", [(2, 3), (3, 4)]), ("Ab,bC", [(2, 3), (3, 4)]), ("ij,jk->ik", [(2, 0), (0, 3)]), (",ij->ij", [(), (2, 3)]),
]:
    given = {n: randn(*shape) for n, shape in zip("xyz", shapes)}
    same(f"einsum {equation} {shapes}", given, f'torch.einsum("{equation}", {", ".join(given)})')
same("einsum of a list and of views", dict(x=matrix, y=cube), 'torch.einsum("ij,bkj->bik", [x, y.transpose(0, 1).transpose(0, 1)])')
same("einsum of one tensor twice", dict(x=matrix), 'torch.einsum("ij,kj->ik", x, x)')
same("einsum of integers", dict(x=counted[0], y=counted[1]), 'torch.einsum("ij,kj->ik", x, y)')

# Elements at indices.
at = torch.tensor([[0, 2, 1, 0], [1, 0, 2, 2]])
same("scatter", dict(x=matrix, at=at, y=randn(2, 4)), "x.scatter(0, at, y)")
same("scatter of a part", dict(x=matrix, at=at[:, :2], y=randn(3, 4)), "x.scatter(1, at, y)", grad=False)
same("scatter a number", dict(x=matrix, at=at), "x.scatter(0, at, 2.5)")
same("scatter into a view", dict(x=cube, at=torch.tensor([[[1, 0]], [[2, 1]]]), y=randn(2, 1, 2)), "x.transpose(1, 2).scatter(2, at, y)")
same("scatter_add with doubles", dict(x=matrix, at=torch.zeros(3, 4, dtype=torch.int64), y=randn(3, 4)), "x.scatter_add(0, at, y)")
same("scatter into numbers", dict(x=torch.tensor(1.0), at=torch.tensor(0), y=torch.tensor(3.0)), "x.scatter(0, at, y) * x.scatter_add(0, at, y)")
same("scatter integers and bools", dict(at=torch.tensor([2, 0])), "(torch.zeros(3, dtype = torch.int8).scatter(0, at, 7), torch.zeros(3, dtype = torch.bool).scatter(0, at, True))")
i, j, mask = torch.tensor([0, 1, -1, 0]), torch.tensor([3, 0, 2, 3]), torch.tensor([True, False, True])
given = dict(x=cube, i=i % 2, j=j % 3, k=torch.tensor([[0], [3]]), m=mask, n=cube[:, :, 0] > 0)
for key in ["i, j", "i, j, 1", "i, None, j", "j[:2] % 2, 1, k", "i, j, k", "0, j, k", "i, 2, j", "None, i, j", "i[:2], m", "n, 1", "n, k.view(2)[:1]"]:
    same(f"x[{key}]", given, f"x[{key}]")
case("x[i, :, j]", given, 'x[i, ":", j]', lambda x, i, j, *_: x[i, :, j])
case("x[:, m, 1:3]", given, 'x[":", m, "1:3"]', lambda x, i, j, k, m, n: x[:, m, 1:3])
case("x[..., j, k]", given, 'x["...", j, k]', lambda x, i, j, k, *_: x[..., j, k])
case("x[m by columns, ...]", given, 'x.transpose(0, 1)[m, "...", j[:2]]', lambda x, i, j, k, m, n: x.transpose(0, 1)[m, ..., j[:2]])
same("indexed twice", dict(x=cube, i=i % 2), "x[i][i, i]")
same("x[x.nonzero]", dict(x=counted % 3), "x[x.nonzero(as_tuple = True)]")

single = torch.tensor([1, 0, 1, 1]), torch.tensor([0, 2, 1, 2])  # no place twice
for name, key, python, shape in [
    ("i, j", "i, j", "i, j", (4, 4)), ("i, j broadcast", "i, j", "i, j", ()), ("i, :, j", 'i, ":", j', "i, :, j", (4, 3)), ("i[:2]", "i[:2]", "i[:2]", (2, 3, 4)),
    ("mask", "m", "m", (4,)), ("mask of rows", '":", r', ":, r", (2, 4)), ("i, r", "i[:2], r", "i[:2], r", (2, 4)), ("1:, j", '"1:", j', "1:, j", (4, 4)),
]:
    given = dict(x=cube, y=randn(*shape), i=single[0], j=single[1], m=cube[:, :, 0] > 0.3, r=mask)
    if name == "mask":
        given["y"] = randn(int(given["m"].sum()), 4)
    leaves = {k: v.clone().requires_grad_(k in "xy") for k, v in given.items()}
    z = leaves["x"] * 1
    exec(f"z[{python}] = y", dict(leaves, z=z))
    given["seed"] = randn(2, 3, 4)
    z.backward(given["seed"])
    record(f"x[{name}] = y", given, f"x.requires_grad = True\ny.requires_grad = True\nz = x * 1\nz[{key}] = y\nz.backward(gradient = seed)",
           {"z": z, "x.grad": leaves["x"].grad, "y.grad": leaves["y"].grad})
for accumulate in [False, True]:
    case(f"index_put {accumulate}", dict(x=cube, y=randn(4, 4), i=single[0], j=single[1]), f"x.index_put((i, j), y, accumulate = {accumulate})",
         lambda x, y, i, j, a=accumulate: x.index_put((i, j), y, accumulate=a))
case("index_put of doubles", dict(x=cube, y=randn(3, 4), i=torch.tensor([1, 1, 1])), "x.index_put([i, i], y, accumulate = True)",
     lambda x, y, i: x.index_put((i, i), y, accumulate=True))
case("index_put_ behind None", dict(x=cube, y=randn(2, 2), i=torch.tensor([1, 1]), j=torch.tensor([3, 3])), "(x * 1).index_put_([None, i, j], y, True)",
     lambda x, y, i, j: (x * 1).index_put_((torch.tensor([[0], [1]]), i, j), y, True))
case("index_put of a view", dict(x=cube, i=single[1]), "x.transpose(0, 2).index_put([i, i], tensor(2.5), accumulate = True)",
     lambda x, i: x.transpose(0, 2).index_put((i, i), torch.tensor(2.5), accumulate=True))
case("index_put of integers", dict(x=counted, i=torch.tensor([1, 1, 0])), "x.index_put([i], tensor([[[10]], [[20]], [[30]]]), accumulate = True)",
     lambda x, i: x.index_put((i,), torch.tensor([[[10]], [[20]], [[30]]]), accumulate=True))

# Linear algebra.
L = torch.linalg


def linear(name, given, expr, tolerance=2e-5, **how):
    """A case of linalg, in float32 and in float64."""
    for given, tolerance in [(given, tolerance), ({k: v.double() for k, v in given.items()}, 1e-9)]:
        case(name, given, expr.replace("T(", "(lambda x: x.transpose(-2, -1))("), lambda *v: eval(
            expr, {"linalg": L, "T": lambda x: x.transpose(-2, -1)}, dict(zip(given, v))), tolerance=tolerance, **how)


a = randn(4, 4) + 4 * torch.eye(4)
for shape in [(4, 2), (4,), (4, 0)]:
    linear(f"solve {shape}", dict(a=a, b=randn(*shape)), "linalg.solve(a, b)")
linear("solve with exchanges", dict(a=torch.tensor([[0.0, 2.0, 1.0], [1.0, 0.0, 3.0], [4.0, 1.0, 0.0]]), b=randn(3, 2)), "linalg.solve(a, b)")
linear("solve batches", dict(a=randn(2, 1, 3, 3) + 3 * torch.eye(3), b=randn(4, 3, 2)), "linalg.solve(a, b)")
linear("solve vectors", dict(a=randn(5, 3, 3) + 3 * torch.eye(3), b=randn(5, 3)), "linalg.solve(a, b)")
linear("solve views", dict(a=a, b=randn(2, 4)), "linalg.solve(T(a), T(b))")
for f in ["inv", "det"]:
    linear(f, dict(a=a), f"linalg.{f}(a)")
    linear(f"{f} of batches", dict(a=randn(2, 3, 3) + 2 * torch.eye(3)), f"linalg.{f}(a)")
    linear(f"{f} of a view", dict(a=a), f"linalg.{f}(T(a))")
linear("det of one and none", dict(a=torch.tensor([[2.5]]), b=torch.zeros(0, 0)), "linalg.det(a) + linalg.det(b)")
linear("det of singular matrices", dict(a=torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])), "linalg.det(a)")
case("slogdet", dict(a=torch.stack([a, -a[[1, 0, 2, 3]]])), "linalg.slogdet(a)", lambda a: tuple(L.slogdet(a)), through=(1,), tolerance=2e-5)
case("slogdet of a singular matrix", dict(a=torch.ones(2, 2)), "linalg.slogdet(a)", lambda a: tuple(L.slogdet(a)), grad=False)
positive = a @ a.T + torch.eye(4)
linear("cholesky", dict(a=positive), "linalg.cholesky(a)", tolerance=1e-4)
linear("cholesky of batches", dict(a=torch.stack([positive, 2 * positive])), "linalg.cholesky(a)", tolerance=1e-4)
for shape in [(4, 3), (3, 3), (3, 5), (2, 4, 2), (3, 1), (1, 3)]:
    for t in [torch.float32, torch.float64]:
        case(f"qr {shape}", dict(a=randn(*shape).to(t)), "linalg.qr(a)", lambda a: tuple(L.qr(a)), through=(0, 1), tolerance=1e-4)
case("qr complete", dict(a=randn(4, 2)), 'linalg.qr(a, mode = "complete")', lambda a: tuple(L.qr(a, mode="complete")), grad=False, tolerance=2e-5)
for shape in [(4, 3), (3, 3), (3, 5), (2, 4, 3)]:
    x, w = randn(*shape), randn(*shape)
    linear(f"svd {shape}: values", dict(x=x), "linalg.svd(x, full_matrices = False)[1]", tolerance=5e-5)
    linear(f"svd {shape}: product of u and vh", dict(x=x), "(lambda u, s, vh: u.matmul(vh))(*linalg.svd(x, full_matrices = False))", tolerance=1e-3)
    linear(f"svd {shape}: u alone", dict(x=x), "(lambda u, s, vh: (u * s.unsqueeze(-2)).matmul(T(u)))(*linalg.svd(x, full_matrices = False))", tolerance=1e-3)
    linear(f"svd {shape}: vh alone", dict(x=x), "(lambda u, s, vh: (vh * s.unsqueeze(-1).exp()).transpose(-2, -1).matmul(vh))(*linalg.svd(x, full_matrices = False))", tolerance=2e-3)
    linear(f"svd {shape}: all", dict(x=x), "(lambda u, s, vh: u.matmul(T(u)).sum() + T(vh).matmul(vh).sum() + s.sum())(*linalg.svd(x))", grad=False)
symmetric = a + a.T
for t in [symmetric, torch.stack([symmetric, symmetric * 2 - torch.eye(4)]), torch.tensor([[3.0]]), torch.tensor([[2.0, 1.0], [1.0, -1.0]])]:
    linear("eigh: values", dict(a=t), "linalg.eigh(a)[0]")
    linear("eigh: vectors", dict(a=t), "(lambda w, v: (v * w.sin().unsqueeze(-2)).matmul(T(v)))(*linalg.eigh(a))", tolerance=5e-4)
linear("eigh reads the lower triangle", dict(a=a), "linalg.eigh(a)[0]", grad=False)
for arguments in ["", "ord = 2, dim = 1", "ord = 1", "ord = -1", "ord = 2", "ord = -2", 'ord = "fro"', 'ord = "nuc"', 'ord = float("inf")', 'ord = float("-inf")', "dim = 0, keepdim = True", "ord = 3, dim = 0"]:
    linear(f"norm {arguments}", dict(x=matrix), f"linalg.norm(x, {arguments})")
for arguments in ["dim = (0, 2)", "ord = 1, dim = (2, 0), keepdim = True", 'ord = "nuc", dim = (0, 1)']:
    linear(f"norm of a cube {arguments}", dict(x=cube), f"linalg.norm(x, {arguments})", tolerance=1e-4)

write("pytorch_tensor.json")
