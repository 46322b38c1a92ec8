"""The cookbook's ports of well-known PyTorch programs, step by step: what PyTorch computes in float64 from the same weights and
data, as pytorch_ports.json. The Go test calls the recipes' own functions (examples/cookbook).

Made with torch 2.15.0 and NumPy 2.4.6 (PyPI).
"""
import math

import numpy as np
import torch
import torch.nn as N
import torch.nn.functional as F

import cases

torch.set_default_dtype(torch.float64)
STEPS = 10

# What both compute to begin with: numbers in [-1, 1] of which both have the same bits, so that none need to be kept.
COMMON = """
def values(shape, seed):
    n = 1
    for size in shape:
        n *= size
    i = tensor.arange(n)
    return ((i * i * 31 + i * 7919 + seed * 104729).remainder(1009).double() / 504 - 1).reshape(shape)

def fill(module, scale):
    named = sorted(double(module).named_parameters(), key = lambda pair: pair[0])
    for seed, (_, p) in enumerate(named):
        if p.requires_grad:
            p.detach().copy_(scale * values(p.shape, seed))
    return [p for _, p in named]

def digest(tensors):
    flat = tensor.cat([t.detach().flatten() for t in tensors])
    return tensor.cat([flat[:3], flat[-3:], flat.sum().reshape(1), flat.square().sum().reshape(1)])
"""


def values(shape, seed):
    i = torch.arange(math.prod(shape))
    return (((i * i * 31 + i * 7919 + seed * 104729) % 1009).double() / 504 - 1).reshape(shape)


def fill(module, scale):
    named = sorted(module.named_parameters())
    for seed, (_, p) in enumerate(named):
        if p.requires_grad:
            p.data = scale * values(p.shape, seed)
    return [p for _, p in named]


def digest(tensors):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return torch.cat([flat[:3], flat[-3:], flat.sum().reshape(1), flat.square().sum().reshape(1)])


def digits(n):
    """The first n images of the repository's digits, and what they show."""
    rows = np.loadtxt("../../../examples/data/digits.csv.gz", delimiter=",", max_rows=n)
    return torch.tensor(rows[:, :-1]) / 16, torch.tensor(rows[:, -1]).long()


def port(recipe, source, losses, weights):
    """The source's losses and weights, and PyTorch's; float32 would differ by 1e-6 and more."""
    cases.record(recipe, {}, COMMON + source, {
        'tensor(losses, dtype = "float64")': torch.tensor(losses), "digest(weights)": digest(weights),
    }, 1e-9)
    cases.cases[-1]["recipe"] = recipe + ".star"
    print(recipe, losses)


