package record

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"drun/engine/board"
	"drun/engine/recipe"
	"drun/engine/rendezvous"
	"drun/history"
	"drun/internal/testlimit"

	"golang.org/x/sys/unix"
)

func runsIn(t *testing.T, home string) int {
	db, err := history.OpenReadOnly(home)
	if err != nil {
		return 0 // it is being made
	}
	defer db.Close()
	all, err := db.List(0)
	if err != nil {
		t.Error(err)
	}
	return len(all)
}

func configIn(t *testing.T) Config {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.star")
	if err := os.WriteFile(file, []byte("def main(): pass\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bundle, err := recipe.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return Config{History: History{Home: filepath.Join(dir, "home"), DiskTimeout: testlimit.Time(time.Minute)}, Recipe: bundle, Backend: "shm", Placements: []rendezvous.Placement{rendezvous.Local(0, 1)}, Say: func(string) {}, Doing: func(context.Context) (*board.Snapshot, error) { return nil, nil }}
}

// A signal that comes while a run is being entered does not leave it in the history without an end.
func TestSignalWhileTheRunIsEntered(t *testing.T) {
	c := configIn(t)
	c.UID = "known"
	locks := filepath.Join(c.Home, "locks")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(locks, "known.sock.ask") // is written once the run is in the history
	if err := unix.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	hurry, opened := make(chan struct{}), make(chan *Record)
	go func() {
		r, err := Open(c, hurry)
		if err != nil {
			t.Error(err)
		}
		opened <- r
	}()
	if !testlimit.Until(time.Minute, func() bool { return runsIn(t, c.Home) > 0 }) {
		t.Fatal("no run was entered")
	}
	close(hurry)
	time.AfterFunc(2*hurryFor, func() {
		if f, err := os.Open(held); err == nil {
			f.Close()
		}
	})
	if r := <-opened; r != nil {
		if err := r.Discard(); err != nil {
			t.Error(err)
		}
		if err := r.Close(false); err != nil {
			t.Error(err)
		}
	}
	if n := runsIn(t, c.Home); n != 0 {
		t.Errorf("%d runs are in the history", n)
	}
}

// A run that was given up before it was entered is not entered later.
func TestRunThatIsNotEntered(t *testing.T) {
	c := configIn(t)
	db, err := history.Open(c.Home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := sql.Open("sqlite3", "file:"+filepath.Join(c.Home, "history.db")+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	lock, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	hurry := make(chan struct{})
	close(hurry)
	if _, err := Open(c, hurry); !IsHung(err) {
		t.Errorf("%v", err)
	}
	_ = lock.Rollback()
	left := func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "record.open(")
	}
	if !testlimit.Until(time.Minute, func() bool { return !left() }) {
		t.Error("it still waits")
	}
	if n := runsIn(t, c.Home); n != 0 {
		t.Errorf("%d runs are in the history", n)
	}
}
