package record

import (
	"reflect"
	"testing"
	"time"

	"drun/collective"
	"drun/engine/board"
	"drun/history/records"
)

// The history keeps all that a snapshot says of a rank and of its calls.
func TestStoredSnapshot(t *testing.T) {
	at := collective.Position{File: "a.star", Line: 3, Col: 5}
	call := func(c collective.Call) collective.Description {
		return collective.Description{Kind: c.Kind, Group: 7, Seq: 9, Origin: collective.Origin{Pos: at}}
	}
	barrier := call(collective.NewBarrier())
	s := &board.Snapshot{At: time.Unix(5, 0), Ranks: []board.RankState{
		{Row: collective.Row{Rank: 1, State: collective.Running, Note: "saves", For: time.Second}},
		{Row: collective.Row{Rank: 0, State: collective.Waiting, Pos: at, For: 2 * time.Second, Call: barrier}, Recent: []board.PastCall{
			{Description: barrier, Began: 2 * time.Second},
			{Description: barrier, Began: 3 * time.Second, Ended: true, Took: 250 * time.Millisecond, Async: true},
		}},
	}}
	took, place := 0.25, at.String()
	want := records.Snapshot{Time: s.At, Reason: "failed", Ranks: []records.RankState{
		{Rank: 0, State: "waiting", Call: barrier.String(), Number: 9, Group: 7, Position: place, Seconds: 2, Recent: []records.PastCall{
			{Call: barrier.String(), Number: 9, Group: 7, Position: place, Ago: 2},
			{Call: barrier.String(), Number: 9, Group: 7, Position: place, Ago: 3, Seconds: &took, Async: true},
		}},
		{Rank: 1, State: "saves", Seconds: 1, Recent: []records.PastCall{}},
	}}
	if got := stored(s, "failed"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
