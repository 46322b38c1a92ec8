package launch_test

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/engine"
	"drun/engine/launch"
)

// locker locks a history for good when the first line comes by.
type locker struct {
	t    *testing.T
	home string
	once sync.Once
}

func (l *locker) Write(p []byte) (int, error) {
	l.once.Do(func() {
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
		l.t.Cleanup(func() {
			_ = tx.Rollback()
			_ = db.Close()
		})
	})
	return len(p), nil
}

// A disk that does not answer ends the run, whatever the recipe does.
func TestHungDisk(t *testing.T) {
	for name, body := range map[string]string{
		"at the end":             "print('go')",
		"while the recipe runs":  "print('go')\n    for i in range(1 << 50): str(i)",
		"while the recipe talks": "while True: print('go')",
		"at a failure":           "print('go')\n    fail('no luck')",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, home := filepath.Join(dir, "recipe.star"), filepath.Join(dir, "home")
			if err := os.WriteFile(file, []byte("def main():\n    "+body+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			var errs bytes.Buffer
			r, err := launch.Run(launch.Options{Recipe: file, Nproc: 2, Home: home, Timeout: time.Minute, Threads: 1,
				Stdout: &locker{t: t, home: home}, Stderr: &errs, Patience: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 8*time.Second {
				t.Errorf("it took %v", took)
			}
			f := r.Failure
			if r.Code != engine.ExitStorage || f == nil {
				t.Fatalf("exit code %d, %+v", r.Code, f)
			}
			text := launch.Message(f, r.Ranks)
			if !strings.Contains(text, home) || !strings.Contains(text, "not answered for 1s") || !strings.Contains(f.Hint, "--home") {
				t.Errorf("the failure is %+v", f)
			}
			if name == "at a failure" && !strings.Contains(text, "no luck") {
				t.Errorf("the recipe's failure is lost: %s", text)
			}
		})
	}
}
