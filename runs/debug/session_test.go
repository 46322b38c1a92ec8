package debug

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"drun/engine/recipetest"
	"drun/engine/run"
	"drun/history"
	"drun/internal/testlimit"
)

func TestMain(m *testing.M) { recipetest.Main(m) }

// session is a debugged run in a test.
type session struct {
	*Console
	t    testing.TB
	o    run.Options
	said []string
}

func options(t testing.TB, recipe string, n int, params ...string) run.Options {
	t.Helper()
	if strings.Contains(recipe, "\n") {
		file := filepath.Join(t.TempDir(), "recipe.star")
		if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
			t.Fatal(err)
		}
		recipe = file
	}
	o := run.Options{Recipe: recipe, Nproc: n, Timeout: time.Minute, Threads: 1, Parameters: run.Parameters{Params: params},
		Output: run.Output{Stdout: io.Discard, Stderr: io.Discard}}
	o.Home = t.TempDir()
	return o
}

func launch(t testing.TB, o run.Options) *session {
	t.Helper()
	s, err := Launch(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &session{t: t, o: o}
	c.Console = &Console{Session: s, Say: func(text string) { c.said = append(c.said, text) }}
	t.Cleanup(s.Close)
	return c
}

// start begins the run, and waits until its ranks are at the first statement of main.
func (s *session) start() *session {
	s.t.Helper()
	s.Start(true)
	if err := s.Settle(s.context(), nil); err != nil {
		s.t.Fatal(err)
	}
	return s
}

func (s *session) context() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), testlimit.Time(2*time.Minute))
	s.t.Cleanup(cancel)
	return ctx
}

// do carries out commands, and returns what the last one tells.
func (s *session) do(lines ...string) (out string) {
	s.t.Helper()
	for _, line := range lines {
		var err error
		if out, err = s.Do(s.context(), line); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
	}
	return out
}

// want carries out a command, and looks for texts in what it tells or refuses.
func (s *session) want(line string, texts ...string) {
	s.t.Helper()
	out, err := s.Do(s.context(), line)
	if err != nil {
		out += err.Error()
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			s.t.Errorf("%s: %q lacks %q", line, out, text)
		}
	}
}

// lines are where the ranks stand.
func (s *session) lines() (list []int) {
	for _, r := range s.Now().Ranks {
		if r.State == Held && len(r.Stop.Frames) > 0 {
			list = append(list, int(r.Stop.Frames[0].Line))
		} else {
			list = append(list, 0)
		}
	}
	return list
}

func (s *session) at(lines ...int) {
	s.t.Helper()
	if got := s.lines(); !slices.Equal(got, lines) {
		s.t.Errorf("the ranks are at %v, want %v", got, lines)
	}
}

// finish removes all breakpoints and lets the run end.
func (s *session) finish() {
	s.t.Helper()
	s.do("delete")
	for range 5 {
		if over, why := s.Over(); over {
			if why != "" {
				s.t.Fatal(why)
			}
			_, _ = s.Ended()
			return
		}
		s.do("continue")
	}
	s.t.Fatalf("the run does not end: %s", s.do("where"))
}

// outcome is what a run in a home has recorded: its metrics and the digests of its parameters.
func outcome(t testing.TB, home string) (points map[string]float64, digests string) {
	t.Helper()
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list, err := db.Points(1)
	if err != nil {
		t.Fatal(err)
	}
	points = map[string]float64{}
	for _, p := range list {
		points[fmt.Sprint(p.Name, p.Step, p.Rank)] = p.Value
	}
	got, err := db.Digests(1)
	if err != nil {
		t.Fatal(err)
	}
	return points, fmt.Sprint(got)
}

// same runs the recipe undisturbed, and compares the bits with those of the debugged run.
func (s *session) same() {
	s.t.Helper()
	o := s.o
	o.Home = s.t.TempDir()
	if r, err := run.Run(o); err != nil || r.Failure != nil {
		s.t.Fatal(err, r)
	}
	points, digests := outcome(s.t, s.o.Home)
	wantPoints, wantDigests := outcome(s.t, o.Home)
	if fmt.Sprint(points) != fmt.Sprint(wantPoints) || len(points) == 0 {
		s.t.Errorf("the debugged run recorded %v, another %v", points, wantPoints)
	}
	if digests != wantDigests {
		s.t.Errorf("the debugged run has the digests %s, another %s", digests, wantDigests)
	}
}

