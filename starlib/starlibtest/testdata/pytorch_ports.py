"""The cookbook's ports of well-known PyTorch programs, step by step: what PyTorch computes in float64 from the same weights and
data, as pytorch_ports.json. The Go test calls the recipes' own functions (examples/cookbook).

Made with torch 2.15.0, NumPy 2.4.6 and safetensors 0.8.0 (PyPI).
"""
import math
import os

import numpy as np
import torch
import torch.nn as N
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

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
    named = sorted(module.double().named_parameters(), key = lambda pair: pair[0])
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


class Reader(N.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.conv = N.Sequential(N.Conv2d(1, width, 3, padding=1), N.ReLU(), N.MaxPool2d(2))
        self.lstm = N.LSTM(4 * width, hidden, bidirectional=True)
        self.head = N.Linear(2 * hidden, 11)

    def forward(self, images, lengths):
        x = self.conv(images).permute(3, 0, 1, 2).flatten(2)
        out, _ = self.lstm(N.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
        out, _ = N.utils.rnn.pad_packed_sequence(out, total_length=len(x))
        return self.head(out).log_softmax(2)


def ctc_lines():
    images, labels = digits(60)
    model = Reader(3, 5)
    weights = fill(model, 0.4)
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for i in range(STEPS):
        lines = [[3 * i, 3 * i + 1, 7], [i + 1, i + 1], [2 * i, 5, 40, i + 11]]
        strips, lengths = [], []
        for line in lines:
            strip = torch.cat([F.pad(images[n].reshape(8, 8), (0, n % 4)) for n in line], 1)
            strips.append(strip)
            lengths.append((strip.shape[1] + 1) // 2)
        batch = torch.stack([F.pad(strip, (0, 2 * max(lengths) - strip.shape[1])) for strip in strips]).unsqueeze(1)
        loss = F.ctc_loss(model(batch, lengths), torch.cat([labels[line] for line in lines]), lengths, [len(line) for line in lines], blank=10)
        opt.zero_grad()
        loss.backward()
        N.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        losses.append(loss.item())
    port("ctc_lines", f"""
table = data.csv("data/digits.csv.gz", label = -1)
digits = data.dataset(table.x.double(), table.y)
model = reader(3, 5)
weights = fill(model, 0.4)
opt = optim.adam(model.parameters(), lr = 0.02)
losses = []
for i in range({STEPS}):
    lines = [[3 * i, 3 * i + 1, 7], [i + 1, i + 1], [2 * i, 5, 40, i + 11]]
    losses.append(train_step(model, opt, *glue(digits, lines, [[n % 4 for n in line] for line in lines])))
""", losses, weights)


BASE = "../../../examples/cookbook/vit.safetensors"


class ViT(N.Module):
    def __init__(self, width=24, heads=4, layers=2):
        super().__init__()
        self.patch = N.Conv2d(1, width, 2, 2)
        self.token = N.Parameter(torch.zeros(1, 1, width))
        self.places = N.Parameter(0.02 * torch.randn(17, width))
        self.layers = N.ModuleList(N.TransformerEncoderLayer(width, heads, 2 * width, 0, "gelu", batch_first=True, norm_first=True) for _ in range(layers))
        self.norm = N.LayerNorm(width)
        self.head = N.Linear(width, 10)

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, 0]))


def train_base():
    """The weights that the recipe begins with: of a model that knows the digits as they are. Written once, as they differ on other processors."""
    images, labels = (t.float() if t.is_floating_point() else t for t in digits(1400))
    torch.set_default_dtype(torch.float32)
    model, epochs = ViT(), 30
    opt = torch.optim.AdamW(model.parameters())
    rates = torch.optim.lr_scheduler.OneCycleLR(opt, 0.005, epochs * 22)
    for _ in range(epochs):
        for at in torch.randperm(1400).split(64):
            print(step(opt, F.cross_entropy(model(images[at].reshape(-1, 1, 8, 8)), labels[at])))
            rates.step()
    save_file(model.state_dict(), BASE)
    torch.set_default_dtype(torch.float64)


class LoRA(N.Module):
    def __init__(self, base, rank, scale):
        super().__init__()
        self.base, self.scale = base, scale
        self.down, self.up = N.Linear(base.in_features, rank, bias=False), N.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))

    @property
    def weight(self):
        """PyTorch's attention does not call its out_proj, but reads the weights."""
        return self.base.weight + self.scale * self.up.weight @ self.down.weight

    @property
    def bias(self):
        return self.base.bias


def vit_lora():
    if not os.path.exists(BASE):
        train_base()
    model = ViT()
    model.load_state_dict(load_file(BASE))  # float32, which float64 holds exactly
    for p in model.parameters():
        p.requires_grad = False
    for layer in model.layers:
        layer.linear1, layer.linear2 = LoRA(layer.linear1, 3, 2.0), LoRA(layer.linear2, 3, 2.0)
        layer.self_attn.out_proj = LoRA(layer.self_attn.out_proj, 3, 2.0)
    weights = fill(model, 0.1)
    opt = torch.optim.Adam([p for p in weights if p.requires_grad], lr=0.01)
    images, labels = digits(80)
    losses = [step(opt, F.cross_entropy(model(images[at].reshape(-1, 1, 8, 8).flip(3)), labels[at])) for at in torch.arange(80).split(8)]
    port("vit_lora", f"""
digits = data.csv("data/digits.csv.gz", label = -1)
model = adapt(vit("cookbook/vit.safetensors"), 3)
weights = fill(model, 0.1)
opt = optim.adam(model.parameters(), lr = 0.01)
losses = [train_step(model, opt, *mirrored(digits.x.double()[i:i + 8], digits.y[i:i + 8])) for i in range(0, 80, 8)]
""", losses, weights)


if __name__ == "__main__":
    wgan_gp()
    maml()
    heat()
    score_matching()
    ctc_lines()
    vit_lora()
    cases.write("pytorch_ports.json")
