"""Computes with PyTorch what recipes must compute too, and writes it as pytorch.json.

Made with torch 1.13.0 and NumPy 1.24.2 (Debian's python3-torch).
"""
import itertools
import math

import torch
import torch.nn.functional as F

from cases import case, cases, randn, record, same, write

# Elementwise operations, and broadcasting.
x, y = randn(3, 4), randn(3, 4)
positive = x.abs() + 0.1
for op in "+ - * /".split():
    same(f"x {op} y", dict(x=x, y=y), f"x {op} y")
    same(f"broadcast {op}", dict(x=randn(2, 1, 4), y=randn(3, 1)), f"x {op} y")
    same(f"number {op}", dict(x=positive), f"1.5 {op} x")
    same(f"to a number {op}", dict(x=x), f"x {op} 3")
same("negation", dict(x=x), "-x")
for op in ["//", "%"]:
    i, j = torch.tensor([-7, 7, -7, 7, 6]), torch.tensor([3, 3, -3, -3, 2])
    same(f"integers {op}", dict(x=i, y=j), f"x {op} y")
    same(f"floats {op}", dict(x=randn(8) * 5, y=randn(8)), f"x {op} y", grad=False)
for op in "< <= > >= == !=".split():
    same(f"integers {op}", dict(x=torch.tensor([1, 2, 3]), y=torch.tensor([2, 2, 2])), f"x {op} y")
    same(f"nan {op}", dict(x=torch.tensor([1.0, math.nan, math.inf]), y=torch.tensor([1.0, math.nan, -math.inf])), f"x {op} y", grad=False)
for op in "exp tanh sigmoid relu abs sin cos square".split():
    same(op, dict(x=randn(4, 5) * 2), f"x.{op}()")
for op in "log sqrt".split():
    same(op, dict(x=positive), f"x.{op}()")
for op in "sign floor ceil round".split():
    same(op, dict(x=torch.tensor([-2.5, -1.5, -0.4, 0.0, 0.5, 1.5, 2.6])), f"x.{op}()", grad=False)
edges = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 88.0, -100.0, 1e-30])
for op in "exp log sqrt tanh sigmoid relu abs".split():
    same(f"{op} at the edges", dict(x=edges), f"x.{op}()", grad=False)
for op in ["gelu", "silu"]:
    case(op, dict(x=randn(4, 5) * 2), f"x.{op}()", getattr(F, op))
for p in ["2", "3.0", "0.5", "-1"]:
    same(f"pow {p}", dict(x=positive), f"x.pow({p})")
same("pow tensor", dict(x=positive, y=y), "x.pow(y)")
for bounds in ["min = -0.5, max = 0.5", "min = 0", "max = 0.25"]:
    same(f"clamp {bounds}", dict(x=x), f"x.clamp({bounds})")
same("mixed chain", dict(x=x, y=y), "(x * y + x.exp() / (y.square() + 1)).tanh()")

# The types of results.
values = {n: torch.tensor([0, 1, 1]).to(getattr(torch, n)) for n in "float32 float64 int64 int32 int8 uint8 bool".split()}
for a, b in itertools.combinations_with_replacement(values, 2):
    if {a, b} != {"int8", "uint8"}:  # PyTorch's int16 does not exist here
        same(f"{a} + {b}", dict(x=values[a], y=values[b]), "x + y" if a != "bool" or b != "bool" else "x == y", grad=False)
for a in values:
    if a != "bool":
        for n in ["2", "2.5"]:
            same(f"{a} * {n}", dict(x=values[a]), f"x * {n}", grad=False)
        same(f"{a} / 2", dict(x=values[a]), "x / 2", grad=False)
    same(f"sum of {a}", dict(x=values[a]), "x.sum()", grad=False)
    same(f"a scalar and {a}", dict(x=values[a], y=torch.tensor(2)), "x * y", grad=False)

# Reductions.
cube = randn(2, 3, 4)
for op in "sum mean var std".split():
    same(f"{op}", dict(x=cube), f"x.{op}()")
    for dim in ["0", "-1", "(0, 2)"]:
        same(f"{op} {dim}", dict(x=cube), f"x.{op}(dim = {dim})")
        same(f"{op} {dim} keepdim", dict(x=cube), f"x.{op}(dim = {dim}, keepdim = {True})")
