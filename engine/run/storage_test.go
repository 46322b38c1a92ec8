package run_test

import (
	"bytes"
	"database/sql"
	"drun/internal/exit"
	"drun/internal/testlimit"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"drun/engine/record"
	"drun/engine/run"
	"drun/history"

	"golang.org/x/sys/unix"
)

// locker locks a history when the first line comes by.
type locker struct {
	t      *testing.T
	home   string
	hang   bool          // what is beside the history hangs too, as a disk does
	atMost time.Duration // 0: for good
	once   sync.Once
}

func (l *locker) Write(p []byte) (int, error) {
	l.once.Do(func() {
		if l.hang {
			l.block()
		}
		db, err := sql.Open("sqlite3", "file:"+filepath.Join(l.home, "history.db")+"?_txlock=exclusive&_busy_timeout=5000")
		if err != nil {
			l.t.Error(err)
			return
		}
		tx, err := db.Begin()
		if err != nil {
			l.t.Error(err)
			return
		}
		release := sync.OnceFunc(func() {
			_ = tx.Rollback()
			_ = db.Close()
		})
		l.t.Cleanup(release)
		if l.atMost > 0 {
			time.AfterFunc(l.atMost, release)
		}
	})
	return len(p), nil
}

// block holds a lease on the file that the run's spool would be, so that opening it does not return.
func (l *locker) block() {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(l.home, "history.db")+"?mode=ro")
	if err != nil {
		l.t.Error(err)
		return
	}
	defer db.Close()
	var uid string
	if err := db.QueryRow("SELECT uid FROM runs ORDER BY id DESC").Scan(&uid); err != nil {
		l.t.Error(err)
	}
	path := filepath.Join(l.home, "spool", uid+".batches")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		l.t.Error(err)
	}
	f, err := os.Create(path)
	if err != nil {
		l.t.Error(err)
		return
	}
	l.t.Cleanup(func() { f.Close() }) // lets go of who waits
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		l.t.Error(err)
	}
}

// A disk that does not answer ends the run, whatever the recipe does.
func TestHungDisk(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"at the end":             "print('go')",
		"while the recipe runs":  "print('go')\n    for i in range(1 << 50): str(i)",
		"while the recipe talks": "while True: print('go')",
		"at a failure":           "print('go')\n    fail('no luck')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file, home := filepath.Join(dir, "recipe.star"), filepath.Join(dir, "home")
			if err := os.WriteFile(file, []byte("def main():\n    "+body+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			// Making a history takes many writes, which a disk that is only busy may take seconds for.
			db, err := history.Open(home)
			if err != nil {
				t.Fatal(err)
			}
			db.Close()
			start := time.Now()
			var errs bytes.Buffer
			r, err := run.Run(run.Options{Recipe: file, Nproc: 2, History: record.History{Home: home, DiskTimeout: 5 * time.Second}, Timeout: time.Minute, Threads: 1,
				Output: run.Output{Stdout: &locker{t: t, home: home, hang: true}, Stderr: &errs}})
			if err != nil && name == "at the end" && exit.CodeOf(err) == exit.Storage && strings.Contains(err.Error(), home+" has not answered for 5") {
				return // the ranks had ended before it hung
			}
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > testlimit.Time(16*time.Second) {
				t.Errorf("it took %v", took)
			}
			f := r.Failure
			if r.Code != exit.Storage || f == nil {
				t.Fatalf("exit code %d, %+v", r.Code, f)
			}
			text := f.Text(r.Ranks)
			if !strings.Contains(text, home) || !strings.Contains(text, "has not answered for 5") || !strings.Contains(f.Hint, "--home") {
				t.Errorf("the failure is %+v", f)
			}
			if name == "at a failure" && !strings.Contains(text, "no luck") {
				t.Errorf("the recipe's failure is lost: %s", text)
			}
		})
	}
}

// output is what a run has shown.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// logging is a recipe that logs and prints for some seconds, and counts.
const logging = `def main():
    print("go")
    n = 0
    while run.elapsed() < 3:
        run.log(n = n, step = n)
        run.note("n%d" % n) if n % 1000 == 0 else None
        n += 1
        for i in range(2000): str(i)
    run.tag("late")
    print("made", n)
`

func runLogging(t *testing.T, stdout io.Writer, signals <-chan os.Signal, home string, onSpawn func(rank, pid int)) (*run.Result, string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "recipe.star")
	if err := os.WriteFile(file, []byte(logging), 0o644); err != nil {
		t.Fatal(err)
	}
	var errs output
	r, err := run.Run(run.Options{Recipe: file, Nproc: 1, History: record.History{Home: home, Tags: []string{"early"}}, Timeout: time.Minute, Threads: 1,
		Output: run.Output{Stdout: stdout, Stderr: &errs}, Hooks: run.Hooks{Signals: signals, OnSpawn: onSpawn}})
	return r, errs.String(), err
}

