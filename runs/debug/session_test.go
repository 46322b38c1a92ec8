package debug

import (
	"cmp"
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

	"drun/engine/run"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

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
	s.do("out 1")
	s.want("across x", "rank 0: Tensor", "rank 1, in main: Tensor")
	s.do("delete", "rank 0", "out 0", "break 2", "continue")
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
		{"break collective foo", "there is no collective foo"},
		{"break collective ALL-REDUCE", "did you mean all_reduce?"},
		{"break collective dist.rank", "there is no collective rank"},
		{"break 13 on 7", "there is no rank 7"},
		{"p state.update({})", "may change something"},
		{"p [f(1) for f in [print]]", "a call of f may change something"},
		{"p w.backward", "no value here"},
		{"rank 9", "there is no rank 9"},
		{"r", "rank wants N"},
		{"changed", "changed wants [next] EXPRESSION"},
		{"contine", "contine has no value here"},
		{"help delte", "there is no command delte"},
		{"help p", "print, p EXPRESSION"},
		{"go 1", "no search has found"},
		{"delete 99", "there is no breakpoint 99"},
		{"p 1 // 0", "division by zero"},
	} {
		s.want(c.line, c.want)
	}
	s.do("delete")
	s.want("break 13 if loss.item() > 0", "breakpoint 2 ") // only one of those above was set
	s.want("continue", "the condition loss.item() > 0 could not be evaluated: loss has no value here")
	s.at(13, 13)
	s.do("delete", "break 13 if loss.item() < 0", "continue")
	if over, why := s.Over(); !over || why != "" {
		t.Errorf("the run is not over: %s %s", why, s.do("where"))
	}
}

// What may have been meant is said, but not of a name of the recipe.
func TestSuggestions(t *testing.T) {
	s := launch(t, options(t, training, 1)).start()
	for line, want := range map[string]string{"contine": "did you mean continue?", "help delte": "did you mean delete?", "nexx 1": "did you mean next?", "loss": "", "frob": ""} {
		if _, err := s.Do(s.context(), line); err == nil || exit.HintOf(err) != want {
			t.Errorf("%s: %v, hint %q, want %q", line, err, exit.HintOf(err), want)
		}
	}
	if help := s.do("help break"); !strings.HasPrefix(help, "break, b") || strings.Contains(help, "\n") {
		t.Errorf("help break: %s", help)
	}
}