same("var biased", dict(x=cube), "x.var(dim = 1, unbiased = False)")
same("std biased", dict(x=cube), "x.std(dim = (1, 2), unbiased = False)")
for op in ["max", "min"]:
    same(f"{op}", dict(x=cube), f"x.{op}()")
    for dim in [0, 1, -1]:
        case(f"{op} {dim}", dict(x=cube), f"x.{op}({dim})", lambda x, op=op, dim=dim: tuple(getattr(x, op)(dim)))
    case(f"{op} keepdim", dict(x=cube), f"x.{op}(1, keepdim = True)", lambda x, op=op: tuple(getattr(x, op)(1, keepdim=True)))
same("argmax", dict(x=cube), "x.argmax()", grad=False)
same("argmax 1", dict(x=cube), "x.argmax(dim = 1)", grad=False)
same("argmax keepdim", dict(x=cube), "x.argmax(dim = -1, keepdim = True)", grad=False)
for p in ["", "1", "3", "2, dim = 1", "p = 2, dim = (0, 2), keepdim = True", 'p = float("inf")']:
    same(f"norm {p}", dict(x=cube), f"x.norm({p})")
same("cumsum", dict(x=cube), "x.cumsum(1)")
same("cumsum integers", dict(x=torch.arange(6).reshape(2, 3)), "x.cumsum(-1)")
same("any all", dict(x=torch.tensor([[True, False], [True, True]])), "(x.any(1), x.all(1), x.any(), x.all())")
for op in ["softmax", "log_softmax"]:
    for dim in [0, 1, -1]:
        same(f"{op} {dim}", dict(x=cube * 3), f"x.{op}({dim})")
same("softmax of large values", dict(x=torch.tensor([[1000.0, 1001.0], [-1000.0, -1000.0]])), "x.softmax(1)")
same("softmax with minus infinity", dict(x=torch.tensor([[0.0, -math.inf, 1.0]])), "x.softmax(1)", grad=False)

# Order.
for arguments in ["", "0", "dim = 1, descending = True"]:
    case(f"sort {arguments}", dict(x=cube), f"x.sort({arguments})", lambda x, a=arguments: tuple(eval(f"x.sort({a})")))
for arguments in ["2", "1, dim = 0", "2, dim = 1, largest = False"]:
    case(f"topk {arguments}", dict(x=cube), f"x.topk({arguments})", lambda x, a=arguments: tuple(eval(f"x.topk({a})")))

# Shapes and indices.
for call in ["reshape(4, -1)", "view(2, 12)", "transpose(0, 2)", "permute(2, 0, 1)", "unsqueeze(1)", "flatten()", "flatten(1)", "flatten(0, 1)",
             "narrow(2, 1, 2)", "select(1, -1)", "flip((0, 2))", "unsqueeze(-1).expand(2, 3, 4, 5)", "unsqueeze(0).squeeze(0)", "unsqueeze(1).squeeze()",
             "transpose(1, 2).reshape(6, 4)", "permute(1, 2, 0).flatten()", "select(0, 1).transpose(0, 1).narrow(0, 1, 2)"]:
    same(call, dict(x=cube), f"x.{call}")
index = torch.tensor([[[0, 2, 1, 0]], [[1, 1, 2, 2]]])
same("gather", dict(x=cube, index=index), "x.gather(1, index)")
same("scatter_add", dict(x=cube, index=index, src=randn(2, 1, 4)), "x.scatter_add(1, index, src)")
same("index_select", dict(x=cube, index=torch.tensor([2, 0, 2])), "x.index_select(1, index)")
same("masked_fill", dict(x=cube, mask=cube[0] > 0), "x.masked_fill(mask, -1.5)")
for key in ["0", "-1", "1, 2", "0, 1, 3", ":, 1", "..., 0", ":, 0:2", "::2", "1:, ::2, 1:3", ":, :, 1::2", "None, 0", "0, None, :, 2", "-1, -2:"]:
    case(f"x[{key}]", dict(x=cube), f'x["{key}"]', lambda x, key=key: eval(f"x[{key}]"))
