package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"drun/collective"
	"drun/plugins/internal/enginetest"
)

func init() {
	workers["nothing"] = func(collective.Comm, []string) error { return nil }
}

// probe asks a process of its own, whose environment is as given, whether the
// backend can run.
func probe(t *testing.T, env ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "NCCLTEST_PROBE=1"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// answer is what that process does.
func answer() {
	b := New(FromEnvironment())
	problem := b.Probe(context.Background())
	fmt.Println(b.Version(), "|", problem)
}

func TestProbeSaysWhatIsMissing(t *testing.T) {
	fakes := filepath.Dir(os.Getenv("DRUN_CUDA_LIB"))
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	lib := func(name string) string { return "DRUN_NCCL_LIB=" + filepath.Join(fakes, name) }
	for _, c := range []struct {
		env  []string
		says []string
	}{
		{nil, []string{"nccl 2.32.3 | <nil>"}},
		{[]string{"DRUN_CUDA_LIB=" + fakes, "DRUN_NCCL_LIB=" + fakes}, []string{"nccl 2.32.3 | <nil>"}},
		{[]string{lib("nccl-2.14")}, []string{"nccl 2.14.3 | <nil>"}},
		{[]string{lib("nccl-2.12")}, []string{"is NCCL 2.12.10, but at least 2.14.0 is needed", "pip install nvidia-nccl-cu12"}},
		{[]string{lib("not-a-nccl")}, []string{"NCCL is missing", "has no function ncclGetVersion"}},
		{[]string{"DRUN_NCCL_LIB=" + nowhere}, []string{"| NCCL is missing", "DRUN_NCCL_LIB says", nowhere, "pip install nvidia-nccl-cu12"}},
		{[]string{"DRUN_CUDA_LIB=" + nowhere}, []string{"the NVIDIA driver is missing", nowhere, "apt-get install nvidia-driver"}},
		{[]string{"DRUN_CUDA_LIB=" + nowhere, "DRUN_NCCL_LIB=" + nowhere}, []string{"the NVIDIA driver is missing", "Also, NCCL is missing"}},
		{[]string{"DRUN_CUDA_LIB=", "DRUN_NCCL_LIB="}, []string{"libcuda.so.1 was not found", "libnccl.so.2 was not found"}},
		{[]string{"FAKE_CUDA_DEVICES=0", "CUDA_VISIBLE_DEVICES=7"}, []string{"there is no GPU", `CUDA_VISIBLE_DEVICES is "7"`}},
		{[]string{"FAKE_FAIL=cuInit:1:999"}, []string{"does not work: cuInit failed", "CUDA_ERROR_999", "nvidia-smi"}},
		{[]string{"DRUN_NCCL_DEVICES=0,x"}, []string{"DRUN_NCCL_DEVICES", `"0,x"`}},
	} {
		got := probe(t, c.env...)
		for _, s := range c.says {
			if !strings.Contains(got, s) {
				t.Errorf("%v: it says %q, not %q", c.env, got, s)
			}
		}
	}
}

// Without being told, the libraries are found on the loader's path, and NCCL in
// the folders where pip puts it.
func TestSearchOrder(t *testing.T) {
	fakes := filepath.Dir(os.Getenv("DRUN_CUDA_LIB"))
	venv := t.TempDir()
	pip := filepath.Join(venv, "lib", "python3.11", "site-packages", "nvidia", "nccl", "lib")
	if err := os.MkdirAll(pip, 0o700); err != nil {
		t.Fatal(err)
	}
	enginetest.Copy(t, filepath.Join(fakes, "nccl-2.18"), filepath.Join(pip, ncclName), 0o700)
	// A program in the path that is a link into another such folder.
	bin, other := t.TempDir(), t.TempDir()
	pip = filepath.Join(other, "lib", "python3.12", "site-packages", "nvidia", "nccl", "lib")
	err := errors.Join(os.MkdirAll(pip, 0o700), os.MkdirAll(filepath.Join(other, "bin"), 0o700),
		os.WriteFile(filepath.Join(other, "bin", "python3"), nil, 0o700), os.Symlink(filepath.Join(other, "bin", "python3"), filepath.Join(bin, "python3")))
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Copy(t, filepath.Join(fakes, "nccl-2.14"), filepath.Join(pip, ncclName), 0o700)
	loader := t.TempDir()
	enginetest.Copy(t, filepath.Join(fakes, "nccl-2.29"), filepath.Join(loader, ncclName), 0o700)
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"DRUN_NCCL_LIB=", "VIRTUAL_ENV=" + venv}, "nccl 2.18.3 | <nil>"},
		{[]string{"DRUN_NCCL_LIB=", "PATH=" + bin}, "nccl 2.14.3 | <nil>"},
		{[]string{"DRUN_NCCL_LIB=", "VIRTUAL_ENV=" + venv, "LD_LIBRARY_PATH=" + loader}, "nccl 2.29.7 | <nil>"},
		{[]string{"VIRTUAL_ENV=" + venv, "LD_LIBRARY_PATH=" + loader}, "nccl 2.32.3 | <nil>"},
		{[]string{"DRUN_CUDA_LIB=", "LD_LIBRARY_PATH=" + fakes}, "nccl 2.32.3 | <nil>"},
	} {
		if got := probe(t, c.env...); got != c.want {
			t.Errorf("%v: it says %q, not %q", c.env, got, c.want)
		}
	}
}