// A file is found by its name and by its path, and a function of one line has a statement.
func TestOneLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "line.star")
	if err := os.WriteFile(file, []byte("def f(x): return x + 1\ndef main(): y = f(1); run.log(y = y)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(file))
	s := launch(t, options(t, "line.star", 1)).start()
	s.at(2)
	for _, name := range []string{"line.star", "./line.star", file} {
		s.want("break "+name+":1", "breakpoint ", " at line.star:1")
	}
	s.do("continue")
	s.at(1)
	s.want("p x", "1")
	s.finish()
}

// A command that is interrupted says so.
func TestGivenUp(t *testing.T) {
	s := launch(t, options(t, training, 1)).start()
	s.do("break 20", "continue")
	ctx, cancel := context.WithCancel(s.context())
	cancel()
	if _, err := s.Do(ctx, "changed w"); err == nil || err.Error() != "changed w was given up" {
		t.Errorf("interrupted: %v", err)
	}
	s.want("changed w", "recipe.star:17")
	s.finish()
	s.same()
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
	s.do("back", "delete", "break collective dist.sync_grad", "continue", "continue")
	s.want("where", "rank 0: ", "rank 1: ", "before all_reduce of dist.sync_grad")
	s.finish()
	s.same()
}

// recorded executes a recipe on two ranks.
func recorded(t *testing.T, src string) (o run.Options, db *history.DB) {
	o = options(t, src, 2)
	if r, err := run.Run(o); err != nil || r.Failure != nil {
		t.Fatal(err, r)
	}
	db, err := history.Open(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return o, db
}

// A run is taken up at a step, from its checkpoint, and goes on with its bits.
func TestTakeUp(t *testing.T) {
	o, db := recorded(t, training)
	for _, step := range []int64{1, 6} {
		session_, err := TakeUp(t.Context(), options(t, training, 2), db, o.Home, 1, step, nil)
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
	if _, err := TakeUp(t.Context(), options(t, training, 2), db, o.Home, 1, 99, nil); err == nil || !strings.Contains(err.Error(), "no step 99") {
		t.Errorf("step 99: %v", err)
	}
}

// Where steps are those of checkpoint.save alone, a run is taken up in the call that saves the step.
func TestTakeUpWithoutUpdates(t *testing.T) {
	const src = `def main():
    total = 0.0
    t = tensor.zeros(2)
    for i in range(8):
        total += 0.5
        t += 1
        if i % 2:
            checkpoint.save({"t": t}, step = i)
    run.log(total = total)
`
	o, db := recorded(t, src)
	session_, err := TakeUp(t.Context(), options(t, src, 2), db, o.Home, 1, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, o: o, Console: &Console{Session: session_}}
	s.at(8, 8)
	s.want("where", "before step 5 is saved")
	s.want("print total", "3.0")
	s.do("back")
	s.at(8, 8)
	s.do("back")
	s.at(7, 7)
	s.do("next", "next", "next") // the second one comes to the present, which is within the statement
	s.at(4, 4)
	s.want("across i", "5", "they are equal")
	s.Close()
	if r, err := s.Ended(); err != nil || r.ID != 0 {
		t.Errorf("the repetition ended as %+v, %v", r, err)
	}
	for _, step := range []int64{-1, 99} {
		if _, err := TakeUp(t.Context(), options(t, src, 2), db, o.Home, 1, step, nil); err == nil || !strings.Contains(err.Error(), fmt.Sprint("step ", step)) {
			t.Errorf("step %d: %v", step, err)
		}
	}
}

// A step that metrics have after different updates is refused, with a hint that drun debug understands.
func TestTakeUpAmbiguous(t *testing.T) {
	src := strings.Replace(training, "        loss.backward()\n", "        run.log(before = 1, step = step)\n        loss.backward()\n", 1)
	src = strings.Replace(src, "checkpoint.save(state, step = step)", "pass", 1)
	o := options(t, src, 1)
	if r, err := run.Run(o); err != nil || r.Failure != nil {
		t.Fatal(err, r)
	}
	db, err := history.Open(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := TakeUp(t.Context(), o, db, o.Home, 1, 2, nil); err == nil || !strings.Contains(exit.HintOf(err), "drun at RUN STEP --metric") {
		t.Errorf("refused with %v, hint %s", err, exit.HintOf(err))
	}
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
    f = tensor.where(a > 0, a, float("inf")).masked_fill(a == 0, float("-inf"))
    f = e.softmax(0)
    run.log(x = 1)
`, 1)).start()
	s.do("break nonfinite")
	for _, want := range []struct{ line, text string }{
		{":6 ", "the result of div is NaN"}, {":8 ", "the result of div_ is infinite"}, {":2 in quiet", "the result of div is infinite"}, {":10 ", "the result of tensor.full is infinite"}, {":12 ", "the result of softmax is NaN"},
	} {
		s.do("continue")
		s.want("where", want.line, want.text)
	}
	s.do("delete", "break 13", "continue")
	s.want("nonfinite", "rank 0: the result of div is NaN, at", "recipe.star:6")
	s.finish()
}

// A recipe that watches for NaN itself hides nothing from the debugger.
func TestNonFiniteWatched(t *testing.T) {
	s := launch(t, options(t, `def main():
    run.watch_nan(abort = False)
    for i in range(2):
        a = tensor.zeros(1)
        a.requires_grad = True
        a.sqrt().sum().backward()
    run.log(x = 1)
`, 1)).start()
	s.do("break 7", "continue", "delete")
	s.want("nonfinite", "rank 0: the result of backward of sqrt is infinite, at", "recipe.star:6")
	s.do("rcontinue", "break nonfinite")
	for range 2 {
		s.do("continue")
		s.want("where", ":6 in main", "the result of backward of sqrt is infinite")
	}
	s.finish()
	s.same()
}

// Eight ranks are held for longer than any of their time limits: three seconds, or DRUN_TEST_HELD.
func TestHeld(t *testing.T) {
	long := try.To(time.ParseDuration(cmp.Or(os.Getenv("DRUN_TEST_HELD"), "3s")))
	o := options(t, training, 8)
	o.Timeout = time.Second
	s := launch(t, o).start()
	s.do("break 16 if step == 2", "continue")
	s.do("next 3", "next 3") // it waits for the others
	quiet, cancel := context.WithTimeout(t.Context(), long)
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
	if _, is := s.Failed(); is {
		t.Error("where a killed rank was is not known")
	}
}

// A launch that is interrupted ends the run, whose end is in the history.
func TestInterruptedLaunch(t *testing.T) {
	o := options(t, training, 4)
	ctx, cancel := context.WithCancel(t.Context())
	o.OnSpawn = func(int, int) { cancel() }
	if _, err := Launch(ctx, o); exit.CodeOf(err) != exit.Interrupted {
		t.Errorf("%v", err)
	}
	db, err := history.Open(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if d, err := db.Get(1); err != nil || d.Status != history.Interrupted {
		t.Errorf("%+v, %v", d, err)
	}
}

// A debugger that comes when a rank has returned from main does not wait for it.
func TestAttachAfterARankHasReturned(t *testing.T) {
	o := options(t, "def main():\n    if dist.rank() == 0:\n        dist.send(1, dst = 1)\n        return\n    dist.recv(0)\n    print('go')\n    for i in range(1 << 40):\n        str(i)\n", 2)
	signals, entered, ended := make(chan os.Signal, 1), make(chan int64, 1), make(chan struct{})
	o.Signals, o.OnEntered = signals, func(id int64) { entered <- id }
	said, stdout := io.Pipe()
	o.Stdout = stdout
	go func() {
		defer close(ended)
		if _, err := run.Run(o); err != nil {
			t.Error(err)
		}
	}()
	defer func() { signals <- syscall.SIGTERM; <-ended }()
	id := <-entered
	if _, err := said.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, said)
	db, err := history.Open(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	at, err := Attach(t.Context(), o, db, o.Home, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	s := &session{t: t, Console: &Console{Session: at, Rank: 1, Say: func(string) {}}}
	at.Pause(nil)
	if err := at.Stopped(s.context()); err != nil {
		t.Error(err)
	}
	s.want("next", "rank 0: has ended", "rank 1: ")
}
