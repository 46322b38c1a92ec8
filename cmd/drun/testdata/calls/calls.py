"""What PyTorch's distributed calls give on CPUs, over Gloo: lines of a name and a value for each rank, to compare with calls.star."""
import copy
import json
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

OPS = {"sum": "SUM", "product": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG", "band": "BAND", "bor": "BOR", "bxor": "BXOR"}


def weights(model):
    for k, p in enumerate(model.parameters()):
        with torch.no_grad():
            p.copy_(((torch.arange(p.numel()) * 7 + k * 3) % 11).float().reshape(p.shape) / 8.0 - 0.6)
    return model


def batch(r, i):
    return ((torch.arange(6) * 5 + r * 3 + i * 7) % 13).float().reshape(2, 3) / 9.0


def calls(r, n, out):
    def x(k=0, size=5, dtype=torch.float32):
        return ((torch.arange(size) * 17 + r * 31 + k) % 23).double().div(7).to(dtype)

    def whole(size=5, dtype=torch.int64, k=0):
        return ((torch.arange(size) * 5 + r * 3 + k) % 7).to(dtype)

    for op in ("sum", "product", "min", "max", "avg"):
        for dtype in ("float32", "float64"):
            t = x(dtype=getattr(torch, dtype))
            dist.all_reduce(t, op=getattr(dist.ReduceOp, OPS[op]))
            out("all_reduce %s %s" % (op, dtype), t)
    for op in ("sum", "product", "min", "max", "band", "bor", "bxor"):
        for dtype in ("int64", "int32", "uint8"):
            t = whole(dtype=getattr(torch, dtype))
            dist.all_reduce(t, op=getattr(dist.ReduceOp, OPS[op]))
            out("all_reduce %s %s" % (op, dtype), t)
    work = dist.all_reduce(t := x(9), async_op=True)
    work.wait()
    out("all_reduce async", t)
    for src in range(n):
        t = x(src, dtype=torch.float64)
        dist.broadcast(t, src)
        out("broadcast %d" % src, t)
        t = x(src)
        dist.reduce(t, src)
        if r == src:
            out("reduce %d" % src, t)
    parts = [torch.empty(5) for _ in range(n)]
    dist.all_gather(parts, x())
    out("all_gather", torch.stack(parts))
    t = torch.empty(n * 5)
    dist.all_gather_into_tensor(t, x(1))
    out("all_gather_into_tensor", t)
    dist.gather(x(2), parts if r == n - 1 else None, dst=n - 1)
    if r == n - 1:
        out("gather", torch.stack(parts))
    t = torch.empty(5)
    dist.scatter(t, [x(k) for k in range(n)] if r == 0 else None, src=0)
    out("scatter", t)
    dist.reduce_scatter(t, [x(k) for k in range(n)])
    out("reduce_scatter", t)
    dist.reduce_scatter_tensor(t, x(4, n * 5))
    out("reduce_scatter_tensor", t)
    got = [torch.empty(5) for _ in range(n)]
    dist.all_to_all(got, [x(k) for k in range(n)])
    out("all_to_all", torch.cat(got))
    sizes = [1 + (r + k) % 2 for k in range(n)]
    t = torch.empty(sum(sizes))
    dist.all_to_all_single(t, x(5, sum(sizes)), sizes, sizes)
    out("all_to_all_single", t)
    if n > 1:
        to, of = (r + 1) % n, (r - 1) % n
        t = torch.empty(5)
        for w in [dist.isend(x(6), to, tag=3), dist.irecv(t, of, tag=3)]:
            w.wait()
        out("isend, irecv", t)
        for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, x(7), to), dist.P2POp(dist.irecv, t, of)]):
            w.wait()
        out("batch_isend_irecv", t)
    objects = [None] * n
    dist.all_gather_object(objects, [r, "x" * r])
    out("all_gather_object", [len(o[1]) * 10 + o[0] for o in objects])
    one = [r * 5]
    dist.broadcast_object_list(one, src=n - 1)
    out("broadcast_object_list", one)
    dist.scatter_object_list(one, [k * 3 for k in range(n)] if r == 0 else None, src=0)
    out("scatter_object_list", one)
    even = dist.new_group(list(range(0, n, 2)))
    if r % 2 == 0:
        t = x(8)
        dist.all_reduce(t, group=even)
        out("new_group", t)
        out("ranks of a group", dist.get_process_group_ranks(even) + [dist.get_group_rank(even, r), dist.get_global_rank(even, 0)])
    if n % 2 == 0:
        mesh = dist.init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("dp", "tp"))
        t = x(10)
        dist.all_reduce(t, group=mesh.get_group("dp"))
        out("mesh dp", t)
        out("mesh", list(mesh.get_coordinate()) + [mesh.get_local_rank("tp"), mesh["tp"].size()])

    def model():
        return weights(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)))

    def train(m, opt, steps):
        for i in range(steps):
            opt.zero_grad()
            m(batch(r, i)).square().mean().backward()
            opt.step()

    m = DistributedDataParallel(model())
    train(m, torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), 4)
    out("ddp", flat(m))
    m = DistributedDataParallel(model())
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    with m.no_sync():
        m(batch(r, 0)).square().mean().backward()
    m(batch(r, 1)).square().mean().backward()
    opt.step()
    out("ddp no_sync", flat(m))
    for divide in (True, False):
        m = DistributedDataParallel(model())
        with Join([m], divide_by_initial_world_size=divide):
            train(m, torch.optim.SGD(m.parameters(), lr=0.1), 2 + 2 * ((r + 1) % n))
        out("join %d" % divide, flat(m))
    m = DistributedDataParallel(model(), gradient_as_bucket_view=True)
    opt = ZeroRedundancyOptimizer(m.parameters(), optimizer_class=torch.optim.Adam, lr=0.05)
    train(m, opt, 4)
    out("zero", flat(m))
    from torch.distributed.fsdp import fully_shard

    m = copy.deepcopy(model())
    fully_shard(m[0], mesh=dist.init_device_mesh("cpu", (n,)))
    fully_shard(m, mesh=dist.init_device_mesh("cpu", (n,)))
    train(m, torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), 4)
    out("fsdp", torch.cat([p.full_tensor().detach().reshape(-1) for p in m.parameters()]))
    if n % 2 == 0:
        m = copy.deepcopy(model())
        fully_shard(m, mesh=dist.init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("copies", "parts")))
        train(m, torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), 4)
        out("fsdp over a mesh", torch.cat([p.full_tensor().detach().reshape(-1) for p in m.parameters()]))
    stores(r, n, out)
    if 8 % n == 0:
        divided(r, n, out)
    staged(r, n, out)


