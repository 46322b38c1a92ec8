package tensor

import (
	"fmt"
	"math"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/std"
	"drun/tensor"
	"drun/tensor/linalg"
)

// Linalg makes the module linalg: the supported part of torch.linalg.
func Linalg() *starlib.Module {
	return &starlib.Module{
		Name: "linalg",
		Doc:  `Linear algebra on matrices (…, m, n), whose leading dimensions are batches; float32 or float64. Results are computed in float64 and rounded once, with the same bits on every processor. Names, arguments, results and gradients are those of torch.linalg.`,
		Defs: linalgDefs,
		More: func() []*starlib.Def { return std.Defs("linalg") },
	}
}

func init() { // once for all ranks of the process
	for _, d := range linalgDefs {
		d.TopLevel = true
	}
}

var linalgDefs = []*starlib.Def{
	{Sig: "solve(a: Tensor, b: Tensor) -> Tensor",
		Doc: "x with a·x = b: a (…, n, n), b (…, n, k) or, as vectors, (…, n); batches are broadcast. A singular a is an error.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return Result(linalg.Solve(Arg(c, "a"), Arg(c, "b")))
		}},
	ofMatrix("inv(a: Tensor) -> Tensor", "The inverse of square matrices; a singular one is an error.", linalg.Inv),
	ofMatrix("det(a: Tensor) -> Tensor", "The determinant of square matrices (…, n, n): shape (…).", linalg.Det),
	{Sig: "slogdet(a: Tensor) -> (sign, logabsdet)", Fn: func(c *starlib.Call) (starlark.Value, error) { return pair(linalg.SlogDet(Arg(c, "a"))) },
		Doc: "The sign (-1, 0, 1) of the determinant of square matrices and the logarithm of its magnitude, both of shape (…). The sign has no gradient."},
	{Sig: "cholesky(a: Tensor, *, upper: bool = False) -> Tensor",
		Doc: "The lower triangular l with a = l·lᵀ. It reads the lower triangle of a, which must be positive definite; with upper the upper one, and gives lᵀ.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			if !c.Bool("upper") {
				return Result(linalg.Cholesky(Arg(c, "a")))
			}
			l := try.To(linalg.Cholesky(try.To(tensor.Transpose(Arg(c, "a"), -1, -2))))
			return Result(tensor.Transpose(l, -1, -2))
		}},
	{Sig: `qr(a: Tensor, mode: string = "reduced") -> (q, r)`,
		Doc: "Orthogonal q and upper triangular r with a = q·r: for (…, m, n) and k = min(m, n), q (…, m, k) and r (…, k, n) in mode reduced, (…, m, m) and (…, m, n) in mode complete, which has no gradient if m > n.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			mode := c.String("mode")
			try.FailIf(mode != "reduced" && mode != "complete", "mode %q: want reduced or complete", mode)
			return pair(linalg.QR(Arg(c, "a"), mode == "complete"))
		}},
	{Sig: "svd(a: Tensor, full_matrices: bool = True) -> (u, s, vh)",
		Doc: "u, s and vh with a = u·diag(s)·vh: singular values s (…, k), descending, for (…, m, n) with k = min(m, n), orthonormal columns u (…, m, m) and rows vh (…, n, n); (…, m, k) and (…, k, n) without full_matrices. Gradients flow through the first k. The sign of a column and its row is arbitrary.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			u, s, vh, err := linalg.SVD(Arg(c, "a"), c.Bool("full_matrices"))
			return several([]*tensor.Tensor{u, s, vh}, err)
		}},
	{Sig: `eigh(a: Tensor, UPLO: string = "L") -> (values, vectors)`,
		Doc: "The eigenvalues of symmetric matrices (…, n, n), ascending, (…, n), and the eigenvectors as columns, (…, n, n), with arbitrary signs. It reads the lower triangle of a, or with UPLO = \"U\" the upper one.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			a := Arg(c, "a")
			switch c.String("UPLO") {
			case "U", "u":
				a = try.To(tensor.Transpose(a, -1, -2))
			case "L", "l":
			default:
				return nil, fmt.Errorf(`UPLO = %s: want "L" or "U"`, c.Arg("UPLO"))
			}
			return pair(linalg.Eigh(a))
		}},
	{Sig: "norm(a: Tensor, ord: number | string = None, dim: int | tuple | list = None, keepdim: bool = False) -> Tensor",
		Doc: `Without ord, the root of the sum of squares, over all elements or along dim. With ord, for vectors (one dim, or a of one dimension) the ord-norm; for matrices (two dims, or a of two) "fro", "nuc" (the sum of the singular values), 1 and inf (the largest sum of magnitudes of a column, of a row), 2 (the largest singular value), and -1, -inf, -2 (the smallest).`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			t, over, keepdim := Arg(c, "a"), dims(c), c.Bool("keepdim")
			name, named := starlark.AsString(c.Arg("ord"))
			if over == nil && !c.IsNone("ord") {
				try.FailIf(t.Dim() > 2, "ord needs one or two dims for a tensor of shape %s", Shape(t))
				for d := range t.Dim() {
					over = append(over, d)
				}
			}
			switch {
			case c.IsNone("ord"):
				return Result(tensor.Norm(t, 2, over, keepdim))
			case len(over) == 2:
				kind := math.NaN()
				if !named {
					kind = c.Float("ord")
				}
				return Result(linalg.MatrixNorm(t, name, kind, over, keepdim))
			case named || len(over) > 2:
				return nil, fmt.Errorf("ord %s of %d dimensions: a matrix has two", c.Arg("ord"), len(over))
			}
			return Result(tensor.Norm(t, c.Float("ord"), over, keepdim))
		}},
}

func ofMatrix(sig, doc string, fn func(*tensor.Tensor) (*tensor.Tensor, error)) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) { return Result(fn(Arg(c, "a"))) }}
}