// complete checks that the history has every step of the recipe once, in order.
func complete(t *testing.T, home string) {
	t.Helper()
	db, err := history.OpenReadOnly(home)
	// What a run left behind when a signal ended its wait goes on in this process, and may write at this moment.
	for end := time.Now().Add(testlimit.Time(10 * time.Second)); err == nil && len(db.Waiting) > 0 && time.Now().Before(end); {
		db.Close()
		time.Sleep(time.Millisecond)
		db, err = history.OpenReadOnly(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list, err := db.List(0)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d runs, %v", len(list), err)
	}
	d, err := db.Get(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	points, err := db.Points(d.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range points {
		if p.Step != int64(i) || p.Value != float64(i) {
			t.Fatalf("point %d is step %d, value %v", i, p.Step, p.Value)
		}
	}
	made := ""
	if _, err := db.Logs(d.ID, history.LogFilter{}, func(l history.LogLine) error {
		if n, ok := strings.CutPrefix(l.Text, "made "); ok {
			made = n
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if made != strconv.Itoa(len(points)) || d.Status != history.Done || !slices.Equal(d.Tags, []string{"early", "late"}) ||
		len(d.Notes) != (len(points)+999)/1000 || d.Metrics["n"].Count != int64(len(points)) || len(d.Attempts) != 1 || d.Attempts[0].Status != history.Done {
		t.Errorf("%d points of %s, %s, tags %v, %d notes, %+v, attempts %+v", len(points), made, d.Status, d.Tags, len(d.Notes), d.Metrics, d.Attempts)
	}
	if left, _ := filepath.Glob(filepath.Join(home, "spool", "*")); len(left) > 0 {
		t.Errorf("left in the spool: %v", left)
	}
}

// spooled reports whether records that wait beside the history contain a text.
func spooled(home, text string) bool {
	files, _ := filepath.Glob(filepath.Join(home, "spool", "*"))
	return slices.ContainsFunc(files, func(file string) bool {
		content, err := os.ReadFile(file)
		return err == nil && bytes.Contains(content, []byte(text))
	})
}

// A history that another process has locked does not hold a run up, and nothing
// of the run is missing or twice in the end.
func TestLockedHistory(t *testing.T) {
	t.Parallel()
	t.Run("for a while", func(t *testing.T) {
		home := filepath.Join(t.TempDir(), "home")
		r, errs, err := runLogging(t, &locker{t: t, home: home, atMost: 1500 * time.Millisecond}, nil, home, nil)
		if err != nil || r.Code != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		if !strings.Contains(errs, "locked by another process") || !strings.Contains(errs, "can be written again") {
			t.Errorf("it said %q", errs)
		}
		complete(t, home)
	})
	t.Run("beyond the end", func(t *testing.T) {
		home := filepath.Join(t.TempDir(), "home")
		signals := make(chan os.Signal, 1)
		t.Run("run", func(t *testing.T) {
			var sent atomic.Int64 // when the signal was, in the wait that follows the run's end
			r, errs, err := runLogging(t, &locker{t: t, home: home}, signals, home, func(int, int) {
				go func() {
					for !spooled(home, string(history.Done)) {
						time.Sleep(10 * time.Millisecond)
					}
					sent.Store(time.Now().UnixNano())
					signals <- unix.SIGTERM
				}()
			})
			if err != nil || r.Code != 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			if took := time.Since(time.Unix(0, sent.Load())); took > testlimit.Time(5*time.Second) {
				t.Errorf("a signal did not end the wait: %v", took)
			}
			if !strings.Contains(errs, "still locked") {
				t.Errorf("it said %q", errs)
			}
		}) // the lock ends with it
		complete(t, home)
	})
	t.Run("before the beginning", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // the opening that was given up goes on once the lock is free
			for end := time.Now().Add(10 * time.Second); os.RemoveAll(dir) != nil; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the opening that was given up still writes")
				}
			}
		})
		home := filepath.Join(dir, "home")
		db, err := history.Open(home)
		if err != nil {
			t.Fatal(err)
		}
		db.Close()
		_, _ = (&locker{t: t, home: home}).Write(nil)
		signals := make(chan os.Signal, 1)
		signals <- unix.SIGHUP // read only where the run waits for its history
		start := time.Now()
		_, _, err = runLogging(t, io.Discard, signals, home, nil)
		if took := time.Since(start); err == nil || took > testlimit.Time(4*time.Second) || !strings.Contains(err.Error(), "interrupted by SIGHUP") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// remover deletes a history when the first line comes by.
type remover struct {
	path string
	once sync.Once
}

func (r *remover) Write(p []byte) (int, error) {
	r.once.Do(func() { os.RemoveAll(r.path) })
	return len(p), nil
}

func TestDeletedHistory(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"history.db", ""} {
		home := filepath.Join(t.TempDir(), "home")
		r, errs, err := runLogging(t, &remover{path: filepath.Join(home, what)}, nil, home, nil)
		if err != nil || r.Code != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		kept, err := filepath.Glob(filepath.Join(home, "replaced", "*"))
		if err != nil || len(kept) != 1 || !strings.Contains(errs, "history.db was deleted or replaced while the run was on") || !strings.Contains(errs, kept[0]) {
			t.Fatalf("kept in %q, and it said %q: %v", kept, errs, err)
		}
		complete(t, kept[0])
	}
}

// On a full disk a run ends with code 7, and its end is in the history.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	disk, file := filepath.Join(dir, "disk"), filepath.Join(dir, "recipe.star")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("mounts and namespaces take root (in a container, CAP_SYS_ADMIN)")
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	if err := os.WriteFile(file, []byte("def main():\n    while True: print('x' * 1000)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(disk, "home")
	r, err := run.Run(run.Options{Recipe: file, Nproc: 2, History: record.History{Home: home}, Timeout: time.Minute, Threads: 1, Output: run.Output{Stdout: io.Discard, Stderr: io.Discard}})
	if err != nil || r.Code != exit.Storage || !strings.Contains(r.Failure.Message, "disk is full") {
		t.Fatalf("%+v, %v", r, err)
	}
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	table, err := db.Query(t.Context(), "SELECT status, exit_code, error FROM runs") // as it is in the file
	if err != nil || table.Rows[0][0] != "failed" || table.Rows[0][1] != int64(7) || !strings.Contains(table.Rows[0][2].(string), "disk is full") {
		t.Errorf("%v, %v", table, err)
	}
}
