package nccl

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// programs builds drun and the plugin as they are installed, and gives what
// runs drun in a folder of its own.
func programs(t *testing.T) func(env []string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	for pkg, out := range map[string]string{"cmd/drun": "drun", "cmd/drun-plugin-host": "drun-plugin-host", "plugins/nccl/drun-backend-nccl": "plugins/drun-backend-nccl"} {
		if text, err := exec.Command("go", "build", "-o", filepath.Join(dir, out), "drun/"+pkg).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	return func(env []string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "drun"), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs and trains")
	}
	drun := programs(t)
	digits, err := filepath.Abs("../../examples/digits.star")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("without a GPU", func(t *testing.T) {
		out, err := drun([]string{"DRUN_CUDA_LIB=", "DRUN_NCCL_LIB="}, "run", digits, "-n", "2", "--backend", "nccl")
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 6 || !strings.Contains(out, "the NVIDIA driver is missing") || !strings.Contains(out, "pip install nvidia-nccl-cu12") {
			t.Errorf("%v: %s", err, out)
		}
		out, err = drun([]string{"DRUN_CUDA_LIB=", "DRUN_NCCL_LIB="}, "backends")
		if err != nil || !regexp.MustCompile(`(?m)^nccl: the NVIDIA driver is missing`).MatchString(out) {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("trains", func(t *testing.T) {
		out, err := drun(nil, "run", digits, "-n", "2", "--backend", "nccl")
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		own, err := drun(nil, "run", digits, "-n", "2", "--backend", "shm")
		if err != nil {
			t.Fatalf("%v: %s", err, own)
		}
		show, err := drun(nil, "show", "2")
		if err != nil || !regexp.MustCompile(`nccl +nccl 2\.32\.3 +[0-9a-f]{64}`).MatchString(show) {
			t.Errorf("drun show does not tell the library's version: %v: %s", err, show)
		}
		got, err := drun(nil, "metrics", "2")
		want, err2 := drun(nil, "metrics", "3")
		when := regexp.MustCompile(` +[0-9-]+T[0-9:.]+Z`)
		got, want = when.ReplaceAllString(got, ""), when.ReplaceAllString(want, "")
		// Sums of two have the same bits in any order.
		if err != nil || err2 != nil || got != want || !regexp.MustCompile(`acc +19 +0 +0\.9[5-9]`).MatchString(got) {
			t.Errorf("%v, %v: nccl gives\n%s, shm\n%s", err, err2, got, want)
		}
	})
	t.Run("suite", func(t *testing.T) {
		if out, err := drun(nil, "backends", "test", "nccl"); err != nil || !strings.Contains(out, "PASS") {
			t.Errorf("%v: %s", err, out)
		}
	})
}