def step(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def mlp(*widths, act):
    layers = []
    for i, o in zip(widths, widths[1:]):
        layers += [N.Linear(i, o), act()]
    return N.Sequential(*layers[:-1])


def wgan_gp():
    critic = N.Sequential(N.Conv2d(1, 4, 3, 2, 1), N.LeakyReLU(0.2), N.Conv2d(4, 8, 3, 2, 1), N.LeakyReLU(0.2), N.Flatten(), N.Linear(32, 1))
    generator = N.Sequential(
        N.Linear(5, 32), N.Unflatten(1, (8, 2, 2)), N.ReLU(), N.ConvTranspose2d(8, 4, 4, 2, 1), N.ReLU(), N.ConvTranspose2d(4, 1, 4, 2, 1), N.Sigmoid())
    weights = fill(critic, 0.4) + fill(generator, 0.4)
    images = digits(60)[0].reshape(-1, 1, 8, 8)
    opts = [torch.optim.Adam(m.parameters(), lr=0.01, betas=(0.5, 0.9)) for m in (critic, generator)]
    losses = []
    for i in range(STEPS):
        real, z, mix = images[6 * i:6 * i + 6], values((6, 5), 100 + i), (values((6, 1, 1, 1), 200 + i) + 1) / 2
        drawn = generator(z).detach()
        between = (mix * real + (1 - mix) * drawn).requires_grad_()
        slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
        losses.append(step(opts[0], critic(drawn).mean() - critic(real).mean() + 10 * penalty))
        losses.append(step(opts[1], -critic(generator(z)).mean()))
    port("wgan_gp", f"""
critic, generator = make_critic(4), make_generator(5, 4)
weights = fill(critic, 0.4) + fill(generator, 0.4)
images = (data.csv("data/digits.csv.gz", label = -1).x.double() / 16).view(-1, 1, 8, 8)
opts = [optim.adam(m.parameters(), lr = 0.01, betas = (0.5, 0.9)) for m in (critic, generator)]
losses = []
for i in range({STEPS}):
    z = values((6, 5), 100 + i)
    losses.append(critic_step(critic, generator, opts[0], images[6 * i:6 * i + 6], z, (values((6, 1, 1, 1), 200 + i) + 1) / 2))
    losses.append(generator_step(critic, generator, opts[1], z))
""", losses, weights)


def maml():
    net = mlp(1, 8, 8, 1, act=N.Tanh)
    fill(net, 0.6)
    weights = list(net.parameters())
    opt = torch.optim.Adam(weights, lr=0.01)

    def forward(w, x):
        return F.linear(F.linear(F.linear(x, w[0], w[1]).tanh(), w[2], w[3]).tanh(), w[4], w[5])

    losses = []
    for i in range(STEPS):
        x, test = 5 * values((3, 6, 1), 100 + i), 5 * values((3, 6, 1), 200 + i)
        each = []
        for task in range(3):
            fast = weights
            for _ in range(2):
                grads = torch.autograd.grad(F.mse_loss(forward(fast, x[task]), torch.sin(x[task] + task)), fast, create_graph=True)
                fast = [w - 0.02 * g for w, g in zip(fast, grads)]
            each.append(F.mse_loss(forward(fast, test[task]), torch.sin(test[task] + task)))
        losses.append(step(opt, torch.stack(each).mean()))
    port("maml", f"""
net = network(8)
fill(net, 0.6)
weights = net.parameters()
opt = optim.adam(weights, lr = 0.01)
losses = []
for i in range({STEPS}):
    x, test, phase = 5 * values((3, 6, 1), 100 + i), 5 * values((3, 6, 1), 200 + i), tensor.arange(3).reshape(3, 1, 1)
    losses.append(meta_step(weights, opt, x, (x + phase).sin(), test, (test + phase).sin()))
""", losses, weights)


def heat():
    model = mlp(2, 8, 8, 1, act=N.Tanh)
    weights = fill(model, 0.6)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for i in range(STEPS):
        x, t = ((values((10, 1), seed + i) + 1) / 2 for seed in (100, 200))
        x.requires_grad_(), t.requires_grad_()
        u = model(torch.cat([x, t], 1))
        u_x, u_t = torch.autograd.grad(u.sum(), [x, t], create_graph=True)
        u_xx, = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        loss = ((u_t - 0.1 * u_xx) ** 2).mean() + ((model(torch.cat([x, 0 * x], 1)) - torch.sin(math.pi * x)) ** 2).mean()
        for end in 0, 1:
            loss = loss + (model(torch.cat([0 * t + end, t], 1)) ** 2).mean()
        losses.append(step(opt, loss))
    port("heat", f"""
model = network(8)
weights = fill(model, 0.6)
opt = optim.adam(model.parameters(), lr = 0.01)
losses = [train_step(model, opt, *[(values((10, 1), seed + i) + 1) / 2 for seed in (100, 200)]) for i in range({STEPS})]
""", losses, weights)


def score_matching():
    model = mlp(2, 8, 8, 2, act=N.SiLU)
    weights = fill(model, 0.6)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for i in range(STEPS):
        x, v = (2 * values((12, 2), 100 + i)).requires_grad_(), values((12, 2), 200 + i)
        along = (model(x) * v).sum(1)
        slope, = torch.autograd.grad(along.sum(), x, create_graph=True)
        losses.append(step(opt, ((slope * v).sum(1) + along ** 2 / 2).mean()))
    port("score_matching", f"""
model = network(8)
weights = fill(model, 0.6)
opt = optim.adam(model.parameters(), lr = 0.01)
losses = [train_step(model, opt, 2 * values((12, 2), 100 + i), values((12, 2), 200 + i)) for i in range({STEPS})]
""", losses, weights)


if __name__ == "__main__":
    wgan_gp()
    maml()
    heat()
    score_matching()
    cases.write("pytorch_ports.json")
