package tensor

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

// What needs memory of its own beside its tensors. Each case makes them first,
// and gives the call that then finds no more to be had.
var hungry = map[string]func(c *Context) func() error{
	"matmul": func(c *Context) func() error {
		x, y := must(Ones(c, []int{300, 300}, dtype.Float32)), must(Ones(c, []int{300, 300}, dtype.Float32))
		Discard(must(Empty(c, []int{300, 300}, dtype.Float32))) // leaves room for the result
		return func() error { _, err := MatMul(x, y); return err }
	},
	"conv2d": func(c *Context) func() error {
		x, w := must(Ones(c, []int{1, 1, 4, 4}, dtype.Float32)), must(Ones(c, []int{1, 1, 1, 1}, dtype.Float32))
		return func() error {
			_, err := conv2d(x, w, nil, [2]int{3000, 3000}, [2]int{3000, 3000})
			return err
		}
	},
	"attention": func(c *Context) func() error {
		q, k := must(Ones(c, []int{64, 1}, dtype.Float32)), must(Ones(c, []int{1 << 20, 1}, dtype.Float32))
		return func() error { _, err := Attention(q, k, k, false); return err }
	},
	"backward of attention": func(c *Context) func() error {
		q, k := must(Ones(c, []int{1, 1}, dtype.Float32)), must(Ones(c, []int{1 << 20, 1}, dtype.Float32))
		must(0, q.SetRequiresGrad(true))
		y := must(Attention(q, k, k, false))
		for range 2 {
			Discard(must(Empty(c, k.shape, dtype.Float32)))
		}
		return func() error { return y.Backward(must(Ones(c, y.shape, dtype.Float32)), false) }
	},
	"zeros": func(c *Context) func() error {
		return func() error { _, err := Zeros(c, []int{1 << 26}, dtype.Float32); return err }
	},
}

// Memory that the system refuses is an error that names operation and size, and
// the process goes on: each case in a process whose address space ends soon.
func TestRefusedMemory(t *testing.T) {
	const ask = "DRUN_TEST_STARVE"
	if name := os.Getenv(ask); name != "" {
		starve(name)
		return
	}
	for name := range hungry {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRefusedMemory$")
		// Further arenas of malloc would have set address space aside.
		cmd.Env = append(os.Environ(), ask+"="+name, "MALLOC_ARENA_MAX=1")
		out, err := cmd.CombinedOutput()
		said := string(out)
		if err != nil || !strings.Contains(said, "refused: "+name+": cannot allocate ") || !strings.Contains(said, " bytes") ||
			!strings.Contains(said, "then: <nil>") {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
}

// starve runs a case with 700 kB more than it has, then with all it wants.
func starve(name string) {
	debug.SetGCPercent(-1)
	kernel.SetThreads(1)
	call := hungry[name](NewContext())
	var old syscall.Rlimit
	must(0, syscall.Getrlimit(syscall.RLIMIT_AS, &old))
	var pages, resident uint64
	must(fmt.Sscan(string(must(os.ReadFile("/proc/self/statm"))), &pages, &resident))
	must(0, syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: pages*uint64(os.Getpagesize()) + 700<<10, Max: old.Max}))
	err := call()
	must(0, syscall.Setrlimit(syscall.RLIMIT_AS, &old))
	fmt.Println("refused:", err)
	if name != "backward of attention" { // whose graph is half gone
		fmt.Println("then:", call())
	} else {
		fmt.Println("then:", hungry["attention"](NewContext())())
	}
}

