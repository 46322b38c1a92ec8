package opencl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/internal/exit"
	"drun/internal/try"
	"drun/kernel/dtype"
)

func TestGoldenCases(t *testing.T) {
	d := open(t)
	if difference, err := d.Check(); difference != "" || err != nil {
		t.Error(difference, err)
	}
}

// A program that was cached is used again; a broken file is not, and is replaced.
func TestCache(t *testing.T) {
	open(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	files := func() []string {
		names, _ := filepath.Glob(os.Getenv("XDG_CACHE_HOME") + "/drun/opencl/*")
		return names
	}
	check := func() {
		d, err := Open(device.Found)
		if err != nil {
			t.Fatal(err)
		}
		d.caches = false
		g := &golden{d: d}
		g.moves()
		if g.difference != "" {
			t.Error(g.difference)
		}
	}
	check()
	if len(files()) != 1 {
		t.Fatalf("the cache has %v", files())
	}
	whole, _ := os.ReadFile(files()[0])
	check()
	for _, broken := range [][]byte{{}, whole[:len(whole)/2], append([]byte("x"), whole...)} {
		if err := os.WriteFile(files()[0], broken, 0o644); err != nil {
			t.Fatal(err)
		}
		check()
		if now, _ := os.ReadFile(files()[0]); len(now) < len(whole)/2 || string(now) == string(broken) {
			t.Errorf("a broken file of %d bytes became one of %d", len(broken), len(now))
		}
	}
}

func TestCompilerFails(t *testing.T) {
	d := open(t)
	err := func() (err error) {
		defer try.Caught(&err)
		d.build("move.cl", " -DWORD=no_such_type")
		return nil
	}()
	if err == nil || !strings.Contains(err.Error(), "cannot compile move.cl") || !strings.Contains(err.Error(), "error: ") {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"": true, "cpu": true, "auto": true, "opencl": true, "opencl:0": true, "opencl:12": true, "opencl:": false, "opencl:-1": false,
		"opencl:01": false, "opencl:x": false, "gpu": false, "cuda": false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	t.Setenv("DRUN_OPENCL_LIB", "")
	if d, err := Choose("cpu", 3); d != nil || err != nil {
		t.Error("cpu:", d, err)
	}
	if device != nil {
		if d, err := Choose("opencl:99", 0); d != nil || err == nil || !strings.Contains(err.Error(), "drun devices") {
			t.Error("opencl:99:", d, err)
		}
	}
}

// caseOf returns the golden cases of a file.
func caseOf(t *testing.T, file string) goldenCase {
	for _, c := range cases() {
		if c.file == file {
			return c
		}
	}
	t.Fatalf("%s has no golden case", file)
	return goldenCase{}
}

func TestEveryFileHasGoldenCases(t *testing.T) {
	files, err := sources.ReadDir("cl")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".cl") {
			caseOf(t, f.Name())
		}
	}
}

