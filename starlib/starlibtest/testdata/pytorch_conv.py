"""Convolutions, norms over groups, resizing and adaptive pooling, as pytorch_conv.json.

Made with torch 2.5.1 and NumPy 2 (PyPI); run it in this folder.
"""
import torch
import torch.nn.functional as F

from cases import case, randn, write

CONV = [F.conv1d, F.conv2d, F.conv3d]
MODULES = [torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d]


def conv(n, i, o, k, size, batch=2, bias=True, dtype=torch.float32, view=False, **how):
    m = MODULES[n - 1](i, o, k, bias=bias, **how)
    recipe = "".join(f", {key} = " + (f'"{v}"' if isinstance(v, str) else str(v)) for key, v in how.items())
    given = dict(x=randn(batch, i, *size), w=randn(*m.weight.shape))
    if view:
        given["x"] = given["x"].transpose(0, -1).contiguous()
    if bias:
        given["b"] = randn(o)
    given = {key: v.to(dtype) for key, v in given.items()}

    def run(x, w, b=None):
        m.weight, m.bias = None, None
        del m.weight, m.bias
        m.weight, m.bias = w, b
        return m(x.transpose(0, -1) if view else x)

    setup = f"m = nn.conv{n}d({i}, {o}, {k}{recipe}{'' if bias else ', bias = False'})"
    alias = dict(w="m.weight", b="m.bias") if bias else dict(w="m.weight")
    if dtype == torch.float64:
        setup = f"w, b = nn.parameter(w), nn.parameter(b)"
        return
    case(f"conv{n}d {i} {o} {k} {size} {how} {bias} {view} {batch}", given, "m(x.transpose(0, -1))" if view else "m(x)", run, setup, alias, tolerance=3e-5)


for how in [dict(), dict(stride=2, padding=1), dict(dilation=2), dict(dilation=3, padding=4, stride=2), dict(groups=2), dict(padding="same"), dict(padding="valid"),
            dict(padding=2, padding_mode="reflect"), dict(padding=3, padding_mode="replicate"), dict(padding=4, padding_mode="circular"), dict(padding="same", padding_mode="reflect", dilation=2)]:
    conv(1, 4, 6, 3, (9,), **how)
conv(1, 3, 5, 4, (11,), padding="same")
conv(1, 6, 6, 5, (17,), groups=6, padding=2)
conv(1, 3, 2, 3, (70,), view=True, batch=3)
conv(1, 2, 3, 1, (1,), batch=1)
conv(1, 17, 33, 7, (300,), batch=1, padding=3)
for how in [dict(dilation=2), dict(dilation=(1, 3), padding=(0, 2), stride=(2, 1)), dict(dilation=2, stride=3, padding=2), dict(dilation=(3, 2), stride=(2, 4), padding=3), dict(groups=2, padding=1), dict(groups=4, stride=2), dict(groups=2, dilation=2, stride=2, padding=1),
            dict(padding=(1, 2), padding_mode="reflect"), dict(padding=(2, 1), padding_mode="replicate", stride=2), dict(padding=2, padding_mode="circular", groups=2), dict(padding="same"), dict(padding="same", padding_mode="circular")]:
    conv(2, 4, 8, 3, (9, 8), **how)
conv(2, 3, 4, (2, 4), (7, 9), padding="same", dilation=(1, 2))
conv(2, 4, 8, 3, (9, 8), view=True, batch=8, dilation=2, padding=1, bias=False)
conv(2, 16, 16, 3, (12, 11), groups=16, padding=1)
for how in [dict(), dict(stride=2, padding=1), dict(dilation=(2, 1, 2), padding=(1, 0, 2)), dict(groups=2, padding=(2, 1, 0), stride=(1, 2, 1)), dict(padding=1, padding_mode="replicate")]:
    conv(3, 2, 4, (2, 3, 3), (5, 6, 7), **how)
conv(3, 2, 3, 1, (2, 2, 2), batch=1, bias=False)

