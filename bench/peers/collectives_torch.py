"""all_reduce by size, or the helpers as users of torch.distributed write them: collectives_torch.py all_reduce | helpers."""
import sys

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from figures import WORLD, join, per_call, report


def all_reduce():
    for size, calls in [(4, 1000), (256, 1000), (4096, 1000), (65536, 300), (1 << 20, 100), (16 << 20, 6), (64 << 20, 4)]:
        x = torch.ones(size // 4)
        seconds = per_call(lambda: dist.all_reduce(x), calls, calls // 10 + 2)
        report(f"all_reduce {size} B", seconds * 1e6, "us")


def average_metrics(metrics, count=1.0):
    weighted = torch.tensor([value * count for value in metrics.values()] + [count])
    dist.all_reduce(weighted)
    return dict(zip(metrics, (weighted[:-1] / weighted[-1]).tolist()))


def all_gather_object(value):
    gathered = [None] * WORLD
    dist.all_gather_object(gathered, value)
    return gathered


def sync_grad(grads):
    """Flattened, which is several times faster than a call for each gradient."""
    flat = _flatten_dense_tensors(grads)
    dist.all_reduce(flat)
    flat /= WORLD
    for grad, synced in zip(grads, _unflatten_dense_tensors(flat, grads)):
        grad.copy_(synced)


def helpers():
    metrics = {"loss": 0.5, "acc": 0.9, "grad_norm": 1.5}
    note = {"rank": dist.get_rank(), "acc": 0.5}
    grads = [torch.ones(10000) for _ in range(100)]
    report("barrier", per_call(dist.barrier, 500, 50) * 1e6, "us")
    report("average_metrics of 3", per_call(lambda: average_metrics(metrics), 500, 50) * 1e6, "us")
    report("all_gather of a small dict", per_call(lambda: all_gather_object(note), 200, 20) * 1e6, "us")
    report("sync_grad of 100 x 10000", per_call(lambda: sync_grad(grads), 20, 3) * 1e6, "us")


join()
{"all_reduce": all_reduce, "helpers": helpers}[sys.argv[1]]()
