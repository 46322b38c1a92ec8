"""What a port of a PyTorch script meets beside the large parts, as pytorch_gaps.json.

Made with torch 1.13 (Debian's python3-torch); run it in this folder.
"""
import torch
import torch.nn.functional as F

from cases import case, randn, record, write

# Transposes, and tensors that are made with a gradient.
case("T", dict(x=randn(3, 4)), "x.T", lambda x: x.T)
case("T of a vector", dict(x=randn(3)), "x.T", lambda x: x.t())
case("mT", dict(x=randn(2, 3, 4)), "x.mT", lambda x: x.mT)
case("a product with T", dict(x=randn(3, 4)), "x.T.matmul(x)", lambda x: x.T @ x)
for name, recipe, value in [
    ("tensor", "tensor([1.5, 2.0], requires_grad = True)", torch.tensor([1.5, 2.0])), ("zeros", "tensor.zeros(2, 2, requires_grad = True)", torch.zeros(2, 2)),
    ("ones", "tensor.ones(3, requires_grad = True)", torch.ones(3)), ("full", "tensor.full((2,), 0.5, requires_grad = True)", torch.full((2,), 0.5)),
    ("eye", "tensor.eye(2, requires_grad = True)", torch.eye(2)), ("arange", "tensor.arange(3.0, requires_grad = True)", torch.arange(3.0)),
    ("linspace", "tensor.linspace(0, 1, 3, requires_grad = True)", torch.linspace(0, 1, 3)), ("float64", 'tensor.ones(3, dtype = "float64", requires_grad = True)', torch.ones(3, dtype=torch.float64)),
]:
    x = value.clone().requires_grad_()
    (x * x * 3).sum().backward()
    record(f"requires_grad of {name}", {}, f"x = {recipe}\n(x * x * 3).sum().backward()", {"x": x, "x.grad": x.grad})
    record(f"requires_grad_ of {name}", {}, f"x = {recipe}.detach().requires_grad_()\n(x * x * 3).sum().backward()\ny = x.detach().requires_grad_().requires_grad_(False)",
           {"x.grad": x.grad, "1 if y.requires_grad else 0": 0})

# nll_loss.
w = torch.tensor([0.5, 2.0, 1.5])
for reduction in ["mean", "sum", "none"]:
    for label, recipe, how, target in [
        ("weight", ", weight = tensor([0.5, 2.0, 1.5])", dict(weight=w), [2, 0, 1, 2, 1]), ("-100", "", {}, [2, -100, 1, -100, 1]),
        ("ignore", ", ignore_index = 1", dict(ignore_index=1), [2, 0, 1, 2, 1]),
        ("ignore weight", ", ignore_index = 2, weight = tensor([0.5, 2.0, 1.5])", dict(ignore_index=2, weight=w), [2, 0, 1, 2, 1]),
    ]:
        y = torch.tensor(target)
        case(f"nll_loss {label} {reduction}", dict(x=randn(5, 3).log_softmax(1)), f'nn.nll_loss(x, tensor({target}), reduction = "{reduction}"{recipe})', lambda x, how=how, r=reduction, y=y: F.nll_loss(x, y, reduction=r, **how))
    grid = torch.tensor([[[0, 1], [2, -100]], [[2, 2], [-100, 0]]])
    case(f"nll_loss of images {reduction}", dict(x=randn(2, 3, 2, 2).log_softmax(1)), f'nn.nll_loss(x, tensor({grid.tolist()}), reduction = "{reduction}", weight = tensor([0.5, 2.0, 1.5]))', lambda x, r=reduction: F.nll_loss(x, grid, weight=w, reduction=r))

