package optim_test

import (
	"fmt"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"

	"go.starlark.net/starlark"
)

func TestRecipes(t *testing.T) { starlibtest.Chunks(t, "testdata/*.star") }

// A restored optimizer goes on to the bit, its rate too: until the next step it is that of the last one.
func TestRestoredOptimizerGoesOn(t *testing.T) {
	for name, build := range map[string]string{
		"sgd":      "optim.sgd([p], lr = optim.cosine(0.1, 10, warmup = 2), momentum = 0.9)",
		"adam":     "optim.adam([p], lr = lambda step: 0.1 / (1 + step))",
		"assigned": "optim.adamw([p], lr = 0.1, weight_decay = 0.1)",
		"rmsprop":  "optim.rmsprop([p], lr = optim.one_cycle(0.1, 8), momentum = 0.5, centered = True)",
		"adagrad":  "optim.adagrad([p], lr = 0.1, lr_decay = 0.3, initial_accumulator_value = 0.1)",
		"lion":     "optim.lion([p], lr = optim.sequential([optim.linear(0.1), optim.multi_step(0.1, [1])], [2]))",
		"lbfgs":    "optim.lbfgs([p], lr = 0.1, max_iter = 2, history_size = 3)",
		"cycled":   "optim.adamw([p], lr = optim.one_cycle(0.1, 8, cycle_momentum = True))",
		"plateau":  "optim.sgd([p], lr = rate)",
	} {
		start := "p = nn.parameter(tensor([1.0, 2.0]))\nrate = optim.plateau(0.1, patience = 1, factor = 0.5, cooldown = 1)\nopt = " + build + `
def closure():
    opt.zero_grad()
    loss = (p * p * p).sum()
    loss.backward()
    return loss
def go(n):
    rates = []
    for i in range(n):
        rates.append(opt.lr)
        opt.step(closure)
        rate.step(1.0)
    return rates
`
		set := ""
		if name == "assigned" {
			set = "opt.lr = 0.07\n"
		}
		run := func(source string) (*starlibtest.Recipe, starlark.StringDict) {
			t.Helper()
			r := starlibtest.New(t, ".", starlib.Rank{}, nil)
			globals, err := r.Exec("o.star", source)
			if err != nil {
				t.Fatal(err)
			}
			return r, globals
		}
		whole, _ := run(start + set + "go(3)\nrates = go(4)")
		_, first := run(start + set + "go(3)")
		second, rest := run(start)
		for _, part := range []string{"opt", "p"} {
			if part == "p" {
				if _, err := second.Exec("o.star", "p.detach().copy_("+values(t, first["p"])+")"); err != nil {
					t.Fatal(err)
				}
			} else if err := rest[part].(starlib.Stateful).SetState(first[part].(starlib.Stateful).State()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := second.Exec("o.star", "rates = go(4)"); err != nil {
			t.Fatal(err)
		}
		const result = "v = (p.tolist(), opt.lr, opt.steps, rates)"
		a, errA := whole.Exec("o.star", result)
		b, errB := second.Exec("o.star", result)
		if errA != nil || errB != nil || a["v"].String() != b["v"].String() {
			t.Errorf("%s: without a stop %v, with one %v (%v, %v)", name, a["v"], b["v"], errA, errB)
		}
	}
}

// values writes a tensor's elements so that they can be read back.
func values(t *testing.T, v starlark.Value) string {
	t.Helper()
	list, err := v.(starlark.HasAttrs).Attr("tolist")
	if err == nil {
		v, err = starlark.Call(new(starlark.Thread), list, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v.String()
}

func TestStateMustFit(t *testing.T) {
	r := starlibtest.New(t, ".", starlib.Rank{}, nil)
	globals, err := r.Exec("o.star", "a = optim.adam([nn.parameter(tensor([1.0]))], lr = 1)\nb = optim.adam([nn.parameter(tensor([1.0, 2.0]))], lr = 1)")
	if err != nil {
		t.Fatal(err)
	}
	err = globals["b"].(starlib.Stateful).SetState(globals["a"].(starlib.Stateful).State())
	if !strings.Contains(fmt.Sprint(err), "optim.adam does not fit the state: exp_avg.0: want float32 of shape (2,), got float32 of shape (1,)") {
		t.Errorf("got error %v", err)
	}
	for _, bad := range []starlib.Entry{{Name: "steps", Value: starlark.None}, {Name: "lr", Value: starlark.Tuple{}}, {Name: "lr", Value: starlark.Tuple{starlark.None}}} {
		if err := globals["a"].(starlib.Stateful).SetState([]starlib.Entry{bad}); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

// An average goes on from a checkpoint, also from one that was saved while it was swapped.
func TestAverageIsRestored(t *testing.T) {
	const start = "p = nn.parameter(tensor([1.0, 2.0]))\nema = optim.ema([p], decay = 0.75)\ndef go(n):\n    for _ in range(n):\n        p.detach().mul_(1.5)\n        ema.update()\n"
	first, second := starlibtest.New(t, ".", starlib.Rank{}, nil), starlibtest.New(t, ".", starlib.Rank{}, nil)
	saved, err := first.Exec("o.star", start+"go(3)\nema.swap()")
	if err != nil {
		t.Fatal(err)
	}
	rest, err := second.Exec("o.star", start+"p.detach().copy_("+values(t, saved["p"])+")")
	if err != nil {
		t.Fatal(err)
	}
	if err := rest["ema"].(starlib.Stateful).SetState(saved["ema"].(starlib.Stateful).State()); err != nil {
		t.Fatal(err)
	}
	const result = "ema.swap()\ngo(2)\nv = (p.tolist(), ema.averages[0].tolist(), ema.updates, ema.swapped)"
	a, errA := first.Exec("o.star", result)
	b, errB := second.Exec("o.star", result)
	if errA != nil || errB != nil || a["v"].String() != b["v"].String() {
		t.Errorf("without a stop %v, with one %v (%v, %v)", a["v"], b["v"], errA, errB)
	}
	for _, bad := range []starlib.Entry{{Name: "updates", Value: starlark.None}, {Name: "swapped", Value: starlark.None}, {Name: "average.1", Value: starlark.None}} {
		if err := rest["ema"].(starlib.Stateful).SetState([]starlib.Entry{bad}); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}
