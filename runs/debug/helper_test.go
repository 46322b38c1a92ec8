package debug

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	s, err := Launch(t.Context(), o)
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

// prepared waits until the repetition for the next step back stands, and returns it.
func (s *session) prepared() *world {
	s.t.Helper()
	if s.spare == nil {
		s.t.Fatal("no repetition was begun for the next step back")
	}
	w := s.spare()
	if err := s.await(s.context(), func() bool { return !w.any(Executes) }); err != nil {
		s.t.Fatal(err)
	}
	return w
}
