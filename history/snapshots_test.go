package history

import (
	"reflect"
	"testing"
	"time"

	"drun/history/records"
)

func TestSnapshots(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	other, r := begin(t, db, RunInfo{}), begin(t, db, RunInfo{WorldSize: 2})
	took := 0.25
	first := records.Snapshot{Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Reason: "SIGQUIT", Ranks: []records.RankState{
		{Rank: 0, State: "waiting", Call: "barrier", Number: 1 << 40, Position: "a.star:3:1", Seconds: 1.5, Recent: []records.PastCall{
			{Call: "barrier", Number: 1 << 40, Position: "a.star:3:1", Ago: 1.5},
			{Call: "send(float32[3], to 1, tag 0)", Group: 7, Position: "a.star:2:1", Ago: 2, Seconds: &took, Async: true},
		}},
		{Rank: 1, State: "starting", Recent: []records.PastCall{}},
	}}
	second := records.Snapshot{Time: first.Time.Add(time.Second), Reason: "failed", Ranks: []records.RankState{{Rank: 0, State: "gone", Recent: []records.PastCall{}}}}
	ok(t, r.Write(&Batch{Snapshots: []records.Snapshot{first}}))
	ok(t, r.Write(&Batch{Snapshots: []records.Snapshot{second}}))
	ok(t, other.Write(&Batch{Snapshots: []records.Snapshot{second}}))
	d, err := reader(t, home).Get(r.ID)
	ok(t, err)
	if want := []records.Snapshot{first, second}; !reflect.DeepEqual(d.Snapshots, want) {
		t.Errorf("got %+v\nwant %+v", d.Snapshots, want)
	}
	var latest string
	ok(t, db.sql.QueryRow("SELECT call FROM snapshot_calls WHERE rank = 0 AND nth = 1").Scan(&latest))
	if latest != "barrier" {
		t.Errorf("the latest call is %s", latest)
	}
	ok(t, r.Discard())
	var left int
	ok(t, db.sql.QueryRow("SELECT (SELECT count(*) FROM snapshot_ranks) + (SELECT count(*) FROM snapshot_calls)").Scan(&left))
	if left != 1 {
		t.Errorf("%d rows are left of a discarded run and another's one", left)
	}
}
