"""Layers and losses beyond the first ones, as pytorch_nn.json.

Made with torch 2.5.1 and NumPy 2 (PyPI); run it in this folder.
"""
import math

import torch
import torch.nn.functional as F

from cases import case, randn, record, write

# Activations, at the ends too, and of a transposed view.
x = torch.cat([randn(4, 5) * 3, torch.tensor([[0.0, -0.0, 30.0, -30.0, 1e-8], [88.0, -88.0, 19.99, 20.01, -1e-8]])])
for name, recipe, fn in [
    ("leaky_relu", "nn.leaky_relu()", F.leaky_relu), ("leaky_relu 0.2", "nn.leaky_relu(0.2)", lambda x: F.leaky_relu(x, 0.2)),
    ("elu", "nn.elu()", F.elu), ("elu 0.5", "nn.elu(alpha = 0.5)", lambda x: F.elu(x, 0.5)),
    ("softplus", "nn.softplus()", F.softplus), ("softplus 2 5", "nn.softplus(beta = 2, threshold = 5)", lambda x: F.softplus(x, 2, 5)),
    ("mish", "nn.mish()", F.mish), ("gelu tanh", 'nn.gelu(approximate = "tanh")', lambda x: F.gelu(x, approximate="tanh")),
    ("softmax", "nn.softmax(-1)", lambda x: F.softmax(x, -1)), ("log_softmax", "nn.log_softmax(0)", lambda x: F.log_softmax(x, 0)),
]:
    for dtype in [torch.float32, torch.float64]:
        tolerance = 1e-5 if dtype == torch.float32 else 1e-11
        case(f"{name} {dtype}"[:-8] + str(dtype)[6:], dict(x=x.to(dtype)), f"{recipe}(x)", fn, tolerance=tolerance)
    case(f"{name} of a view", dict(x=randn(5, 7)), f"{recipe}(x.transpose(0, 1))", lambda x, fn=fn: fn(x.t()))
    if name != "mish" and "softmax" not in name:
        edges = torch.tensor([math.inf, -math.inf, math.nan] if "gelu" not in name else [math.nan])
        case(f"{name} at infinity", dict(x=edges), f"{recipe}(x)", fn, grad=False)