// Sizes that no machine has are errors, wherever they come from.
func TestHugeSizes(t *testing.T) {
	c := NewContext()
	one := floats(c, dtype.Float32, []int{1}, 1)
	wide := must(Expand(one, []int{1 << 50}))
	ix := must(Expand(ints(c, []int{1}, 0), []int{1 << 50}))
	fail[*Tensor](t, "too many elements")(Zeros(c, []int{1 << 60}, dtype.Int64))
	fail[*Tensor](t, "too many elements")(Expand(one, []int{1 << 62, 1 << 62}))
	fail[*Tensor](t, "cannot allocate")(Zeros(c, []int{1<<60 - 1}, dtype.Int64))
	fail[[]int64](t, "permutation", "memory")(NewGenerator(1, 1).Permutation(1 << 50))
	fail[[]Scalar](t, "too many for a list")(wide.Scalars())
	fail[*Tensor](t, "arange")(Arange(c, Int(0), Float(1e300), Int(1), dtype.Float32))
	fail[*Tensor](t, "arange", "cannot allocate")(Arange(c, Int(0), Int(1<<50), Int(1), dtype.Int64))
	fail[*Tensor](t, "linspace", "cannot allocate")(Linspace(c, 0, 1, 1<<50, dtype.Float32))
	fail[*Tensor](t, "eye", "cannot allocate")(Eye(c, 1<<25, 1<<25, dtype.Float32))
	fail[*Tensor](t, "one_hot", "cannot allocate")(OneHot(ints(c, []int{1}, 0), 1<<50))
	fail[*Tensor](t, "bincount")(BinCount(ints(c, []int{1}, 1<<62), nil, 0))
	fail[*Tensor](t, "pad")(Pad(one, []int{1 << 62, 1 << 62}, Int(0)))
	fail[*Tensor](t, "pad", "cannot allocate")(Pad(one, []int{1 << 50, 0}, Int(0)))
	image := must(Ones(c, []int{1, 1, 2, 2}, dtype.Float32))
	fail[*Tensor](t, "conv2d", "padding")(conv2d(image, image, nil, [2]int{1, 1}, [2]int{1 << 62, 0}))
	fail[*Tensor](t, "conv2d")(conv2d(image, image, nil, [2]int{1, 1}, [2]int{1 << 50, 1 << 50}))
	fail[*Tensor](t, "attention", "memory")(Attention(must(Expand(one, []int{1 << 50, 0, 1})), must(Expand(one, []int{1, 1, 1})), must(Expand(one, []int{1, 1, 1})), false))
	for name, f := range map[string]func() (*Tensor, error){
		"exp": func() (*Tensor, error) { return Unary(OpExp, wide) }, "add": func() (*Tensor, error) { return Add(wide, wide) },
		"where":   func() (*Tensor, error) { return Where(must(Cast(one, dtype.Bool)), wide, wide) },
		"softmax": func() (*Tensor, error) { return Softmax(wide, 0) }, "sum": func() (*Tensor, error) { return Sum(wide, nil, false) },
		"var": func() (*Tensor, error) { return Var(wide, nil, 1, false) }, "embedding": func() (*Tensor, error) { return Embedding(must(Ones(c, []int{2, 2}, dtype.Float32)), ix) },
		"cat": func() (*Tensor, error) { return Cat([]*Tensor{wide, wide}, 0) }, "to": func() (*Tensor, error) { return Cast(wide, dtype.Float64) },
	} {
		if out, err := f(); err == nil || !strings.Contains(err.Error(), "cannot allocate") && !strings.Contains(err.Error(), "too many elements") {
			t.Errorf("%s of a tensor of 2^50 elements: %v, error %v", name, out, err)
		}
	}
	deep := one
	for deep.Dim() < MaxDims {
		deep = must(Unsqueeze(deep, 0))
	}
	fail[*Tensor](t, "unsqueeze", "at most 32")(Unsqueeze(deep, 0))
	fail[*Tensor](t, "stack", "at most 32")(Stack([]*Tensor{deep, deep}, 0))
	fail[*Tensor](t, "expand", "33 dimensions")(Expand(one, make([]int, 33)))
	fail[*Tensor](t, "index", "at most 32")(Index(deep, must(ParseIndex("None, ..."))))
	fail[*Tensor](t, "one_hot", "33 dimensions")(OneHot(must(Cast(deep, dtype.Int64)), 2))
	pairs := make([]int, MaxDims)
	for i := range pairs {
		pairs[i] = 2
	}
	if s := must(Expand(deep, pairs)).String(); !strings.Contains(s, "float32") || len(s) > 1000 {
		t.Errorf("2^32 elements print in %d characters", len(s))
	}
}
