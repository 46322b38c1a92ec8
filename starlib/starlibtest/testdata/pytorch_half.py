"""bfloat16: arithmetic, functions, products, and autocast, as pytorch_half.json.

Made with torch 2 and NumPy 2 (PyPI); run it in this folder. Gradients are compared within what PyTorch rounds: it keeps
them in bfloat16, drun in float32.
"""
import torch
import torch.nn.functional as F

from cases import case, randn, same, write

ROUNDED = 0.05
torch.manual_seed(15)
x, y = randn(3, 5), randn(3, 5)

# One operation each: the same bits, since both round once.
for op in "+-*/":
    case(f"x {op} y", {"x": x, "y": y}, f"x.bfloat16() {op} y.bfloat16()", lambda a, b, op=op: eval(f"a.bfloat16() {op} b.bfloat16()"), grad=False, tolerance=0)
    case(f"x {op} number", {"x": x}, f"x.bfloat16() {op} 0.3", lambda a, op=op: eval(f"a.bfloat16() {op} 0.3"), grad=False, tolerance=0)
    case(f"number {op} x", {"x": x}, f"0.3 {op} x.bfloat16()", lambda a, op=op: eval(f"0.3 {op} a.bfloat16()"), grad=False, tolerance=0.008)
    case(f"x {op} float32", {"x": x, "y": y}, f"x.bfloat16() {op} y", lambda a, b, op=op: eval(f"a.bfloat16() {op} b"), grad=False, tolerance=1e-6)
    case(f"x {op} int", {"x": x, "y": torch.arange(1, 16).reshape(3, 5)}, f"x.bfloat16() {op} y", lambda a, b, op=op: eval(f"a.bfloat16() {op} b"), grad=False, tolerance=0)
for op in ["<", "<=", "==", "!="]:
    py = f"a.bfloat16() {op} b.bfloat16()"
    case(f"x {op} y", {"x": x, "y": torch.where(x > 0, x, y)}, f"(x.bfloat16() {op} y.bfloat16()).int()", lambda a, b, py=py: eval(py).int(), grad=False)
case("compared with a number", {"x": torch.tensor([0.1, 0.2])}, "(x.bfloat16() == 0.1).int()", lambda a: (a.bfloat16() == 0.1).int(), grad=False)

# Functions and their gradients, of float32 on the way.
for name in ["exp", "sigmoid", "relu", "abs", "square", "neg", "sin", "cos", "erf"]:
    same(f"{name} of bfloat16", {"x": x}, f"x.bfloat16().{name}()", tolerance=ROUNDED)
same("log of bfloat16", {"x": x.abs() + 0.5}, "x.bfloat16().log()", tolerance=ROUNDED)
same("sqrt of bfloat16", {"x": x.abs() + 0.5}, "x.bfloat16().sqrt()", tolerance=ROUNDED)
for expr in ["sum()", "mean()", "sum(1)", "mean(0)", "max()", "var(1)", "cumsum(1)", "softmax(1)", "log_softmax(0)", "logsumexp(1)", "norm()", "reshape(5, 3)", "flip(0)"]:
    if expr == "flip(0)":
        case("flip of bfloat16", {"x": x}, "x.bfloat16().flip(0)", lambda a: a.bfloat16().flip(0), tolerance=ROUNDED)
    else:
        same(f"{expr} of bfloat16", {"x": x}, f"x.bfloat16().{expr}", tolerance=ROUNDED)
same("cat of bfloat16 and float32", {"x": x, "y": y}, "torch.cat([x.bfloat16(), y], 0)", tolerance=ROUNDED)
same("where of bfloat16", {"x": x, "y": y}, "torch.where(x > 0, x.bfloat16(), y.bfloat16())", tolerance=ROUNDED)
case("rounding", {"x": torch.tensor([1.0039062, 1.0117188, -1.0039062, 3.4e38, 1e-40, 0.0])}, "x.bfloat16().float()", lambda a: a.bfloat16().float(), grad=False, tolerance=1e-6)

# Products.
for a, b in [((3, 5), (5, 4)), ((3, 40), (40, 17)), ((2, 3, 33), (33, 4)), ((2, 3, 7), (2, 7, 5)), ((5,), (5,))]:
    same(f"matmul {a} {b}", {"x": randn(*a), "y": randn(*b)}, "x.bfloat16().matmul(y.bfloat16())", tolerance=ROUNDED)


def cast(f):
    def run(*values):
        with torch.autocast("cpu", torch.bfloat16):
            return f(*values)
    return run


def weights(prefix, *shapes):
    return {f"{prefix}{i}": randn(*s) * 0.3 for i, s in enumerate(shapes)}


linear = {"x": randn(4, 6), **weights("p", (7, 6), (7,))}
case("autocast of a linear layer", linear, "nn.autocast(m, x)", cast(lambda x, w, b: F.linear(x, w, b)), "m = nn.linear(6, 7)",
     {"p0": "m.weight", "p1": "m.bias"}, tolerance=ROUNDED)
mlp = {"x": randn(4, 6), **weights("p", (7, 6), (7,), (3, 7), (3,))}
names = {"p0": "m[0].weight", "p1": "m[0].bias", "p2": "m[2].weight", "p3": "m[2].bias"}
target = torch.tensor([0, 2, 1, 1])
case("autocast of a model and its loss", mlp, "nn.autocast(lambda: nn.cross_entropy(m(x), tensor([0, 2, 1, 1])))",
     cast(lambda x, a, b, c, d: F.cross_entropy(F.linear(F.gelu(F.linear(x, a, b)), c, d).float(), target)),
     "m = nn.sequential(nn.linear(6, 7), nn.gelu(), nn.linear(7, 3))", names, tolerance=ROUNDED)
case("autocast with a norm", mlp, "nn.autocast(lambda: nn.mse_loss(nn.layer_norm(3)(m(x)), tensor.zeros(4, 3)))",
     cast(lambda x, a, b, c, d: F.mse_loss(F.layer_norm(F.linear(F.relu(F.linear(x, a, b)), c, d).float(), (3,)), torch.zeros(4, 3))),
     "m = nn.sequential(nn.linear(6, 7), nn.relu(), nn.linear(7, 3))", names, tolerance=0.1)
case("autocast of a convolution", {"x": randn(2, 3, 5, 5), **weights("p", (4, 3, 3, 3), (4,))}, "nn.autocast(m, x)",
     cast(lambda x, w, b: F.conv2d(x, w, b, padding=1)), "m = nn.conv2d(3, 4, 3, padding = 1)", {"p0": "m.weight", "p1": "m.bias"}, tolerance=ROUNDED)
case("autocast of a product", {"x": randn(3, 5), "y": randn(5, 2)}, "nn.autocast(lambda: (x.matmul(y), (x * x).sum()))",
     cast(lambda x, y: (x.matmul(y), (x * x).sum())), tolerance=ROUNDED)
case("autocast, off within", {"x": randn(3, 5), "y": randn(5, 2)}, 'nn.autocast(lambda: nn.autocast(lambda: x.matmul(y), dtype = "float32"))', lambda x, y: x.matmul(y))

write("pytorch_half.json")
