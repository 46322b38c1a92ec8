"""Recurrent layers, attention with masks, and transformer layers, as pytorch_rnn.json.

Made with torch 2.5.1 and NumPy 2 (PyPI); run it in this folder.
"""
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from cases import case, randn, write


def alone(t):
    return t if isinstance(t, tuple) else (t,)


def recurrent(kind, i, h, shape, lengths=None, state=False, view=False, tolerance=1e-4, dtype=torch.float32, **how):
    m = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[kind](i, h, **how).to(dtype)
    names = [n for n, _ in m.named_parameters()]
    given = {n: p.detach().clone() for n, p in m.named_parameters()}
    given["x"] = randn(*shape).to(dtype)
    batch = () if len(shape) == 2 else (shape[0] if how.get("batch_first") or view else shape[1],)
    rows = how.get("num_layers", 1) * (2 if how.get("bidirectional") else 1)
    if state:
        given["h0"] = randn(rows, *batch, h).to(dtype)
        if kind == "lstm":
            given["c0"] = randn(rows, *batch, h).to(dtype)

    def run(*values):
        v = dict(zip(given, values))
        x = v["x"].transpose(0, 1) if view else v["x"]
        start = ((v["h0"], v["c0"]) if kind == "lstm" else v["h0"]) if state else None
        if lengths:
            x = pack_padded_sequence(x, torch.tensor(lengths), batch_first=how.get("batch_first", False), enforce_sorted=False)
        out, last = torch.func.functional_call(m, {n: v[n] for n in names}, (x, start))
        if lengths:
            steps = shape[1] if how.get("batch_first") else shape[0]
            out, _ = pad_packed_sequence(out, batch_first=how.get("batch_first", False), total_length=steps)
        return (out, *alone(last))

    setup = f"m = nn.{kind}({i}, {h}" + "".join(f", {k} = " + (f'"{v}"' if isinstance(v, str) else str(v)) for k, v in how.items()) + ")"
    setup += """
def flat(r):
    return (r[0], r[1][0], r[1][1]) if type(r[1]) == "tuple" else r"""
    if dtype == torch.float64:
        return
    start = ("(h0, c0)" if kind == "lstm" else "h0") if state else "None"
    expr = f"flat(m(x{'.transpose(0, 1)' if view else ''}, {start}, lengths = {lengths}))"
    case(f"{kind} {shape} {how} {lengths} {state} {view}", given, expr, run, setup, {n: f"m.{n}" for n in names}, tolerance=tolerance, through=(0, 1, 2) if kind == "lstm" else (0, 1))


for kind in ["lstm", "gru", "rnn"]:
    recurrent(kind, 3, 5, (4, 2, 3))
    recurrent(kind, 3, 5, (4, 2, 3), state=True)
    recurrent(kind, 3, 17, (2, 6, 3), batch_first=True, state=True)
    recurrent(kind, 3, 5, (4, 3), state=True)
    recurrent(kind, 3, 4, (5, 2, 3), bias=False)
    recurrent(kind, 3, 4, (5, 2, 3), num_layers=3, state=True)
    recurrent(kind, 3, 4, (5, 2, 3), bidirectional=True, num_layers=2, state=True)
    recurrent(kind, 3, 4, (6, 4, 3), [3, 6, 1, 4])
    recurrent(kind, 3, 4, (4, 6, 3), [3, 6, 1, 4], batch_first=True, bidirectional=True, num_layers=2, state=True)
    recurrent(kind, 3, 4, (2, 5, 3), view=True, state=True)
    recurrent(kind, 1, 1, (1, 1, 1), state=True)
recurrent("rnn", 3, 5, (4, 2, 3), nonlinearity="relu", state=True)
recurrent("lstm", 33, 40, (9, 70, 33), state=True)

# Attention. PyTorch's function takes masks as this one does; multi_head_attention's mean the opposite.
for shape, mask in [((2, 5, 4), torch.rand(5, 7) > 0.4), ((2, 3, 5, 4), torch.rand(2, 1, 5, 7) > 0.3), ((2, 3, 5, 4), torch.rand(2, 1, 1, 7) > 0.3)]:
    mask[..., 0] = True
    given = dict(q=randn(*shape), k=randn(*shape[:-2], 7, 4), v=randn(*shape[:-2], 7, 6))
    case(f"attention mask {shape} {mask.shape}", dict(**given), f"nn.attention(q, k, v, mask = tensor({mask.tolist()}))", lambda q, k, v, mask=mask: F.scaled_dot_product_attention(q, k, v, mask), tolerance=5e-5)
    number = torch.where(mask, 0.5, -1.5)
    case(f"attention added {shape} {mask.shape}", dict(**given), f"nn.attention(q, k, v, mask = tensor({number.tolist()}), scale = 0.7)", lambda q, k, v, mask=number: F.scaled_dot_product_attention(q, k, v, mask, scale=0.7), tolerance=5e-5)
