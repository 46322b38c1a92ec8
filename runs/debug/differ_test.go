package debug

import (
	"strings"
	"testing"
)

// The first difference is found where a rank does not change a value that others change, too.
func TestDiffer(t *testing.T) {
	s := launch(t, options(t, `def main():
    w = tensor.ones(3)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.1)
    n, seen, last = 0, [], 0
    for step in range(10):
        loss = (w * w).sum()
        loss.backward()
        dist.sync_grad([w])
        if not (dist.rank() == 1 and step == 5):
            opt.step()
            n += 1
        opt.zero_grad()
        if dist.rank() == 1 and step == 7:
            only = step
        last = dist.rank() if step == 3 else 0
        k = step + (dist.rank() if step >= 8 - 3 * dist.rank() else 0)
    for i in range(4 + dist.rank()):
        seen = seen + [i]
    for i in range(10100):
        last = i if i < 10050 or dist.rank() == 0 else 0
    done = True
    run.log(n = n)
`, 3)).start()
	s.do("break 22", "continue")
	for _, c := range []struct{ expr, text, line string }{
		{"w", "rank 1 did not change it, and rank 0 did", "recipe.star:11, after update 5"},
		{"n", "rank 1 did not change it, and rank 0 did", "recipe.star:12, after update 6"},
		{"only", "rank 0 did not change it, and rank 1 did", "recipe.star:15"},
		{"seen", "rank 0 did not change it, and rank 1 did", "recipe.star:19"},
		{"last", "rank 0 did not change it, and rank 1 did", "recipe.star:16, after update 4"},
		{"i", "at", "recipe.star:18"},
		{"opt", "differs first", "recipe.star:11"},
	} {
		s.want("differ "+c.expr, c.expr+" differs first between rank 0 and rank 1: ", c.text, c.line)
	}
	s.want("differ k", "k differs first between rank 0 and rank 2: at", "after update 3")
	s.want("differ step", "same values on all ranks so far")
	s.want("differ w.grad == None", "same values on all ranks so far")
	s.want("differ 1 // 0", "has had no value on any rank yet")
	s.want("nonfinite 1 // 0", "has had no value yet")
	for _, line := range []string{"differ", "changed"} {
		s.want(line, "wants", "EXPRESSION")
	}
	s.want("differ nosuch", "nothing in the file has the name nosuch")
	s.want("nonfinite nosuch", "nothing in the file has the name nosuch")
	s.do("next 0")
	s.want("differ done", "same values on all ranks so far") // the others have not come there yet
	s.finish()
	s.same()
}

// across calls only those values equal that it has compared, with all that is in them.
func TestAcross(t *testing.T) {
	s := launch(t, options(t, `def counting(n):
    def down(k):
        return n if k == 0 else down(k - 1)
    return down

def main():
    r = dist.rank()
    span, fn, same = range(3 + r), counting(r), counting(3)
    inner = [lambda: r, {"f": fn}]
    if r:
        only = 3
    x = fn(2)
    run.log(x = x)
`, 3)).start()
	s.do("break 12", "continue")
	for expr, want := range map[string]string{
		"span": "they differ: rank 0 and rank 1", "fn": "they differ: rank 0 and rank 1", "inner": "they differ: rank 0 and rank 1",
		"same": "they are equal", "only": "those of 2 ranks are equal", "counting": "they are equal",
	} {
		s.want("across "+expr, want)
	}
	s.do("next 0")
	if out := s.do("across x"); strings.Contains(out, "equal") {
		t.Errorf("of one rank's value it says %s", out)
	}
	s.finish()
	s.same()
}

// A rank that waits for others can be stopped where it waits.
func TestPauseOfAWait(t *testing.T) {
	s := launch(t, options(t, `def main():
    x = 7 + dist.rank()
    dist.barrier()
    run.log(x = x)
`, 2)).start()
	s.do("break 3", "continue", "next 0", "pause 0", "rank 0")
	s.want("where", "rank 0: ", "in a call that waits for other ranks")
	s.want("print x", "7")
	s.finish()
	s.same()
}