for k, how in [(3, {}), (3, dict(stride=2)), (3, dict(stride=2, padding=1, output_padding=1)), (2, dict(stride=3)), ((2, 4), dict(stride=(2, 1), padding=(0, 2))), (3, dict(groups=2, stride=2)),
               (3, dict(dilation=2)), (3, dict(dilation=(2, 3), stride=(3, 2), padding=2, output_padding=(2, 1))), (3, dict(dilation=3, stride=2, output_padding=2)), (4, dict(stride=2, padding=1, groups=2, dilation=1)), (1, dict(stride=2, output_padding=1))]:
    for size, batch in [((5, 4), 2), ((1, 3), 1)]:
        kk = k if isinstance(k, tuple) else (k, k)
        g = how.get("groups", 1)
        if size[0] == 1 and how.get("padding"):
            continue
        recipe = "".join(f", {key} = {v}" for key, v in how.items())
        case(f"conv_transpose2d {k} {how} {size}", dict(x=randn(batch, 4, *size), w=randn(4, 6 // g, *kk), b=randn(6)), "m(x)",
             lambda x, w, b, how=how: F.conv_transpose2d(x, w, b, **how), f"m = nn.conv_transpose2d(4, 6, {k}{recipe})", dict(w="m.weight", b="m.bias"), tolerance=3e-5)
case("conv_transpose2d without bias", dict(x=randn(2, 3, 4, 4).transpose(2, 3), w=randn(3, 2, 3, 3)), "m(x)", lambda x, w: F.conv_transpose2d(x, w, None, 2), "m = nn.conv_transpose2d(3, 2, 3, stride = 2, bias = False)", dict(w="m.weight"), tolerance=3e-5)

for groups, c, shape in [(2, 4, (3, 4, 5)), (1, 3, (2, 3)), (3, 3, (2, 3, 7)), (4, 8, (2, 8, 5, 6)), (2, 6, (1, 6, 3, 2, 2)), (2, 4, (1, 4, 70, 70))]:
    case(f"group_norm {groups} {shape}", dict(x=randn(*shape) * 2 + 1, w=randn(c), b=randn(c)), "m(x)", lambda x, w, b, g=groups: F.group_norm(x, g, w, b), f"m = nn.group_norm({groups}, {c})", dict(w="m.weight", b="m.bias"), tolerance=1e-4)
case("group_norm plain", dict(x=randn(3, 4, 5)), "nn.group_norm(2, 4, affine = False, eps = 0.1)(x)", lambda x: F.group_norm(x, 2, eps=0.1), tolerance=3e-5)
case("group_norm float64", dict(x=randn(3, 4, 5).double() + 1e6), "nn.group_norm(2, 4, affine = False)(x)", lambda x: F.group_norm(x, 2), tolerance=1e-6)
case("group_norm of a view", dict(x=randn(5, 4, 3)), "nn.group_norm(2, 4, affine = False)(x.transpose(0, 2))", lambda x: F.group_norm(x.transpose(0, 2), 2), tolerance=3e-5)
for shape in [(2, 3, 7), (2, 3, 4, 5)]:
    case(f"instance_norm {shape}", dict(x=randn(*shape)), "nn.instance_norm(3)(x)", lambda x: F.instance_norm(x), tolerance=3e-5)
    case(f"instance_norm affine {shape}", dict(x=randn(*shape), w=randn(3), b=randn(3)), "m(x)", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), "m = nn.instance_norm(3, affine = True)", dict(w="m.weight", b="m.bias"), tolerance=3e-5)

for mode, size in [("nearest", (7,)), ("nearest", (5, 6)), ("nearest", (2, 3, 4)), ("linear", (7,)), ("bilinear", (5, 6)), ("trilinear", (2, 3, 4))]:
    n = len(size)
    x = randn(2, 3, *size)
    corners = [False] if mode == "nearest" else [False, True]
    for align in corners:
        for how in ["size = 4", "size = 9", "size = 1", "scale_factor = 2", "scale_factor = 1.7", "scale_factor = 0.6"]:
            a = f", align_corners = {align}" if align else ""
            case(f"interpolate {mode} {size} {how} {align}", dict(x=x), f'nn.interpolate(x, {how}, mode = "{mode}"{a})',
                 lambda x, how=how, mode=mode, align=align: eval(f"F.interpolate(x, {how}, mode = mode, align_corners = a)", {"F": F, "x": x, "mode": mode, "a": None if mode == "nearest" else align}), tolerance=1e-4)
case("upsample", dict(x=randn(1, 2, 3, 4)), 'nn.upsample(scale_factor = (2, 3), mode = "bilinear")(x)', lambda x: F.interpolate(x, scale_factor=(2.0, 3.0), mode="bilinear"), tolerance=1e-4)
case("interpolate of a view", dict(x=randn(4, 2, 3, 5)), 'nn.interpolate(x.transpose(0, 3), size = (4, 7))', lambda x: F.interpolate(x.transpose(0, 3), size=(4, 7)))
for size in [1, 3, 5, 7, 8]:
    case(f"adaptive_avg_pool2d {size}", dict(x=randn(2, 3, 7, 5)), f"nn.adaptive_avg_pool2d({size})(x)", lambda x, s=size: F.adaptive_avg_pool2d(x, s))
    case(f"adaptive_max_pool2d {size}", dict(x=randn(2, 3, 7, 5)), f"nn.adaptive_max_pool2d({size})(x)", lambda x, s=size: F.adaptive_max_pool2d(x, s))
    case(f"adaptive_avg_pool1d {size}", dict(x=randn(2, 3, 7)), f"nn.adaptive_avg_pool1d({size})(x)", lambda x, s=size: F.adaptive_avg_pool1d(x, s))
    case(f"adaptive_max_pool1d {size}", dict(x=randn(2, 3, 7)), f"nn.adaptive_max_pool1d({size})(x)", lambda x, s=size: F.adaptive_max_pool1d(x, s))
case("adaptive_avg_pool2d pair", dict(x=randn(1, 2, 6, 9)), "nn.adaptive_avg_pool2d((2, 4))(x)", lambda x: F.adaptive_avg_pool2d(x, (2, 4)))
for k, s, p in [(2, None, 0), (3, 2, 1)]:
    case(f"max_pool1d {k} {s} {p}", dict(x=randn(2, 3, 9)), f"nn.max_pool1d({k}, stride = {s}, padding = {p})(x)", lambda x, k=k, s=s, p=p: F.max_pool1d(x, k, s, p))
    case(f"avg_pool1d {k} {s} {p}", dict(x=randn(2, 3, 9)), f"nn.avg_pool1d({k}, stride = {s}, padding = {p})(x)", lambda x, k=k, s=s, p=p: F.avg_pool1d(x, k, s, p))

write("pytorch_conv.json")