// broken returns a device whose kernels have something else in the place of a piece of a file's text, until the test ends.
func broken(t *testing.T, file, right, wrong string) *Device {
	t.Helper()
	text, err := sources.ReadFile("cl/" + file)
	if err != nil || !strings.Contains(string(text), right) {
		t.Fatalf("%s has no %q", file, right)
	}
	patched = map[string]string{file: strings.ReplaceAll(string(text), right, wrong)}
	t.Cleanup(func() { patched = nil })
	d, err := Open(device.Found)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A device whose kernels are wrong is noticed, by the case that differs: here kernels are broken on purpose.
func TestBrokenKernels(t *testing.T) {
	open(t)
	for i, b := range []struct{ in, file, right, wrong, want string }{
		{"golden.cl", "golden.cl", "a * b + c)", "fma(a, b, c))", "float32 multiplication and addition"},
		{"reduce.cl", "lanes.h", "half_ /= 2) {", "half_ /= 2) if (half_ != 2) {", "sum"},
		{"reduce.cl", "lanes.h", "half_]); \\\n            BARRIER;", "half_]); \\\n            ;", "sum"},
		{"reduce.cl", "lanes.h", "#define CUT 4096", "#define CUT 8192", "sum"},
		{"reduce.cl", "reduce.cl", "block += 256", "block += 512", "sum"},
		{"reduce.cl", "reduce.cl", "block + 256", "block + 512", "sum"},
		{"product.cl", "product.cl", "#define BLOCK 256", "#define BLOCK 128", "product"},
		{"product.cl", "product.cl", "min(i + r, m - 1)", "min(i + r, m - 2)", "product"},
		{"product.cl", "product.cl", "if (l < width) {", "if (l < width - 1) {", "product"},
		{"softmax.cl", "softmax.cl", "y[i] * by", "y[i] / sum", "softmax"},
		{"norm.cl", "norm.cl", "fma(x[i] - first, scale, shift)", "(x[i] - first) * scale + shift", "layer norm"},
		{"update.cl", "update.cl", "g * g * rest2", "g * (g * rest2)", "adam"},
		{"random.cl", "random.cl", "i < 10", "i < 9", "dropout"},
		{"move.cl", "walk.h", "r * w->stride[k][d]", "r / 2 * w->stride[k][d]", "copy"},
		{"widen.cl", "product.cl", "total + (acc[0] + acc[1])", "total + acc[0] + acc[1]", "product in bfloat16"},
		{"attention.cl", "attention.cl", "i + 1 < cols ? i + 1", "i + 2 < cols ? i + 2", "attention"},
		{"attention.cl", "attention.cl", "(d[j] - sum) * scale", "(d[j] * scale - sum * scale)", "attention's gradient of queries"},
		{"recurrent.cl", "recurrent.cl", "HERE(h0), HERE(c0)", "HERE(h0), HERE(h0)", "lstm's state"},
		{"conv.cl", "conv.cl", "BLOCK = 256", "BLOCK = 128", "convolution"},
		{"conv.cl", "conv.cl", "long group = 1", "long group = 2", "convolution's gradient of its weight"},
		{"pool.cl", "pool.cl", "j < x1; j++) {", "j < x1 - 1; j++) {", "pooling"},
		{"pool.cl", "pool.cl", "j * g.sw <= x", "j * g.sw < x", "pooling's gradient"},
		{"lines.cl", "lines.cl", "s2 = fma(d, d, s2);\n    }, (t1", "s2 += d * d;\n    }, (t1", "variance"},
		{"lines.cl", "lines.cl", "fma(shift, g, beta", "fma(shift, g * 2, beta", "group norm"},
		{"index.cl", "index.cl", "(outer * rows + index[index_at + at])", "(outer + index[index_at + at])", "index_select"},
		{"rows.cl", "rows.cl", "a[a_at + r * n + i]", "a[a_at + r * n]", "sums of indexed rows"},
		{"scan.cl", "scan.cl", "index[index_at + from + r * inner] * inner", "index[index_at + from + r] * inner", "scatter_add"},
		{"whole.cl", "whole.cl", "half_ /= 2) {", "half_ /= 4) {", "sum of integers"},
		{"whole.cl", "whole.cl", "return y < x;", "return y > x;", "sort"},
		{"random.cl", "random.cl", "log_f64(u) * -2.0", "log_f64(u) * -2.0000001", "normal"},
	} {
		if i%5 != 2 && os.Getenv("DRUN_TEST_LONG") == "" { // each takes a second of PoCL's compiler
			continue
		}
		attempt(t, func() {
			d := broken(t, b.file, b.right, b.wrong)
			if got := d.differs(caseOf(t, b.in)); !strings.HasPrefix(got, b.want) {
				t.Errorf("%s with %q: %q", b.file, b.wrong, got)
			}
		})
	}
}

// A device that has to prove its bits is refused where a kernel is used first, each time, but not where another is.
func TestProve(t *testing.T) {
	open(t)
	d := broken(t, "move.cl", "TAKE(1, a, WORD)", "TAKE(1, a, WORD) + 1")
	if err := d.Prove(); err != nil {
		t.Fatal(err)
	}
	x := upload(d, make([]byte, 64))
	for range 2 {
		err := func() (err error) {
			defer try.Caught(&err)
			d.Copy(dtype.Int32, []int{4}, on(x.place(), 1), on(x.place(), 1))
			return nil
		}()
		if err == nil || exit.CodeOf(err) != exit.Requirement || !strings.Contains(err.Error(), "does not compute the processor's bits: copy, case ") {
			t.Error(err)
		}
	}
	before := d.Uploads.Count
	attempt(t, func() { d.Scale(dtype.Float32, 4, x.place(), 2) })
	if d.Uploads.Count != before {
		t.Error("the golden cases' copies are counted")
	}
}
