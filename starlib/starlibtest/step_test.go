package starlibtest

import (
	"syscall"
	"testing"

	"drun/starlib"

	"go.starlark.net/starlark"
)

// BenchmarkStep is a training step of a small model: it measures what a recipe's calls cost besides the kernels.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct{ name, model, data string }{
		{"tiny", "nn.sequential(nn.linear(2, 16), nn.tanh(), nn.linear(16, 2))", "tensor.randn(16, 2), tensor.randint(0, 2, (16,))"},
		{"mlp", "nn.sequential(nn.linear(784, 256), nn.relu(), nn.linear(256, 128), nn.relu(), nn.linear(128, 10))", "tensor.randn(32, 784), tensor.randint(0, 10, (32,))"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := New(b, b.TempDir(), starlib.Rank{}, nil)
			globals, err := r.Exec("step.star", `
model = `+c.model+`
params = model.parameters()
opt = optim.sgd(params, lr = 0.1, momentum = 0.9)
x, y = `+c.data+`
def steps(n):
    for _ in range(n):
        opt.zero_grad()
        loss = nn.cross_entropy(model(x), y)
        loss.backward()
        dist.sync_grad(params)
        opt.step()
`)
			if err != nil {
				b.Fatal(err)
			}
			steps := globals["steps"]
			run := func(n int) {
				if _, err := starlark.Call(r.Thread, steps, starlark.Tuple{starlark.MakeInt(n)}, nil); err != nil {
					b.Fatal(err)
				}
			}
			run(100)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			run(b.N)
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpu is the processor time of this process in nanoseconds, which other programs disturb less than wall-clock time.
func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
