package starlibtest

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"go.starlark.net/starlark"

	"drun/starlib"
	"drun/tensor"
)

// A layer's result on which backward is called at once gives its memory back without a collection.
func TestTransientResultsServeAgain(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const setup = `
N = 72
x, y, seed = tensor.randn(N, N), tensor.randint(0, N, (N,)), tensor.randn(N, N)
x.requires_grad = True
linear, norm, model = nn.linear(N, N), nn.layer_norm(N), nn.sequential(nn.linear(N, N), nn.gelu(), nn.layer_norm(N))
kept, table, how = [], {}, {"gradient": seed}
def hold(t):
    kept.append(t)
    return t
hooked = nn.linear(N, N)
hooked.register_forward_hook(lambda m, args, out: hold(out))
def clear():
    for p in hooked.parameters() + model.parameters() + linear.parameters() + norm.parameters() + [x]:
        p.grad = None
`
	for _, c := range []struct {
		step   string
		passed bool
	}{
		{"linear(x).backward(gradient = seed)", true},
		{"(model(x)).backward(gradient = seed)", true},
		{"(lambda f: f(x).backward(gradient = seed))(norm)", true},
		{"y = linear(x)\n    y.backward(gradient = seed)", false},
		{"hold(linear(x)).backward(gradient = seed)", false},
		{"table.setdefault(len(table), linear(x)).backward(gradient = seed)", false},
		{"remember(linear, x).backward(gradient = seed)", false},
		{"hooked(x).backward(gradient = seed)", false},
		{"nn.sequential(lambda t: t)(hold(linear(x))).backward(gradient = seed)", false},
	} {
		r := New(t, t.TempDir(), starlib.Rank{}, nil)
		var kept []starlark.Value
		r.Predeclare("remember", &starlib.Def{Sig: "remember(fn: callable, x: Tensor) -> Tensor", Fn: func(c *starlib.Call) (starlark.Value, error) {
			out, err := starlark.Call(c.Thread, c.Callable("fn"), starlark.Tuple{c.Arg("x")}, nil)
			kept = append(kept, out)
			return out, err
		}})
		step := "def step():\n    " + c.step + "\n    clear()\n"
		if _, err := r.Exec("setup.star", setup+step+"[step() for _ in range(3)]\n"); err != nil {
			t.Fatalf("%s: %v", c.step, err)
		}
		grown := -1
		for grown < 0 { // what earlier tests have left behind may be freed meanwhile
			before := tensor.Memory().InUse
			if _, err := r.Exec("steps.star", "[step() for _ in range(40)]\n"); err != nil {
				t.Fatalf("%s: %v", c.step, err)
			}
			grown = tensor.Memory().InUse - before
		}
		if (grown == 0) != c.passed {
			t.Errorf("%s: 40 steps leave %d bytes behind, and should leave some: %v", c.step, grown, !c.passed)
		}
		for _, v := range kept {
			if strings.Contains(v.String(), "nan") {
				t.Errorf("%s: what was kept is %v", c.step, v)
			}
		}
	}
}

// Wherever a recipe keeps a result (variables of every kind, lists, dicts, arguments, defaults, closures, views, graphs), it
// finds there what it has put there. DRUN_TEST_TRANSIENT=5000 tries that many recipes.
func TestTransientIsNotSeen(t *testing.T) {
	planIsNotSeen(t, "DRUN_TEST_TRANSIENT", 50, 7, 10, passes)
}

