"""Optimizers, schedules and averages: the parameters after each of several steps, as pytorch_optim.json.

Made with torch 2.5.1 and NumPy 2 (PyPI); run it in this folder.
"""
import torch

from cases import randn, record, write

O = torch.optim
p0, q0, target = randn(3, 2), randn(4), randn(3, 2)


def steps(name, recipe, build, schedule=None, clip=None, n=6, tolerance=1e-5, dtype=torch.float32, metric=None, before="", extra=None):
    p, q = p0.to(dtype).clone().requires_grad_(), q0.to(dtype).clone().requires_grad_()
    goal = target.to(dtype)
    optimizer = build(p, q)
    scheduler = schedule and schedule(optimizer)
    want = {}
    for i in range(n):
        def closure():
            optimizer.zero_grad()
            loss = (p - goal).square().sum() + (q * q * q * q).sum()
            loss.backward()
            return loss

        if "lbfgs" in recipe:
            want[f"losses[{i}]"] = optimizer.step(closure).item()
        else:
            closure()
            if clip:
                torch.nn.utils.clip_grad_value_([p, q], clip)
            optimizer.step()
        if scheduler:
            scheduler.step(*([metric[i]] if metric else []))
        want |= {f"after[{i}][0]": p.clone(), f"after[{i}][1]": q.clone()}
    source = f"""{before}
p, q = nn.parameter(p0), nn.parameter(q0)
opt = {recipe}
after, losses = [], []
def closure():
    opt.zero_grad()
    loss = (p - target).square().sum() + (q * q * q * q).sum()
    loss.backward()
    return loss
for i in range({n}):
    {"losses.append(opt.step(closure).item())" if "lbfgs" in recipe else "closure()"}
    {f"optim.clip_grad_value([p, q], {clip})" if clip else "pass"}
    {"pass" if "lbfgs" in recipe else "opt.step()"}
    {f"rate.step({metric}[i])" if metric else "pass"}
    after.append((p.clone(), q.clone()))"""
    record(name, dict(p0=p0.to(dtype), q0=q0.to(dtype), target=goal), source.strip(), want, tolerance)


for dtype in [torch.float32, torch.float64]:
    tolerance = 3e-5 if dtype == torch.float32 else 1e-12
    many = dict(dtype=dtype, tolerance=tolerance, n=8)
    kind = str(dtype)[6:]
    for arguments in ["", "lr = 0.1, alpha = 0.9", "lr = 0.05, momentum = 0.9", "lr = 0.05, centered = True", "lr = 0.02, momentum = 0.8, centered = True, weight_decay = 0.1, eps = 1e-4"]:
        steps(f"rmsprop {arguments} {kind}", f"optim.rmsprop([p, q], {arguments})", lambda p, q, a=arguments: eval(f"O.RMSprop([p, q], {a})", {"O": O, "p": p, "q": q}), **many)
    for arguments in ["", "lr = 0.3, lr_decay = 0.5", "lr = 0.3, weight_decay = 0.2, initial_accumulator_value = 0.5, eps = 1e-3"]:
        steps(f"adagrad {arguments} {kind}", f"optim.adagrad([p, q], {arguments})", lambda p, q, a=arguments: eval(f"O.Adagrad([p, q], {a})", {"O": O, "p": p, "q": q}), **many)
    for arguments in ["lr = 0.1", "max_iter = 4, history_size = 2", "lr = 0.5, line_search_fn = 'strong_wolfe', max_iter = 5", "line_search_fn = 'strong_wolfe', history_size = 3, max_iter = 6", "lr = 0.2, max_iter = 6, max_eval = 4"]:
        steps(f"lbfgs {arguments} {kind}", f"optim.lbfgs([p, q], {arguments})".replace("'", '"'), lambda p, q, a=arguments: eval(f"O.LBFGS([p, q], {a})", {"O": O, "p": p, "q": q}),
              n=2 if dtype == torch.float32 else 3, dtype=dtype, tolerance=1e-3 if dtype == torch.float32 else 1e-9)


