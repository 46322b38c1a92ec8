"""Time of a step, forward and backward, of PyTorch's layers by themselves, on one thread."""
import torch

from figures import per_call, report


def step(name, layer, x, calls, output=lambda out: out):
    x.requires_grad_()
    seed = torch.randn_like(output(layer(x)))

    def once():
        x.grad = None
        layer.zero_grad(set_to_none=True)
        output(layer(x)).backward(seed)

    report(name + " step", per_call(once, calls, calls // 10 + 1) * 1e3, "ms")


step("lstm", torch.nn.LSTM(128, 256), torch.randn(64, 32, 128), 20, lambda out: out[0])
step("conv1d", torch.nn.Conv1d(64, 128, 5, padding=2), torch.randn(16, 64, 512), 40)
step("group_norm", torch.nn.GroupNorm(8, 64), torch.randn(16, 64, 32, 32), 100)
step("conv_transpose2d", torch.nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), torch.randn(8, 64, 16, 16), 40)
