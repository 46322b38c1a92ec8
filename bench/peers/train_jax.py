"""Time of a training step of MODEL (tiny, mlp, cnn, gpt, gpt2), one function compiled by JAX: train_jax.py MODEL STEPS FILE
[once]. FILE has the weights and the data that the recipe has written, in safetensors. With once, one step is made and
nothing else."""
import resource
import sys

from figures_jax import per_call, report

import jax
import jax.numpy as jnp
from jax import lax, nn
from safetensors.numpy import load_file


def linear(w, name, x):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def norm(w, name, x):
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]


def tiny(w, x):
    return linear(w, "2", jnp.tanh(linear(w, "0", x)))


def mlp(w, x):
    for name in ["0", "2"]:
        x = nn.relu(linear(w, name, x))
    return linear(w, "4", x)


def convolved(w, name, x):
    """Channels last, which is XLA's quicker layout here, then relu and pooling."""
    kernel = w[name + ".weight"].transpose(2, 3, 1, 0)
    x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = nn.relu(x + w[name + ".bias"])
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def cnn(w, x):
    x = convolved(w, "3", convolved(w, "0", x.transpose(0, 2, 3, 1)))
    x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
    return linear(w, "9", nn.relu(linear(w, "7", x)))


def transformer(w, tokens, layers, heads, approximate):
    batch, length = tokens.shape
    x = w["tokens.weight"][tokens] + w["positions.weight"][:length]
    width = x.shape[-1]
    for i in range(layers):
        b = f"blocks.{i}."
        qkv = linear(w, b + "qkv", norm(w, b + "before_attention", x)).reshape(batch, length, 3, heads, width // heads)
        mixed = nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
        x = x + linear(w, b + "out", mixed.reshape(batch, length, width))
        inner = nn.gelu(linear(w, b + "expand", norm(w, b + "before_mlp", x)), approximate=approximate)
        x = x + linear(w, b + "contract", inner)
    x = norm(w, "norm", x)
    logits = linear(w, "head", x) if "head.weight" in w else x @ w["tokens.weight"].T
    return logits.reshape(batch * length, -1)


def gpt(w, x):
    return transformer(w, x, 4, 4, False)


def gpt2(w, x):
    return transformer(w, x, 12, 12, True)


def sgd(w, g, state, rate):
    state = jax.tree.map(lambda m, g: 0.9 * m + g, state, g)
    return jax.tree.map(lambda w, m: w - rate * m, w, state), state


def adamw(w, g, state, rate, decay):
    m, v, t = state
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)

    def moved(w, m, v):
        return w * (1 - rate * decay) - rate * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)

    return jax.tree.map(moved, w, m, v), (m, v, t)


name, steps, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
tensors = load_file(path)
x, y = jnp.asarray(tensors["x"]), jnp.asarray(tensors["y"])
weights = {k[len("model."):]: jnp.asarray(t) for k, t in tensors.items() if k.startswith("model.")}
del tensors
forward = {"tiny": tiny, "mlp": mlp, "cnn": cnn, "gpt": gpt, "gpt2": gpt2}[name]
zeros = lambda: jax.tree.map(jnp.zeros_like, weights)
if name in ["gpt", "gpt2"]:
    state = (zeros(), zeros(), jnp.zeros(()))
    rate, decay = (0.001, 0.01) if name == "gpt" else (0.0001, 0.0)
    update = lambda w, g, s: adamw(w, g, s, rate, decay)
else:
    state = zeros()
    update = lambda w, g, s: sgd(w, g, s, 0.01 if name == "cnn" else 0.1)


def loss(w, x, y):
    return -jnp.take_along_axis(nn.log_softmax(forward(w, x)), y[:, None], 1).mean()


def trained(w, state, x, y):
    value, g = jax.value_and_grad(loss)(w, x, y)
    return *update(w, g, state), value


trained = jax.jit(trained, donate_argnums=(0, 1))


def step():
    global weights, state
    weights, state, value = trained(weights, state, x, y)
    return value


if "once" in sys.argv:
    step().item()
    sys.exit()
losses = [step().item() for _ in range(10)]
report(name + " step", per_call(step, steps, 0) * 1e3, "ms")
report(name + " loss", losses[-1], "nats")
if name == "gpt2":
    report("gpt2 memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB")
