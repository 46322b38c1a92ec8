package debug

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"drun/internal/testlimit"
)

// Each step back comes to where the run was, from the nearest checkpoint, and the run goes on as if nothing had been.
func TestBack(t *testing.T) {
	s := launch(t, options(t, training, 2)).start()
	s.do("break 19", "continue")
	type moment struct {
		lines []int
		w, x  string
	}
	is := func() moment { return moment{s.lines(), s.do("across w"), s.do("across x")} }
	s.do("delete", "break 19 if step == 9", "continue", "delete")
	past := []moment{is()}
	for range 12 {
		s.do("next")
		past = append(past, is())
	}
	for i := len(past) - 2; i >= 0; i-- {
		s.do("back")
		if got, want := is(), past[i]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("step back %d: %v, want %v", i, got, want)
		}
	}
	if s.shown().from.From.Home == "" {
		t.Error("the last step back was not from a checkpoint")
	}
	if said := fmt.Sprint(s.said); !strings.Contains(said, "repeating the run from the checkpoint of step ") && !strings.Contains(said, "whose state was kept") {
		t.Errorf("going back said %v", s.said)
	}
	s.do("back") // step 9 at the optimizer's step or before
	s.at(18, 18)
	s.do("break 2 if x.sum().item() > 0", "rcontinue")
	s.want("where", "recipe.star:2 in loss_of", "in the past")
	s.do("delete", "rcontinue")
	s.at(6, 6)
	s.finish()
	s.same()
}

// Searches name the statement, and go N goes to it.
func TestSearches(t *testing.T) {
	s := launch(t, options(t, training, 2)).start()
	s.want("changed total", "has had no value")
	s.do("break 22 if step == 6", "continue")
	s.want("changed total", "total last changed on rank 0", "recipe.star:19, after update 7")
	s.do("go 1")
	s.at(19, 22)
	s.want("p step", "6")
	s.do("rank 1")
	s.want("changed w", "w last changed on rank 1 at", "recipe.star:17, after update 6")
	s.want("differ x", "x differs first between rank 0 and rank 1", "recipe.star:13", "(go 3)")
	s.do("go 3")
	s.at(13, 13)
	s.want("go 1", "only rank 0 went back", "in the past") // a number stays, also of a later moment
	s.at(19, 22)
	s.want("go 3", "in the past")
	s.do("rank 1")
	s.want("changed opt", "opt got its value on rank 1 at") // in step 0
	s.want("nonfinite w", "always been finite")
	s.want("differ w", "same values on all ranks")
	s.finish()
	s.same()
}

// A recipe that cannot be repeated is refused with the reason.
func TestNotRepeatable(t *testing.T) {
	s := launch(t, options(t, `def main():
    w = tensor.ones(1)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.1)
    for step in range(4):
        loss = (w * run.elapsed()).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        run.log(loss = loss.item())
`, 1)).start()
	s.do("break 10", "continue", "continue", "next")
	s.want("back", "came to other values")
	s.at(5)
	s.finish()
}

// The estimate and the time of a step back: the computation from the checkpoint, and little more.
func TestBackIsQuick(t *testing.T) {
	s := launch(t, options(t, training, 2)).start()
	s.do("break 19 if step == 9", "continue")
	s.do("back")
	began := time.Now()
	s.do("back")
	t.Logf("a step back took %v: %v", time.Since(began), s.said)
	if took := time.Since(began); took > testlimit.Time(20*time.Second) {
		t.Errorf("a step back took %v", took)
	}
}

// tall goes on from its checkpoints, and does not save all of its variables.
const tall = `def main():
    w = tensor.ones(4)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.05)
    batches = data.loader(data.dataset(tensor.arange(64.0).view(16, 4)), batch = 2)
    state = {"w": w, "opt": opt, "batches": batches}
    checkpoint.restore(state)
    %s
    for epoch in batches.epochs(3):
        for x, _ in batches:
            loss = (x * w).sum()
            loss.backward()
            dist.sync_grad([w])
            opt.step()
            opt.zero_grad()
            run.log(loss = loss.item())
            %s
        checkpoint.save(state, step = epoch)
`

