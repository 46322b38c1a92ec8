"""Lists the public names of torch.distributed, of the PyTorch that runs this, for distributed.txt (make names)."""
import types

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

# What the modules import for themselves.
OWN = ("torch.distributed", "torch._C._distributed_c10d")

print("# torch.distributed of PyTorch " + torch.__version__.split("+")[0])
for name in sorted({n for n in dir(dist) if not n.startswith("_")} | set(c10d.__all__)):
    value = getattr(dist, name, getattr(c10d, name, None))
    where = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or OWN[0]
    if where.startswith(OWN):
        print(name)
