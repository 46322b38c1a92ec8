package history

import (
	"strings"
	"testing"
	"time"
)

func enqueue(t *testing.T, db *DB, uid string) *Job {
	t.Helper()
	id, name, err := db.Enqueue(RunInfo{UID: uid, Recipe: "x.star", WorldSize: 1})
	ok(t, err)
	j := &Job{Run: id, RunName: name, UID: uid, Target: "hpc", Spec: "{}", Submitted: time.Now()}
	ok(t, db.AddJob(j))
	return j
}

func statusOf(t *testing.T, db *DB, id int64) Status {
	t.Helper()
	found, err := db.Summaries([]int64{id})
	ok(t, err)
	if len(found) == 0 {
		return ""
	}
	return found[0].Status
}

// A run that was entered for a job begins once, in the same row.
func TestEnqueuedRunBegins(t *testing.T) {
	db := open(t, t.TempDir())
	j := enqueue(t, db, "U1")
	if s := statusOf(t, db, j.Run); s != Pending {
		t.Errorf("before it begins: %s", s)
	}
	r, err := db.Begin(RunInfo{UID: "U1", Recipe: "x.star", WorldSize: 4})
	ok(t, err)
	d, err := db.Get(j.Run)
	ok(t, err)
	if r.ID != j.Run || r.Name != j.RunName || d.Status != Running || d.WorldSize != 4 {
		t.Errorf("run %d %s for %d %s: %s with %d ranks", r.ID, r.Name, j.Run, j.RunName, d.Status, d.WorldSize)
	}
	if _, err := db.Begin(RunInfo{UID: "U1"}); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("twice: %v", err)
	}
	ok(t, r.Discard())
	if s := statusOf(t, db, j.Run); s != Pending {
		t.Errorf("discarded: %s", s)
	}
	j.State, j.Reason = Failed, "exit code 2"
	ok(t, db.SetJob(j))
	j.State = Done // too late
	ok(t, db.SetJob(j))
	all, err := db.Jobs(true)
	ok(t, err)
	if d, err = db.Get(j.Run); err != nil || d.Status != Failed || d.Error != "exit code 2" || all[0].State != Failed || all[0].Ended == nil {
		t.Errorf("its job has failed: %v, %v, %v", d, all[0], err)
	}
	if list, err := db.Jobs(false); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// A name that is taken where a job's run begins does not keep it from beginning.
func TestTakenNameOfAJob(t *testing.T) {
	db := open(t, t.TempDir())
	begin(t, db, RunInfo{Name: "big"})
	r := begin(t, db, RunInfo{UID: "ABCDEFGH", Name: "big"})
	if r.Name != "big-abcdef" || r.UID != "ABCDEFGH" {
		t.Errorf("%s, %s", r.Name, r.UID)
	}
	if _, err := db.Begin(RunInfo{Name: "big"}); err == nil {
		t.Error("a taken name")
	}
}

// While its job is followed, a run elsewhere is not lost, however long nothing was heard of it.
func TestRunOfAJobIsNotLost(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	j, other := enqueue(t, db, "U1"), enqueue(t, db, "U2")
	ok(t, db.DropJobs([]*Job{{ID: other.ID}}))
	ok(t, db.exec("UPDATE runs SET status = 'running', leased = ?", formatTime(time.Now().Add(-time.Hour))))
	if s := statusOf(t, db, j.Run); s != Running {
		t.Errorf("with a job: %s", s)
	}
	if s := statusOf(t, db, other.Run); s != Lost {
		t.Errorf("without: %s", s)
	}
	on, err := db.isRunning(j.Run)
	if err != nil || !on {
		t.Errorf("its logs are not followed: %v", err)
	}
	j.State = Interrupted
	ok(t, db.SetJob(j))
	if s := statusOf(t, db, j.Run); s != Lost {
		t.Errorf("after its job: %s", s)
	}
}

// What could not be handed over leaves nothing, and the numbers go on as before.
func TestDroppedJobs(t *testing.T) {
	db := open(t, t.TempDir())
	a, b := enqueue(t, db, "U1"), enqueue(t, db, "U2")
	ok(t, db.DropJobs([]*Job{a, b}))
	if list, err := db.Jobs(true); err != nil || len(list) != 0 || statusOf(t, db, a.Run) != "" {
		t.Errorf("%v, %v", list, err)
	}
	if c := enqueue(t, db, "U3"); c.Run != 1 {
		t.Errorf("the next run is %d", c.Run)
	}
}

// The words of older histories become those of today's list.
func TestStatusesOfOlderHistories(t *testing.T) {
	home := t.TempDir()
	old := oldHistory(t, home, 18)
	for i, c := range [][2]any{{"killed", nil}, {"interrupted", "worse"}, {"interrupted", nil}, {"done", nil}, {"running", nil}, {"failed", nil}} {
		_, err := old.Exec(`INSERT INTO runs (id, uid, name, recipe, status, world_size, backend, seed, threads, started, version, host, pid, dir, command, ended_early)
			VALUES (?1, 'u' || ?1, 'n' || ?1, 'a.star', ?2, 1, 'shm', 0, 1, '2026-01-02T03:04:05.000000Z', 'v1', 'h', 1, '/', '[]', ?3)`, i+1, c[0], c[1])
		ok(t, err)
	}
	_, err := old.Exec("INSERT INTO attempts (run, attempt, started, status) VALUES (1, 0, '2026-01-02T03:04:05.000000Z', 'killed')")
	ok(t, err)
	ok(t, old.Close())
	db := open(t, home)
	for i, want := range []Status{Failed, StoppedEarly, Interrupted, Done, Lost, Failed} {
		if s := statusOf(t, db, int64(i+1)); s != want || !s.Known() {
			t.Errorf("run %d: %s, want %s", i+1, s, want)
		}
	}
	d, err := db.Get(1)
	ok(t, err)
	if d.Attempts[0].Status != Failed {
		t.Errorf("its attempt: %s", d.Attempts[0].Status)
	}
	for _, s := range Statuses() {
		ok(t, db.exec("UPDATE runs SET status = ?", s))
	}
	if db.exec("UPDATE runs SET status = 'killed'") == nil {
		t.Error("a status that is not in the list")
	}
}

// A run that leaves its home leaves its job, which names machines and folders, there.
func TestExtractedRunHasNoJob(t *testing.T) {
	db := open(t, t.TempDir())
	enqueue(t, db, "U1")
	r, err := db.Begin(RunInfo{UID: "U1", Recipe: "x.star", WorldSize: 1})
	ok(t, err)
	ok(t, finish(r, Done, 0, ""))
	ok(t, db.exec("INSERT INTO follows VALUES (?, 'https://x')", r.ID))
	folder := t.TempDir()
	ok(t, db.Extract(r.ID, folder))
	packed, _, err := OpenExtracted(folder)
	ok(t, err)
	defer packed.Close()
	for _, table := range ofHome {
		if n, err := listColumn[int64](packed, "SELECT count(*) FROM "+table); err != nil || n[0] != 0 {
			t.Errorf("%s: %v, %v", table, n, err)
		}
	}
}
