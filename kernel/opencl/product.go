package opencl

// #include "shim.h"
import "C"

import (
	"fmt"

	"drun/kernel"
	"drun/kernel/dtype"
)

// Matrix is [kernel.Matrix] on the device.
type Matrix struct {
	Place
	Stride int
	Trans  bool
	Batch  int
	head   int // from a batch entry's head to its next
}

// strides returns the distances between rows and between columns.
func (x Matrix) strides() (row, column int) {
	if x.Trans {
		return 1, x.Stride
	}
	return x.Stride, 1
}

// What a product adds to, and which of attention's causal products it is: see product.cl.
const (
	toNothing = iota
	toC
	toZeros

	seesKeys    = 1
	seesQueries = 2
)

// product is a product of product.cl. The matrices of a batch are those of heads that follow each other, `Matrix.head` apart.
type product struct {
	dt             dtype.Type
	batch, heads   int
	m, n, k        int
	c, a, b        Matrix
	bias           Place
	to, sees       int
	queries        bool // blocks are of as many values of k as attention has queries in a block
	pairs, narrows bool // the operands' values are bfloat16's; so is C
}

func (d *Device) multiply(p product) {
	if p.batch*p.m*p.n == 0 {
		return
	}
	options, rows := "", 4
	if !d.tiles && p.sees == 0 && p.m >= 16 {
		options, rows = " -DROWS=16", 16
	}
	for _, o := range []struct {
		on   bool
		text string
	}{{d.tiles, " -DTILED"}, {p.sees > 0, fmt.Sprint(" -DSEES=", p.sees)}, {p.queries, " -DBLOCK=64"}, {p.pairs, " -DPAIRS -DBLOCK=32"}, {p.narrows, " -DHALF"}} {
		if o.on {
			options += o.text
		}
	}
	ar, ak := p.a.strides()
	bk, bn := p.b.strides()
	if bn != 1 && p.k > 0 && !d.tiles { // a work-item takes neighbouring columns
		copies := p.batch
		if p.b.Batch == 0 && p.b.head == 0 {
			copies = 1
		}
		room := d.Get("matmul", copies*p.n*p.k*p.dt.Size())
		defer d.Put(room)
		turn := d.typed("product.cl", "turn", p.dt, "")
		d.begin().buffer(room).place(p.b.Place).longs(p.n, p.k, p.b.Stride, p.heads, p.b.Batch, p.b.head)
		d.launch(turn, [3]int{(p.k + 15) / 16, (p.n + 15) / 16, copies}, [3]int{16, 16, 1})
		bk, bn, p.b.Place = p.n, 1, Place{Buffer: room}
		if copies > 1 {
			p.b.Batch, p.b.head = p.heads*p.n*p.k, p.n*p.k
		}
	}
	k := d.typed("product.cl", "product", p.dt, options)
	d.begin().place(p.c.Place).place(p.a.Place).place(p.b.Place).place(p.bias).longs(p.m, p.n, p.k, ar, ak, bk, bn, p.c.Stride, p.heads,
		p.a.Batch, p.a.head, p.b.Batch, p.b.head, p.c.Batch, p.c.head).int32(p.to)
	if d.tiles {
		d.launch(k, [3]int{(p.n + 63) / 64, (p.m + 63) / 64, p.batch}, [3]int{16, 16, 1})
		return
	}
	const columns = 16 // of a work-item
	d.launch(k, [3]int{(p.n + columns - 1) / columns, (p.m + rows - 1) / rows, p.batch}, [3]int{1, 1, 1})
}

func to(accumulate bool) int {
	if accumulate {
		return toC
	}
	return toNothing
}

// Gemm is [kernel.Gemm].
func (d *Device) Gemm(dt dtype.Type, batch, m, n, k int, c, a, b Matrix, accumulate bool, bias Place) {
	if real(dt) {
		d.multiply(product{dt: dt, batch: batch, heads: 1, m: m, n: n, k: k, c: c, a: a, b: b, bias: bias, to: to(accumulate)})
		return
	}
	ar, ak := a.strides()
	bk, bn := b.strides()
	integers := d.scan("product", dt, "", "+")
	d.begin().place(c.Place).place(a.Place).place(b.Place).place(bias).longs(n, k, ar, ak, bk, bn, c.Stride, a.Batch, b.Batch, c.Batch).flag(accumulate)
	d.launch(integers, [3]int{(n + 63) / 64, m, batch}, [3]int{64, 1, 1})
}

