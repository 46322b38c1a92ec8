"""Elementwise and row kernels and products of PyTorch on one thread, into memory that is there already where it can be told
to: kernels_torch.py M N K ..."""
import sys

import torch
import torch.nn.functional as F

from figures import per_call, report

with torch.no_grad():
    for size, n, calls in ("4 K", 4 << 10, 20000), ("256 K", 256 << 10, 300), ("4 M", 4 << 20, 20):
        x, y, out = torch.rand(n), torch.rand(n), torch.empty(n)
        rows, rows_out, normal = torch.rand(n // 1024, 1024), torch.empty(n // 1024, 1024), torch.ones(1024)
        mean, rstd = torch.empty(n // 1024, 1), torch.empty(n // 1024, 1)
        shape = f"{n // 1024} x 1024"
        norm = torch.ops.aten.native_layer_norm.out
        kernels = {
            f"exp of {size}": lambda: torch.exp(x, out=out),
            f"tanh of {size}": lambda: torch.tanh(x, out=out),
            f"add of {size}": lambda: torch.add(x, y, out=out),
            f"softmax of {shape}": lambda: torch.softmax(rows, 1, out=rows_out),
            f"layer_norm of {shape}": lambda: norm(rows, [1024], normal, normal, 1e-5, out0=rows_out, out1=mean, out2=rstd),
            # without out=, where that form makes a result first and copies it
            f"layer_norm of {shape} ": lambda: F.layer_norm(rows, (1024,), normal, normal),
        }
        best = {}
        for name, kernel in kernels.items():
            seconds = per_call(kernel, calls, calls // 10 + 2)
            best[name.strip()] = min(seconds, best.get(name.strip(), seconds))
        for name, seconds in best.items():
            report(name, seconds * 1e3, "ms")
    shapes = [int(s) for s in sys.argv[1:]]
    for m, n, k in zip(shapes[::3], shapes[1::3], shapes[2::3]):
        a, b, c = torch.rand(m, k), torch.rand(k, n), torch.empty(m, n)
        work = 2 * m * n * k
        calls = int(2e9 / work) + 1
        seconds = per_call(lambda: torch.mm(a, b, out=c), calls, calls // 10 + 2)
        report(f"gemm {m}x{n}x{k}", work / seconds / 1e9, "GFLOPS")
