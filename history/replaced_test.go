package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/history/records"
)

// What waits for a slow disk is kept while the history moves.
func TestSpoolWhileTheHistoryMoves(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	r := begin(t, open(t, home), RunInfo{})
	ok(t, r.BeginAttempt())
	point := func(step int64) *Batch {
		return &Batch{Batch: records.Batch{Points: []records.Point{{Name: "x", Step: step, Value: 1, Time: time.Unix(1, 0)}}}}
	}
	slow := point(-1)
	r.Number(slow)
	spooling := make(chan struct{})
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		<-spooling
		ok(t, os.Remove(filepath.Join(home, "history.db")))
		ok(t, r.Write(slow))
	}()
	steps := int64(0)
	for done := false; !done; steps++ {
		ok(t, r.Spool(point(steps)))
		if steps == 0 {
			close(spooling)
		}
		select {
		case <-moved:
			done = true
		default:
		}
	}
	for more := true; more; {
		var err error
		more, err = r.Unspool()
		ok(t, err)
	}
	if d, err := reader(t, filepath.Join(home, "replaced", r.UID)).Get(r.ID); err != nil || d.Metrics["x"].Count != steps+1 {
		t.Errorf("%+v, %v; want %d points", d, err, steps+1)
	}
}

// A run whose history is deleted or replaced goes on in a copy of it, which has all runs; the file that has the name then,
// and its runs, are left alone.
func TestReplacedHistory(t *testing.T) {
	for _, how := range []string{"deleted", "deleted with its WAL", "the folder", "replaced", "restored"} {
		t.Run(how, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "home")
			db := open(t, home)
			parent := begin(t, db, RunInfo{Name: "parent"})
			ok(t, finish(parent, Done, 0, ""))
			r := begin(t, db, RunInfo{Name: "x", Parent: &Parent{ID: parent.ID, Step: 3}})
			ok(t, r.BeginAttempt())
			said := []string{}
			r.OnReplaced(func(what string) { said = append(said, what) })
			ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "x", Step: 0, Value: 1, Time: time.Unix(1, 0)}}}}))
			path := filepath.Join(home, "history.db")
			there := []string{} // the runs of the file that has the name now
			switch how {
			case "deleted":
				ok(t, os.Remove(path))
			case "deleted with its WAL":
				for _, suffix := range []string{"", "-wal", "-shm"} {
					ok(t, os.Remove(path+suffix))
				}
			case "the folder":
				ok(t, os.RemoveAll(home))
			case "replaced":
				other := filepath.Join(t.TempDir(), "other")
				made := open(t, other)
				for _, name := range []string{"a", "x"} { // its id and name are taken
					ok(t, finish(begin(t, made, RunInfo{Name: name}), Done, 0, ""))
				}
				ok(t, made.Close())
				ok(t, os.Rename(filepath.Join(other, "history.db"), path))
				ok(t, os.Remove(path+"-wal"))
				ok(t, os.Remove(path+"-shm"))
				there = []string{"x done", "a done"}
			case "restored":
				copied := copyHome(t, home) // with a part of the run
				ok(t, os.RemoveAll(home))
				ok(t, os.Rename(copied, home))
				there = []string{"x lost", "parent done"}
			}
			ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "x", Step: 1, Value: 2, Time: time.Unix(2, 0)}}}}))
			kept := filepath.Join(home, "replaced", r.UID)
			if d, err := reader(t, kept).Get(r.ID); err != nil || d.Status != Running {
				t.Errorf("%+v, %v", d, err)
			}
			ok(t, r.Write(everything()))
			if len(said) != 1 || !strings.Contains(said[0], path+" was deleted or replaced") || !strings.Contains(said[0], "drun show x --home "+kept) {
				t.Errorf("it said %q", said)
			}
			now := reader(t, kept)
			d, err := now.Get(r.ID)
			ok(t, err)
			points, err := now.Points(r.ID)
			ok(t, err)
			if len(points) != 5 || points[0].Value != 1 || points[1].Value != 2 || d.Status != Failed || d.Parent == nil || d.Parent.Name != "parent" {
				t.Errorf("the run is %+v, its points %+v", d, points)
			}
			if info, err := os.Stat(filepath.Join(kept, "history.db")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			for _, folder := range []string{home, kept} {
				if locks, _ := os.ReadDir(filepath.Join(folder, "locks")); len(locks) != 0 {
					t.Errorf("locks are left: %v", locks)
				}
			}
			after := open(t, home) // marks what is lost
			runs, err := after.List(0)
			ok(t, err)
			names := []string{}
			for _, s := range runs {
				names = append(names, s.Name+" "+string(s.Status))
			}
			if strings.Join(names, ", ") != strings.Join(there, ", ") {
				t.Errorf("there are %q", names)
			}
			ok(t, finish(begin(t, after, RunInfo{}), Done, 0, "")) // its id may be that of the run
		})
	}
}