// GemmHalf is [kernel.GemmHalf].
func (d *Device) GemmHalf(batch, m, n, k int, dt dtype.Type, c Matrix, da dtype.Type, a Matrix, db dtype.Type, b Matrix, accumulate bool, bias Place) {
	if batch*m*n == 0 {
		return
	}
	x, y := d.widened(da, batch, m, k, a), d.widened(db, batch, k, n, b)
	defer d.Put(x.Buffer)
	defer d.Put(y.Buffer)
	d.multiply(product{dt: dtype.Float32, batch: batch, heads: 1, m: m, n: n, k: k, c: c, a: x, b: y, bias: bias, to: to(accumulate), pairs: true,
		narrows: dt == dtype.BFloat16})
}

// widened returns a copy of an operand in bfloat16, in float32: rows x columns, as the product takes it.
func (d *Device) widened(dt dtype.Type, batch, rows, columns int, x Matrix) Matrix {
	if x.Batch == 0 {
		batch = 1
	}
	w := Matrix{Place: Place{Buffer: d.Get("matmul", max(4*batch*rows*columns, 1))}, Stride: columns}
	if batch > 1 {
		w.Batch = rows * columns
	}
	row, column := x.strides()
	k := d.kernel(kernelKey{file: "widen.cl", name: "widen", in: dt}, func() string {
		if dt == dtype.Float32 {
			return " -DIN=float -DWIDE"
		}
		return " -DIN=ushort"
	})
	d.begin().buffer(w.Buffer).place(x.Place).longs(rows, columns, row, column, x.Batch)
	d.launch(k, [3]int{(columns + 63) / 64, rows, batch}, [3]int{64, 1, 1})
	return w
}

// mostScores is how many bytes of scores attention keeps at once.
var mostScores = 64 << 20

// affine returns how many products follow each other at equal distances (heads), and those between the groups of so many and within
// them, for each operand; false if it is not so.
func affine(n, operands int, at func(product, operand int) int) (heads int, outer, inner []int, ok bool) {
	outer, inner = make([]int, operands), make([]int, operands)
	heads = max(n, 1)
	for i := range operands {
		for b := 1; b < n; b++ {
			if at(b, i)-at(b-1, i) != at(1, i)-at(0, i) {
				heads = min(heads, b)
				break
			}
		}
	}
	for i := range operands {
		if heads > 1 {
			inner[i] = at(1, i) - at(0, i)
		}
		if heads < n {
			outer[i] = at(heads, i) - at(0, i)
		}
		for b := range n {
			if at(b, i) != at(0, i)+b/heads*outer[i]+b%heads*inner[i] {
				return 0, nil, nil, false
			}
		}
	}
	return heads, outer, inner, true
}

// eachPart calls f for as many of n products at once as scores of so many bytes each may be kept of: those from the first on, whole groups of heads or
// a part of one.
func eachPart(n, heads, bytes int, f func(first, count int)) {
	most := max(mostScores/max(bytes, 1), 1)
	if most >= heads {
		most = most / heads * heads
	}
	for b := 0; b < n; {
		count := min(most, n-b)
		if most < heads {
			count = min(count, heads-b%heads)
		}
		f(b, count)
		b += count
	}
}

// attention is one of an attention's calls.
type attention struct {
	*kernel.Attention
	dt           dtype.Type
	d            *Device
	heads        int
	outer, inner []int
	at           func(product, operand int) int
}

// of returns operand i of the products from `first` on.
func (a *attention) of(i int, p Place, first, stride int, trans bool) Matrix {
	p.At += a.at(first, i)
	return Matrix{Place: p, Stride: stride, Trans: trans, Batch: a.outer[i], head: a.inner[i]}
}

// scores is room for the scores of a part.
func (a *attention) scores(b Buffer, trans bool) Matrix {
	size := a.Rows * a.Cols
	return Matrix{Place: Place{Buffer: b}, Stride: a.Cols, Trans: trans, Batch: a.heads * size, head: size}
}

// adjacent is what lies in rows of width, one product after the other, from `first` on.
func (a *attention) adjacent(p Place, first, rows, width int) Matrix {
	p.At += first * rows * width
	return Matrix{Place: p, Stride: width, Batch: a.heads * rows * width, head: rows * width}
}

func (a *attention) run(name string, c *call, lse Place, first, count int) {
	if !lse.Buffer.None() {
		lse.At += first * a.Rows
	}
	c.place(lse).longs(a.Rows, a.Cols).real(a.dt, a.Scale).flag(a.Causal)
	a.d.rows(a.d.typed("attention.cl", name, a.dt, ""), count*a.Rows)
}

