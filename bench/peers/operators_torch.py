"""What an operation costs when there is hardly anything to compute, from Python."""
import torch

from figures import per_call, report

one, two = 1.5, 2.5
empty = per_call(lambda: None, 100000, 1000)
report("comparison of two numbers", (per_call(lambda: one < two, 100000, 1000) - empty) * 1e6, "us")

x, y = torch.ones(16), torch.ones(16)
report("addition of 16 elements", (per_call(lambda: x + y, 100000, 1000) - empty) * 1e6, "us")

w = torch.ones(16, requires_grad=True)


def chain(length=100):
    h = w
    for _ in range(length):
        h = h + y
    h.sum().backward()
    w.grad = None


report("addition of 16 elements with backward", per_call(chain, 300, 30) / 100 * 1e6, "us")