for key in ["[1, 0, 1]", "0, [1, 1]"]:
    same(f"x[{key}]", dict(x=cube), f"x[{key}]")
same("index by a tensor", dict(x=cube, index=torch.tensor([[1, 0], [0, 0]])), "x[index]")
same("index by a mask", dict(x=cube, mask=cube > 0), "x[mask]")
same("index by a mask of rows", dict(x=cube, mask=torch.tensor([False, True])), "x[mask]")


def set_item(z, key, value):
    exec(f"z[{key}] = value")
    return z


for key, value in [("0", "y[0]"), (":, 1", "y[0, 0]"), ("1:, ::2", "2.5"), ("..., -1", "7.0")]:
    given = dict(x=cube, y=randn(2, 3, 4))
    leaves = {k: v.clone().requires_grad_() for k, v in given.items()}
    z = set_item(leaves["x"] * 1, key, eval(value, {}, leaves))
    given["seed"] = randn(2, 3, 4)
    z.backward(given["seed"])
    want = {"z": z, "x.grad": leaves["x"].grad}
    if leaves["y"].grad is not None:
        want["y.grad"] = leaves["y"].grad
    record(f"x[{key}] = {value}", given, f'x.requires_grad = True\ny.requires_grad = True\nz = x * 1\nz["{key}"] = {value}\nz.backward(gradient = seed)', want)

# Functions.
for expr in ["torch.cat([x, y])", "torch.cat([x, y], dim = 1)", "torch.stack([x, y])", "torch.stack([x, y], dim = -1)", "torch.where(x > 0, x, y)", "torch.tril(x)",
             "torch.triu(x, 1)", "torch.tril(x, diagonal = -1)"]:
    same(expr, dict(x=x, y=y), expr)
for pad in ["(1, 2)", "(0, 1, 2, 0)"]:
    case(f"pad {pad}", dict(x=x), f"tensor.pad(x, {pad}, 9)", lambda x, pad=pad: F.pad(x, eval(pad), value=9.0))
for expr in ["torch.linspace(-1, 2, 7)", "torch.arange(5)", "torch.arange(1, 8, 3)", "torch.arange(0, 1, 0.25)", "torch.arange(5, 0, -2)", "torch.eye(3, 4)",
             "torch.bincount(x)", "torch.bincount(x, minlength = 9)", "torch.bincount(x, weights = w)"]:
    same(expr, dict(x=torch.tensor([1, 5, 5, 0]), w=torch.tensor([0.5, 1.5, 2.0, 4.0])), expr, grad=False)
case("one_hot", dict(x=torch.tensor([[1, 0], [2, 1]])), "tensor.one_hot(x, 4)", lambda x: F.one_hot(x, 4))
case("is_nan", dict(x=edges), "tensor.is_nan(x)", torch.isnan, grad=False)
for a, b in [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((2, 1, 2, 3), (4, 3, 2)), ((3,), (4, 3, 2))]:
    same(f"matmul {a} {b}", dict(x=randn(*a), y=randn(*b)), "x.matmul(y)")
same("matmul of views", dict(x=randn(3, 2), y=randn(4, 3)), "x.transpose(0, 1).matmul(y.transpose(0, 1))")

# Layers.
for shape in [(3,), (5, 3), (2, 5, 3)]:
    case(f"linear {shape}", dict(x=randn(*shape), w=randn(4, 3), b=randn(4)), "m(x)", lambda x, w, b: F.linear(x, w, b),
         "m = nn.linear(3, 4)", dict(w="m.weight", b="m.bias"))
