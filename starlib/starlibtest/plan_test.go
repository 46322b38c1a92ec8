package starlibtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"drun/starlib"
)

// Whatever a recipe holds on to (results in lists, closures, views, gradients, graphs that a backward pass left)
// is the same whether tensors that nobody has are used again or not.
func TestPlanIsNotSeen(t *testing.T) {
	for seed := range uint64(60) {
		parts := program(rand.New(rand.NewPCG(seed, 6)))
		run := func(plan string) []string {
			t.Setenv("DRUN_PLAN", plan)
			r := New(t, t.TempDir(), starlib.Rank{}, nil)
			for _, part := range parts {
				if _, err := r.Exec("program.star", part); err != nil { // what failed leaves what it has made behind
					r.Printed = append(r.Printed, err.Error())
				}
			}
			return r.Printed
		}
		got, want := run(""), run("off")
		if !slices.Equal(got, want) {
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Fatalf("program %d: line %d is %.200s, without the plan %.200s\n%s", seed, i, got[i], want[i], strings.Join(parts, "\n"))
				}
			}
			t.Fatalf("program %d prints %d lines, without the plan %d", seed, len(got), len(want))
		}
		if len(want) < 3 {
			t.Fatalf("program %d does nothing: %q", seed, want)
		}
	}
}

// program is a random recipe in parts, of which any may fail.
func program(r *rand.Rand) []string {
	n := []int{3, 20, 70}[r.IntN(3)] // within the header, Go's heap, the pool
	parts := []string{fmt.Sprintf(`
N = %d
model = nn.sequential(nn.linear(N, N), nn.tanh(), nn.linear(N, N), nn.relu(), nn.dropout(0.2), nn.layer_norm(N), nn.linear(N, N))
other = nn.sequential(nn.linear(N, 2 * N), nn.gelu(), nn.flatten(), nn.linear(2 * N, N))
params = model.parameters() + other.parameters()
opt = optim.sgd(params, lr = 0.05, momentum = 0.9)
x, y = tensor.randn(N, N), tensor.randint(0, N, (N,))
held, kept, later = [x], [], []
def hold(t):
    held.append(t)
    return t
`, n)}
	for range 3 + r.IntN(3) {
		var b strings.Builder
		for range 4 + r.IntN(8) {
			pick := func() string { return fmt.Sprintf("held[%d %% len(held)]", r.IntN(50)) }
			fmt.Fprintln(&b, []string{
				"hold(model(" + pick() + "))",
				"hold(other(model(" + pick() + ").tanh()))",
				"hold(" + pick() + ".tanh() * " + pick() + " + 0.5)",
				"hold((" + pick() + " - " + pick() + ").sigmoid())",
				"hold(tensor.no_grad(lambda: model(" + pick() + ")))",
				"kept.append(" + pick() + ".transpose(0, 1))",
				"kept.append(" + pick() + ".view(-1)[1:7])",
				"later.append((lambda t: lambda: t.sum())(" + pick() + "))",
				"tensor.no_grad(lambda: " + pick() + ".detach().mul_(0.5))",
				"kept.append(nn.cross_entropy(" + pick() + ", y, reduction = \"none\"))",
				"[nn.cross_entropy(hold(model(" + pick() + ")), y).backward() for _ in range(2)]",
				"[kept.append(l) or l.backward(retain_graph = True) for l in [nn.cross_entropy(model(" + pick() + "), y)]]",
				"[l.backward() for l in [" + pick() + ".square().mean(), other(" + pick() + ").mean()] if l.requires_grad]",
				"kept.extend([p.grad for p in params if p.grad != None])",
				"opt.step()",
				"opt.zero_grad()",
				"model(" + pick() + ".view(-1))", // fails where the shape does not fit
			}[r.IntN(17)])
		}
		parts = append(parts, b.String())
	}
	return append(parts, `
[print(t.detach().tolist()) for t in held + kept + [f() for f in later] + params]
`)
}
