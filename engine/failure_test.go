package engine_test

import (
	"testing"

	"drun/engine"
)

func TestFirstIsTheEarliestCauseOfItsOwn(t *testing.T) {
	secondary := &engine.Failure{Rank: 0, When: 1, Secondary: true}
	late := &engine.Failure{Rank: 1, When: 30, Message: "line 3"}
	early := &engine.Failure{Rank: 3, When: 20}
	sameTime := &engine.Failure{Rank: 2, When: 20}
	suspected := &engine.Failure{Rank: 4, When: 10, Suspected: true}
	disagrees := &engine.Failure{Rank: 5, When: 15, Message: "line 7", Common: true}
	disagreesToo := &engine.Failure{Rank: 1, When: 40, Message: "line 9", Common: true}
	fails := &engine.Failure{Rank: 6, When: 5, Message: "line 8"}
	failsToo := &engine.Failure{Rank: 2, When: 50, Message: "line 8"}
	elsewhere := &engine.Failure{Rank: 1, When: 60, Message: "line 8", Traceback: "called at line 2"}
	for _, c := range []struct {
		all  []*engine.Failure
		want *engine.Failure
	}{
		{nil, nil},
		{[]*engine.Failure{secondary}, secondary},
		{[]*engine.Failure{secondary, late}, late},
		{[]*engine.Failure{late, secondary, early}, early},
		{[]*engine.Failure{early, sameTime}, sameTime},
		{[]*engine.Failure{suspected, late}, late},
		{[]*engine.Failure{secondary, suspected}, suspected},
		{[]*engine.Failure{disagrees, disagreesToo, late}, disagreesToo},
		{[]*engine.Failure{disagreesToo, early}, early},
		{[]*engine.Failure{fails, disagreesToo, failsToo}, failsToo},
		{[]*engine.Failure{fails, elsewhere}, fails},
	} {
		if got := engine.First(c.all); got != c.want {
			t.Errorf("First(%v) = %v, want %v", c.all, got, c.want)
		}
	}
}