// Variables that the recipe does not save are in the past what they were: a checkpoint with which they are others is not taken.
func TestVariables(t *testing.T) {
	s := launch(t, options(t, fmt.Sprintf(tall, "total = 0.0", "total += loss.item()"), 2)).start()
	s.do("break 17 if epoch == 2", "continue", "delete")
	for range 3 {
		was := s.do("across total")
		s.do("next", "back")
		if got := s.do("across total"); got != was {
			t.Errorf("total was %s, and is %s in the past", was, got)
		}
		s.do("next", "next", "next")
	}
	if said := fmt.Sprint(s.said); !strings.Contains(said, "after update ") || !strings.Contains(said, "from the beginning") {
		t.Errorf("going back said %s", said)
	}
	s.do("changed total")
	s.said = nil
	s.do("changed total")
	if said := fmt.Sprint(s.said); strings.Contains(said, "after update ") || !strings.Contains(said, "from the beginning") {
		t.Errorf("a state that lacks a variable was tried again: %s", said)
	}
	s.finish()
	s.same()
}

// A variable that is another in each repetition, such as a time, keeps nobody from going back, who is told of it.
func TestTimes(t *testing.T) {
	s := launch(t, options(t, fmt.Sprintf(tall, "began = run.elapsed()", "pass"), 2)).start()
	s.do("break 16 if epoch == 2", "continue", "delete", "back")
	s.at(15, 15)
	if got := fmt.Sprint(s.said); !strings.Contains(got, "some variables have other values in each repetition") {
		t.Errorf("going back said %s", got)
	}
	s.said = nil
	s.do("back")
	if got := fmt.Sprint(s.said); got == "[]" || strings.Contains(got, "beginning") {
		t.Errorf("going back again said %s", got)
	}
	s.finish()
	s.same()
}

// A repetition keeps states on its way, from which later ones begin.
func TestKeptStates(t *testing.T) {
	defer func(seconds float64) { stateEach = seconds }(stateEach)
	stateEach = 0
	s := launch(t, options(t, strings.ReplaceAll(fmt.Sprintf(tall, "pass", "pass"), "checkpoint.save(state, step = epoch)", "pass"), 1)).start()
	s.do("break 16 if epoch == 1", "continue", "delete", "back", "back")
	if got := fmt.Sprint(s.said); !strings.Contains(got, "whose state was kept") {
		t.Errorf("going back said %s", got)
	}
	s.want("p epoch", "1")
	s.at(14)
	s.finish()
	s.same()
}

// Breakpoints between where a rank begins and where it is to go do not stop it on its way, also after they were set anew because
// another rank has come there first.
func TestBreakpointsOnTheWay(t *testing.T) {
	s := launch(t, options(t, `def main():
    x = 0
    if dist.rank() == 1:
        for i in range(600000):
            x = x + 1
    y = x
    z = y
    run.log(z = z, all_ranks = True)
`, 2)).start()
	s.do("break 7", "continue")
	if err := s.Settle(s.context(), nil); err != nil {
		t.Fatal(err)
	}
	s.at(7, 7)
	s.do("break 5", "back")
	if err := s.Settle(s.context(), nil); err != nil {
		t.Fatal(err)
	}
	s.at(6, 6)
	s.finish()
	s.same()
}

// A rank that has gone back to a statement goes on from it: neither is it there again, nor does a breakpoint there stop it again.
func TestForwardAgain(t *testing.T) {
	s := launch(t, options(t, training, 2)).start()
	s.do("break 19 if step == 5", "continue", "next", "back")
	s.at(19, 19)
	s.do("next")
	s.at(20, 20)
	if s.Now().Past {
		t.Error("the ranks have come to the present, and the past is shown")
	}
	s.want("back 1", "only rank 1 went back")
	s.at(20, 19)
	s.do("next 1")
	if s.at(20, 20); s.Now().Past {
		t.Error("rank 1 has come to the present, and the past is shown")
	}
	s.do("back", "continue")
	if s.at(20, 20); s.Now().Past {
		t.Error("a breakpoint at the statement itself has stopped the ranks")
	}
	s.finish()
	s.same()
}

