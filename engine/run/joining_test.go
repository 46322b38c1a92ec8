package run_test

import (
	"bytes"
	"drun/internal/exit"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"drun/engine/record"
	"drun/engine/run"
)

// A rank that is stopped before it has joined ends the run when the time for
// collectives is over, and is the one that is named.
func TestStoppedWhileJoining(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "recipe.star")
	if err := os.WriteFile(file, []byte("def main():\n    dist.barrier(timeout = 60)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	start := time.Now()
	r, err := run.Run(run.Options{Recipe: file, Nproc: 2, History: record.History{Home: filepath.Join(dir, "home")}, Timeout: 3 * time.Second, Threads: 1,
		Output: run.Output{Stdout: &out, Stderr: &out}, Hooks: run.Hooks{OnSpawn: func(rank, pid int) {
			if rank == 1 {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}}})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); r.Code != exit.Timeout || r.Failure.Rank != 1 || took > 10*time.Second {
		t.Errorf("after %v: code %d, %+v", took, r.Code, r.Failure)
	}
}
