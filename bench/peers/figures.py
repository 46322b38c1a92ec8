"""What the PyTorch peers share: the process group, time per call, and the line that reports a figure."""
import atexit
import os
import resource
import time

import torch
import torch.distributed as dist

WORLD = int(os.environ.get("WORLD_SIZE", "1"))
RANK = int(os.environ.get("RANK", "0"))
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
torch.manual_seed(0)


def join():
    if WORLD > 1:
        dist.init_process_group("gloo")
        atexit.register(leave)


def leave():
    """Leaves together: a rank whose peer is gone before it may abort."""
    dist.barrier()
    dist.destroy_process_group()


def per_call(fn, n, warmup):
    """Seconds a call takes, after warm-up: the mean over n calls of the slowest rank."""
    for _ in range(warmup):
        fn()
    if WORLD > 1:
        dist.barrier()
    started = time.perf_counter()
    for _ in range(n):
        fn()
    mean = torch.tensor([(time.perf_counter() - started) / n], dtype=torch.float64)
    if WORLD > 1:
        dist.all_reduce(mean, op=dist.ReduceOp.MAX)
    return mean.item()


def report(name, value, unit):
    if RANK == 0:
        print(f"{name}: {value:.5f} {unit}", flush=True)


def peak():
    """The most memory that this process has taken, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
