"""Time of a training step of MODEL (tiny, mlp, cnn, gpt): train_torch.py MODEL STEPS. Several ranks train with DDP."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from figures import WORLD, join, per_call, report

VOCABULARY, WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 65, 128, 4, 4, 64, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.before_mlp = nn.LayerNorm(WIDTH)
        self.expand = nn.Linear(WIDTH, 4 * WIDTH)
        self.contract = nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (width // HEADS) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.before_attention(x))
        return x + self.contract(F.gelu(self.expand(self.before_mlp(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x))).view(-1, VOCABULARY)


def images(n, classes=10):
    return torch.randn(n, 1, 28, 28), torch.randint(0, classes, (n,))


def sgd(model, lr):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def tiny():
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    return model, sgd(model, 0.1), torch.randn(16, 2), torch.randint(0, 2, (16,))


def mlp():
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    return model, sgd(model, 0.1), torch.randn(32, 784), torch.randint(0, 10, (32,))


def cnn():
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )
    return model, sgd(model, 0.01), *images(64)


def gpt():
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.01)
    x = torch.randint(0, VOCABULARY, (BATCH, CONTEXT))
    return model, optimizer, x, torch.randint(0, VOCABULARY, (BATCH * CONTEXT,))


name, steps = sys.argv[1], int(sys.argv[2])
join()
model, optimizer, x, y = {"tiny": tiny, "mlp": mlp, "cnn": cnn, "gpt": gpt}[name]()
if WORLD > 1:
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def step():
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


report(name + " step", per_call(step, steps, 10) * 1e3, "ms")