nothing = torch.tensor([[True, False], [False, False]])
case("attention to nothing", dict(q=randn(2, 3), k=randn(2, 3), v=randn(2, 3)), f"nn.attention(q, k, v, mask = tensor({nothing.tolist()}))", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, nothing), tolerance=5e-5, grad=False)
case("attention causal and scaled", dict(q=randn(2, 4, 3), k=randn(2, 4, 3), v=randn(2, 4, 3)), "nn.attention(q, k, v, causal = True, scale = 0.3)", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), tolerance=5e-5)

causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
padding = torch.tensor([[False, False, True, False, False], [False, False, False, True, True]])


def modelled(name, m, recipe, inputs, expr, fn, n_out=1, setup=""):
    m.train()
    given = {n.replace(".", "_"): p.detach().clone() + (0.1 * torch.randn_like(p) if p.dim() == 1 else 0) for n, p in m.named_parameters()}
    names = {n.replace(".", "_"): n for n, _ in m.named_parameters()}

    def run(*values):
        v = dict(zip([*given, *inputs], values))
        return fn(lambda *a, **k: torch.func.functional_call(m, {n: v[key] for key, n in names.items()}, a, k), *[v[i] for i in inputs])

    case(name, {**given, **inputs}, expr, run, f"m = {recipe}{setup}", {key: f"m.{n}" for key, n in names.items()}, tolerance=1e-4)


MHA = torch.nn.MultiheadAttention
for batch_first in [False, True]:
    x = dict(x=randn(2, 5, 8) if batch_first else randn(5, 2, 8))
    b = f", batch_first = {batch_first}"
    modelled(f"multi_head_attention {batch_first}", MHA(8, 2, batch_first=batch_first), f"nn.multi_head_attention(8, 2{b})", x, "m(x, x, x)", lambda m, x: m(x, x, x))
    modelled(f"multi_head_attention causal {batch_first}", MHA(8, 2, batch_first=batch_first), f"nn.multi_head_attention(8, 2{b})", x, "m(x, x, x, need_weights = False, is_causal = True)[0]", lambda m, x: m(x, x, x, attn_mask=causal, need_weights=False)[0])
    modelled(f"multi_head_attention masks {batch_first}", MHA(8, 4, batch_first=batch_first), f"nn.multi_head_attention(8, 4{b})", x, f"m(x, x, x, key_padding_mask = tensor({padding.tolist()}), attn_mask = tensor({causal.tolist()}), average_attn_weights = False)",
             lambda m, x: m(x, x, x, key_padding_mask=padding, attn_mask=causal, average_attn_weights=False))
    enc = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
    modelled(f"transformer_encoder_layer {batch_first}", enc, f"nn.transformer_encoder_layer(8, 2, 16, dropout = 0{b})", x, f"m(x, src_key_padding_mask = tensor({padding.tolist()}))", lambda m, x: m(x, src_key_padding_mask=padding))
modelled("multi_head_attention of others", MHA(8, 2, bias=False), "nn.multi_head_attention(8, 2, bias = False)", dict(q=randn(3, 2, 8), k=randn(5, 2, 8)), "m(q, k, k)", lambda m, q, k: m(q, k, k))
modelled("multi_head_attention alone", MHA(8, 2), "nn.multi_head_attention(8, 2)", dict(q=randn(3, 8), k=randn(5, 8)), "m(q, k, k)", lambda m, q, k: m(q, k, k))
modelled("transformer_encoder_layer first", torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", norm_first=True), 'nn.transformer_encoder_layer(8, 2, 16, 0, "gelu", norm_first = True)', dict(x=randn(5, 2, 8)), "m(x, is_causal = True)", lambda m, x: m(x, src_mask=causal))
for first in [False, True]:
    modelled(f"transformer_decoder_layer {first}", torch.nn.TransformerDecoderLayer(8, 2, 16, 0.0, norm_first=first), f"nn.transformer_decoder_layer(8, 2, 16, 0, norm_first = {first})", dict(x=randn(5, 2, 8), memory=randn(5, 2, 8)),
             f"m(x, memory, tgt_is_causal = True, memory_key_padding_mask = tensor({padding.tolist()}))", lambda m, x, y: m(x, y, tgt_mask=causal, memory_key_padding_mask=padding))


def rotary(x, base=10000.0, offset=0, interleaved=False):
    """Su et al. 2021, equation 34, in float64."""
    d = x.shape[-1]
    angles = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64) + offset, base ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d))
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., : d // 2], x[..., d // 2 :])
    left, right = a * cos - b * sin, b * cos + a * sin
    return torch.stack([left, right], -1).flatten(-2) if interleaved else torch.cat([left, right], -1)


for how in ["", ", interleaved = True", ", base = 500.0, offset = 7"]:
    case(f"rotary_embedding{how}", dict(x=randn(2, 3, 5, 8)), f"nn.rotary_embedding(x{how})", lambda x, how=how: eval(f"rotary(x{how})", {"rotary": rotary, "x": x}))
    case(f"rotary_embedding of a view{how}", dict(x=randn(2, 6, 3)), f"nn.rotary_embedding(x.transpose(1, 2){how})", lambda x, how=how: eval(f"rotary(x.transpose(1, 2){how})", {"rotary": rotary, "x": x}))

write("pytorch_rnn.json")