case("linear without bias", dict(x=randn(5, 3), w=randn(4, 3)), "m(x)", lambda x, w: F.linear(x, w), "m = nn.linear(3, 4, bias = False)", dict(w="m.weight"))
for kernel, stride, padding, size in [(3, 1, 0, (5, 6)), (3, 1, 1, (5, 6)), (3, 2, 1, (7, 6)), (1, 1, 0, (3, 3)), (5, 3, 2, (9, 8)), ((1, 3), (2, 1), (0, 2), (5, 4)), (2, 2, 0, (5, 5))]:
    k = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    case(f"conv2d {kernel} {stride} {padding}", dict(x=randn(2, 3, *size), w=randn(4, 3, *k), b=randn(4)), "m(x)",
         lambda x, w, b, s=stride, p=padding: F.conv2d(x, w, b, s, p),
         f"m = nn.conv2d(3, 4, {kernel}, stride = {stride}, padding = {padding})", dict(w="m.weight", b="m.bias"))
case("conv2d without bias", dict(x=randn(1, 2, 4, 4), w=randn(3, 2, 3, 3)), "m(x)", lambda x, w: F.conv2d(x, w), "m = nn.conv2d(2, 3, 3, bias = False)", dict(w="m.weight"))
for kernel, stride, padding in [(2, None, 0), (3, 1, 1), (3, 2, 1), ((2, 3), (1, 2), 0), (2, 3, 1)]:
    for kind in ["max", "avg"]:
        case(f"{kind}_pool2d {kernel} {stride} {padding}", dict(x=randn(2, 2, 7, 6)), f"nn.{kind}_pool2d({kernel}, stride = {stride}, padding = {padding})(x)",
             lambda x, f=getattr(F, f"{kind}_pool2d"), k=kernel, s=stride, p=padding: f(x, k, s, p))
case("embedding", dict(x=torch.tensor([[1, 0, 3], [1, 1, 4]]), w=randn(5, 2)), "m(x)", lambda x, w: F.embedding(x, w), "m = nn.embedding(5, 2)", dict(w="m.weight"))
case("layer_norm", dict(x=randn(4, 6), w=randn(6), b=randn(6)), "m(x)", lambda x, w, b: F.layer_norm(x, (6,), w, b), "m = nn.layer_norm(6)", dict(w="m.weight", b="m.bias"))
case("layer_norm of two dimensions", dict(x=randn(3, 2, 5), w=randn(2, 5), b=randn(2, 5)), "m(x)", lambda x, w, b: F.layer_norm(x, (2, 5), w, b),
     "m = nn.layer_norm((2, 5))", dict(w="m.weight", b="m.bias"))
case("rms_norm", dict(x=randn(4, 6), w=randn(6)), "m(x)", lambda x, w: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w,
     "m = nn.rms_norm(6)", dict(w="m.weight"))
for shape in [(6, 3), (4, 3, 5), (2, 3, 4, 5)]:
    for training in [True, False]:
        mean, var = randn(3), randn(3).square() + 0.5
        given = dict(x=randn(*shape), w=randn(3), b=randn(3), mean=mean, var=var)
        leaves = {k: v.clone().requires_grad_(k in "xwb") for k, v in given.items()}
        out = leaves["x"]
        out = F.batch_norm(out, leaves["mean"], leaves["var"], leaves["w"], leaves["b"], training)
        given["seed"] = randn(*shape)
        out.backward(given["seed"])
        record(f"batch_norm {shape} training {training}", given,
               "m = nn.batch_norm(3)\nm.weight.detach().copy_(w)\nm.bias.detach().copy_(b)\nm.running_mean.copy_(mean)\nm.running_var.copy_(var)\n"
               + ("" if training else "m.eval()\n") + "x.requires_grad = True\nout = m(x)\nout.backward(gradient = seed)",
               {"out": out, "x.grad": leaves["x"].grad, "m.weight.grad": leaves["w"].grad, "m.bias.grad": leaves["b"].grad,
                "m.running_mean": leaves["mean"], "m.running_var": leaves["var"]}, 2e-5)


def attention(q, k, v, causal):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


for causal in [False, True]:
    for shape in [(5, 4), (2, 5, 4), (2, 3, 7, 8)]:
        case(f"attention {shape} {causal}", dict(q=randn(*shape), k=randn(*shape), v=randn(*shape)), f"nn.attention(q, k, v, causal = {causal})",
             lambda q, k, v, c=causal: attention(q, k, v, c), tolerance=2e-5)