# instance_norm with running statistics: two batches in training, then one without.
for shape, kind in [((3, 4, 5), torch.nn.InstanceNorm1d), ((2, 4, 3, 5), torch.nn.InstanceNorm2d), ((2, 4, 2, 3, 2), torch.nn.InstanceNorm3d)]:
    for affine in [False, True]:
        m = kind(4, momentum=0.3, affine=affine, track_running_stats=True)
        a, b, c = randn(*shape) * 2 + 1, randn(*shape) - 3, randn(*shape).requires_grad_()
        source = f"m = nn.instance_norm(4, affine = {affine}, momentum = 0.3, track_running_stats = True)\n"
        if affine:
            with torch.no_grad():
                m.weight.copy_(torch.tensor([0.5, 1.0, -2.0, 1.5]))
                m.bias.copy_(torch.tensor([0.5, 0.0, 1.0, -1.5]))
            source += "m.weight.detach().copy_([0.5, 1.0, -2.0, 1.5])\nm.bias.detach().copy_([0.5, 0.0, 1.0, -1.5])\n"
        first, second = m(a), m(b)
        m.eval()
        last = m(c)
        last.square().sum().backward()
        record(f"instance_norm {len(shape)} affine {affine}", dict(a=a, b=b, c=c), source + "first, second = m(a), m(b)\nm.eval()\nc.requires_grad = True\nlast = m(c)\n(last * last).sum().backward()",
               {"first": first, "second": second, "last": last, "c.grad": c.grad, "m.running_mean": m.running_mean, "m.running_var": m.running_var} | ({"m.weight.grad": m.weight.grad, "m.bias.grad": m.bias.grad} if affine else {}), 2e-5)

# Bicubic.
for size in [(7, 9), (2, 3), (4, 5), (1, 1)]:
    for align in [False, True]:
        case(f"bicubic {size} {align}", dict(x=randn(2, 3, 4, 5)), f'nn.interpolate(x, size = {size}, mode = "bicubic", align_corners = {align})', lambda x, s=size, a=align: F.interpolate(x, size=s, mode="bicubic", align_corners=a), tolerance=2e-5)
for factor in [2, 1.7, 0.6]:
    for align in [False, True]:
        case(f"bicubic by {factor} {align}", dict(x=randn(1, 2, 5, 4)), f'nn.upsample(scale_factor = {factor}, mode = "bicubic", align_corners = {align})(x)', lambda x, f=factor, a=align: F.interpolate(x, scale_factor=f, mode="bicubic", align_corners=a), tolerance=2e-5)
case("bicubic float64", dict(x=randn(1, 1, 3, 3).double()), 'nn.interpolate(x, size = (8, 5), mode = "bicubic")', lambda x: F.interpolate(x, size=(8, 5), mode="bicubic"), tolerance=1e-12)

# The momentum of one_cycle, seen in what the optimizers do.
for arguments in ["", ", three_phase = True", ", anneal_strategy = 'linear'", ", base_momentum = 0.5, max_momentum = 0.9, pct_start = 0.5"]:
    for name, recipe, build in [
        ("sgd", "optim.sgd([p], momentum = 0.9, lr = s)", lambda p: torch.optim.SGD([p], 0.1, momentum=0.9)),
        ("adam", "optim.adam([p], lr = s)", lambda p: torch.optim.Adam([p], 0.1)),
        ("adamw", "optim.adamw([p], lr = s, weight_decay = 0.1)", lambda p: torch.optim.AdamW([p], 0.1, weight_decay=0.1)),
        ("rmsprop", "optim.rmsprop([p], lr = s, momentum = 0.9)", lambda p: torch.optim.RMSprop([p], 0.1, momentum=0.9)),
    ]:
        p = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
        optimizer = build(p)
        scheduler = eval(f"torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps = 10{arguments})")
        want = []
        for i in range(10):
            optimizer.zero_grad()
            ((p - i * 0.1) ** 2).sum().backward()
            optimizer.step()
            want.append(p.detach().clone())
            if i < 9:
                scheduler.step()
        given = arguments.replace("'", '"')
        record(f"one_cycle momentum {name}{arguments}", {}, f"s = optim.one_cycle(0.1, 10, cycle_momentum = True{given})\np = nn.parameter(tensor([1.0, -2.0, 3.0]))\nopt = {recipe}\nseen = []\n"
               "for i in range(10):\n    opt.zero_grad()\n    (p - i * 0.1).square().sum().backward()\n    opt.step()\n    seen.append(p.detach().clone())",
               {"tensor.stack(seen)": torch.stack(want)}, 2e-5)

write("pytorch_gaps.json")
