"""What the JAX peers share: their threads, time per call, and the line that reports a figure."""
import os
import time

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
# XLA takes as many threads as the process has cores.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-THREADS:])

import jax


def per_call(fn, n, warmup):
    """Seconds a call takes, after warm-up; what fn returns is waited for."""
    out = None
    for _ in range(warmup):
        out = fn()
    jax.block_until_ready(out)
    started = time.perf_counter()
    for _ in range(n):
        out = fn()
    jax.block_until_ready(out)
    return (time.perf_counter() - started) / n


def report(name, value, unit):
    print(f"{name}: {value:.5f} {unit}", flush=True)
