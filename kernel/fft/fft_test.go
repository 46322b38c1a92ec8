package fft

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

func sincos(angles, sines, cosines []float64) {
	for i, a := range angles {
		sines[i], cosines[i] = math.Sin(a), math.Cos(a)
	}
}

// random are numbers of a normal distribution.
func random(n int) []float64 {
	r, x := rand.New(rand.NewPCG(uint64(n), 3)), make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

var lengths = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 30, 31, 32, 37, 49, 60, 64, 74, 97, 100, 121, 128, 243, 256, 323, 360, 509, 512, 961, 1000, 1024, 1369}

// The transform is its definition's sum, within a few roundings, in both directions and for several lines.
func TestDefinition(t *testing.T) {
	for _, n := range lengths {
		for _, inverse := range []bool{false, true} {
			const lines = 2
			x := random(2 * n * lines)
			got := append([]float64(nil), x...)
			New(n, inverse, sincos).Lines(got)
			sign := -2 * math.Pi
			if inverse {
				sign = -sign
			}
			worst, size := 0.0, 0.0
			for l := range lines {
				for k := range n {
					var re, im float64
					for j := range n {
						s, c := math.Sincos(sign * float64(j*k%n) / float64(n))
						a, b := x[2*(l*n+j)], x[2*(l*n+j)+1]
						re, im = re+a*c-b*s, im+a*s+b*c
					}
					worst = max(worst, math.Hypot(got[2*(l*n+k)]-re, got[2*(l*n+k)+1]-im))
					size = max(size, math.Hypot(re, im))
				}
			}
			if worst > 4e-14*size {
				t.Errorf("length %d, inverse %v: off by %.3g of %.3g", n, inverse, worst, size)
			}
		}
	}
}

// Back and forth gives the numbers back: the error is a few roundings, also of long transforms.
func TestThereAndBack(t *testing.T) {
	for _, n := range append(lengths, 1<<16, 3*5*7*11*13, 65537) {
		x := random(2 * n)
		y := append([]float64(nil), x...)
		New(n, false, sincos).Lines(y)
		New(n, true, sincos).Lines(y)
		sum, off := 0.0, 0.0
		for i := range x {
			sum, off = sum+x[i]*x[i], off+(y[i]/float64(n)-x[i])*(y[i]/float64(n)-x[i])
		}
		if root := math.Sqrt(off / sum); root > 2e-15 {
			t.Errorf("length %d: off by %.3g of 1", n, root)
		}
	}
}

// rational stands for the sine and cosine where what counts is the order of the sums.
func rational(angles, sines, cosines []float64) {
	for i, a := range angles {
		square := float64(a * a)
		sines[i] = a * (1 - float64(square*(1-square/20))/6)
		cosines[i] = 1 - float64(square*(1-square/12))/2
	}
}

// The bits are those that were stored: every processor has them.
func TestBits(t *testing.T) {
	h := fnv.New64a()
	for _, n := range lengths {
		x := make([]float64, 2*n)
		for i := range x {
			x[i] = 1 / (float64(i) + 1)
		}
		New(n, n%2 == 0, rational).Lines(x)
		for _, v := range x {
			fmt.Fprintf(h, "%x ", math.Float64bits(v))
		}
	}
	if got := fmt.Sprintf("%x", h.Sum64()); got != "9fcad52a6ec94562" {
		t.Errorf("other bits: %s", got)
	}
}

// The compiler joins no product with a sum, on processors that could: for arm64, and for amd64 that has FMA.
func TestNothingIsJoined(t *testing.T) {
	joined := regexp.MustCompile(`F[N]?M(ADD|SUB)|VFN?M(ADD|SUB)`)
	for _, machine := range []string{"GOARCH=arm64", "GOAMD64=v3"} {
		build := exec.Command("go", "build", "-a", "-gcflags=-S", "-o", os.DevNull, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", machine)
		text, err := build.CombinedOutput()
		if err != nil || len(text) < 1000 {
			t.Fatalf("%v: %s", err, text)
		}
		if found := joined.FindAll(text, 3); found != nil {
			t.Errorf("%s: %s", machine, found)
		}
	}
}