// The latest of many changes is found.
func TestManyChanges(t *testing.T) {
	s := launch(t, options(t, `def main():
    n = 0
    for i in range(12000):
        n = n + i
    m = n
    run.log(m = m)
`, 1)).start()
	s.do("break 5", "continue")
	s.base.ranks[0].Stop.Seconds = 7 // as on a slow machine
	s.do("changed n")
	if said := fmt.Sprint(s.said); !strings.Contains(said, "from the beginning: about 7.0 s of computation") {
		t.Errorf("it says %s", said)
	}
	s.do("go 1")
	s.at(4)
	s.want("p i", "11999")
	s.do("next")
	s.want("differ n", "same values on all ranks so far, as far as its first 10000 changes tell")
	s.want("nonfinite n", "always been finite, as far as its first 10000 changes tell")
	s.want("differ m", "has had no value on any rank yet")
	s.finish()
	s.same()
}

// What the statement before the present one has changed is found, too, also in the past.
func TestLatestChange(t *testing.T) {
	s := launch(t, options(t, `def main():
    d = {"k": 0}
    d["k"] = 1
    d["k"] = 2
    run.log(m = 1)
`, 1)).start()
	s.do("break 5", "continue", `changed d["k"]`, "go 1")
	s.at(4)
	s.do(`changed d["k"]`, "go 2")
	s.at(3)
	s.want(`p d["k"]`, "0")
	s.want("n == 5", "n") // no command: there is no such variable
	s.want("where d", "print where d")
	s.finish()
	s.same()
}

// While a person looks at the past, the repetition for the next step back begins ahead, and it leads to the right moment.
func TestAhead(t *testing.T) {
	s := launch(t, options(t, fmt.Sprintf(tall, "pass", "pass"), 2)).start()
	s.do("break 17 if epoch == 2", "continue", "delete")
	var losses []string
	for range 4 {
		losses = append(losses, s.do("across loss"))
		s.do("next")
	}
	s.do("back")
	for i := 3; i >= 0; i-- {
		if got := s.do("across loss"); got != losses[i] {
			t.Errorf("step back %d: loss is %s, was %s", i, got, losses[i])
		}
		w := s.prepared()
		s.said = nil
		if s.do("back"); s.shown() != w {
			t.Errorf("step back %d did not take the repetition that stood ready: %v", i, s.said)
		}
		if got := fmt.Sprint(s.said); got != "[a repetition was begun ahead: less than 0.1 s of computation]" {
			t.Errorf("going back said %v", got)
		}
	}
	s.finish()
	if s.spare != nil {
		t.Error("a repetition still stands ready in the present")
	}
	s.same()
}

// Of repetitions that are over, only those are kept that have states.
func TestHomes(t *testing.T) {
	s := launch(t, options(t, `def main():
    x = 0
    for i in range(5):
        x = x + i
        y = x
    run.log(x = x)
`, 1)).start()
	s.do("break 6", "continue", "delete")
	for range 8 {
		s.do("back")
		s.prepared()
	}
	if n := len(s.made); n > 4 {
		t.Errorf("%d repetitions are kept", n)
	}
	s.finish()
	s.same()
}

// The statement before a call of many updates is found.
func TestBackOverUpdates(t *testing.T) {
	s := launch(t, options(t, `def train(w, opt):
    for step in range(6):
        (w * w).sum().backward()
        opt.step()
        opt.zero_grad()

def main():
    w = tensor.ones(4)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.05)
    n = 1
    train(w, opt)
    run.log(n = n)
`, 2)).start()
	s.do("break update 6", "continue", "delete", "out")
	s.at(13, 13)
	s.do("back")
	s.at(12, 12)
	s.do("back")
	s.at(11, 11)
	s.finish()
	s.same()
}