def stores(r, n, out):
    s = dist.distributed_c10d._get_default_store()
    s = dist.PrefixStore("calls", s)
    s.set("own %d" % r, "value %d" % r)
    out("store get", s.get("own %d" % ((r + 1) % n)).decode())
    s.add("sum", r + 1)
    dist.barrier()
    out("store add", s.get("sum").decode())
    dist.barrier()


def own_stores(r, n, out):
    """What only some of PyTorch's stores can: TCPStore, which is a rank's own here."""
    s = dist.TCPStore("127.0.0.1", 0, 1, True)
    s.append("text", "ab")
    s.append("text", "c")
    out("store append", s.get("text").decode())
    out("store compare_set", [v.decode() for v in (s.compare_set("c", "", "one"), s.compare_set("c", "two", "three"), s.compare_set("c", "one", "four"), s.compare_set("none", "a", "b"))])
    s.set("own 0", "1")
    s.add("sum", 1)
    out("store check", [s.check(["own 0", "sum"]), s.check(["own 0", "nowhere"])])
    out("store delete", [s.delete_key("own 0"), s.delete_key("own 0")])


def divided(r, n, out):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    m = weights(torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)))
    parallelize_module(m, dist.init_device_mesh("cpu", (n,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    y = m(batch(0, 1))
    out("tensor parallel", y.detach())
    y.square().mean().backward()
    out("tensor parallel, gradients", torch.cat([p.grad.to_local().reshape(-1) for p in m.parameters()]))


def staged(r, n, out):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    for name, schedule in (("gpipe", ScheduleGPipe), ("1f1b", Schedule1F1B)):
        module = weights(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()))
        x = torch.cat([batch(k, 2) for k in range(2 * n)])
        if n == 1:
            for k in range(2):
                (torch.nn.functional.mse_loss(module(x[2 * k:2 * k + 2]), x[2 * k:2 * k + 2] * 0.5) / 2).backward()
        else:
            stage = PipelineStage(module, r, n, torch.device("cpu"))
            steps = schedule(stage, n_microbatches=2 * n, loss_fn=torch.nn.functional.mse_loss)
            args = (x,) if r == 0 else ()
            steps.step(*args, target=x * 0.5 if r == n - 1 else None)
        out("pipeline " + name, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))


def remote(r, n, out, meet):
    import torch.distributed.rpc as rpc

    rpc.init_rpc("w%d" % r, rank=r, world_size=n, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method="file://" + meet))
    if r == 0:
        works = [rpc.rpc_async("w%d" % k, affine, args=(k + 2, 3)) for k in range(n)]
        out("rpc", [rpc.rpc_sync("w%d" % k, affine, args=(k, 5)) for k in range(n)] + [w.wait() for w in works])
    rpc.shutdown()


def affine(a, b):
    return a * b + 1


def flat(m):
    return torch.cat([p.detach().reshape(-1) for p in m.parameters()])


def main(r, n, meet, folder):
    dist.init_process_group("gloo", init_method="file://" + meet, rank=r, world_size=n)
    with open("%s/%d" % (folder, r), "w") as f:
        def out(name, value):
            print(name, "=", json.dumps(value.tolist() if isinstance(value, torch.Tensor) else value), file=f)

        calls(r, n, out)
        own_stores(r, n, out)
        remote(r, n, out, meet + "-rpc")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    mp.spawn(main, (int(sys.argv[1]), tempfile.mktemp(), sys.argv[2]), nprocs=int(sys.argv[1]))
