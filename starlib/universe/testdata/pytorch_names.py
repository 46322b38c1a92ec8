"""The public names of PyTorch's torch, torch.Tensor, torch.linalg, torch.nn, torch.nn.functional and torch.optim, a line each.

    python pytorch_names.py >pytorch_names.txt
"""
import inspect
import types

import torch
import torch.nn.functional as F
import torch.optim.lr_scheduler


def public(owner, keep):
    names = getattr(owner, "__all__", None) or dir(owner)
    for name in sorted(set(names) | {n for n in dir(owner) if callable(getattr(owner, n, None))}):
        if name.startswith("_"):
            continue
        value = getattr(owner, name, None)
        if not isinstance(value, types.ModuleType) and keep(name, value):
            yield name


def own(value, package):
    return (getattr(value, "__module__", None) or package).startswith(package)


sections = [
    ("torch", torch, lambda n, v: callable(v) and not inspect.isclass(v) and own(v, "torch") or isinstance(v, torch.dtype)),
    ("Tensor", torch.Tensor, lambda n, v: True),
    ("linalg", torch.linalg, lambda n, v: callable(v) and not inspect.isclass(v)),
    ("nn", torch.nn, lambda n, v: inspect.isclass(v) and own(v, "torch.nn")),
    ("functional", F, lambda n, v: callable(v) and not inspect.isclass(v) and (own(v, "torch.nn.functional") or inspect.isbuiltin(v) or hasattr(torch, n)) and n not in ("handle_torch_function", "has_torch_function", "boolean_dispatch", "assert_int_or_pair", "has_torch_function_unary", "has_torch_function_variadic", "adaptive_max_pool1d_with_indices")),
    ("optim", torch.optim, lambda n, v: inspect.isclass(v)),
    ("lr_scheduler", torch.optim.lr_scheduler, lambda n, v: inspect.isclass(v) and own(v, "torch.optim")),
]
print("# torch", torch.__version__)
for section, owner, keep in sections:
    for name in public(owner, keep):
        print(section, name)
