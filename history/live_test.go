package history

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"drun/history/records"
	"drun/internal/testlimit"
)

// Whoever asks gets what the ranks do at that moment; those who ask at once share an answer. Afterwards nothing is left.
func TestDoing(t *testing.T) {
	home := filepath.Join(t.TempDir(), strings.Repeat("a-home-with-a-path-longer-than-that-of-a-socket/", 4))
	r := begin(t, open(t, home), RunInfo{})
	calls := atomic.Int64{}
	r.Answer(func(context.Context) (*records.Snapshot, error) {
		n := calls.Add(1)
		return &records.Snapshot{Time: time.Now(), Reason: "asked", Ranks: []records.RankState{{Rank: 0, State: "waiting", Number: uint64(n), Position: "r.star:1:2", Recent: []records.PastCall{}}}}, nil
	})
	db := reader(t, home)
	info, err := os.Stat(db.livePath(r.UID))
	ok(t, err)
	if info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket has mode %v", info.Mode())
	}
	var asking sync.WaitGroup
	for range liveAtOnce {
		asking.Go(func() {
			s, err := db.Doing(t.Context(), r.ID)
			if err != nil || len(s.Ranks) != 1 || s.Ranks[0].State != "waiting" || time.Since(s.Time) > 10*time.Second {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	asking.Wait()
	before := calls.Load()
	if before > liveAtOnce/2 {
		t.Errorf("%d answers were made for %d who asked at once", before, liveAtOnce)
	}
	time.Sleep(liveFor)
	if s, err := db.Doing(t.Context(), r.ID); err != nil || s.Ranks[0].Number != uint64(before+1) {
		t.Errorf("later, the same answer: %+v, %v", s, err)
	}
	if _, err := db.Doing(t.Context(), 7); !errors.As(err, new(*NotFound)) {
		t.Errorf("a run that there is not: %v", err)
	}
	ok(t, r.Write(&Batch{End: &End{Status: Done}}))
	if left, err := os.ReadDir(filepath.Join(home, "locks")); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := db.Doing(t.Context(), r.ID); !errors.As(err, new(*SilentError)) {
		t.Errorf("after the end: %v", err)
	}
}

// Why nobody answers is told, soon.
func TestDoingOfSilentAgents(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	silent := func(r *Run, want string) {
		t.Helper()
		start := time.Now()
		s, err := db.Doing(t.Context(), r.ID)
		if took := time.Since(start); !errors.As(err, new(*SilentError)) || !strings.Contains(err.Error(), want) || took > liveWithin+3*time.Second {
			t.Errorf("want %q, not %+v, %v after %v", want, s, err, took)
		}
	}
	none := begin(t, db, RunInfo{})
	silent(none, "cannot be asked: no such file")

	r := begin(t, db, RunInfo{}) // nothing to show yet
	r.Answer(func(context.Context) (*records.Snapshot, error) { return nil, nil })
	if s, err := db.Doing(t.Context(), r.ID); s != nil || err != nil {
		t.Errorf("%+v, %v", s, err)
	}

	busy := begin(t, db, RunInfo{})
	busy.Answer(func(ctx context.Context) (*records.Snapshot, error) { <-ctx.Done(); return nil, ctx.Err() })
	silent(busy, "has not answered")

	stopped := begin(t, db, RunInfo{}) // nobody accepts
	l, err := net.Listen("unix", db.livePath(stopped.UID))
	ok(t, err)
	defer l.Close()
	silent(stopped, "does not answer: is it stopped?")

	other := begin(t, db, RunInfo{})
	l, err = net.Listen("unix", db.livePath(other.UID))
	ok(t, err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = conn.Write([]byte(`{"version":99}`))
			conn.Close()
		}
	}()
	silent(other, "another version of drun")

	killed := begin(t, db, RunInfo{})
	killed.Answer(func(context.Context) (*records.Snapshot, error) { return nil, nil })
	killed.live.listener.Close() // as the kernel does
	silent(killed, "cannot be asked: connection refused")
	killed.lock.Close()
	reader(t, home) // finds it lost
	if _, err := os.Lstat(db.livePath(killed.UID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket of a lost run is left: %v", err)
	}

	_, err = db.sql.Exec("UPDATE runs SET host = 'elsewhere' WHERE id = ?", none.ID)
	ok(t, err)
	silent(none, "at elsewhere")
}

// Many who ask, and never read, keep nobody from an answer for long, nor the run from its end.
func TestDoingBesideSlowReaders(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	r := begin(t, db, RunInfo{})
	long := make([]records.RankState, 20_000) // more than a socket holds
	r.Answer(func(context.Context) (*records.Snapshot, error) { return &records.Snapshot{Ranks: long}, nil })
	for range 3 * liveAtOnce {
		conn, err := net.Dial("unix", db.livePath(r.UID))
		if err != nil {
			continue // turned away
		}
		defer conn.Close()
	}
	deadline := time.Now().Add(testlimit.Time(20 * time.Second))
	for {
		s, err := db.Doing(t.Context(), r.ID)
		if err == nil && len(s.Ranks) == len(long) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	start := time.Now()
	ok(t, r.Write(&Batch{End: &End{Status: Done}}))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
}

// From another machine that shares the home, where no socket reaches, an agent is asked and answers by files.
func TestDoingFromAnotherMachine(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	r := begin(t, db, RunInfo{})
	r.Answer(func(context.Context) (*records.Snapshot, error) {
		return &records.Snapshot{Time: time.Now(), Ranks: []records.RankState{{Rank: 3, State: "waiting"}}}, nil
	})
	_, err := db.sql.Exec("UPDATE runs SET host = 'elsewhere' WHERE id = ?", r.ID)
	ok(t, err)
	socket := db.livePath(r.UID)
	ok(t, os.Rename(socket, socket+".away"))
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			began := time.Now()
			s, err := db.Doing(t.Context(), r.ID)
			if err != nil || len(s.Ranks) != 1 || s.Ranks[0].Rank != 3 || s.Time.Before(began) {
				t.Errorf("%+v, %v, asked at %v", s, err, began)
			}
		})
	}
	asking.Wait()
	ok(t, os.Rename(socket+".away", socket))
	ok(t, r.Write(&Batch{End: &End{Status: Done}}))
	if left, err := os.ReadDir(filepath.Join(home, "locks")); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if err := rewrite(socket+askSuffix, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a question makes a file: %v", err)
	}
}
