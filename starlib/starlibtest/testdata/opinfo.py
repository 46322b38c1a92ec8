"""PyTorch's own samples of its operators (common_methods_invocations.op_db) as recipes, one JSON object a line.

    python opinfo.py [--few] [OPERATOR...] >samples.jsonl

A line has an operator's name, the type of its elements, what the recipe is given, its source, and what PyTorch computes: the
results, the first gradients and, where PyTorch has them, second ones. `make test-opinfo` runs it, and the Go test beside it
executes the recipes. Operators that are left out stand in opinfo.txt, with the reason. --few takes ten small samples of each, which
`make test` runs: opinfo.jsonl.gz.
"""
import json
import math
import os
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db

import cases

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.set_printoptions(precision=17)

SAMPLES = {torch.float64: 16, torch.float32: 6, torch.int64: 4, torch.bfloat16: 2}
LARGEST = 5000  # elements of a sample
few = "--few" in sys.argv
if few:
    SAMPLES, LARGEST = {torch.float64: 8, torch.int64: 1, torch.bfloat16: 1}, 130
left_out = {line.split(":")[0] for line in open(os.path.join(os.path.dirname(__file__), "opinfo.txt")) if ":" in line}
only = set(sys.argv[1:]) - {"--few"}


class Untranslatable(Exception):
    pass


def array(t):
    if isinstance(t, torch.Tensor):
        if t.is_complex() or t.layout != torch.strided:
            raise Untranslatable("complex or sparse")
        if not t.is_floating_point() and t.numel() and int(t.long().abs().max()) > 2**53 or t.dtype == torch.int64 and bool((t == -2**63).any()):
            raise Untranslatable("integers that JSON has not")
        if t.numel() > LARGEST:
            raise Untranslatable("large")
    return cases.array(t)


class Given:
    """The tensors of a sample, by the names that the recipe has for them."""

    def __init__(self):
        self.tensors = {}

    def name(self, t):
        for name, known in self.tensors.items():
            if known is t:
                return name
        name = f"t{len(self.tensors)}"
        self.tensors[name] = t
        return name

    def text(self, v):
        if isinstance(v, torch.Tensor):
            return self.name(v)
        if v is None or isinstance(v, (bool, int, str)):
            return repr(v).replace("'", '"')
        if isinstance(v, float):
            return repr(v) if math.isfinite(v) else f'float("{v}")'
        if isinstance(v, torch.dtype):
            return f'"{str(v)[6:]}"'
        if isinstance(v, (list, torch.Size)):
            return "[" + ", ".join(map(self.text, v)) + "]"
        if isinstance(v, tuple):
            return "(" + ", ".join(map(self.text, v)) + ("," if len(v) == 1 else "") + ")"
        if isinstance(v, slice):
            return "slice"
        raise Untranslatable(type(v).__name__)


# Functions that are methods of the first argument in recipes, unless said otherwise here.
FUNCTIONS = set("""cat stack hstack vstack dstack column_stack block_diag meshgrid cartesian_prod combinations einsum where broadcast_tensors
cdist tensordot searchsorted bucketize arange linspace logspace eye zeros ones full empty randn randint rand multinomial one_hot
broadcast_shapes atleast_1d atleast_2d atleast_3d normal bernoulli tril_indices triu_indices zeros_like ones_like full_like logspace chain_matmul""".split())


def expression(op, sample, given):
    args = [given.text(a) for a in sample.args]
    kwargs = [f"{k} = {given.text(v)}" for k, v in sample.kwargs.items() if k not in ("device", "layout", "out", "requires_grad", "pin_memory", "memory_format")]
    name = op.name
    first = given.text(sample.input)
    if name in ("nn.functional.embedding", "nn.functional.embedding_bag"):
        first, args[0] = args[0], first
    if name == "linalg.pinv" and op.variant_test_name == "singular":
        return f"linalg.pinv({first}.matmul({args[0]}.mT))"
    if name == "where":
        return f"tensor.where({args[0]}, {first}, {args[1]})"
    if name.startswith("nn.functional.") or name.startswith("linalg.") or name.startswith("fft."):
        return f"{name}({', '.join([first] + args + kwargs)})"
    if name.startswith("special."):
        name = name[8:]
    if name.startswith("__r"):
        sign = {"__radd__": "+", "__rsub__": "-", "__rmul__": "*", "__rdiv__": "/", "__rmod__": "%", "__rmatmul__": "matmul",
                "__rand__": "&", "__ror__": "|", "__rxor__": "^"}.get(name)
        if sign == "matmul":
            return f"{args[0]}.matmul({first})"
        if sign:
            return f"{args[0]} {sign} {first}"
        raise Untranslatable(name)
    if name == "__getitem__":
        raise Untranslatable("index")
    if name in ("T", "mT"):
        return f"{first}.{name}"
    if name == "einsum":
        return f"tensor.einsum({args[0]}, {first})"
    if name in FUNCTIONS or not isinstance(sample.input, torch.Tensor):
        return f"tensor.{name}({', '.join([first] + args + kwargs)})"
    return f"{first}.{name}({', '.join(args + kwargs)})"


