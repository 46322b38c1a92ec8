"""Optimizers with adaptive rates, equal averages, and layers with computed weights: the parameters after each of several steps, as
pytorch_adaptive.json.

Made with torch 2.15 (PyPI); run it in this folder.
"""
import torch

from cases import randn, record, write

O = torch.optim
p0, q0, target, wide0 = randn(3, 2), randn(4), randn(3, 2), randn(2, 5)


def steps(kind, name, arguments="", only=False, n=8, loose=None):
    for dtype in [torch.float32, torch.float64]:
        p, q, r = [t.to(dtype).clone().requires_grad_() for t in (p0, q0, wide0)]
        goal = target.to(dtype)
        given = [p, r] if only else [p, q, r]
        optimizer = eval(f"O.{kind}(given, {arguments})", {"O": O, "given": given})
        want = {}
        for i in range(n):
            optimizer.zero_grad()
            ((p - goal).square().sum() + (q * q * q * q).sum() + (r.square() * r).mean()).backward()
            if i == 3:
                p.grad = None  # its own count of steps
            optimizer.step()
            if i in (0, 3, n - 1):
                want |= {f"after[{i}][{j}]": t.clone() for j, t in enumerate(given)}
        names = "[p, r]" if only else "[p, q, r]"
        source = f"""p, q, r = nn.parameter(p0), nn.parameter(q0), nn.parameter(r0)
opt = optim.{name}({names}, {arguments})
after = []
for i in range({n}):
    opt.zero_grad()
    ((p - target).square().sum() + (q * q * q * q).sum() + (r.square() * r).mean()).backward()
    if i == 3:
        p.grad = None
    opt.step()
    after.append([t.clone() for t in {names}])"""
        tolerance = loose or (3e-5 if dtype == torch.float32 else 1e-12)
        record(f"{name} {arguments} {str(dtype)[6:]}", dict(p0=p0.to(dtype), q0=q0.to(dtype), r0=wide0.to(dtype), target=goal), source, want, tolerance)


for arguments in ["", "lr = 0.1, betas = (0.8, 0.9), weight_decay = 0.1", "lr = 0.05, weight_decay = 0.3, decoupled_weight_decay = True"]:
    steps("NAdam", "nadam", arguments, loose=3e-5 if arguments else 3e-6)  # PyTorch keeps the product of the momenta in float32
    steps("RAdam", "radam", arguments)
steps("NAdam", "nadam", "lr = 0.1, momentum_decay = 0.5", loose=3e-5)
steps("RAdam", "radam", "lr = 0.1, betas = (0.9, 0.5)")
steps("RAdam", "radam", "lr = 0.1", n=12)
for arguments in ["", "lr = 0.1, betas = (0.8, 0.9), weight_decay = 0.1, eps = 1e-3"]:
    steps("Adamax", "adamax", arguments)
for arguments in ["", "lr = 0.5, rho = 0.8, eps = 1e-3, weight_decay = 0.1"]:
    steps("Adadelta", "adadelta", arguments)
for arguments in ["", "lr = 0.5, weight_decay = 0.1", "lr = 0.3, beta2_decay = -0.5, eps = (1e-3, 0.1), d = 1.5"]:
    steps("Adafactor", "adafactor", arguments)
for arguments in ["", "lr = 0.1, weight_decay = 0.2, momentum = 0.8, nesterov = False", 'lr = 0.1, adjust_lr_fn = "match_rms_adamw"', "lr = 0.1, ns_steps = 3, ns_coefficients = (2.0, -1.5, 0.5)"]:
    steps("Muon", "muon", arguments, only=True, n=5, loose=2e-2)

weight0 = randn(3, 2)
average = O.swa_utils.AveragedModel(torch.nn.Linear(2, 3, bias=False))
model = torch.nn.Linear(2, 3, bias=False)
model.weight.data.copy_(weight0)
want = {}
for i in range(5):
    model.weight.data.mul_(1.5).add_(0.25)
    average.update_parameters(model)
    want[f"after[{i}]"] = average.module.weight.clone()
record("swa", dict(w=weight0), """m = nn.linear(2, 3, bias = False)
m.weight.detach().copy_(w)
swa = optim.swa(m.parameters())
after = []
for i in range(5):
    m.weight.detach().mul_(1.5).add_(0.25)
    swa.update()
    after.append(swa.averages[0].clone())""", want)


# Layers whose weight is computed from other parameters, trained for some steps.
x0 = randn(5, 3, 4, 4)


def trained(layer, parameters):
    optimizer, losses = O.SGD(parameters, 0.05), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = (layer(x0) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"tensor(losses)": torch.tensor(losses)}


def training(make, norm):
    return f"""c = {make}
c.load_state({{"weight": w, "bias": b}})
m = {norm}
opt, losses = optim.sgd(m.parameters(), lr = 0.05), []
for _ in range(4):
    opt.zero_grad()
    loss = (m(x) - 1).square().mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())"""


for dim in [0, 1, None]:
    layer = torch.nn.Conv2d(3, 4, 2)
    given = dict(w=layer.weight.detach().clone(), b=layer.bias.detach().clone(), x=x0)
    layer = torch.nn.utils.weight_norm(layer, dim=dim)
    want = trained(layer, [layer.weight_g, layer.weight_v, layer.bias])
    want |= {"m.weight_g": layer.weight_g.detach(), "m.weight_v": layer.weight_v.detach()}
    record(f"weight_norm {dim}", given, training("nn.conv2d(3, 4, 2)", f"nn.weight_norm(c, dim = {dim})"), want, 1e-4)
for kind, name, dim in [("Conv2d", "conv2d", 0), ("ConvTranspose2d", "conv_transpose2d", 1)]:
    layer = getattr(torch.nn, kind)(3, 4, 2)
    given = dict(w=layer.weight.detach().clone(), b=layer.bias.detach().clone(), x=x0)
    layer = torch.nn.utils.spectral_norm(layer, n_power_iterations=2)
    given |= dict(u=layer.weight_u.clone(), v=layer.weight_v.clone())
    want = trained(layer, [layer.weight_orig, layer.bias])
    want |= {"m.weight_orig": layer.weight_orig.detach(), "m.weight_u": layer.weight_u.clone()}
    norm = f"nn.spectral_norm(c, n_power_iterations = 2, dim = {dim})\nm.weight_u.copy_(u)\nm.weight_v.copy_(v)"
    record(f"spectral_norm {kind}", given, training(f"nn.{name}(3, 4, 2)", norm), want, 1e-4)

write("pytorch_adaptive.json")