const training = `def loss_of(w, x):
    h = x * w
    return (h * h).sum()

def main():
    w = tensor.ones(4)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.05)
    state = {"w": w, "opt": opt, "step": 0, "total": 0}
    checkpoint.restore(state)
    total = state["total"]
    for step in range(state["step"], 12):
        x = random.generator(step).rand(4) + dist.rank()
        loss = loss_of(w, x)
        loss.backward()
        dist.sync_grad([w])
        opt.step()
        opt.zero_grad()
        total = total + loss.item()
        run.log(loss = loss.item(), step = step, all_ranks = True)
        state["step"], state["total"] = step + 1, total
        if step % 4 == 3:
            checkpoint.save(state, step = step)
`

// Every command leaves the run with its bits.
func TestBits(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		s := launch(t, options(t, training, n)).start()
		s.do("break 19 if step == 5", "continue")
		for _, line := range []string{"p w * 2", "p loss.item() > 0 and w.grad == None", "across w", "across x", "locals", "globals", "list", "where", "waits", "breaks", "help", "up", "[float(v) * 2 for v in w.tolist() if v > 0]"} {
			_, _ = s.Do(s.context(), line)
		}
		s.do("step", "next", "back", "changed total", "changed w", "nonfinite w", "nonfinite", "differ w", "rcontinue")
		s.finish()
		s.same()
	}
}

// Stepping goes through every statement, also those without a position of their own.
func TestStatements(t *testing.T) {
	s := launch(t, options(t, `def inner(a):
    b = 1
    if a:
        pass
    return b

def main():
    x = 0
    y = [1,
        2]
    for i in range(2):
        x += inner(i)
        if i == 0:
            continue
        break
    while True:
        x += 1
        if x > 3:
            break
    z = {}
    run.log(x = x)
    return
`, 1)).start()
	got := s.lines()
	for over, _ := s.Over(); !over; over, _ = s.Over() {
		s.do("step")
		if line := s.lines()[0]; line > 0 {
			got = append(got, line)
		}
	}
	want := []int{8, 9, 11, 12, 2, 3, 5, 13, 14, 11, 12, 2, 3, 4, 5, 13, 15, 16, 17, 18, 16, 17, 18, 19, 20, 21, 22}
	if !slices.Equal(got, want) {
		t.Errorf("stepped through\n%v, want\n%v", got, want)
	}
}

// next and out stay in a function and leave it.
func TestNextAndOut(t *testing.T) {
	s := launch(t, options(t, training, 2)).start()
	s.do("break 2", "continue")
	s.at(2, 2)
	s.do("next")
	s.at(3, 3)
	s.do("next")
	s.at(15, 15)
	s.do("break 2", "continue", "out")
	s.at(15, 15)
	s.want("next 0", "rank 0: ", "rank 1: ")
	s.at(16, 15)
	s.do("delete")
	s.want("next 0", "rank 0: waits for other ranks", "rank 1: ")
	s.want("waits", "for rank 1")
	s.do("next 1", "next 1")
	s.finish()
	s.same()
}

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
	if s.shown().from.From == nil {
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
	s.want("differ x", "x differs first between rank 0 and rank 1", "recipe.star:13")
	s.do("go 1")
	s.at(13, 13)
	s.want("changed opt", "opt got its value on rank 1 at") // in step 0
	s.want("nonfinite loss", "always been finite")
	s.want("differ w", "same values on all ranks")
	s.finish()
	s.same()
}