def tensors(v):
    if isinstance(v, torch.Tensor):
        return [v]
    if isinstance(v, (list, tuple)):
        return [t for x in v for t in tensors(x)]
    if isinstance(v, dict):
        return tensors(list(v.values()))
    return []


def outputs(v, path="out"):
    """Results with the expressions that the recipe has for them."""
    if isinstance(v, (torch.Tensor, bool, int, float)):
        return [(path, v)]
    if isinstance(v, (list, tuple)):
        return [o for i, x in enumerate(v) for o in outputs(x, f"{path}[{i}]")]
    raise Untranslatable("result " + type(v).__name__)


def smooth(t):
    return isinstance(t, torch.Tensor) and t.requires_grad and t.is_floating_point()


# What PyTorch gives for the gradient of pinv(hermitian = True) is of no use where a matrix is not symmetric, as its samples are.
# Results that are not unique: which of equal elements an index names, and the signs of vectors.
FIRST_ONLY = {"kthvalue", "topk", "mode", "median", "nanmedian", "sort", "linalg.eigh", "msort"}


def convert(op, dtype, sample):
    given = Given()
    if sample.kwargs.get("dropout_p"):
        raise Untranslatable("random")
    source = "out = " + expression(op, sample, given)
    before = {k: v.detach().clone() for k, v in given.tensors.items()}
    leaves = [v for v in given.tensors.values() if v.requires_grad]
    result = op.op(sample.input, *sample.args, **sample.kwargs)
    outs = outputs(result) if op.name != "linalg.lstsq" else [("out.solution", tensors(result)[0])]
    if op.name in FIRST_ONLY and len(outs) > 1 and (dtype in (torch.int64, torch.bfloat16) or op.name == "linalg.eigh"):
        outs = outs[:1]
    want = {path: array(v) for path, v in outs}
    record = {"family": op.name, "variant": op.variant_test_name, "dtype": str(dtype)[6:], "source": source}
    flowing = [(path, v) for path, v in outs if smooth(v)]
    gradual = not sample.kwargs.get("hermitian") and dtype in (torch.float64, torch.float32) and op.supports_autograd and leaves and flowing
    if gradual:
        seeds = [torch.linspace(-1, 2, v.numel(), dtype=v.dtype).reshape(v.shape) for _, v in flowing]
        twice = dtype == torch.float64 and op.supports_gradgrad
        try:
            grads = torch.autograd.grad([v for _, v in flowing], leaves, seeds, allow_unused=True, create_graph=twice)
        except RuntimeError:
            grads = None
        if grads is not None:
            names = {id(v): k for k, v in given.tensors.items()}
            total = " + ".join(f"({path} * s{i}).sum()" for i, (path, _) in enumerate(flowing))
            before |= {f"s{i}": s for i, s in enumerate(seeds)}
            record["leaves"] = [names[id(v)] for v in leaves]
            record["loss"] = total
            record["grads"] = {names[id(v)]: array(g) for v, g in zip(leaves, grads) if g is not None}
            if twice:
                smoothest = [(v, g) for v, g in zip(leaves, grads) if smooth(g)]
                if smoothest:
                    seeds2 = [torch.linspace(1, -0.5, g.numel(), dtype=g.dtype).reshape(g.shape) for _, g in smoothest]
                    try:
                        seconds = torch.autograd.grad([g for _, g in smoothest], leaves, seeds2, allow_unused=True)
                        before |= {f"u{i}": s for i, s in enumerate(seeds2)}
                        record["through"] = [names[id(v)] for v, _ in smoothest]
                        record["seconds"] = {names[id(v)]: array(g) for v, g in zip(leaves, seconds) if g is not None}
                    except RuntimeError:
                        pass
    record["given"] = {k: array(v) for k, v in before.items()}
    record["want"] = want
    return record


def main():
    for op in op_db:
        if op.name in left_out or only and op.name not in only:
            continue
        for dtype, most in SAMPLES.items():
            if dtype not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(7)
            taken, reasons = 0, {}
            try:
                for sample in op.sample_inputs("cpu", dtype, requires_grad=dtype in (torch.float64, torch.float32) and op.supports_autograd):
                    if taken == most:
                        break
                    try:
                        record = convert(op, dtype, sample)
                    except Untranslatable as e:
                        reasons[str(e)] = reasons.get(str(e), 0) + 1
                        continue
                    except Exception as e:
                        reasons["PyTorch: " + str(e)[:80]] = 1
                        continue
                    taken += 1
                    print(json.dumps(record, separators=(",", ":")))
            except Exception as e:
                reasons[str(e)[:80]] = 1
            if not taken:
                print(json.dumps({"family": op.name, "variant": op.variant_test_name, "dtype": str(dtype)[6:], "left": reasons}))


main()