func TestDevices(t *testing.T) {
	world := func(local, size int) collective.World {
		return collective.World{LocalRank: local, LocalSize: size, Rank: local, Size: size}
	}
	for _, c := range []struct {
		options Options
		devices int
		world   collective.World
		want    int
		says    string
	}{
		{Options{}, 2, world(1, 2), 1, ""},
		{Options{}, 8, world(1, 2), 1, ""},
		{Options{}, 1, world(0, 2), 0, "there are 2 ranks on this machine, but only 1 GPU"},
		{Options{ShareGPU: true}, 1, world(1, 2), 0, ""},
		{Options{ShareGPU: true}, 2, world(3, 4), 1, ""},
		{Options{Devices: []int{3, 1}}, 4, world(0, 2), 3, ""},
		{Options{Devices: []int{3}}, 4, world(0, 2), 0, "only 1 GPU"},
		{Options{Devices: []int{4}}, 4, world(0, 1), 0, "names GPU 4, but this machine has 4 GPUs"},
	} {
		got, err := c.options.choose(c.devices, c.world)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v of %d for %+v: %d, %v", c.options, c.devices, c.world, got, err)
		}
	}
}

// Ranks share a GPU only when they are told to, in the way that NCCL has for it.
func TestSharedGPU(t *testing.T) {
	fakes := filepath.Dir(os.Getenv("DRUN_CUDA_LIB"))
	for _, c := range []struct{ lib, share, says string }{
		{ncclName, "0", "only 1 GPU"},
		{ncclName, "1", ""},
		{"nccl-2.29", "1", ""}, // by seeming to be on machines of their own
	} {
		p := enginetest.Spawn(t, 2, "tour", "FAKE_CUDA_DEVICES=1", "DRUN_NCCL_SHARE_GPU="+c.share,
			"DRUN_NCCL_LIB="+filepath.Join(fakes, c.lib))
		for rank := range 2 {
			out, err := p.Wait(rank)
			if (err == nil) != (c.says == "") || !strings.Contains(out, c.says) || c.says == "" && out != "" {
				t.Errorf("%s, sharing %s: rank %d: %v: %s", c.lib, c.share, rank, err, out)
			}
		}
	}
	// Two ranks that are given one GPU: NCCL's own error comes through.
	p := enginetest.Spawn(t, 2, "nothing", "DRUN_NCCL_DEVICES=1,1")
	for rank := range 2 {
		if out, err := p.Wait(rank); err == nil || !strings.Contains(out, "invalid usage") {
			t.Errorf("one GPU for two ranks: rank %d: %v: %s", rank, err, out)
		}
	}
}
