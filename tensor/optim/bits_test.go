package optim

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
	"drun/kernel/opencl"
	. "drun/tensor"
)

// The models that train below, of sizes that are not multiples of a vector
// and large enough for several threads. Each gives its parameters' bits.
var bitModels = []struct {
	name  string
	train func() []uint32
}{
	{"tiny", func() []uint32 { return trainPerceptron(20, 16, OpTanh, 2, 16, 2) }},
	{"mlp", func() []uint32 { return trainPerceptron(3, 31, OpRelu, 391, 129, 67, 10) }},
	{"cnn", func() []uint32 { return trainConvolutions(false) }},
	{"gpt", func() []uint32 { return trainTransformer(false) }},
	{"layers", trainLayers},
	{"cnn-autocast", func() []uint32 { return trainConvolutions(true) }},
	{"gpt-autocast", func() []uint32 { return trainTransformer(true) }},
}

// bitNet makes parameters for a model, from one stream.
type bitNet struct {
	c  *Context
	g  *Generator
	ps []*Tensor
}

func newBitNet() *bitNet {
	c := NewContext()
	if bitDevice != nil {
		c.UseDevice(bitDevice)
	}
	return &bitNet{c: c, g: NewGenerator(3, 0)}
}

// bitDevice computes the models, if set.
var bitDevice *opencl.Device

func (b *bitNet) param(shape ...int) *Tensor {
	p := must(Zeros(b.c, shape, dtype.Float32))
	must(0, b.g.Uniform(p, -0.3, 0.3))
	must(0, p.SetRequiresGrad(true))
	b.ps = append(b.ps, p)
	return p
}

func (b *bitNet) linear(in, out int) func(*Tensor) *Tensor {
	w, bias := b.param(out, in), b.param(out)
	return func(x *Tensor) *Tensor { return must(Linear(x, w, bias)) }
}

func (b *bitNet) norm(n int) func(*Tensor) *Tensor {
	w, bias := b.param(n), b.param(n)
	return func(x *Tensor) *Tensor { return must(LayerNorm(x, w, bias, 1, 1e-5)) }
}

// steps trains and gives the bits of all parameters.
func (b *bitNet) steps(n int, opt *Optimizer, loss func() *Tensor) []uint32 {
	for range n {
		must(0, loss().Backward(nil, false))
		must(0, opt.Step())
		opt.ZeroGrad()
	}
	return bitsOf(b.ps...)
}

func (b *bitNet) sgd() *Optimizer {
	return must(New([]ParamGroup{{Params: b.ps, LR: 0.1}}, SGD{Momentum: 0.9}))
}

func (b *bitNet) adam() *Optimizer {
	return must(New([]ParamGroup{{Params: b.ps, LR: 0.01, WeightDecay: 0.01}}, Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Decoupled: true}))
}

func trainPerceptron(steps, batch int, op UnaryOp, sizes ...int) []uint32 {
	b := newBitNet()
	var layers []func(*Tensor) *Tensor
	for i := range sizes[1:] {
		layers = append(layers, b.linear(sizes[i], sizes[i+1]))
	}
	opt := b.sgd()
	x := must(b.g.Randn(b.c, []int{batch, sizes[0]}, dtype.Float32))
	y := must(b.g.RandInt(b.c, 0, int64(sizes[len(sizes)-1]), []int{batch}, dtype.Int64))
	return b.steps(steps, opt, func() *Tensor {
		h := x
		for i, layer := range layers {
			if h = layer(h); i < len(layers)-1 {
				h = must(Unary(op, h))
			}
		}
		return must(CrossEntropy(h, y, ReduceMean))
	})
}

func trainConvolutions(autocast bool) []uint32 {
	b := newBitNet()
	w1, b1, w2, b2 := b.param(13, 1, 3, 3), b.param(13), b.param(29, 13, 3, 3), b.param(29)
	head := b.linear(29*3*4, 10)
	opt := b.sgd()
	x := must(b.g.Randn(b.c, []int{5, 1, 13, 17}, dtype.Float32))
	y := must(b.g.RandInt(b.c, 0, 10, []int{5}, dtype.Int64))
	one, two := [2]int{1, 1}, [2]int{2, 2}
	return b.steps(3, opt, func() *Tensor {
		defer b.c.Autocast(b.c.Autocast(autocast))
		h := must(Unary(OpRelu, must(conv2d(x, w1, b1, one, one))))
		h = must(MaxPool2d(h, two, two, [2]int{}))
		h = must(Unary(OpRelu, must(conv2d(h, w2, b2, one, one))))
		h = must(MaxPool2d(h, two, two, [2]int{}))
		return must(CrossEntropy(head(must(Flatten(h, 1, -1))), y, ReduceMean))
	})
}