// Time limits stand still while a rank does, with every kind of wait.
func TestTimeLimits(t *testing.T) {
	o := options(t, `def main():
    x = tensor.ones(4)
    if dist.rank() == 0:
        dist.store.set("key", "value")
    run.log(here = 1, all_ranks = True)
    if dist.rank() == 1:
        dist.store.get("late", timeout = 0.5)
    else:
        dist.store.set("late", "1")
    work = dist.all_reduce(x, async_op = True, timeout = 0.5)
    work.wait()
    dist.barrier(timeout = 0.5)
`, 2)
	s := launch(t, o).start()
	s.do("break 9 on 0", "break 10 on 0", "break 12 on 0", "continue")
	for _, line := range []int{9, 10, 12} {
		if got := s.lines()[0]; got != line {
			t.Fatalf("rank 0 is at %d, want %d", got, line)
		}
		// Nothing happens for longer than any limit: rank 1 waits.
		quiet, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		_ = s.await(quiet, func() bool { return s.shown().over })
		cancel()
		if over, why := s.Over(); over {
			t.Fatalf("the run ended: %s", why)
		}
		s.do("continue 0")
		if line < 12 {
			_ = s.Stopped(s.context())
		}
	}
	s.finish()
}

// A condition that fails stops the rank and says so; what would change something is refused.
func TestConditions(t *testing.T) {
	s := launch(t, options(t, training, 2)).start()
	for _, c := range []struct{ line, want string }{
		{"break 13 if run.log(loss = 1)", ".log may change something"},
		{"break 13 if loss_of(w, x)", "loss_of may change something"},
		{"break 13 if w.add_(1)", ".add_ may change something"},
		{"break 13 if dist.barrier()", ".barrier may change something"},
		{"break 13 if step ==", "expression:1:"},
		{"break 13 if stpe == 1", "nothing in the file has the name stpe"},
		{"break 99", "no statement at line 99"},
		{"break 4", "moved to line 5"},
		{"break other.star:3", "the run has no file other.star"},
		{"break update 0", "wants a number from 1"},
		{"break 13 on 7", "there is no rank 7"},
		{"p state.update({})", "may change something"},
		{"p [f(1) for f in [print]]", "a call of f may change something"},
		{"p w.backward", "no value here"},
		{"rank 9", "there is no rank 9"},
		{"go 1", "no search has found"},
		{"delete 99", "there is no breakpoint 99"},
		{"p 1 // 0", "division by zero"},
	} {
		s.want(c.line, c.want)
	}
	s.do("delete")
	s.want("break 13 if loss.item() > 0", "breakpoint")
	s.want("continue", "the condition loss.item() > 0 could not be evaluated: loss has no value here")
	s.at(13, 13)
	s.do("delete", "break 13 if loss.item() < 0", "continue")
	if over, why := s.Over(); !over || why != "" {
		t.Errorf("the run is not over: %s %s", why, s.do("where"))
	}
}

// Breakpoints that are not at lines.
func TestOtherBreakpoints(t *testing.T) {
	s := launch(t, options(t, training, 2)).start()
	s.do("break update 3", "continue")
	s.at(17, 17)
	s.want("where", "update 3 has been made")
	s.want("p step", "2")
	s.do("delete", "break collective all_reduce on 1", "continue")
	if got := s.lines(); got[1] != 16 {
		t.Errorf("the ranks are at %v", got)
	}
	s.want("where", "before all_reduce of dist.sync_grad")
	s.do("rank 1")
	s.want("p step", "3")
	s.do("back")
	s.finish()
	s.same()
}

