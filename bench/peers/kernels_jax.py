"""Elementwise and row kernels and products of JAX on one thread: kernels_jax.py M N K ..."""
import sys

from figures_jax import per_call, report

import jax
import jax.numpy as jnp

N = 4 << 20
x, y = (jax.random.uniform(jax.random.key(i), (N,)) for i in range(2))


def layer_norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


for size, n, calls in ("4 K", 4 << 10, 20000), ("256 K", 256 << 10, 300), ("4 M", 4 << 20, 20):
    rows = x[:n].reshape(n // 1024, 1024)
    for name, kernel, args in [
        (f"exp of {size}", jnp.exp, (x[:n],)),
        (f"tanh of {size}", jnp.tanh, (x[:n],)),
        (f"add of {size}", jnp.add, (x[:n], y[:n])),
        (f"softmax of {n // 1024} x 1024", jax.nn.softmax, (rows,)),
        (f"layer_norm of {n // 1024} x 1024", layer_norm, (rows,)),
    ]:
        compiled = jax.jit(kernel)
        report(name, per_call(lambda: compiled(*args), calls, calls // 10 + 2) * 1e3, "ms")

shapes = [int(s) for s in sys.argv[1:]]
product = jax.jit(jnp.matmul)
for m, n, k in zip(shapes[::3], shapes[1::3], shapes[2::3]):
    a, b = x[: m * k].reshape(m, k), y[: k * n].reshape(k, n)
    work = 2 * m * n * k
    calls = int(2e9 / work) + 1
    report(f"gemm {m}x{n}x{k}", work / per_call(lambda: product(a, b), calls, calls // 10 + 2) / 1e9, "GFLOPS")