func trainTransformer(autocast bool) []uint32 {
	const vocabulary, width, heads, context, batch = 13, 33, 3, 67, 2
	b := newBitNet()
	tokens, positions := b.param(vocabulary, width), b.param(context, width)
	type block struct{ norm1, qkv, out, norm2, expand, contract func(*Tensor) *Tensor }
	var blocks []block
	for range 2 {
		blocks = append(blocks, block{b.norm(width), b.linear(width, 3*width), b.linear(width, width),
			b.norm(width), b.linear(width, 4*width), b.linear(4*width, width)})
	}
	norm, head := b.norm(width), b.linear(width, vocabulary)
	opt := b.adam()
	x := must(b.g.RandInt(b.c, 0, vocabulary, []int{batch, context}, dtype.Int64))
	y := must(b.g.RandInt(b.c, 0, vocabulary, []int{batch * context}, dtype.Int64))
	return b.steps(3, opt, func() *Tensor {
		defer b.c.Autocast(b.c.Autocast(autocast))
		h := must(Add(must(Embedding(tokens, x)), must(Embedding(positions, must(Arange(b.c, Int(0), Int(context), Int(1), dtype.Int64))))))
		for _, l := range blocks {
			qkv := must(View(l.qkv(l.norm1(h)), []int{batch, context, 3, heads, width / heads}))
			qkv = must(Permute(qkv, []int{2, 0, 3, 1, 4}))
			a := must(Attention(must(Select(qkv, 0, 0)), must(Select(qkv, 0, 1)), must(Select(qkv, 0, 2)), true))
			a = must(Reshape(must(Transpose(a, 1, 2)), []int{batch, context, width}))
			h = must(Add(h, l.out(a)))
			h = must(Add(h, l.contract(must(Unary(OpGelu, l.expand(l.norm2(h)))))))
		}
		return must(CrossEntropy(must(View(head(norm(h)), []int{-1, vocabulary})), y, ReduceMean))
	})
}

// trainLayers has what the other models lack: strides, batch and RMS norm,
// dropout, average pooling, clipped gradients.
func trainLayers() []uint32 {
	b := newBitNet()
	w, bias, gamma, beta, scale := b.param(5, 2, 3, 2), b.param(5), b.param(5), b.param(5), b.param(45)
	head := b.linear(45, 7)
	opt := b.adam()
	mean, variance := must(Zeros(b.c, []int{5}, dtype.Float32)), must(Ones(b.c, []int{5}, dtype.Float32))
	x := must(b.g.Randn(b.c, []int{19, 2, 9, 11}, dtype.Float32))
	y := must(b.g.RandInt(b.c, 0, 7, []int{19}, dtype.Int64))
	return b.steps(5, opt, func() *Tensor {
		h := must(BatchNorm(must(conv2d(x, w, bias, [2]int{1, 2}, [2]int{1, 0})), gamma, beta, mean, variance, true, 0.1, 1e-5))
		h = must(Flatten(must(AvgPool2d(must(Unary(OpSilu, h)), [2]int{3, 1}, [2]int{3, 2}, [2]int{})), 1, -1))
		h = must(Dropout(must(RMSNorm(h, scale, 1e-6)), 0.1, b.g))
		loss := must(CrossEntropy(head(h), y, ReduceMean))
		must(0, loss.Backward(nil, true))
		must(0, ClipGrads(b.ps, math.Sqrt(must(GradSquareSum(b.ps))), 1))
		return loss // adds the same gradients again
	})
}