// A run is taken up at a step, from its checkpoint, and goes on with its bits.
func TestTakeUp(t *testing.T) {
	o := options(t, training, 2)
	if r, err := run.Run(o); err != nil || r.Failure != nil {
		t.Fatal(err, r)
	}
	db, err := history.Open(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, step := range []int64{1, 6} {
		session_, err := TakeUp(options(t, training, 2), db, o.Home, 1, step, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &session{t: t, o: o, Console: &Console{Session: session_}}
		s.want("p step", fmt.Sprint(step))
		s.want("changed w", "recipe.star:17")
		s.do("break 20 if step == 10", "continue")
		s.want("p step", "10")
		s.do("back")
		s.at(19, 19)
		s.Close()
	}
	if _, err := TakeUp(options(t, training, 2), db, o.Home, 1, 99, nil); err == nil || !strings.Contains(err.Error(), "no step 99") {
		t.Errorf("step 99: %v", err)
	}
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

// A rank that fails ends the run, also while others stand at a breakpoint.
func TestFailure(t *testing.T) {
	s := launch(t, options(t, `def main():
    x = 1
    if dist.rank() == 1:
        fail("on purpose")
    dist.barrier()
`, 2)).start()
	s.do("break 5 on 0", "next 0", "next 0")
	s.want("continue 1", "the run has ended", "on purpose")
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
	if !strings.Contains(fmt.Sprint(s.said), "from the checkpoint of step 1") || !strings.Contains(fmt.Sprint(s.said), "from the beginning") {
		t.Errorf("going back said %v", s.said)
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

// Every operation is seen that gives NaN or an infinity, also without gradients, in place and on plain tensors.
func TestNonFinite(t *testing.T) {
	s := launch(t, options(t, `def quiet(x):
    return x / 0.0

def main():
    a = tensor.zeros(2)
    b = a / a
    c = tensor.ones(2)
    c.div_(0.0)
    d = tensor.no_grad(quiet, tensor.ones(1))
    e = tensor.full([2], float("inf"))
    f = e.softmax(0)
    run.log(x = 1)
`, 1)).start()
	s.do("break nonfinite")
	for _, want := range []struct{ line, text string }{
		{":6 ", "the result of div is NaN"}, {":8 ", "the result of div_ is infinite"}, {":2 in quiet", "the result of div is infinite"}, {":10 ", "the result of tensor.full is infinite"}, {":11 ", "the result of softmax is NaN"},
	} {
		s.do("continue")
		s.want("where", want.line, want.text)
	}
	s.do("delete", "break 12", "continue")
	s.want("nonfinite", "rank 0: the result of div is NaN, at", "recipe.star:6")
	s.finish()
}

// Eight ranks are held for longer than any of their time limits.
func TestHeld(t *testing.T) {
	o := options(t, training, 8)
	o.Timeout = time.Second
	s := launch(t, o).start()
	s.do("break 16 if step == 2", "continue")
	s.do("next 3", "next 3") // it waits for the others
	quiet, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_ = s.await(quiet, func() bool { return s.shown().over })
	if over, why := s.Over(); over {
		t.Fatalf("the run ended: %s", why)
	}
	s.finish()
	s.same()
}

// A rank whose main has returned has ended, also while it waits for another to do so.
func TestReturned(t *testing.T) {
	s := launch(t, options(t, `def main():
    x = tensor.ones(2)
    y = x * 2.0
    if dist.rank() == 0:
        run.log(y = y.sum().item())
`, 2)).start()
	s.do("break 5", "continue")
	if err := s.await(s.context(), func() bool { return s.base.ranks[1].State == Ended }); err != nil {
		t.Fatal(err)
	}
	s.want("changed y", "recipe.star:3")
	s.do("back")
	s.at(4, 0)
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
	s.do("break 5", "continue", "changed n", "go 1")
	s.at(4)
	s.want("p i", "11999")
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
	s.do(`changed d["k"]`, "go 1")
	s.at(3)
	s.want(`p d["k"]`, "0")
	s.want("n == 5", "n") // no command: there is no such variable
	s.want("where d", "print where d")
	s.finish()
	s.same()
}

// A rank that dies at a breakpoint ends the run, which says so.
func TestDies(t *testing.T) {
	o := options(t, training, 2)
	var pid atomic.Int64
	o.OnSpawn = func(rank, p int) {
		if rank == 1 {
			pid.Store(int64(p))
		}
	}
	s := launch(t, o).start()
	s.do("break 19 if step == 2", "continue")
	s.at(19, 19)
	if err := syscall.Kill(int(pid.Load()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.await(s.context(), func() bool { return s.base.over }); err != nil {
		t.Fatal(err)
	}
	s.want("where", "rank 1: failed: ", "killed")
	s.want("p w", "does not stand still")
	if _, why := s.Over(); !strings.Contains(why, "killed") {
		t.Errorf("the run says %q", why)
	}
}
