package engine_test

import (
	"testing"

	"drun/engine"
)

func TestFirstIsTheEarliestCauseOfItsOwn(t *testing.T) {
	secondary := &engine.Failure{Rank: 0, When: 1, Secondary: true}
	late := &engine.Failure{Rank: 1, When: 30}
	early := &engine.Failure{Rank: 3, When: 20}
	sameTime := &engine.Failure{Rank: 2, When: 20}
	for _, c := range []struct {
		all  []*engine.Failure
		want *engine.Failure
	}{
		{nil, nil},
		{[]*engine.Failure{secondary}, secondary},
		{[]*engine.Failure{secondary, late}, late},
		{[]*engine.Failure{late, secondary, early}, early},
		{[]*engine.Failure{early, sameTime}, sameTime},
	} {
		if got := engine.First(c.all); got != c.want {
			t.Errorf("First(%v) = %v, want %v", c.all, got, c.want)
		}
	}
}

func TestStatusOfExitCodes(t *testing.T) {
	for code, want := range map[engine.ExitCode]string{
		engine.ExitDone: "done", engine.ExitRecipe: "failed", engine.ExitRankLost: "killed", engine.ExitTimeout: "failed",
		engine.ExitMismatch: "failed", engine.ExitStorage: "failed", engine.ExitInterrupted: "interrupted",
	} {
		if got := code.Status(); got != want {
			t.Errorf("exit code %d is %q, want %q", code, got, want)
		}
	}
}
