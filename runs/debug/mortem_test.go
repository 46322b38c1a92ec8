package debug

import "testing"

// After an error, back goes to the step that failed, and everything works from there.
func TestBackToAnError(t *testing.T) {
	s := launch(t, options(t, `def inner(d, k):
    found = d[k]
    return found + 1

def main():
    w = tensor.ones(3)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.1)
    d = {"0": 1}
    for step in range(3):
        (w * w).sum().backward()
        opt.step()
        opt.zero_grad()
        dist.all_reduce(w.detach().clone())
        if dist.rank() == 1:
            inner(d, str(step))
    run.log(x = 1)
`, 2)).start()
	s.want("continue", `key "1" not in dict`, "back goes to where rank 1 failed")
	for _, line := range []string{"locals", "print d", "rcontinue", "changed w", "next"} {
		s.want(line, "back goes to where rank 1 failed")
	}
	s.want("back", "in the past: the run has failed since", "recipe.star:2 in inner")
	if s.Rank != 1 {
		t.Errorf("rank %d is the current one", s.Rank)
	}
	s.want("print k", `"1"`)
	s.want("changed w", "has had no value yet") // in this call
	s.want("up", "main at")
	s.want("print step", "1")
	s.want("changed w", "w last changed on rank 1 at", "recipe.star:12, after update 1")
	s.want("continue", "recipe.star:2 in inner") // it does not fail again
	s.do("back", "back")
	s.want("where", "recipe.star:1")
	s.want("rcontinue", "recipe.star:6")
	if over, why := s.Over(); over {
		t.Errorf("the run is over: %s", why)
	}
}
