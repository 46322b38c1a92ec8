package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

type lineShape kernel.Lines

// The shapes of lines: rows, columns, channels, long and short ones, and one that threads share.
var lineShapes = []lineShape{{3, 1, 1, 50}, {1, 1, 1, 9001}, {1, 1, 1, 300001}, {2, 700, 3, 1}, {1, 257, 37, 1}, {1, 5, 3, 49},
	{2, 3, 5, 4100}, {2, 3, 4, 5}, {4, 1, 1, 2}, {3, 2, 1, 1}, {1, 1, 5, 3}, {2, 1, 3, 1}}

// at is where element (n, run) of a line lies.
func (l lineShape) at(line, n, run int) int {
	return ((line/l.Side*l.N+n)*l.Side+line%l.Side)*l.Run + run
}

func (l lineShape) lines() int { return l.Outer * l.Side }
func (l lineShape) count() int { return l.N * l.Run }
func (l lineShape) size() int  { return l.lines() * l.count() }

// each visits the elements of a line in order.
func (l lineShape) each(line int, visit func(i int)) {
	for n := range l.N {
		for r := range l.Run {
			visit(l.at(line, n, r))
		}
	}
}

// moments is the reference: exact to a few units of float64.
func moments[E float32 | float64](l lineShape, x []E, line int) (mean, variance, square float64) {
	low, lost := 0.0, 0.0
	l.each(line, func(i int) {
		low += float64(x[i]) - float64(x[l.at(line, 0, 0)])
		square += float64(x[i]) * float64(x[i])
	})
	mean = float64(x[l.at(line, 0, 0)]) + low/float64(l.count())
	l.each(line, func(i int) {
		d := float64(x[i]) - mean
		variance += d * d
		lost += d
	})
	return mean, variance - lost*lost/float64(l.count()), square
}

func TestMoments(t *testing.T) {
	for _, l := range lineShapes {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			x := real64(3, l.size())
			for i := range x {
				x[i] += 1000 // a one-pass formula would lose the variance
			}
			lines, want := l.lines(), []float64(nil)
			for line := range lines {
				mean, variance, _ := moments(l, x, line)
				want = append(want, mean, variance/float64(l.count()-1))
			}
			got := everywhere(t, func() []float64 {
				mean, variance := make([]float64, lines), make([]float64, lines)
				kernel.Moments(dtype.Float64, kernel.Lines(l), 1, ptr(mean), nil, ptr(variance), ptr(x))
				var both []float64
				for i := range mean {
					both = append(both, mean[i], variance[i])
				}
				return both
			})
			near(t, "moments", got, want, 1e-11)
		})
	}
}

// A large offset takes nothing from mean and variance: what is left is the rounding of the input and of the
// result, and low is what the result lacks.
func TestMomentsOfOffsets(t *testing.T) {
	for _, l := range lineShapes {
		for _, offset := range []float32{0, 1e3, 1e6, -3e7} {
			x := real32(5, l.size())
			for i := range x {
				x[i] = x[i]*4 + offset
			}
			mean, low, variance := make([]float32, l.lines()), make([]float32, l.lines()), make([]float32, l.lines())
			kernel.Moments(dtype.Float32, kernel.Lines(l), 0, ptr(mean), ptr(low), ptr(variance), ptr(x))
			for line := range l.lines() {
				m, v, _ := moments(l, x, line)
				v /= float64(l.count())
				spread := math.Sqrt(v)
				if d := math.Abs(float64(mean[line]) - m); d > 6e-8*math.Abs(m)+2e-7*spread {
					t.Errorf("%v at %v: mean %v is %v from %v", l, offset, mean[line], d, m)
				}
				if d := math.Abs(float64(mean[line]) + float64(low[line]) - m); d > 1e-5*spread {
					t.Errorf("%v at %v: mean %v and low %v are %v from %v", l, offset, mean[line], low[line], d, m)
				}
				if d := math.Abs(float64(variance[line]) - v); d > 1e-5*v {
					t.Errorf("%v at %v: variance %v, want %v", l, offset, variance[line], v)
				}
			}
		}
	}
}

func TestSquareSums(t *testing.T) {
	for _, l := range lineShapes {
		x := real32(7, l.size())
		want := make([]float64, l.lines())
		for line := range want {
			_, _, want[line] = moments(l, x, line)
		}
		got := written(t, l.lines(), func(out []float32) { kernel.SquareSums(dtype.Float32, kernel.Lines(l), ptr(out), ptr(x)) })
		for i := range want {
			if math.Abs(float64(got[i])-want[i]) > 1e-6*want[i] {
				t.Errorf("%v: line %d is %v, want %v", l, i, got[i], want[i])
			}
		}
	}
}

// Batch norm forward and its gradient against the definition in float64.
func TestBatchNorm(t *testing.T) {
	for _, l := range lineShapes {
		if l.Outer != 1 || l.count() < 3 {
			continue
		}
		for _, training := range []bool{true, false} {
			t.Run(fmt.Sprint(l, training), func(t *testing.T) {
				c, n := l.Side, float64(l.count())
				x, dy, gamma, beta := real64(1, l.size()), real64(2, l.size()), real64(3, c), real64(4, c)
				mean, rstd := real64(5, c), make([]float64, c)
				wantY, wantX, wantSums := make([]float64, l.size()), make([]float64, l.size()), make([]float64, 2*c)
				for i := range c {
					m, v, _ := moments(l, x, i)
					v = v/n + 1e-5
					if !training {
						m, v = mean[i], 2.0
					}
					mean[i], rstd[i] = m, 1/math.Sqrt(v)
					var s1, s2 float64
					l.each(i, func(at int) {
						hat := (x[at] - m) * rstd[i]
						wantY[at] = hat*gamma[i] + beta[i]
						s1 += dy[at]
						s2 += dy[at] * hat
					})
					wantSums[i], wantSums[c+i] = 7+s2, 8+s1
					l.each(i, func(at int) {
						wantX[at] = dy[at]
						if training {
							wantX[at] -= s1/n + (x[at]-m)*rstd[i]*s2/n
						}
						wantX[at] *= gamma[i] * rstd[i]
					})
				}
				a := kernel.Affine{Mean: ptr(mean), Low: ptr(make([]float64, c)), Scale: ptr(rstd), Gamma: ptr(gamma), Beta: ptr(beta)}
				near(t, "y", everywhere(t, func() []float64 {
					y := make([]float64, l.size())
					kernel.ScaleLines(dtype.Float64, kernel.Lines(l), a, ptr(y), ptr(x))
					return y
				}), wantY, 1e-12)
				got := everywhere(t, func() []float64 {
					out, sums := make([]float64, l.size()+2*c), make([]float64, 2*c)
					for i := range c {
						out[l.size()+i], out[l.size()+c+i] = 7, 8 // is added to
					}
					kernel.BatchNormGrad(dtype.Float64, kernel.Lines(l), a, training, ptr(out), ptr(out[l.size():]), ptr(out[l.size()+c:]), ptr(sums), ptr(dy), ptr(x))
					return out
				})
				near(t, "dx", got[:l.size()], wantX, 1e-11)
				near(t, "dgamma and dbeta", got[l.size():], wantSums, 1e-10)
			})
		}
	}
}
