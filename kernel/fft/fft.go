// Package fft computes the discrete Fourier transform of complex numbers in float64, for tensors: Stockham's autosorting
// form of the Cooley-Tukey algorithm for small factors, and Bluestein's for lengths with a large one.
//
// Its bits are the same on every processor: the order is fixed, and each product is converted explicitly, which by Go's
// specification keeps it from being fused with a sum. It is in Go, apart from the C kernels, which do not depend
// on it.
package fft

import "math"

// largestFactor is the largest prime factor that is transformed by its definition.
const largestFactor = 31

// A Plan holds what transforms of one length and direction have in common.
type Plan struct {
	n       int
	factors []int
	roots   []complex // exp(-2 pi i k / n), or +2 for the inverse
	work    []complex
	chirp   []complex // where n has a large factor: the roots exp(-pi i j j / n)
	filter  []complex // and their conjugates, which Lines transforms
	folded  []complex // their transform
	inner   *Plan     // of a power of 2 that is at least 2 n - 1
	line    []complex
}

type complex struct{ re, im float64 }

func times(a, b complex) complex {
	return complex{float64(a.re*b.re) - float64(a.im*b.im), float64(a.re*b.im) + float64(a.im*b.re)}
}
func plus(a, b complex) complex  { return complex{a.re + b.re, a.im + b.im} }
func minus(a, b complex) complex { return complex{a.re - b.re, a.im - b.im} }

// SinCos writes the sines and cosines of angles from 0 to pi/4.
type SinCos func(angles, sines, cosines []float64)

// Memory returns about how many float64 a plan takes.
func Memory(n int) float64 {
	if _, ok := factorsOf(n); ok {
		return 7 * float64(n)
	}
	return 70 * float64(n)
}

// New plans the transform sum_j x[j] exp(-2 pi i j k / n), or with +2 if inverse. It does not normalise.
func New(n int, inverse bool, sincos SinCos) *Plan {
	if f, ok := factorsOf(n); ok {
		return &Plan{n: n, factors: f, roots: roots(n, inverse, sincos), work: make([]complex, n)}
	}
	size := 1
	for size < 2*n-1 {
		size *= 2
	}
	p := &Plan{n: n, chirp: make([]complex, n), filter: make([]complex, size), line: make([]complex, size), inner: New(size, false, sincos)}
	half := roots(2*n, inverse, sincos)
	for j := range n {
		c := half[j*j%(2*n)]
		p.chirp[j] = c
		c.im = -c.im
		p.filter[j] = c
		if j > 0 {
			p.filter[size-j] = c
		}
	}
	return p
}

// Lines replaces each line of x, n complex numbers as real and imaginary parts side by side, by its transform.
func (p *Plan) Lines(x []float64) {
	if p.chirp != nil {
		p.folded = append(p.folded[:0], p.filter...)
		p.inner.transform(p.folded)
	}
	line := make([]complex, p.n)
	for ; len(x) > 0; x = x[2*p.n:] {
		for i := range line {
			line[i] = complex{x[2*i], x[2*i+1]}
		}
		p.transform(line)
		for i, v := range line {
			x[2*i], x[2*i+1] = v.re, v.im
		}
	}
}

// transform replaces the n numbers of x.
func (p *Plan) transform(x []complex) {
	if p.chirp != nil {
		p.convolve(x)
		return
	}
	from, to := x, p.work
	rest, s := p.n, 1
	for _, r := range p.factors {
		m := rest / r
		switch r {
		case 2:
			p.step2(m, s, from, to)
		case 4:
			p.step4(m, s, from, to)
		default:
			p.step(r, m, s, from, to)
		}
		from, to, rest, s = to, from, m, s*r
	}
	if len(p.factors)%2 == 1 {
		copy(x, from)
	}
}