case("attention to other keys", dict(q=randn(2, 3, 4), k=randn(2, 6, 4), v=randn(2, 6, 4)), "nn.attention(q, k, v)", lambda q, k, v: attention(q, k, v, False))

# Losses.
for reduction in ["mean", "sum", "none"]:
    a, b = randn(4, 3), randn(4, 3)
    for name, torch_loss in [("mse_loss", F.mse_loss), ("l1_loss", F.l1_loss)]:
        case(f"{name} {reduction}", dict(x=a, y=b), f'nn.{name}(x, y, reduction = "{reduction}")', lambda x, y, f=torch_loss, r=reduction: f(x, y, reduction=r))
    case(f"bce_with_logits {reduction}", dict(x=a * 5, y=b.sigmoid()), f'nn.bce_with_logits(x, y.detach(), reduction = "{reduction}")',
         lambda x, y, r=reduction: F.binary_cross_entropy_with_logits(x, y.detach(), reduction=r))
    target = torch.tensor([2, 0, 1, 2])
    case(f"cross_entropy {reduction}", dict(x=a * 3, y=target), f'nn.cross_entropy(x, y, reduction = "{reduction}")', lambda x, y, r=reduction: F.cross_entropy(x, y, reduction=r))
    case(f"nll_loss {reduction}", dict(x=a.log_softmax(1), y=target), f'nn.nll_loss(x, y, reduction = "{reduction}")', lambda x, y, r=reduction: F.nll_loss(x, y, reduction=r))
case("cross_entropy of large logits", dict(x=torch.tensor([[1000.0, -1000.0], [50.0, 51.0]]), y=torch.tensor([1, 0])), "nn.cross_entropy(x, y)", F.cross_entropy)

# Optimizers: the parameters after each of several steps.
p0, q0, target = randn(3, 2), randn(4), randn(3, 2)


def steps(name, recipe, build, schedule=None, clip=False, n=6):
    # Rounding 0.999 to float32 moves 1 - 0.999, which Adam multiplies by, by 1.3e-5.
    tolerance = 5e-5 if "adam" in recipe else 1e-5
    p, q = p0.clone().requires_grad_(), q0.clone().requires_grad_()
    optimizer = build(p, q)
    scheduler = schedule and schedule(optimizer)
    want = {}
    for i in range(n):
        loss = (p - target).square().sum() + (q * q * q * q).sum()
        optimizer.zero_grad()
        loss.backward()
        if clip:
            want[f"norms[{i}]"] = float(torch.nn.utils.clip_grad_norm_([p, q], 0.5))
        optimizer.step()
        if scheduler:
            scheduler.step()
        want |= {f"after[{i}][0]": p.clone(), f"after[{i}][1]": q.clone()}
    source = f"""p, q = nn.parameter(p0), nn.parameter(q0)
opt = {recipe}
after, norms = [], []
for i in range({n}):
    opt.zero_grad()
    ((p - target).square().sum() + (q * q * q * q).sum()).backward()
    {"norms.append(optim.clip_grad_norm([p, q], 0.5))" if clip else "pass"}
    opt.step()
    after.append((p.clone(), q.clone()))"""
    record(name, dict(p0=p0, q0=q0, target=target), source, want, tolerance)


O = torch.optim
steps("sgd", "optim.sgd([p, q], 0.05)", lambda p, q: O.SGD([p, q], 0.05))
steps("sgd momentum", "optim.sgd([p, q], lr = 0.05, momentum = 0.9)", lambda p, q: O.SGD([p, q], 0.05, momentum=0.9))
steps("sgd nesterov", "optim.sgd([p, q], lr = 0.05, momentum = 0.8, nesterov = True)", lambda p, q: O.SGD([p, q], 0.05, momentum=0.8, nesterov=True))
steps("sgd weight decay", "optim.sgd([p, q], lr = 0.05, momentum = 0.9, weight_decay = 0.1)", lambda p, q: O.SGD([p, q], 0.05, momentum=0.9, weight_decay=0.1))
steps("sgd nesterov weight decay", "optim.sgd([p, q], lr = 0.05, momentum = 0.9, nesterov = True, weight_decay = 0.1)",
      lambda p, q: O.SGD([p, q], 0.05, momentum=0.9, nesterov=True, weight_decay=0.1))
