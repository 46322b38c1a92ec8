package opencl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/internal/try"
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

// A device whose kernels are wrong is noticed, by the case that differs: here kernels are broken on purpose.
func TestBrokenKernels(t *testing.T) {
	open(t)
	for i, b := range []struct{ file, right, wrong, want string }{
		{"golden.cl", "a * b + c)", "fma(a, b, c))", "float32 multiplication and addition"},
		{"lanes.h", "half_ /= 2) {", "half_ /= 2) if (half_ != 2) {", "sum"},
		{"lanes.h", "#define CUT 4096", "#define CUT 8192", "sum"},
		{"reduce.cl", "block += 256", "block += 512", "sum"},
		{"reduce.cl", "block + 256", "block + 512", "sum"},
		{"product.cl", "#define BLOCK 256", "#define BLOCK 128", "product"},
		{"product.cl", "min(i + r, m - 1)", "min(i + r, m - 2)", "product"},
		{"product.cl", "if (l < width) {", "if (l < width - 1) {", "product"},
		{"softmax.cl", "y[i] * by", "y[i] / sum", "softmax"},
		{"norm.cl", "fma(x[i] - first, scale, shift)", "(x[i] - first) * scale + shift", "layer norm"},
		{"update.cl", "g * g * rest2", "g * (g * rest2)", "adam"},
		{"random.cl", "i < 10", "i < 9", "dropout"},
		{"walk.h", "r * w->stride[k][d]", "r * w->stride[k][0]", "copy"},
		{"product.cl", "total + (acc[0] + acc[1])", "total + acc[0] + acc[1]", "product in bfloat16"},
		{"attention.cl", "i + 1 < cols ? i + 1", "i + 2 < cols ? i + 2", "attention"},
		{"attention.cl", "(d[j] - sum) * scale", "(d[j] * scale - sum * scale)", "attention's gradient of queries"},
		{"conv.cl", "BLOCK = 256", "BLOCK = 128", "convolution"},
		{"conv.cl", "long group = 1", "long group = 2", "convolution's gradient of its weight"},
		{"pool.cl", "j < x1; j++) {", "j < x1 - 1; j++) {", "pooling"},
		{"lines.cl", "s2 = fma(d, d, s2);\n    }, (t1", "s2 += d * d;\n    }, (t1", "variance"},
		{"lines.cl", "fma(shift, g, beta", "fma(shift, g * 2, beta", "group norm"},
		{"scan.cl", "index[index_at + from + r * inner] * inner", "index[index_at + from + r] * inner", "scatter_add"},
		{"whole.cl", "half_ /= 2) {", "half_ /= 4) {", "sum of integers"},
		{"random.cl", "log_f64(u) * -2.0", "log_f64(u) * -2.0000001", "normal"},
	} {
		if i%6 != 2 && os.Getenv("DRUN_TEST_LONG") == "" { // each takes seconds of PoCL's compiler
			continue
		}
		text, err := sources.ReadFile("cl/" + b.file)
		if err != nil || !strings.Contains(string(text), b.right) {
			t.Fatalf("%s has no %q", b.file, b.right)
		}
		patched = map[string]string{b.file: strings.ReplaceAll(string(text), b.right, b.wrong)}
		d, err := Open(device.Found)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Check()
		patched = nil
		if err != nil || !strings.HasPrefix(got, b.want) {
			t.Errorf("%s with %q: %q, %v", b.file, b.wrong, got, err)
		}
	}
}