# Losses.
w3 = torch.tensor([0.5, 2.0, 1.5])
for reduction in ["mean", "sum", "none"]:
    y = torch.tensor([2, 0, 1, 2, 1])
    for label, recipe, how in [
        ("weight", "weight = w", dict(weight=w3)), ("smoothing", "label_smoothing = 0.1", dict(label_smoothing=0.1)),
        ("ignore", "ignore_index = 1", dict(ignore_index=1)), ("ignore weight", "ignore_index = 2, weight = w", dict(ignore_index=2, weight=w3)),
        ("all", "ignore_index = 0, weight = w, label_smoothing = 0.3", dict(ignore_index=0, weight=w3, label_smoothing=0.3)),
    ]:
        case(f"cross_entropy {label} {reduction}", dict(x=randn(5, 3) * 3), f'nn.cross_entropy(x, tensor({y.tolist()}), reduction = "{reduction}", {recipe})'.replace("= w", "= tensor([0.5, 2.0, 1.5])"),
             lambda x, how=how, r=reduction: F.cross_entropy(x, y, reduction=r, **how))
    grid = torch.tensor([[[0, 1], [2, -100]], [[2, 2], [-100, 0]]])
    case(f"cross_entropy of images {reduction}", dict(x=randn(2, 3, 2, 2)), f'nn.cross_entropy(x, tensor({grid.tolist()}), reduction = "{reduction}", weight = tensor([0.5, 2.0, 1.5]), label_smoothing = 0.2)',
         lambda x, r=reduction: F.cross_entropy(x, grid, weight=w3, label_smoothing=0.2, reduction=r))
    soft = randn(4, 3).softmax(1)
    case(f"cross_entropy soft {reduction}", dict(x=randn(4, 3), y=soft), f'nn.cross_entropy(x, y.detach(), reduction = "{reduction}", weight = tensor([0.5, 2.0, 1.5]), label_smoothing = 0.1)',
         lambda x, y, r=reduction: F.cross_entropy(x, y.detach(), weight=w3, label_smoothing=0.1, reduction=r))
    case(f"cross_entropy of one sample {reduction}", dict(x=randn(3)), f'nn.cross_entropy(x, tensor(1), reduction = "{reduction}", weight = tensor([0.5, 2.0, 1.5]))',
         lambda x, r=reduction: F.cross_entropy(x, torch.tensor(1), weight=w3, reduction=r))
    a, b = randn(4, 3) * 2, randn(4, 3)
    case(f"bce pos_weight {reduction}", dict(x=a * 9, y=b.sigmoid()), f'nn.bce_with_logits(x, y.detach(), reduction = "{reduction}", pos_weight = tensor([0.5, 2.0, 1.5]))',
         lambda x, y, r=reduction: F.binary_cross_entropy_with_logits(x, y.detach(), pos_weight=w3, reduction=r))
    case(f"bce weights {reduction}", dict(x=a, y=b.sigmoid()), f'nn.bce_with_logits(x, y.detach(), reduction = "{reduction}", pos_weight = tensor([0.5, 2.0, 1.5]), weight = tensor([[0.5], [2.0], [0.0], [1.0]]))',
         lambda x, y, r=reduction: F.binary_cross_entropy_with_logits(x, y.detach(), weight=torch.tensor([[0.5], [2.0], [0.0], [1.0]]), pos_weight=w3, reduction=r))
    for delta in [1.0, 0.3]:
        case(f"huber {delta} {reduction}", dict(x=a, y=b), f'nn.huber_loss(x, y, reduction = "{reduction}", delta = {delta})', lambda x, y, d=delta, r=reduction: F.huber_loss(x, y, delta=d, reduction=r))
        case(f"smooth_l1 {delta} {reduction}", dict(x=a, y=b), f'nn.smooth_l1_loss(x, y, reduction = "{reduction}", beta = {delta})', lambda x, y, d=delta, r=reduction: F.smooth_l1_loss(x, y, beta=d, reduction=r))
    case(f"smooth_l1 0 {reduction}", dict(x=a, y=b), f'nn.smooth_l1_loss(x, y, reduction = "{reduction}", beta = 0)', lambda x, y, r=reduction: F.smooth_l1_loss(x, y, beta=0.0, reduction=r))
    case(f"cosine_embedding {reduction}", dict(x=randn(6, 4), y=randn(6, 4)), f'nn.cosine_embedding_loss(x, y, tensor([1, -1, 1, -1, -1, 1]), reduction = "{reduction}", margin = -0.2)',
         lambda x, y, r=reduction: F.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1, -1, -1, 1]), margin=-0.2, reduction=r))
    for how in ["", ", margin = 0.5, p = 1.0", ", swap = True, margin = 2.0"]:
        case(f"triplet{how} {reduction}", dict(a=randn(5, 4), p=randn(5, 4), n=randn(5, 4)), f'nn.triplet_margin_loss(a, p, n, reduction = "{reduction}"{how})',
             lambda a, p, n, how=how, r=reduction: eval(f"F.triplet_margin_loss(a, p, n, reduction = r{how})", {"F": F, "a": a, "p": p, "n": n, "r": r}))
for reduction in ["mean", "sum", "none", "batchmean"]:
    target = torch.tensor([[0.0, 0.25, 0.75], [0.5, 0.5, 0.0]])
    case(f"kl_div {reduction}", dict(x=randn(2, 3).log_softmax(1)), f'nn.kl_div(x, tensor({target.tolist()}), reduction = "{reduction}")', lambda x, r=reduction: F.kl_div(x, target, reduction=r))
    case(f"kl_div gradients {reduction}", dict(x=randn(2, 3).log_softmax(1), y=randn(2, 3).softmax(1)), f'nn.kl_div(x, y, reduction = "{reduction}")', lambda x, y, r=reduction: F.kl_div(x, y, reduction=r))
    case(f"kl_div log {reduction}", dict(x=randn(2, 3).log_softmax(1), y=randn(2, 3).log_softmax(1)), f'nn.kl_div(x, y, reduction = "{reduction}", log_target = True)',
         lambda x, y, r=reduction: F.kl_div(x, y, reduction=r, log_target=True))
case("cosine_similarity", dict(x=randn(3, 4), y=randn(3, 4)), "nn.cosine_similarity(x, y)", F.cosine_similarity)
case("cosine_similarity dim", dict(x=randn(2, 1, 4, 3), y=randn(5, 4, 1)), "nn.cosine_similarity(x, y, dim = -2)", lambda x, y: F.cosine_similarity(x, y, dim=-2))
case("cosine_similarity of zeros", dict(x=torch.zeros(2, 3), y=randn(2, 3)), "nn.cosine_similarity(x, y)", F.cosine_similarity, grad=False)

write("pytorch_nn.json")
