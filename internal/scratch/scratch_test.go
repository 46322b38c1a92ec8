package scratch

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	switch os.Getenv("SCRATCH_OWNER") {
	case "ends": // while others make one folder after another
		var made atomic.Int32
		for range 4 {
			go func() {
				for {
					if _, err := Make("test-"); err != nil {
						panic(err)
					}
					made.Add(1)
				}
			}()
		}
		for made.Load() < 20 {
			runtime.Gosched()
		}
		RemoveOwn()
		time.Sleep(100 * time.Millisecond) // as long as the end of a process may take
		os.Exit(0)
	case "killed": // makes a folder, says so, and waits
		d, err := Make("test-")
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(d.Path + "\n")
		time.Sleep(time.Hour) // the runtime would end a process in which nothing can go on
	}
	os.Exit(m.Run())
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A folder stays while its owner lives, and is removed by the next when it was killed.
func TestSweep(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SCRATCH_OWNER=killed")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	theirs := line[:len(line)-1]
	if err := os.WriteFile(filepath.Join(theirs, "socket"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mine, err := Make("")
	if err != nil {
		t.Fatal(err)
	}
	Sweep()
	if !exists(theirs) || !exists(mine.Path) {
		t.Fatal("a folder was removed while its owner lives")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	Sweep()
	if exists(theirs) {
		t.Error("the folder of one that was killed stays")
	}
	if !exists(mine.Path) {
		t.Error("the own folder was swept")
	}
	other, err := Make("")
	if err != nil {
		t.Fatal(err)
	}
	mine.Remove()
	if exists(mine.Path) || !exists(other.Path) {
		t.Error("Remove removes its folder, and only that")
	}
	other.Remove()
}

// A process that ends leaves no folder, not even one that was being made meanwhile.
func TestRemoveOwn(t *testing.T) {
	for range 5 {
		dir := shortDir(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SCRATCH_OWNER=ends", "TMPDIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Fatalf("it left %v (%v)", left, err)
		}
	}
}

// What is not certainly drun's stays.
func TestSweepLeavesWhatIsNotDruns(t *testing.T) {
	tmp := shortDir(t)
	t.Setenv("TMPDIR", tmp)
	precious := t.TempDir()
	file := filepath.Join(precious, "thesis.tex")
	for path, content := range map[string]string{
		file:                                    "x",
		filepath.Join(precious, marker):         "",
		filepath.Join(tmp, "drun-notes", "a"):   "no marker",
		filepath.Join(tmp, "other", marker):     "another name",
		filepath.Join(tmp, "drun-linked", "b"):  "a marker that is a link",
		filepath.Join(tmp, "drun-ours", marker): "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		filepath.Join(tmp, "drun-link"):           precious, // a folder that is a link
		filepath.Join(tmp, "drun-linked", marker): filepath.Join(precious, marker),
		filepath.Join(tmp, "drun-ours", "link"):   precious, // in one that is drun's
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	Sweep()
	for _, path := range []string{file, "drun-notes/a", "other/" + marker, "drun-linked/b", "drun-link"} {
		if !filepath.IsAbs(path) {
			path = filepath.Join(tmp, path)
		}
		if !exists(path) {
			t.Errorf("%s was removed", path)
		}
	}
	if exists(filepath.Join(tmp, "drun-ours")) {
		t.Error("a folder of drun whose owner is gone stays")
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
