"""How the cases of pytorch*.json are made: recipes, what they are given, and what PyTorch computes.

The scripts pytorch*.py beside this file make the cases; run each in this folder. The Go test executes each
case's recipe and compares.
"""
import json
import math

import numpy as np
import torch

torch.manual_seed(7)
torch.set_num_threads(1)
cases = []


def number(v):
    """A float as JSON has it: the shortest decimal that reads back to it."""
    v = float(v)
    return v if math.isfinite(v) else str(v).replace("nan", "NaN")


def array(t):
    if isinstance(t, (bool, int, float)):
        return {"dtype": type(t).__name__, "shape": [], "values": [number(t)]}
    t = t.detach()
    flat = t.flatten().tolist()
    if t.dtype == torch.float32:
        flat = [str(np.float32(v)) for v in flat]
    return {"dtype": str(t.dtype)[6:], "shape": list(t.shape), "values": [number(v) for v in flat]}


def record(name, given, source, want, tolerance=1e-5, scale=0.1):
    cases.append({
        "name": name, "given": {k: array(v) for k, v in given.items()}, "source": source,
        "want": {k: array(v) for k, v in want.items()}, "tolerance": tolerance, "scale": scale,
    })


def case(name, given, expr, fn, setup="", alias=None, grad=True, tolerance=1e-5, through=(0,), scale=0.1):
    """A value, or a tuple of them, and the gradients of what it was computed from.

    alias names the recipe's tensors, such as m.weight, that are given values. Gradients flow back through the
    results at the indices in through. Values differ by tolerance times their size, or times scale if they are smaller.
    """
    alias = alias or {}
    leaves = {k: v.clone().requires_grad_(grad and v.is_floating_point()) for k, v in given.items()}
    out = fn(*leaves.values())
    outs = out if isinstance(out, tuple) else (out,)
    given, source = dict(given), setup
    for k, target in alias.items():
        source += f"\n{target}.detach().copy_({k})"
    for k, v in given.items():
        if leaves[k].requires_grad and k not in alias:
            source += f"\n{k}.requires_grad = True"
    source += f"\nout = {expr}"
    names = [f"out[{i}]" for i in range(len(outs))] if isinstance(out, tuple) else ["out"]
    want = dict(zip(names, outs))
    flowing = [i for i in through if isinstance(outs[i], torch.Tensor) and outs[i].requires_grad]
    for i in flowing:
        seed, last, first = f"seed{i or ''}", i == flowing[-1], outs[i]
        given[seed] = torch.linspace(-1, 2, first.numel(), dtype=first.dtype).reshape(first.shape)
        first.backward(given[seed], retain_graph=not last)
        source += f"\n{names[i]}.backward(gradient = {seed}{'' if last else ', retain_graph = True'})"
    if flowing:
        want |= {f"{alias.get(k, k)}.grad": v.grad for k, v in leaves.items() if v.grad is not None}
    record(name, given, source.strip(), want, tolerance, scale)


def same(name, given, expr, **how):
    """A case whose expression is the same in Python, but for the module's name."""
    case(name, given, expr.replace("torch.", "tensor."), lambda *v: eval(expr, {"torch": torch}, dict(zip(given, v))), **how)


def randn(*shape):
    return torch.randn(shape)


def write(path):
    with open(path, "w") as f:
        json.dump({"torch": torch.__version__, "cases": cases}, f, separators=(",", ":"))
        f.write("\n")
    print(len(cases), "cases")