// passes returns a random recipe in parts, any of which may fail, whose expressions pass large tensors on in every
// possible way.
func passes(r *rand.Rand) []string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	expr := func(depth int) string { // E is the place of another, R a small number
		if depth == 0 {
			return pick("x", "x", "w", "kept[%d % len(kept)]", "box[0]", "table[0]", "cell()", "made(w)", "linear(x)")
		}
		if r.IntN(3) > 0 { // straight into the next
			return pick(
				"linear(E)", "gelu(E)", "norm(E)", "model(E)", "drop(E)", "nn.autocast(model, E).float()", "E.relu()", "E.tanh()", "E.matmul(E)", "E.softmax(-1)",
				"E.clone()", "E.float()", "E.maximum(w)", "E.maximum(other = w)", "E.clamp(-1, 1)", "E.clamp(min = -1)", "E.pow(2).sqrt()", "E.minimum(E)", "nn.mse_loss(E, w, reduction = 'none')", "nn.mse_loss(E, E, 'none')",
				"E.cumsum(0)", "nested(E)", "E.neg()", "w.maximum(E)", "E.double().float()", "nn.cosine_similarity(E, w).unsqueeze(1).expand(N, N)")
		}
		return pick(
			"hold(E)", "same(E)", "(lambda t: t)(E)", "(lambda t = E: t)()", "(lambda: E)()", "table.setdefault(R, E)", "[E][0]", "(E, w)[0]", "{'a': E}['a']",
			"[t for t in [E]][0]", "[linear(t) for t in [E, w]][0]", "[model(E) for _ in range(2)][1]", "linear(*[E])", "gelu(*both(E)[:1])", "w.maximum(**{'other': E})", "E.clamp(**limits)", "E.clamp(*ends)",
			"table.setdefault(R, E).clamp(**limits)", "table.setdefault(R, E).maximum(w)", "gelu(table.setdefault(R, E))", "nn.mse_loss(table.setdefault(R, E), w, **{'reduction': 'none'})",
			"getattr(E, 'relu')()", "getattr(E, 'clamp')(**limits)", "bound(E.relu)()", "bound(E.clamp)(**limits)", "(E if len(kept) % 2 else E)", "(False or E)", "(True and E)", "(E + E)", "(E * 0.5)", "(-E)", "(+E)", "(E - w)",
			"E.T", "E.view(N, N)", "E.transpose(0, 1)", "E[0:N]", "E.detach()", "E.reshape(-1).view(N, N)", "E.requires_grad_() if not x.requires_grad else E", "stored(E)", "twice(E)", "through(E)", "sorted([1], key = lambda _: hold(linear(E)).sum().item()) and kept[-1]",
			"mine(E)", "nn.sequential(gelu, hold, linear)(E)", "nn.sequential(hold)(E)", "checked(E)", "E.sum(0).expand(N, N)", "E.max(0)[0].expand(N, N)", "tensor.no_grad(lambda: model(E))", "tensor.stack([E[0]] * N)")
	}
	full := func(text string) string {
		for depth := 3; strings.Contains(text, "E"); depth = max(depth-1, 0) {
			text = strings.Replace(text, "E", expr(depth), 1)
		}
		for strings.Contains(text, "R") {
			text = strings.Replace(text, "R", strconv.Itoa(r.IntN(6)), 1)
		}
		return strings.ReplaceAll(text, "%d", strconv.Itoa(r.IntN(40)))
	}
	parts := []string{`
N = 72
x, w, seed = tensor.randn(N, N), tensor.randn(N, N) * 0.1, tensor.randn(N, N)
y = tensor.randint(0, N, (N,))
linear, gelu, norm, drop = nn.linear(N, N), nn.gelu(), nn.layer_norm(N), nn.dropout(0.3)
model = nn.sequential(linear, gelu, norm)
nested = nn.sequential(nn.sequential(nn.linear(N, N), nn.relu()), nn.rms_norm(N), nn.dropout(0.0))
kept, box, table, views = [x], [w], {0: w}, []
limits, ends = {"min": -1.5, "max": 1.5}, [-1.25, 1.25]
cells = [w]
x.requires_grad = ` + pick("True", "True", "False") + `
def hold(t):
    kept.append(t)
    return t
def same(t): return t
def both(t): return (t, w)
def bound(f):
    views.append(f) if len(views) < 5 else None
    return f
def cell(): return cells[-1]
def made(t): return linear(t)
def stored(t):
    local = gelu(t)
    kept.append(local)
    other = linear(local)
    return norm(other) + local
def twice(t):
    inner = t.relu()
    def again(): return inner
    cells.append(again())
    return linear(again()).maximum(again())
def through(t): return same(gelu(same(t)))
def forward(self, t):
    h = self.inner(t)
    return self.inner(h.relu())
mine = nn.module(forward, inner = nn.linear(N, N))
def checked(t): return tensor.checkpoint(model, t) if hasattr(tensor, "checkpoint") else model(t)
`}
	for range 8 {
		var b strings.Builder
		for range 1 + r.IntN(4) {
			fmt.Fprintln(&b, full(pick(
				"hold(E)", "kept.append(E)", "box[0] = E", "table[R] = E", "box[0] += E", "table[0] = (E).clamp(-1, 1)", "cells.append(E)", "x.grad = (E).detach() if x.requires_grad else None", "t = E\nkept.append(gelu(t))",
				"def more():\n    l = [w]\n    l += [E, E]\n    kept.extend(l)\nmore()", "views.append((E)[0])", "views.append(hold(E).view(-1)[3:9])", "views.extend([row for row in (E)[:2]])", "(hold(E)).detach().mul_(0.5)", "tensor.no_grad(lambda: hold(E).mul_(0.5))",
				"(E).sum().backward() if x.requires_grad else None", "linear(E).backward(gradient = seed)", "hold(linear(E)).backward(gradient = seed)", "model(E).backward(False, seed)", "linear(E).backward(gradient = linear(E).detach())",
				"table.setdefault(R, linear(E)).backward(**{'gradient': seed})", "nn.cross_entropy(linear(E), y).backward()", "nn.cross_entropy(hold(model(E)), y, label_smoothing = 0.1).backward()", "nn.cross_entropy(linear(E), y).backward(retain_graph = True)",
				"l = nn.mse_loss(linear(E), w)\nl.backward(retain_graph = True)\nl.backward()", "[linear(E).sum().backward() for _ in range(2)]", "def late():\n    a = E\n    b = linear(a)\n    kept.append(b)\n    return norm(b).sum()\nlate().backward()",
				"for row in E:\n    views.append(row) if len(views) < 9 else None", "views.append((E).max(0)[0])", "a, b = (E)[:2]\nviews.extend([a, b])", "kept.extend([p.grad for p in model.parameters() if p.grad != None][:2])",
				"for p in model.parameters():\n    p.grad = None", "x.grad = None", "print((E).sum().item())", "print((E).argmax(1).tolist()[:5])", "print(nn.accuracy(linear(E), y))", "print((lambda: E)()[0].tolist()[:3])",
			)))
		}
		if r.IntN(2) == 0 { // in a function the variables are local
			part := "def part():\n    " + strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", "\n    ") + "\npart()\n"
			parts = append(parts, part)
			continue
		}
		parts = append(parts, b.String())
	}
	return append(parts, `
for t in kept[:200] + [box[0]] + table.values() + cells + views + model.parameters() + [p.grad for p in model.parameters() + [x]]:
    if type(t) == "Tensor":
        t = t.detach().double().clone()
        print(t.sum().item(), t.abs().max().item(), t.reshape(-1)[0].item())
`)
}
