"""The PyTorch side of the exchange of weights: what drun is to read, and a check of what drun wrote.

pytorch.py make DIR         trained models as NAME.safetensors and NAME.npz, with inputs and outputs in NAME.io.npz
pytorch.py check DIR OUT    what drun read from DIR and wrote to OUT, and its own models there
"""
import sys

import numpy
import safetensors.numpy
import safetensors.torch
import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, WIDTH, HEADS, LENGTH = 11, 16, 4, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.think = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        n, length, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(n, length, WIDTH))
        return x + self.think(x)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.tokens.weight
        self.heads = nn.ModuleDict({"next": self.head})

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.heads["next"](self.norm(x)).transpose(1, 2)


def mlp():
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, (3, 2), stride=2, bias=False), nn.BatchNorm2d(6), nn.Sigmoid(), nn.Flatten(), nn.Linear(36, 3),
    )


MODELS = {
    "mlp": (mlp, lambda: (torch.randn(9, 5), torch.randint(0, 3, (9,)))),
    "cnn": (cnn, lambda: (torch.randn(9, 2, 10, 12), torch.randint(0, 3, (9,)))),
    "gpt": (GPT, lambda: (torch.randint(0, WORDS, (9, LENGTH)), torch.randint(0, WORDS, (9, LENGTH)))),
}


def make(folder):
    torch.manual_seed(5)
    for name, (make_model, make_data) in MODELS.items():
        model, (x, y) = make_model(), make_data()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        # Tied weights are written under both names, as torch.save does.
        state = {n: t.detach().clone() for n, t in model.state_dict().items()}
        safetensors.torch.save_file(state, f"{folder}/{name}.safetensors")
        numpy.savez(f"{folder}/{name}.npz", **{n: t.numpy() for n, t in state.items()})
        numpy.savez(f"{folder}/{name}.io.npz", x=x, y=model.eval()(x).detach())
    types = {}
    for dtype in [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64]:
        types[str(dtype)] = (torch.arange(6).reshape(2, 3) * 37 % 5).to(dtype)
    types["nan"] = torch.tensor([float("nan"), float("-inf"), -0.0, 1e-45])
    types["number"] = torch.tensor(7)
    types["empty"] = torch.zeros(2, 0, 3)
    safetensors.torch.save_file(types, f"{folder}/types.safetensors")
    del types["torch.bfloat16"]
    numpy.savez_compressed(f"{folder}/types.npz", **{n: t.numpy() for n, t in types.items()})


def read(path):
    if path.endswith(".npz"):
        return {n: torch.tensor(a) for n, a in numpy.load(path).items()}
    return safetensors.torch.load_file(path)


def bits(t):
    return t.dtype, tuple(t.shape), t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def check(folder, out):
    for name, (make_model, _) in MODELS.items():
        for kind in [".safetensors", ".npz"]:
            theirs, ours = read(f"{out}/{name}{kind}"), read(f"{folder}/{name}{kind}")
            ours = {n: t for n, t in ours.items() if not n.endswith("num_batches_tracked")}
            assert theirs.keys() == ours.keys(), (name, theirs.keys() ^ ours.keys())
            for n in ours:
                assert bits(theirs[n]) == bits(ours[n]), (name, kind, n)
            # A model of drun's own: its outputs are PyTorch's.
            own = read(f"{out}/own.{name}{kind}")
            model = make_model()
            model.load_state_dict(own, strict=True)
            io = numpy.load(f"{out}/own.{name}.io.npz")
            got = model.eval()(torch.tensor(io["x"])).detach().numpy()
            assert got.shape == io["y"].shape and numpy.abs(got - io["y"]).max() <= 2e-6 * max(1, numpy.abs(got).max()), (name, numpy.abs(got - io["y"]).max())
    for kind in [".safetensors", ".npz"]:
        theirs, ours = read(f"{out}/types{kind}"), read(f"{folder}/types{kind}")
        assert theirs.keys() == ours.keys(), theirs.keys() ^ ours.keys()
        for n in ours:
            assert bits(theirs[n]) == bits(ours[n]), (kind, n, theirs[n], ours[n])
    # NumPy reads safetensors too, but for bfloat16.
    for n, a in safetensors.numpy.load_file(f"{out}/gpt.safetensors").items():
        assert (a == numpy.load(f"{folder}/gpt.npz")[n]).all(), n
    print("checked")


{"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