// From the past, the next change is found, and where ranks are is said: in the past, only some of them, or in the present again.
func TestNextChange(t *testing.T) {
	s := launch(t, options(t, training, 2)).start()
	s.want("changed next w", "rank 0 is in the present")
	s.do("break 20 if step == 9", "continue", "delete", "break 13 if step == 4")
	s.want("rcontinue", "in the past: the run itself stands still", "only rank 0 went back")
	s.at(13, 0)
	s.do("delete")
	s.want("changed next w", "w changes next on rank 0 at", "recipe.star:17, after update 4", "(go 1)")
	s.want("changed next step", "step changes next on rank 0 at", "recipe.star:12, after update 5")
	s.want("changed next state", "recipe.star:17, after update 4")
	s.want("changed next x", "recipe.star:13")
	s.want("changed next opt.nothing", "does not change between here and the present")
	s.do("go 1")
	if got := s.lines()[0]; got != 17 {
		t.Errorf("rank 0 is at line %d", got)
	}
	s.want("p step", "4")
	s.want("continue", "this is the present again: the run itself goes on from here")
	s.at(20, 20)
	s.finish()
	s.same()
}

// What a repetition from a checkpoint sees first need not have changed there.
func TestChangedBeforeTheCheckpoint(t *testing.T) {
	s := launch(t, options(t, strings.Replace(training, "        opt.zero_grad()\n", "        opt.zero_grad()\n        k = 5\n", 1), 1)).start()
	s.do("break 22 if step == 9", "continue")
	s.want("changed k", "k got its value on rank 0 at", "recipe.star:19, after update 1 ")
	s.want("changed total", "total last changed on rank 0 at", "recipe.star:20, after update 10 ")
	s.do("delete", "break 13 if step == 8", "rcontinue", "delete")
	s.want("changed next k", "k does not change between here and the present")
	s.want("changed next total", "total changes next on rank 0 at", "recipe.star:20, after update 9 ")
	s.finish()
	s.same()
}

// Only ranks that belong to a group are waited for in it.
func TestWaitsOfGroups(t *testing.T) {
	s := launch(t, options(t, `def main():
    g = dist.new_group([0, 1])
    x = tensor.ones(2)
    if dist.rank() < 2:
        dist.all_reduce(x, group = g)
        y = x * 2
        dist.all_reduce(x, group = g)
    run.log(x = x.sum().item())
`, 3)).start()
	s.do("break 6", "break 8 on 2", "continue", "next 0", "next 0")
	s.want("waits", "rank 0: waits in ", ", for rank 1\nrank 1: ", "\nrank 2: ")
	s.finish()
	s.same()
}

// Without an update, moments that have been seen are compared.
func TestWithoutUpdates(t *testing.T) {
	const src = `def main():
    w = tensor.zeros(2)
    for step in range(4):
        w = w + %s
        y = w * 2
        z = y + 1
    run.log(x = w.sum().item())
`
	const differ, unproven = "some variables have other values", "nothing proves"
	for _, c := range []struct {
		value    string
		commands []string
		say      string // "": neither
	}{
		{"run.elapsed()", []string{"break 6", "continue", "continue", "back"}, unproven},
		{"run.elapsed()", []string{"break 6", "continue", "continue", "back", "next"}, differ},
		{"run.elapsed()", []string{"break 5", "continue", "next", "back"}, differ},
		{"run.elapsed()", []string{"break 6", "continue", "changed w"}, differ},
		{"step", []string{"break 6", "continue", "continue", "back", "next"}, unproven},
		{"step", []string{"break 5", "continue", "next", "back", "next", "changed w"}, ""},
	} {
		s := launch(t, options(t, fmt.Sprintf(src, c.value), 2)).start()
		s.do(c.commands...)
		said := strings.Join(s.said, "\n")
		if is := strings.Contains(said, differ); is != (c.say == differ) {
			t.Errorf("%s, %v: said %s", c.value, c.commands, said)
		}
		if c.say != differ && strings.Contains(said, unproven) != (c.say == unproven) {
			t.Errorf("%s, %v: said %s", c.value, c.commands, said)
		}
		s.Close()
	}
}
