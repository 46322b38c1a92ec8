package scratch

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("SCRATCH_OWNER") != "" { // makes a folder, says so, and waits to be killed
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
	cmd.Env = append(os.Environ(), "SCRATCH_OWNER=1")
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
	RemoveOwn()
	if exists(other.Path) {
		t.Error("RemoveOwn leaves one")
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

// A folder that is being made when the process is told to end is removed, too.
func TestRemoveOwnWaitsForAFolderInTheMaking(t *testing.T) {
	parent := t.TempDir()
	making.Lock()
	made := make(chan *Dir)
	go func() {
		d, _ := MakeIn(parent, "test-")
		made <- d
	}()
	select {
	case <-made:
		t.Error("a folder was made while RemoveOwn could not have seen it")
	case <-time.After(50 * time.Millisecond):
	}
	if list, err := os.ReadDir(parent); err != nil || len(list) > 0 {
		t.Errorf("it is there already: %v, %v", list, err)
	}
	making.Unlock()
	(<-made).Remove()
}