class Lion(O.Optimizer):
    """The program of Chen et al. 2023, as they state it."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                b1, b2 = group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((state["m"] * b1 + p.grad * (1 - b1)).sign(), alpha=-group["lr"])
                state["m"].mul_(b2).add_(p.grad, alpha=1 - b2)


steps("lion", "optim.lion([p, q], lr = 0.1)", lambda p, q: Lion([p, q], 0.1, (0.9, 0.99), 0))
steps("lion with decay", "optim.lion([p, q], lr = 0.1, betas = (0.5, 0.8), weight_decay = 0.3)", lambda p, q: Lion([p, q], 0.1, (0.5, 0.8), 0.3))
steps("clip_grad_value", "optim.sgd([p, q], lr = 0.1)", lambda p, q: O.SGD([p, q], 0.1), clip=0.25)
steps("adagrad clipped", "optim.adagrad([p, q], lr = 0.1)", lambda p, q: O.Adagrad([p, q], 0.1), clip=0.5)


def frozen(p, q):
    q.requires_grad_(False)
    return O.SGD([p], 0.1, momentum=0.9)


steps("a frozen parameter", "frozen(p, q)", frozen, before="def frozen(p, q):\n    q.requires_grad = False\n    return optim.sgd([p, q], lr = 0.1, momentum = 0.9)\n")

# Schedules: the rates themselves.
S = O.lr_scheduler


def rates(name, recipe, build, n, lr=0.5):
    p = torch.zeros(1, requires_grad=True)
    optimizer = O.SGD([p], lr)
    scheduler = build(optimizer)
    want = []
    for _ in range(n):
        want.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    record(name, {}, f"s = {recipe}\nrates = [s(i) for i in range({n})]\nopt = optim.sgd([nn.parameter(tensor([0.0]))], lr = s)\nused = []\nfor _ in range({n}):\n    opt.step()\n    used.append(opt.lr)",
           {"tensor(rates, dtype = \"float64\")": torch.tensor(want, dtype=torch.float64), "tensor(used, dtype = \"float64\")": torch.tensor(want, dtype=torch.float64)}, 1e-9)


rates("multi_step", "optim.multi_step(0.5, [2, 3, 7])", lambda o: S.MultiStepLR(o, [2, 3, 7]), 10)
rates("multi_step twice at a step", "optim.multi_step(0.5, [4, 4], gamma = 0.5)", lambda o: S.MultiStepLR(o, [4, 4], 0.5), 7)
rates("linear", "optim.linear(0.5)", lambda o: S.LinearLR(o), 8)
rates("linear down", "optim.linear(0.5, start_factor = 1.0, end_factor = 0.1, total_iters = 4)", lambda o: S.LinearLR(o, 1.0, 0.1, 4), 7)
for arguments in ["", ", anneal_strategy = 'linear'", ", three_phase = True", ", pct_start = 0.5, div_factor = 10.0, final_div_factor = 100.0, anneal_strategy = 'linear', three_phase = True", ", pct_start = 0.25"]:
    rates(f"one_cycle{arguments}", f"optim.one_cycle(0.5, 12{arguments})".replace("'", '"'),
          lambda o, a=arguments: eval(f"S.OneCycleLR(o, 0.5, total_steps = 12{a})", {"S": S, "o": o}), 12)
rates("chained", "optim.chained(optim.linear(0.5, total_iters = 4), optim.multi_step(0.5, [3, 6]))",
      lambda o: S.ChainedScheduler([S.LinearLR(o, total_iters=4), S.MultiStepLR(o, [3, 6])]), 9)
rates("sequential", "optim.sequential([optim.linear(0.5, total_iters = 3), optim.step_decay(0.5, 2, gamma = 0.5)], milestones = [4])",
      lambda o: S.SequentialLR(o, [S.LinearLR(o, total_iters=3), S.StepLR(o, 2, 0.5)], [4]), 10)
metrics = [1.0, 0.9, 0.95, 0.91, 0.905, 0.89, 0.889999, 0.8899, 0.95, float("inf"), 0.95, 0.95, 0.1, 0.2, 0.2, 0.2, 0.2]
for arguments in ["patience = 1", "patience = 0, factor = 0.5, min_lr = 0.05", "mode = 'max', patience = 2, threshold = 0.1", "threshold_mode = 'abs', threshold = 0.2, patience = 1, cooldown = 2",
                  "mode = 'max', threshold_mode = 'abs', patience = 0, cooldown = 1, factor = 0.3", "patience = 1, eps = 0.04"]:
    p = torch.zeros(1, requires_grad=True)
    optimizer = O.SGD([p], 0.5)
    scheduler = eval(f"S.ReduceLROnPlateau(optimizer, {arguments})")
    want = []
    for m in metrics:
        scheduler.step(m)
        want.append(optimizer.param_groups[0]["lr"])
    record(f"plateau {arguments}", {}, f"s = optim.plateau(0.5, {arguments})\nrates = []\nfor m in {metrics}:\n    s.step(m)\n    rates.append(s.lr)".replace("'", '"').replace("inf", 'float("inf")'),
           {'tensor(rates, dtype = "float64")': torch.tensor(want, dtype=torch.float64)}, 1e-12)
steps("plateau in an optimizer", "optim.sgd([p, q], lr = rate)", lambda p, q: O.SGD([p, q], 0.2), lambda o: S.ReduceLROnPlateau(o, patience=0, factor=0.5),
      metric=[1.0, 2.0, 0.5, 0.6, 0.7, 0.1], before="rate = optim.plateau(0.2, patience = 0, factor = 0.5)")

# Averages.
model = torch.nn.Linear(2, 3)
average = O.swa_utils.AveragedModel(model, multi_avg_fn=O.swa_utils.get_ema_multi_avg_fn(0.8))
weight0, bias0 = model.weight.detach().clone(), model.bias.detach().clone()
want = {}
for i in range(4):
    with torch.no_grad():
        model.weight.add_(0.5)
        model.bias.mul_(1.5)
    average.update_parameters(model)
    want |= {f"after[{i}][0]": average.module.weight.clone(), f"after[{i}][1]": average.module.bias.clone()}
want |= {"m.weight": average.module.weight.clone(), "kept[0]": model.weight.clone()}
record("ema", dict(w=weight0, b=bias0), """m = nn.linear(2, 3)
m.weight.detach().copy_(w)
m.bias.detach().copy_(b)
ema = optim.ema(m.parameters(), decay = 0.8)
after = []
for i in range(4):
    m.weight.detach().add_(0.5)
    m.bias.detach().mul_(1.5)
    ema.update()
    after.append([a.clone() for a in ema.averages])
ema.swap()
kept = ema.averages""", want)

write("pytorch_optim.json")