func (a *attention) causal(sees int) int {
	if a.Causal {
		return sees
	}
	return 0
}

// Attention is the Forward of [kernel.Attention].
func (d *Device) Attention(k *kernel.Attention, dt dtype.Type, out, lse, q, key, v Place) bool {
	a := attention{Attention: k, dt: dt, d: d, at: func(b, i int) int { return k.At[b][i] }}
	var ok bool
	if a.heads, a.outer, a.inner, ok = affine(len(k.At), 3, a.at); !ok {
		return false
	}
	size := a.Rows * a.Cols * dt.Size()
	eachPart(len(k.At), a.heads, size, func(first, count int) {
		room := d.Get("attention", max(count*size, 1))
		defer d.Put(room)
		one := product{dt: dt, batch: count, heads: a.heads}
		scores := one
		scores.m, scores.n, scores.k = a.Rows, a.Cols, a.Width
		scores.c, scores.a, scores.b = a.scores(room, false), a.of(0, q, first, a.Stride[0], false), a.of(1, key, first, a.Stride[1], true)
		d.multiply(scores)
		a.run("weights", d.begin().buffer(room), lse, first, count)
		result := one
		result.m, result.n, result.k, result.sees = a.Rows, a.Depth, a.Cols, a.causal(seesKeys)
		result.c, result.a, result.b = a.adjacent(out, first, a.Rows, a.Depth), a.scores(room, false), a.of(2, v, first, a.Stride[2], false)
		d.multiply(result)
	})
	return true
}

// AttentionGrad is the Backward of [kernel.Attention].
func (d *Device) AttentionGrad(k *kernel.Attention, dt dtype.Type, dq, dk, dv, dy, lse, q, key, v Place) bool {
	a := attention{Attention: k, dt: dt, d: d, at: func(b, i int) int {
		if i < 4 {
			return k.At[b][i]
		}
		return k.To[b][i-4]
	}}
	operands := 4
	if k.To != nil {
		operands = 7
	}
	var ok bool
	if a.heads, a.outer, a.inner, ok = affine(len(k.At), operands, a.at); !ok {
		return false
	}
	grad := func(i int, p Place, first, rows, width int) Matrix {
		if k.To != nil {
			return a.of(4+i, p, first, k.ToStride[i], false)
		}
		return a.adjacent(p, first, rows, width)
	}
	size := a.Rows * a.Cols * dt.Size()
	eachPart(len(k.At), a.heads, 2*size, func(first, count int) {
		weights, slopes := d.Get("attention", max(count*size, 1)), d.Get("attention", max(count*size, 1))
		defer d.Put(weights)
		defer d.Put(slopes)
		for i, s := range []Buffer{weights, slopes} {
			p := product{dt: dt, batch: count, heads: a.heads, m: a.Rows, n: a.Cols, c: a.scores(s, false)}
			if i == 0 {
				p.k, p.a, p.b = a.Width, a.of(0, q, first, a.Stride[0], false), a.of(1, key, first, a.Stride[1], true)
			} else {
				p.k, p.a, p.b = a.Depth, a.of(3, dy, first, a.Stride[3], false), a.of(2, v, first, a.Stride[2], true)
			}
			d.multiply(p)
		}
		a.run("slopes", d.begin().buffer(weights).buffer(slopes), lse, first, count)
		p := product{dt: dt, batch: count, heads: a.heads, m: a.Rows, n: a.Width, k: a.Cols, sees: a.causal(seesKeys),
			c: grad(0, dq, first, a.Rows, a.Width), a: a.scores(slopes, false), b: a.of(1, key, first, a.Stride[1], false)}
		if k.To != nil {
			p.to = toZeros
		}
		d.multiply(p)
		p = product{dt: dt, batch: count, heads: a.heads, m: a.Cols, n: a.Width, k: a.Rows, sees: a.causal(seesQueries), queries: true, to: toZeros,
			c: grad(1, dk, first, a.Cols, a.Width), a: a.scores(slopes, true), b: a.of(0, q, first, a.Stride[0], false)}
		d.multiply(p)
		p.n, p.c, p.a, p.b = a.Depth, grad(2, dv, first, a.Cols, a.Depth), a.scores(weights, true), a.of(3, dy, first, a.Stride[3], false)
		d.multiply(p)
	})
	return true
}
