"""Elementwise and row kernels and products of PyTorch on one thread, into memory that is there already where it can be told
to: kernels_torch.py M N K ..."""
import sys

import torch
import torch.nn.functional as F

from figures import per_call, report

N = 4 << 20
x, y, out = torch.rand(N), torch.rand(N), torch.empty(N)
rows, normal = torch.rand(4096, 1024), torch.ones(1024)
rows_out = torch.empty(4096, 1024)
kernels = {
    "exp of 4 M": lambda: torch.exp(x, out=out),
    "tanh of 4 M": lambda: torch.tanh(x, out=out),
    "add of 4 M": lambda: torch.add(x, y, out=out),
    "softmax of 4096 x 1024": lambda: torch.softmax(rows, 1, out=rows_out),
    "layer_norm of 4096 x 1024": lambda: F.layer_norm(rows, (1024,), normal, normal),
}
with torch.no_grad():
    for name, kernel in kernels.items():
        report(name, per_call(kernel, 10, 3) * 1e3, "ms")
    shapes = [int(s) for s in sys.argv[1:]]
    for m, n, k in zip(shapes[::3], shapes[1::3], shapes[2::3]):
        a, b, c = torch.rand(m, k), torch.rand(k, n), torch.empty(m, n)
        work = 2 * m * n * k
        calls = int(2e9 / work) + 1
        seconds = per_call(lambda: torch.mm(a, b, out=c), calls, calls // 10 + 2)
        report(f"gemm {m}x{n}x{k}", work / seconds / 1e9, "GFLOPS")
