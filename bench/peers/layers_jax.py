"""Time of a step, forward and backward, of layers by themselves, each one function compiled by JAX."""
from figures_jax import per_call, report

import jax
import jax.numpy as jnp
from jax import lax, nn


def draw(*shape, state=iter(range(100))):
    return jax.random.normal(jax.random.key(next(state)), shape) * 0.1


def lstm(w, x):
    def cell(state, sums):
        h, c = state
        i, f, g, o = jnp.split(sums + h @ w["hidden"].T, 4, axis=1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], w["hidden"].shape[1]))
    return lax.scan(cell, (zero, zero), x @ w["input"].T + w["b"] + w["c"])[1]


def conv1d(w, x):
    return lax.conv_general_dilated(x, w["weight"], (1,), [(2, 2)], dimension_numbers=("NCH", "OIH", "NCH")) + w["b"][:, None]


def group_norm(w, x):
    g = x.reshape(x.shape[0], 8, -1)
    g = g - g.mean(-1, keepdims=True)
    g = g * lax.rsqrt((g * g).mean(-1, keepdims=True) + 1e-5)
    return g.reshape(x.shape) * w["weight"][:, None, None] + w["b"][:, None, None]


def conv_transpose2d(w, x):
    kernel = w["weight"].transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    return lax.conv_general_dilated(x, kernel, (1, 1), [(2, 2), (2, 2)], lhs_dilation=(2, 2),
                                    dimension_numbers=("NCHW", "OIHW", "NCHW")) + w["b"][:, None, None]


def step(name, layer, w, x, calls):
    seed = draw(*layer(w, x).shape)

    @jax.jit
    def once(w, x, seed):
        out, back = jax.vjp(layer, w, x)
        return out, back(seed)  # with the result, or what only it needs is left out

    report(name + " step", per_call(lambda: once(w, x, seed), calls, calls // 10 + 1) * 1e3, "ms")


step("lstm", lstm, {"input": draw(1024, 128), "hidden": draw(1024, 256), "b": draw(1024), "c": draw(1024)}, draw(64, 32, 128), 20)
step("conv1d", conv1d, {"weight": draw(128, 64, 5), "b": draw(128)}, draw(16, 64, 512), 40)
step("group_norm", group_norm, {"weight": draw(64), "b": draw(64)}, draw(16, 64, 32, 32), 100)
step("conv_transpose2d", conv_transpose2d, {"weight": draw(64, 32, 4, 4), "b": draw(32)}, draw(8, 64, 16, 16), 40)
