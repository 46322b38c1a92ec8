package starlibtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"drun/starlib"
)

// Whatever a recipe holds (results in lists, closures, views, gradients, graphs after a backward pass) is the same
// whether or not the memory of unreferenced tensors is reused. DRUN_TEST_PLANS=2000 tries that many recipes.
func TestPlanIsNotSeen(t *testing.T) { planIsNotSeen(t, "DRUN_TEST_PLANS", 60, 6, 3, program) }

// planIsNotSeen executes random recipes, as many as the variable says, with and without DRUN_PLAN=off: both print the
// same, and at least the given number of lines.
func planIsNotSeen(t *testing.T, variable string, programs, stream uint64, least int, draw func(*rand.Rand) []string) {
	t.Helper()
	if text := os.Getenv(variable); text != "" {
		var err error
		if programs, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range programs {
		parts := draw(rand.New(rand.NewPCG(seed, stream)))
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
		if len(want) < least {
			t.Fatalf("program %d does nothing: %q", seed, want)
		}
	}
}

// layers are modules that keep their input's shape, by shape: (N, N), (2, 4, 5, 5) and (3, 5, N). A function in a model
// may keep what passes through it.
var layers = map[string][]string{
	"rows": {"nn.linear(N, N)", "nn.layer_norm(N)", "nn.rms_norm(N)", "nn.sequential(nn.linear(N, 2 * N), nn.gelu(), nn.linear(2 * N, N))",
		"nn.softmax(-1)", "nn.log_softmax(1)", "lambda t: nn.autocast(inner, t).float()", "inner"},
	"images": {"nn.conv2d(4, 4, 3, padding = 1)", "nn.conv2d(4, 4, 1, bias = False)", "nn.conv2d(4, 4, 3, padding = 2, dilation = 2, groups = 2)",
		"nn.conv_transpose2d(4, 4, 3, padding = 1)", "nn.group_norm(2, 4)", "nn.batch_norm(4)", "nn.instance_norm(4)", "nn.max_pool2d(3, 1, 1)",
		"nn.avg_pool2d(3, 1, 1)", "nn.adaptive_avg_pool2d(5)", "nn.sequential(nn.upsample(scale_factor = 2), nn.avg_pool2d(2))"},
	"sequences": {"nn.linear(N, N)", "nn.layer_norm(N)", "lambda t: recurrent(t)[0]", "lambda t: gated(t)[0]", "encoder", "lambda t: nn.attention(t, t, t, causal = True)",
		"lambda t: attend(t, t, t)[0]", "nn.rotary_embedding", "lambda t: nn.autocast(encoder, t).float()", "lambda t: t.flip(1).roll(1, 0)"},
}

var anywhere = []string{"nn.relu()", "nn.gelu()", "nn.tanh()", "nn.silu()", "nn.mish()", "nn.leaky_relu()", "nn.elu()", "nn.softplus()", "nn.dropout(0.2)", "hold",
	"lambda t: t + hold(t * 0.5)", "lambda t: t.clone()", "lambda t: t / (1 + t.abs())"}

// model returns a random model of layers for a shape.
func model(r *rand.Rand, shape string) string {
	var all []string
	for range 1 + r.IntN(5) {
		from := layers[shape]
		if r.IntN(3) == 0 {
			from = anywhere
		}
		all = append(all, from[r.IntN(len(from))])
	}
	return "nn.sequential(" + strings.Join(all, ", ") + ")"
}

// program returns a random recipe in parts, any of which may fail.
func program(r *rand.Rand) []string {
	n := []int{4, 20, 70}[r.IntN(3)] // within the header, Go's heap, the pool
	shape := []string{"rows", "images", "sequences"}[r.IntN(3)]
	size := map[string]string{"rows": "(N, N)", "images": "(2, 4, 5, 5)", "sequences": "(3, 5, N)"}[shape]
	parts := []string{fmt.Sprintf(`
N = %d
held, kept, later = [], [], []
def hold(t):
    held.append(t)
    return t
inner = nn.sequential(nn.linear(N, N), nn.tanh(), nn.linear(N, N))
recurrent, gated = nn.lstm(N, N, batch_first = True), nn.gru(N, N)
encoder = nn.transformer_encoder_layer(N, 2, 2 * N, batch_first = True)
attend = nn.multi_head_attention(N, 2, batch_first = True)
model, other = %s, %s
params = nn.sequential(model, other, inner, encoder, recurrent, gated, attend).parameters()
opt = %s
x = hold(tensor.randn(%s))
y = tensor.randint(0, x.shape[1], (x.shape[0],) + x.shape[2:])
def loss(t):
    return nn.cross_entropy(t, y)
`, n, model(r, shape), model(r, shape), []string{"optim.sgd(params, lr = 0.05, momentum = 0.9)", "optim.adamw(params, lr = 0.01)", "optim.rmsprop(params, lr = 0.01)"}[r.IntN(3)], size)}
	for range 3 + r.IntN(3) {
		var b strings.Builder
		for range 4 + r.IntN(8) {
			pick := func() string {
				return fmt.Sprintf("held[%d %% len(held)]", r.IntN(50)) + []string{"", ".detach()"}[r.IntN(2)] // or its graph may have been freed
			}
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
				"[loss(hold(model(" + pick() + "))).backward() for _ in range(2)]",
				"[kept.append(l) or l.backward(retain_graph = True) for l in [loss(model(" + pick() + "))]]",
				"[l.backward() for l in [" + pick() + ".square().mean(), other(" + pick() + ").mean()] if l.requires_grad]",
				"kept.extend([p.grad for p in params if p.grad != None])",
				"optim.clip_grad_norm(params, 1.0)",
				"opt.step()",
				"opt.zero_grad()",
				"kept.extend(model.state().values())",
				"[m.train() or m.eval() for m in [model]]",
				"model(" + pick() + ".view(-1))", // fails where the shape does not fit
			}[r.IntN(20)])
		}
		parts = append(parts, b.String())
	}
	return append(parts, `
[print(t.detach().tolist()) for t in held + kept + [f() for f in later] + params]
`)
}
