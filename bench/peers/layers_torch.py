"""Time of a step, forward and backward, of PyTorch's layers by themselves, on one thread."""
import torch

from figures import per_call, report


def lowered(model):
    """model, called with autocast to bfloat16."""
    def call(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)
    return call


def step(name, layer, x, calls, output=lambda out: out, call=None):
    call = call or layer
    x.requires_grad_()
    seed = torch.randn_like(output(call(x)))

    def once():
        x.grad = None
        layer.zero_grad(set_to_none=True)
        output(call(x)).backward(seed)

    report(name + " step", per_call(once, calls, calls // 10 + 1) * 1e3, "ms")


step("lstm", torch.nn.LSTM(128, 256), torch.randn(64, 32, 128), 20, lambda out: out[0])
step("conv1d", torch.nn.Conv1d(64, 128, 5, padding=2), torch.randn(16, 64, 512), 40)
step("group_norm", torch.nn.GroupNorm(8, 64), torch.randn(16, 64, 32, 32), 100)
step("conv_transpose2d", torch.nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), torch.randn(8, 64, 16, 16), 40)
half = torch.randn(1024, 1024).bfloat16()
report("bf16 matmul step", per_call(lambda: half @ half, 40, 5) * 1e3, "ms")
mlp = torch.nn.Sequential(torch.nn.LayerNorm(256), torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))
step("autocast", mlp, torch.randn(1024, 256), 40, call=lowered(mlp))
