package kernel_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"drun/kernel"
	"drun/kernel/dtype"
)

// audited computes with an audit of that share, and returns what it found.
func audited(share float64, disturb func(op string, twice bool, result []byte), compute func()) (found []*kernel.Wrong) {
	kernel.SetAudit(&kernel.Audit{Rate: share, Disturb: disturb, Found: func(w *kernel.Wrong) { found = append(found, w) }})
	defer kernel.SetAudit(nil)
	compute()
	return found
}

// Every kernel is audited; that outputs are stated right, everywhere sees in all tests.
func TestAllAreAudited(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	settings := regexp.MustCompile(`C\.drun_(set_)?(path|threads)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Split(settings.ReplaceAllString(string(text), ""), "\nfunc ")[1:] {
			if before, _, calls := strings.Cut(f, "C.drun_"); calls && !strings.HasSuffix(file, "_test.go") && !strings.Contains(before, ".again(") {
				name, _, _ := strings.Cut(f, "\n")
				t.Errorf("%s: a kernel is called without an audit: func %s", file, name)
			}
		}
	}
}

func TestAudit(t *testing.T) {
	const n = 64
	x, y := real32(1, 5000), real32(2, 5000)
	w := kernel.Window{Batch: 2, Channels: 3, Height: 9, Width: 9, Filters: 5, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1}
	attention := kernel.Attention{Rows: 8, Cols: 8, Width: 8, Depth: 8, Scale: 1, At: [][4]int{{}}, Stride: [4]int{8, 8, 8, 8}}
	// Two products with gaps between their rows, to which others' elements must stay.
	product := func(to []float32) error {
		return kernel.Gemm(dtype.Float32, 2, 7, 33, 20, kernel.Matrix{Data: ptr(to), Stride: 38, Batch: 600}, kernel.Matrix{Data: ptr(x), Stride: 20, Batch: 140}, kernel.Matrix{Data: ptr(y), Stride: 33}, true, nil)
	}
	for op, call := range map[string]func(to []float32) error{
		"product":     product,
		"convolution": func(to []float32) error { return kernel.Conv2d(dtype.Float32, w, ptr(to), ptr(x), ptr(y), nil) },
		"attention": func(to []float32) error {
			return attention.Forward(dtype.Float32, ptr(to), ptr(to[n:]), ptr(x), ptr(y), ptr(x))
		},
		"convolution's gradient": func(to []float32) error {
			return kernel.Conv2dGradWeight(dtype.Float32, w, nil, ptr(to), ptr(x), ptr(y))
		},
		"function": func(to []float32) error { // in place
			kernel.Unary(kernel.Exp, dtype.Float32, []int{n}, row(to), row(to))
			return nil
		},
		"copy": func(to []float32) error { // backwards, every second element
			kernel.Copy(dtype.Float32, []int{n}, kernel.View{Data: ptr(to[2*n:]), Strides: []int{-2}}, row(x))
			return nil
		},
		"norm's gradient": func(to []float32) error { // adds
			kernel.LayerNormGrad(dtype.Float32, 4, 16, true, ptr(to), ptr(to[n:]), nil, ptr(x), ptr(y), nil, ptr(x), ptr(x))
			return nil
		},
		"optimizer's step": func(to []float32) error { // in place
			kernel.SGD{LR: 0.1, Momentum: 0.9}.Step(dtype.Float32, n, ptr(to), ptr(x), ptr(to[n:]))
			return nil
		},
		"sum in Go": func(to []float32) error { // in place
			v := []float64{float64(to[0]), 2}
			kernel.Audited("sum in Go", v, func() { v[0] += v[1] })
			to[0] = float32(v[0])
			return nil
		},
		"sum of squares": func(to []float32) error {
			to[0] = float32(kernel.SquareSum(dtype.Float32, n, ptr(x)))
			return nil
		},
	} {
		want := real32(3, 3000)
		if err := call(want); err != nil {
			t.Fatal(err)
		}
		for nth := range 4 { // the output that is wrong, counted over the computations; 0: none
			got, made := real32(3, 3000), 0
			found := audited(1, func(of string, _ bool, result []byte) {
				if made += min(len(result), 1); of == op && made == nth && len(result) > 0 {
					result[rand.IntN(len(result))] ^= 1
				}
			}, func() {
				if err := call(got); err != nil {
					t.Error(err)
				}
			})
			if bytesOf(got) != bytesOf(want) {
				t.Errorf("%s: with a fault in output %d, an audit changes the result", op, nth)
			}
			switch {
			case nth == 1 && (len(found) != 1 || found[0].Op != op || !strings.Contains(found[0].Error(), "agrees with the second, on ")):
				t.Errorf("%s: a wrong first computation: %v", op, found)
			case nth == 1 && runtime.NumCPU() > 1 && len(found[0].Cores) == 1 && strings.HasSuffix(found[0].Third, fmt.Sprintf("the second, on core %d", found[0].Cores[0])):
				t.Errorf("%s: the core that computed right is named: %v", op, found[0])
			case nth == 0 && len(found) > 0:
				t.Errorf("%s: without a fault: %v", op, found[0])
			}
		}
	}
	// The chance that a fault is in a call that is computed twice. What disturbs every result differs each time.
	for _, share := range []float64{0, 0.25} {
		found := audited(share, func(_ string, _ bool, result []byte) { result[rand.IntN(len(result))] ^= byte(1 + rand.IntN(255)) }, func() {
			to := make([]float32, 3000)
			for range 2000 {
				_ = product(to)
			}
		})
		if low, high := int(2000*share)-100, int(2000*share)+100; share == 0 && len(found) > 0 || share > 0 && (len(found) < low || len(found) > high) { // 5 standard deviations
			t.Errorf("at a rate of %v, %d of 2000 faults were found", share, len(found))
		}
	}
}

// After an audited call, the thread may use its cores again, and the kernels their threads.
func TestAuditLeavesNothing(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer kernel.SetThreads(kernel.Threads())
	kernel.SetThreads(3)
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Skip(err)
	}
	x := real32(1, 5000)
	for _, wrong := range []bool{false, true} {
		audited(1, func(_ string, _ bool, result []byte) {
			if wrong {
				result[rand.IntN(len(result))] ^= 1
			}
		}, func() { kernel.Unary(kernel.Exp, dtype.Float32, []int{len(x)}, row(x), row(x)) })
		if err := unix.SchedGetaffinity(0, &after); err != nil || after != before || kernel.Threads() != 3 {
			t.Errorf("with a wrong result %t: %d threads, cores %v of %v, %v", wrong, kernel.Threads(), after.Count(), before.Count(), err)
		}
	}
}
