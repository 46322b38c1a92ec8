"""Computes with PyTorch what the functions of the module fft must compute too, and writes it as pytorch_fft.json.

Made with torch 2.15.0 (PyPI). A complex tensor is two here: recipes give and take its parts.
"""
import torch

from cases import case, randn, write


def parts(z):
    return (z.real, z.imag) if z.is_complex() else z


def check(name, given, arguments, function, **how):
    """given has x, and imag where the numbers are complex; function is torch.fft's."""

    def run(x, imag=None):
        z = x if imag is None else torch.complex(x, imag)
        return parts(eval(f"torch.fft.{function}(z{arguments})", {"torch": torch, "z": z}))

    out = run(*given.values())
    through = tuple(range(len(out))) if isinstance(out, tuple) else (0,)
    case(f"{function}{arguments} {name}", given, f"fft.{function}({', '.join(given)}{arguments})", run, through=through, **how)


norms = ["", ', norm = "ortho"', ', norm = "forward"']
for n in [1, 2, 3, 4, 5, 8, 12, 30, 37, 64]:
    x, y = randn(n), randn(n)
    loose = {"tolerance": 2e-5} if n == 64 else {}  # gradients of sums of 64 numbers that cancel
    for norm in norms if n in (5, 12) else norms[:1]:
        check(f"of {n}", dict(x=x), norm, "fft", **loose)
        check(f"of {n}", dict(x=x, imag=y), norm, "fft", **loose)
        check(f"of {n}", dict(x=x, imag=y), norm, "ifft", **loose)
        check(f"of {n}", dict(x=x), norm, "rfft", **loose)
        if n > 1:
            check(f"of {n}", dict(x=x, imag=y), norm, "irfft", **loose)
cube, other = randn(3, 4, 5), randn(3, 4, 5)
for arguments in [", dim = 0", ", dim = 1", ", n = 3", ", n = 9", ", n = 2, dim = 1", ", n = 7, dim = -3", ", n = 1"]:
    for function in ["fft", "ifft", "irfft"]:
        check("of a cube", dict(x=cube, imag=other), arguments, function)
    check("of a cube", dict(x=cube), arguments, "rfft")
for arguments in ["", ", dim = (0, 1)", ", dim = (1, 0)", ", s = (2, 7)", ", s = (6, 3), dim = (0, 2)", ', norm = "ortho"', ', norm = "forward"']:
    for function in ["fft2", "ifft2", "irfft2"]:
        check("of a cube", dict(x=cube, imag=other), arguments, function)
    check("of a cube", dict(x=cube), arguments, "fft2")
    check("of a cube", dict(x=cube), arguments, "rfft2")
check("of doubles", dict(x=cube.double(), imag=other.double()), "", "fft", tolerance=1e-12)
check("of doubles", dict(x=randn(101).double()), "", "rfft", tolerance=1e-12)
check("of integers", dict(x=torch.arange(6)), "", "fft", grad=False)
for f in ["fftfreq", "rfftfreq"]:
    for arguments in ["1", "2", "5", "8, d = 0.5", "9, 3.0"]:
        case(f"{f}({arguments})", {}, f"fft.{f}({arguments})", lambda: eval(f"torch.fft.{f}({arguments})"))
for f in ["fftshift", "ifftshift"]:
    for arguments in ["", ", dim = 1", ", dim = (0, -1)"]:
        case(f"{f}{arguments}", dict(x=cube), f"fft.{f}(x{arguments})", lambda x: eval(f"torch.fft.{f}(x{arguments})"))
write("pytorch_fft.json")
