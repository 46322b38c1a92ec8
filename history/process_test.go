package history

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/history/records"
)

// The test binary runs itself again as other processes of drun.
func TestMain(m *testing.M) {
	home := os.Getenv("DRUN_TEST_HOME")
	var err error
	switch role := os.Getenv("DRUN_TEST_ROLE"); role {
	case "":
		os.Exit(m.Run())
	case "agent":
		err = playAgent(home)
	case "reader":
		err = playReader(home)
	case "hang":
		err = playHang(home)
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(t *testing.T, role, home string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "DRUN_TEST_ROLE="+role, "DRUN_TEST_HOME="+home)
	return cmd
}

// playAgent does what an agent does for three runs, opening and closing the
// file in between: the last to close removes the WAL under the others' feet.
func playAgent(home string) error {
	for range 3 {
		db, err := Open(home)
		if err != nil {
			return err
		}
		r, err := db.Begin(RunInfo{Recipe: "x.star", WorldSize: 1, Backend: "shm"})
		if err != nil {
			return err
		}
		if err := r.AddSources([]records.Source{records.NewSource("x.star", "recipe", []byte("same for all"))}); err != nil {
			return err
		}
		for batch := range 20 {
			points := make([]records.Point, 50)
			for i := range points {
				points[i] = records.Point{Name: "loss", Step: int64(batch*50 + i), Value: float64(i), Time: time.Now()}
			}
			if err := r.Write(&Batch{Batch: records.Batch{Points: points}}); err != nil {
				return err
			}
			if err := r.Write(&Batch{Lines: []LogLine{{Stream: "stdout", Time: time.Now(), Text: fmt.Sprint("batch ", batch)}}}); err != nil {
				return err
			}
		}
		if err := finish(r, Done, 0, ""); err != nil {
			return err
		}
		if err := db.Close(); err != nil {
			return err
		}
	}
	return nil
}

func playReader(home string) error {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		db, err := OpenReadOnly(home)
		if err == nil {
			var list []Summary
			list, err = db.List(0)
			for _, s := range list {
				if s.Status == Lost {
					err = fmt.Errorf("run %d shows as lost", s.ID)
				}
			}
			db.Close()
		} else if strings.Contains(err.Error(), "no history") {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func playHang(home string) error {
	db, err := Open(home)
	if err != nil {
		return err
	}
	r, err := db.Begin(RunInfo{Recipe: "x.star", WorldSize: 1, Backend: "shm"})
	if err != nil {
		return err
	}
	if err := r.BeginAttempt(); err != nil {
		return err
	}
	fmt.Println("running")
	io.Copy(io.Discard, os.Stdin) // until the test ends or kills this process
	return nil
}

func TestManyProcessesShareTheFile(t *testing.T) {
	if testing.Short() {
		t.Skip("its writers are processes of their own")
	}
	home := t.TempDir() + "/home"
	const agents, readers = 6, 2
	var all sync.WaitGroup
	for i := range agents + readers {
		role := "agent"
		if i >= agents {
			role = "reader"
		}
		cmd := child(t, role, home)
		all.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", role, err, out)
			}
		})
	}
	all.Wait()
	list, err := reader(t, home).List(0)
	ok(t, err)
	if len(list) != agents*3 {
		t.Errorf("%d runs, want %d", len(list), agents*3)
	}
	for _, s := range list {
		if s.Status != Done || s.Metrics["loss"].Count != 1000 {
			t.Errorf("run %d: %s, %+v", s.ID, s.Status, s.Metrics)
		}
	}
	table, err := reader(t, home).Query(context.Background(), "SELECT (SELECT count(*) FROM metrics), (SELECT count(*) FROM sources)")
	ok(t, err)
	if table.Rows[0][0] != int64(agents*3*1000) || table.Rows[0][1] != int64(1) {
		t.Errorf("points and sources: %v", table.Rows)
	}
}

// hang starts a process with a running run and returns how to kill it.
func hang(t *testing.T, home string) (kill func()) {
	t.Helper()
	cmd := child(t, "hang", home)
	stdin, err := cmd.StdinPipe()
	ok(t, err)
	t.Cleanup(func() { stdin.Close() })
	stdout, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "running\n" {
		t.Fatalf("child said %q, %v", line, err)
	}
	return func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

func TestStatusIsTheTruth(t *testing.T) {
	home := t.TempDir()
	kill := hang(t, home)
	before := reader(t, home)
	status := func(db *DB) Status {
		d, err := db.Get(1)
		ok(t, err)
		if d.Attempts[0].Status != d.Status {
			t.Errorf("attempt is %s, run is %s", d.Attempts[0].Status, d.Status)
		}
		return d.Status
	}
	if s := status(before); s != Running {
		t.Errorf("while its agent lives: %s", s)
	}
	kill()
	if s := status(before); s != Lost {
		t.Errorf("an open reader says %s after SIGKILL", s)
	}
	raw, err := before.Query(context.Background(), "SELECT status FROM runs")
	if err != nil || raw.Rows[0][0] != "running" {
		t.Fatalf("a reader wrote: %v, %v", raw, err)
	}
	raw, err = reader(t, home).Query(context.Background(), "SELECT r.status, a.status FROM runs r JOIN attempts a ON a.run = r.id")
	if err != nil || raw.Rows[0][0] != "lost" || raw.Rows[0][1] != "lost" {
		t.Errorf("plain SQL sees %v, %v", raw, err)
	}
	if entries, _ := os.ReadDir(home + "/locks"); len(entries) != 0 {
		t.Errorf("lock files are left: %v", entries)
	}
	r := begin(t, open(t, home), RunInfo{})
	if r.ID != 2 {
		t.Errorf("the next run has id %d", r.ID)
	}
	ok(t, finish(r, Failed, 1, "boom"))
	if list, err := before.List(0); err != nil || list[0].Status != Failed || list[1].Status != Lost {
		t.Errorf("list = %+v, %v", list, err)
	}
}
