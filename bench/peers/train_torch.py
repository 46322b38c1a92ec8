"""Time of a training step of MODEL (tiny, mlp, cnn, gpt, gpt2): train_torch.py MODEL STEPS FILE [compile | once | compile-once].

FILE has the weights and the data that the recipe has written, in safetensors; several ranks, which train with DDP, need
none. With once, one step is made and nothing else."""
import copy
import json
import struct
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from figures import WORLD, join, per_call, peak, report

BATCH = 12
GPT = {"vocabulary": 65, "width": 128, "layers": 4, "heads": 4, "context": 64, "gelu": "none", "tied": False}
GPT2 = {"vocabulary": 50257, "width": 768, "layers": 12, "heads": 12, "context": 1024, "gelu": "tanh", "tied": True}


class Block(nn.Module):
    def __init__(self, width, heads, gelu):
        super().__init__()
        self.heads, self.gelu = heads, {} if gelu == "none" else {"approximate": gelu}
        self.before_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.before_attention(x))
        return x + self.contract(F.gelu(self.expand(self.before_mlp(x)), **self.gelu))


class Transformer(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, context, gelu, tied):
        super().__init__()
        self.vocabulary = vocabulary
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads, gelu) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = None if tied else nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.norm(self.blocks(self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))))
        logits = F.linear(x, self.tokens.weight) if self.head is None else self.head(x)
        return logits.view(-1, self.vocabulary)


def images(n, classes=10):
    return torch.randn(n, 1, 28, 28), torch.randint(0, classes, (n,))


def tiny():
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    return model, torch.randn(16, 2), torch.randint(0, 2, (16,))


def mlp():
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    return model, torch.randn(32, 784), torch.randint(0, 10, (32,))


def cnn():
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )
    return model, *images(64)


def gpt():
    x = torch.randint(0, GPT["vocabulary"], (BATCH, GPT["context"]))
    return Transformer(**GPT), x, torch.randint(0, GPT["vocabulary"], (x.numel(),))


def gpt2():
    x = torch.randint(0, GPT2["vocabulary"], (4, 64))
    return Transformer(**GPT2), x, torch.randint(0, GPT2["vocabulary"], (x.numel(),))


def saved(path):
    """The tensors of a safetensors file; Debian's PyTorch comes without a package that reads them."""
    kinds = {"F32": torch.float32, "I64": torch.int64}
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        start = f.tell()
        tensors = {}
        for name, t in header.items():
            if name != "__metadata__":
                f.seek(start + t["data_offsets"][0])
                raw = bytearray(f.read(t["data_offsets"][1] - t["data_offsets"][0]))
                tensors[name] = torch.frombuffer(raw, dtype=kinds[t["dtype"]]).view(t["shape"])
    return tensors


def optimizer(name, model, fused):
    more = {"fused": True} if fused else {}
    if name == "gpt":
        return torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.01, **more)
    if name == "gpt2":
        return torch.optim.AdamW(model.parameters(), lr=0.0001, weight_decay=0.0, **more)
    return torch.optim.SGD(model.parameters(), lr=0.01 if name == "cnn" else 0.1, momentum=0.9, **more)


def training(name, model, x, y, fused=False, last=False, compiled=False):
    """A function that makes a step and returns its loss."""
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    steps = optimizer(name, model, fused)
    if WORLD > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if compiled:
        model = torch.compile(model)

    def step():
        steps.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        steps.step()
        return loss

    return step


def settings(name):
    """What a user would try: fused optimizers, and for images the layout with channels last."""
    modern = int(torch.__version__.split(".")[0]) >= 2
    for fused in [False, True] if modern else [False]:
        for last in [False, True] if name == "cnn" else [False]:
            yield {"fused": fused, "last": last}


def fastest(name, model, x, y):
    """The settings with the shortest step, tried in turn on copies of the model."""
    tried = list(settings(name))
    if len(tried) == 1:
        return tried[0]
    steps = [training(name, copy.deepcopy(model), x, y, **t) for t in tried]
    times = [[] for _ in tried]
    for turn in range(2 if name == "gpt2" else 8):
        for step, taken in zip(steps, times):
            started = time.perf_counter()
            step()
            taken.append(time.perf_counter() - started)
    # Ranks must choose the same: the first rank's choice is everybody's.
    best = torch.tensor(min(range(len(tried)), key=lambda i: min(times[i])))
    if WORLD > 1:
        torch.distributed.broadcast(best, 0)
    return tried[best.item()]


name, steps, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
way = sys.argv[4] if len(sys.argv) > 4 else ""
join()
model, x, y = {"tiny": tiny, "mlp": mlp, "cnn": cnn, "gpt": gpt, "gpt2": gpt2}[name]()
if path != "-":
    tensors = saved(path)
    model.load_state_dict({k[len("model."):]: t for k, t in tensors.items() if k.startswith("model.")})
    x, y = tensors["x"], tensors["y"]
    del tensors
if "once" in way:
    training(name, model, x, y, compiled="compile" in way)().item()
    sys.exit()
if name == "gpt2" or way == "compile":  # copies of a large model would count as its memory
    chosen = {"fused": hasattr(torch, "compile")}
else:
    chosen = fastest(name, model, x, y)
step = training(name, model, x, y, compiled=way == "compile", **chosen)
losses = [step().item() for _ in range(10)]
report(name + " step", per_call(step, steps, 0) * 1e3, "ms")
if WORLD == 1:
    report(name + " loss", losses[-1], "nats")
    if name == "gpt2":
        report("gpt2 memory", peak(), "MiB")
