package run

import (
	"testing"
	"time"

	"drun/engine"
	"drun/internal/exit"
)

func TestRestartable(t *testing.T) {
	fail := func(code exit.Code, when int64) *engine.Failure { return &engine.Failure{Code: code, When: when} }
	lasting := func(code exit.Code, when int64) *engine.Failure {
		return &engine.Failure{Code: code, When: when, Permanent: true}
	}
	secondary := func(f *engine.Failure) *engine.Failure { f.Secondary = true; return f }
	for name, c := range map[string]struct {
		failures []*engine.Failure
		want     bool
	}{
		"none":                         {nil, false},
		"an error of the recipe":       {[]*engine.Failure{fail(exit.Recipe, 1)}, true},
		"a lost rank":                  {[]*engine.Failure{fail(exit.RankLost, 1)}, true},
		"a timeout":                    {[]*engine.Failure{fail(exit.Timeout, 1)}, true},
		"a backend":                    {[]*engine.Failure{fail(exit.Backend, 1)}, true},
		"usage":                        {[]*engine.Failure{fail(exit.Usage, 1)}, false},
		"ranks that disagree":          {[]*engine.Failure{fail(exit.Mismatch, 1)}, false},
		"a full disk":                  {[]*engine.Failure{fail(exit.Storage, 1)}, false},
		"a requirement":                {[]*engine.Failure{fail(exit.Requirement, 1)}, false},
		"a signal":                     {[]*engine.Failure{fail(exit.Interrupted, 1)}, false},
		"no failure":                   {[]*engine.Failure{fail(exit.Done, 1)}, false},
		"a backend that cannot run":    {[]*engine.Failure{lasting(exit.Backend, 1)}, false},
		"a call that is wrong":         {[]*engine.Failure{lasting(exit.Recipe, 1)}, false},
		"others of its consequence":    {[]*engine.Failure{fail(exit.RankLost, 1), secondary(fail(exit.Mismatch, 2))}, true},
		"a lost rank ends a wrong one": {[]*engine.Failure{fail(exit.RankLost, 1), secondary(lasting(exit.Recipe, 2))}, true},
		"a full disk after it":         {[]*engine.Failure{fail(exit.RankLost, 1), fail(exit.Storage, 2)}, false},
		"a signal after it":            {[]*engine.Failure{fail(exit.RankLost, 1), fail(exit.Interrupted, 2)}, false},
		"on another rank it cannot":    {[]*engine.Failure{fail(exit.Backend, 1), lasting(exit.Backend, 2)}, false},
	} {
		if got := restartable(c.failures); got != c.want {
			t.Errorf("%s: restarted is %v", name, got)
		}
	}
}

func TestIdle(t *testing.T) {
	for _, c := range []struct{ idle, before, after, want int }{
		{0, 0, 0, 1}, {1, 0, 0, 2}, {5, 3, 3, 6}, {5, 3, 4, 0}, {0, 3, 9, 0}, {0, 9, 9, 1},
	} {
		if got := idleAfter(c.idle, c.before, c.after); got != c.want {
			t.Errorf("after %d idle attempts, with %d and then %d saves: %d, want %d", c.idle, c.before, c.after, got, c.want)
		}
	}
}

func TestBackOff(t *testing.T) {
	for idle, want := range map[int]time.Duration{0: 0, 1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 5: 1600 * time.Millisecond, 10: 30 * time.Second, 100000: 30 * time.Second} {
		if got := backOff(idle); got != want {
			t.Errorf("after %d attempts that saved nothing the pause is %v, want %v", idle, got, want)
		}
	}
}