steps("adam", "optim.adam([p, q], lr = 0.1)", lambda p, q: O.Adam([p, q], 0.1))
steps("adam betas", "optim.adam([p, q], lr = 0.1, betas = (0.8, 0.9), eps = 1e-3, weight_decay = 0.2)", lambda p, q: O.Adam([p, q], 0.1, (0.8, 0.9), 1e-3, 0.2))
steps("adamw", "optim.adamw([p, q], lr = 0.1, weight_decay = 0.2)", lambda p, q: O.AdamW([p, q], 0.1, weight_decay=0.2))
steps("adamw betas", "optim.adamw([p, q], lr = 0.1, betas = (0.5, 0.99), eps = 1e-2)", lambda p, q: O.AdamW([p, q], 0.1, (0.5, 0.99), 1e-2, weight_decay=0))
steps("groups", 'optim.sgd([{"params": [p], "lr": 0.1, "weight_decay": 0.5}, {"params": [q]}], lr = 0.02, momentum = 0.9)',
      lambda p, q: O.SGD([{"params": [p], "lr": 0.1, "weight_decay": 0.5}, {"params": [q]}], 0.02, momentum=0.9))
steps("step_decay", "optim.sgd([p, q], lr = optim.step_decay(0.1, 2, gamma = 0.5))", lambda p, q: O.SGD([p, q], 0.1), lambda o: O.lr_scheduler.StepLR(o, 2, 0.5))
steps("cosine", "optim.sgd([p, q], lr = optim.cosine(0.1, 5, end = 0.01))", lambda p, q: O.SGD([p, q], 0.1), lambda o: O.lr_scheduler.CosineAnnealingLR(o, 5, 0.01), n=5)
steps("a rate by a function", "optim.adam([p, q], lr = lambda step: 0.1 / (1 + step))", lambda p, q: O.Adam([p, q], 0.1), lambda o: O.lr_scheduler.LambdaLR(o, lambda s: 1 / (1 + s)))
steps("clip_grad_norm", "optim.sgd([p, q], lr = 0.5)", lambda p, q: O.SGD([p, q], 0.5), clip=True)

# A block of a transformer, as a whole.
names = "qkv_w qkv_b out_w out_b up_w up_b down_w down_b n1_w n1_b n2_w n2_b".split()
shapes = [(24, 8), (24,), (8, 8), (8,), (32, 8), (32,), (8, 32), (8,), (8,), (8,), (8,), (8,)]
given = {n: randn(*s) * (0.3 if len(s) == 2 else 0.5) for n, s in zip(names, shapes)}


def transformer(x, qkv_w, qkv_b, out_w, out_b, up_w, up_b, down_w, down_b, n1_w, n1_b, n2_w, n2_b):
    batch, length, width = x.shape
    q, k, v = F.linear(F.layer_norm(x, (8,), n1_w, n1_b), qkv_w, qkv_b).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
    x = x + F.linear(attention(q, k, v, True).transpose(1, 2).reshape(batch, length, width), out_w, out_b)
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (8,), n2_w, n2_b), up_w, up_b)), down_w, down_b)


case("transformer block", dict(x=randn(2, 5, 8), **given), "block(x)", transformer, """qkv, out, up, down = nn.linear(8, 24), nn.linear(8, 8), nn.linear(8, 32), nn.linear(32, 8)
n1, n2 = nn.layer_norm(8), nn.layer_norm(8)
def block(x):
    heads = qkv(n1(x)).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    x = x + out(nn.attention(heads[0], heads[1], heads[2], causal = True).transpose(1, 2).reshape(2, 5, 8))
    return x + down(up(n2(x)).gelu())""", {n: n.replace("_w", ".weight").replace("_b", ".bias") for n in names}, tolerance=5e-5)
cases[-1]["source"] = cases[-1]["source"].replace("out = block(x)", "result = block(x)").replace("out.backward", "result.backward")
cases[-1]["want"]["result"] = cases[-1]["want"].pop("out")

write("pytorch.json")
