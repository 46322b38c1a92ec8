package nccl

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/plugins/internal/enginetest"
	"drun/plugins/sdk"
)

// The tests run on fakes of libcuda and libnccl, built from testdata/fake, and
// loaded as the real ones are: by their paths. DRUN_TEST_GPU=1 runs those that
// can on the real ones.
var onRealGPU = os.Getenv("DRUN_TEST_GPU") == "1"

func TestMain(m *testing.M) {
	if os.Getenv("NCCLTEST_PLUGIN") != "" { // the test binary is the plugin
		o := FromEnvironment()
		o.Log = os.Stderr
		sdk.Serve(New(o))
	}
	if os.Getenv("NCCLTEST_PROBE") != "" {
		answer()
		os.Exit(0)
	}
	if os.Getenv("DISTTEST_WORKER") != "" {
		enginetest.Main(m, func() collective.Backend { return New(FromEnvironment()) }, workers)
	}
	if onRealGPU {
		flag.Parse()
		if run := flag.Lookup("test.run"); run.Value.String() == "" {
			_ = run.Value.Set("^TestGPU") // the others need the fakes
		}
		os.Exit(m.Run())
	}
	os.Exit(withFakes(m))
}

var workers = map[string]disttest.Worker{}

// withFakes builds the fakes, points this process and those it starts to them,
// and runs the tests.
func withFakes(m *testing.M) int {
	if os.Getenv("NCCLTEST_BUILT") != "" { // another such process has
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "drun-nccl-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = buildFakes(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	meet := filepath.Join(dir, "meet")
	err = errors.Join(os.Mkdir(meet, 0o700), os.Setenv("FAKE_NCCL_DIR", meet),
		os.Setenv("DRUN_CUDA_LIB", filepath.Join(dir, cudaName)), os.Setenv("DRUN_NCCL_LIB", filepath.Join(dir, ncclName)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// fakeVersions are what the fake libnccl is built as: in a file of this name.
var fakeVersions = map[string]int{
	ncclName:     23203,
	"nccl-2.29":  22907,
	"nccl-2.18":  21803, // without gather, scatter and all_to_all
	"nccl-2.14":  21403, // without split
	"nccl-2.12":  21210, // too old
	"not-a-nccl": 0,
}

func buildFakes(dir string) error {
	build := func(out string, args ...string) error {
		args = append([]string{"-shared", "-fPIC", "-O1", "-g", "-std=gnu11", "-fvisibility=hidden", "-Wall", "-o", filepath.Join(dir, out)}, args...)
		if text, err := exec.Command("cc", append(args, "-lpthread")...).CombinedOutput(); err != nil {
			return fmt.Errorf("the fakes cannot be built: %w\n%s", err, text)
		}
		return nil
	}
	source := func(name string) string { return filepath.Join("testdata", "fake", name) }
	if err := build(cudaName, source("cuda.c"), source("memory.c"), source("tools.c")); err != nil {
		return err
	}
	for name, version := range fakeVersions {
		files := []string{source("comm.c"), source("ops.c")}
		if version == 0 {
			files = []string{source("tools.c")}
		}
		if err := build(name, append(files, fmt.Sprintf("-DFAKE_VERSION=%d", version))...); err != nil {
			return err
		}
	}
	return nil
}

// given checks, when a test is over, that the processes it started have given
// back all that they took of the fakes. It gives what has them tell.
func given(t *testing.T) (env string) {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) == 0 {
			t.Errorf("no process told what it holds: %v", err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(string(text)) {
				if fields := strings.Fields(line); fields[0] != "0" {
					t.Errorf("a process has not given back: %s", strings.TrimSpace(line))
				}
			}
		}
	})
	return "FAKE_REPORT=" + dir
}