// step splits a factor r off a length r m: s transforms of that length are interleaved in x; y gets r s of length m.
func (p *Plan) step(r, m, s int, x, y []complex) {
	for i := range m {
		for q := range s {
			for k := range r {
				sum := x[q+s*i]
				for j := 1; j < r; j++ {
					sum = plus(sum, times(p.roots[j*k%r*s*m], x[q+s*(i+m*j)]))
				}
				y[q+s*(r*i+k)] = times(p.roots[s*i*k], sum)
			}
		}
	}
}

func (p *Plan) step2(m, s int, x, y []complex) {
	for i := range m {
		w := p.roots[s*i]
		a, b := x[s*i:][:s], x[s*(i+m):][:s]
		even, odd := y[2*s*i:][:s], y[s*(2*i+1):][:s]
		for q := range s {
			even[q], odd[q] = plus(a[q], b[q]), times(w, minus(a[q], b[q]))
		}
	}
}

func (p *Plan) step4(m, s int, x, y []complex) {
	turn := p.roots[s*m].im // a quarter turn: 1 or -1
	for i := range m {
		w1, w2, w3 := p.roots[s*i], p.roots[2*s*i], p.roots[3*s*i]
		a, b, c, d := x[s*i:][:s], x[s*(i+m):][:s], x[s*(i+2*m):][:s], x[s*(i+3*m):][:s]
		y0, y1, y2, y3 := y[4*s*i:][:s], y[s*(4*i+1):][:s], y[s*(4*i+2):][:s], y[s*(4*i+3):][:s]
		for q := range s {
			sum, difference, other, t := plus(a[q], c[q]), minus(a[q], c[q]), plus(b[q], d[q]), minus(b[q], d[q])
			turned := complex{float64(-turn * t.im), float64(turn * t.re)}
			y0[q] = plus(sum, other)
			y1[q] = times(w1, plus(difference, turned))
			y2[q] = times(w2, minus(sum, other))
			y3[q] = times(w3, minus(difference, turned))
		}
	}
}

// convolve is Bluestein's method: with c[j] = exp(-pi i j j / n) the transform is c[k] sum_j (x[j] c[j]) conj(c[k-j]), a
// convolution, computed by transforms whose length is a power of 2.
func (p *Plan) convolve(x []complex) {
	clear(p.line)
	for j, c := range p.chirp {
		p.line[j] = times(x[j], c)
	}
	p.inner.transform(p.line)
	for j, f := range p.folded { // the inverse is the forward transform of the conjugate
		v := times(p.line[j], f)
		p.line[j] = complex{v.re, -v.im}
	}
	p.inner.transform(p.line)
	size := float64(len(p.line)) // a power of 2, so dividing by it is exact
	for j, c := range p.chirp {
		x[j] = times(complex{p.line[j].re / size, -p.line[j].im / size}, c)
	}
}

// factorsOf returns the factors of n, fours first; false if one is too large.
func factorsOf(n int) (list []int, ok bool) {
	take := func(r int) {
		for ; n%r == 0; n /= r {
			list = append(list, r)
		}
	}
	take(4)
	take(2)
	for r := 3; r <= largestFactor; r += 2 {
		take(r)
	}
	return list, n == 1
}

// roots returns the n-th roots of unity, each from an angle in the first eighth of the circle.
func roots(n int, inverse bool, sincos SinCos) []complex {
	angles, sines, cosines := make([]float64, n), make([]float64, n), make([]float64, n)
	for k := range n {
		part := 8 * k % n
		if 8*k/n%2 == 1 {
			part = n - part
		}
		angles[k] = float64(float64(part)*(math.Pi/4)) / float64(n)
	}
	sincos(angles, sines, cosines)
	out := make([]complex, n)
	for k := range n {
		c, s := cosines[k], sines[k]
		switch 8 * k / n {
		case 1:
			c, s = s, c
		case 2:
			c, s = -s, c
		case 3:
			c = -c
		case 4:
			c, s = -c, -s
		case 5:
			c, s = -s, -c
		case 6:
			c, s = s, -c
		case 7:
			s = -s
		}
		if !inverse {
			s = -s
		}
		out[k] = complex{c, s}
	}
	return out
}