// digest sums a model's bits up in a line.
func digest(bits []uint32) string {
	h := sha256.New()
	for _, v := range bits {
		fmt.Fprintf(h, "%08x", v)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// everyPath runs f on all paths that the machine has, with 1 to 3 threads.
func everyPath(t *testing.T, f func(where string)) {
	path, threads := kernel.Path(), kernel.Threads()
	defer func() {
		check(t, kernel.SetPath(path))
		kernel.SetThreads(threads)
	}()
	for _, p := range kernel.Paths() {
		for n := 1; n <= 3; n++ {
			check(t, kernel.SetPath(p))
			kernel.SetThreads(n)
			if kernel.Path() != p || kernel.Threads() != n {
				t.Fatalf("%s with %d threads runs, not %s with %d", kernel.Path(), kernel.Threads(), p, n)
			}
			f(fmt.Sprintf("%s with %d threads", p, n))
		}
	}
}

var update = flag.Bool("update", false, "write testdata/bits.txt anew: the kernels' arithmetic was changed on purpose")

// golden keeps testdata/bits.txt, the digests of trained parameters. Processors
// of other kinds check themselves against the same file: make neon.
func golden(t *testing.T, name string, bits []uint32) {
	t.Helper()
	const path = "testdata/bits.txt"
	content, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	line := name + " " + digest(bits)
	if slices.Contains(lines, line) {
		return
	}
	if !*update {
		t.Errorf("%s: not the bits of %s: got %s", name, path, line)
		return
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" || strings.HasPrefix(l, name+" ") })
	lines = append(lines, line)
	slices.Sort(lines)
	check(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

func TestSameBits(t *testing.T) {
	if best := map[string]string{"arm64": "neon"}[runtime.GOARCH]; best != "" && !slices.Contains(kernel.Paths(), best) {
		t.Errorf("%s has the paths %v, without %s", runtime.GOARCH, kernel.Paths(), best)
	}
	for _, m := range bitModels {
		t.Run(m.name, func(t *testing.T) {
			var want []uint32
			everyPath(t, func(where string) {
				got := m.train()
				if want == nil {
					want = got
					golden(t, m.name, got)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s: other bits", where)
				}
			})
		})
	}
}

// OpenCL's first device, which in drun's own tests is PoCL, gives the bits of all processors.
func TestSameBitsOnDevice(t *testing.T) {
	found, err := opencl.List()
	if err != nil || len(found) == 0 {
		t.Skip("no OpenCL device", err)
	}
	bitDevice = must(opencl.Open(found[0]))
	defer func() { bitDevice = nil }()
	for _, m := range bitModels {
		golden(t, m.name, m.train())
	}
	if bitDevice.Uploads.Count == 0 {
		t.Error("nothing was computed on the device")
	}
}

// A process of its own for each path, chosen by the environment.
func TestSameBitsByEnvironment(t *testing.T) {
	const ask = "DRUN_TEST_DIGEST"
	if os.Getenv(ask) != "" {
		for _, m := range bitModels[1:4] {
			fmt.Println("digest", kernel.Path(), m.name, digest(m.train()))
		}
		return
	}
	seen := map[string]string{}
	for _, path := range kernel.Paths() {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSameBitsByEnvironment$")
		cmd.Env = append(os.Environ(), "DRUN_KERNEL="+path, ask+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", path, err, out)
		}
		ran := 0
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			if len(f) != 4 || f[0] != "digest" {
				continue
			}
			if f[1] != path {
				t.Fatalf("%s ran where %s was asked for", f[1], path)
			}
			if first, ok := seen[f[2]]; ok && first != f[3] {
				t.Errorf("%s on %s: other bits", f[2], path)
			}
			seen[f[2]] = f[3]
			ran++
		}
		if ran != 3 {
			t.Fatalf("%s ran %d models of 3:\n%s", path, ran, out)
		}
	}
}

// The comparison above notices a sum in another order: the same model with
// its inputs' features, and so the terms of each sum, turned round.
func TestSameBitsNoticesOrder(t *testing.T) {
	run := func(turned bool) []uint32 {
		b := newBitNet()
		w := b.param(9, 35)
		x := must(b.g.Randn(b.c, []int{8, 35}, dtype.Float32))
		y := must(b.g.RandInt(b.c, 0, 9, []int{8}, dtype.Int64))
		turn := func(t *Tensor) *Tensor {
			if turned {
				return must(Flip(t.Detach(), []int{1}))
			}
			return t.Detach()
		}
		check(t, CopyInto(w.Detach(), must(Clone(turn(w)))))
		x = turn(x)
		b.steps(3, b.sgd(), func() *Tensor { return must(CrossEntropy(must(Linear(x, w, nil)), y, ReduceMean)) })
		return bitsOf(turn(w))
	}
	straight, turned := run(false), run(true)
	differ := 0
	for i := range straight {
		if straight[i] != turned[i] {
			differ++
		}
		if a, b := math.Float32frombits(straight[i]), math.Float32frombits(turned[i]); math.Abs(float64(a-b)) > 1e-5 {
			t.Fatalf("element %d: %v and %v: not the same model", i, a, b)
		}
	}
	if differ == 0 {
		t.Error("sums in another order gave the same bits: the comparison notices nothing")
	}
	if digest(run(false)) != digest(straight) {
		t.Error("the same model twice gave different bits")
	}
	golden(t, "order", straight)
}
