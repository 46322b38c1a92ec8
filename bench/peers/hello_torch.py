"""Start, one all_reduce, exit; and the memory that a rank took."""
import resource

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
rank = dist.get_rank()
dist.destroy_process_group()
if rank == 0:
    print(f"resident size of a rank: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f} MiB")
