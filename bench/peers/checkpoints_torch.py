"""What it takes to save a state durably with torch.save, and to load it into a model's tensors."""
import os
import sys
import tempfile
import time

import torch

from figures import report

mib, tensors, rounds = 256, 64, 7
n = mib * (1 << 20) // 4 // tensors
state = {f"t{i}": torch.arange(n, dtype=torch.float32) * (i + 1.5) for i in range(tensors)}
saves, restores = [], []
with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
    for k in range(rounds):
        for t in state.values():
            t.add_(1.0)
        started = time.perf_counter()
        with open(f"{folder}/{k}.pt", "wb") as f:
            torch.save(state, f)
            f.flush()
            os.fsync(f.fileno())
        saves.append(time.perf_counter() - started)
    for k in range(rounds):
        started = time.perf_counter()
        for name, t in torch.load(f"{folder}/{k}.pt").items():
            state[name].copy_(t)
        restores.append(time.perf_counter() - started)
report(f"durable save of {mib} MiB", sorted(saves)[rounds // 2] * 1e3, "ms")
report(f"restore of {mib} MiB", sorted(restores)[rounds // 2] * 1e3, "ms")
