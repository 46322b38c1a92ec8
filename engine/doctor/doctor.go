// Package doctor finds out what this machine can run: cores, kernel paths, backends, and whether two ranks can reach
// each other. `drun doctor` prints it.
package doctor

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"drun/engine/record"
	"drun/engine/run"
	"drun/internal/scratch"
	"drun/internal/try"
	"drun/kernel"
)

// Report is what Examine found.
type Report struct {
	OS       string   `json:"os"`
	Arch     string   `json:"arch"`
	Cores    int      `json:"cores"`
	Kernels  string   `json:"kernels"`      // the path in use: amx, avx512bf16, avx512, avx2, neon or scalar
	Paths    []string `json:"kernel_paths"` // those that this processor can run
	Backends []string `json:"backends"`     // that --backend can name
	SelfTest SelfTest `json:"self_test"`    // of two ranks over shm
	Problems []string `json:"problems"`     // what keeps recipes from running
}

// SelfTest is a run of two ranks that add their numbers.
type SelfTest struct {
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

const recipe = `def main():
    total = dist.all_reduce(tensor([1.0 + dist.rank()]))
    if total.item() != 3.0:
        fail("1 + 2 gave %r" % total.item())
`

// Examine makes the report. It writes only to a temporary folder.
func Examine() *Report {
	r := &Report{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		Kernels: kernel.Path(), Paths: kernel.Paths(), Backends: run.Backends(), Problems: []string{},
	}
	if err := kernel.CheckPath(); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	start := time.Now()
	err := selfTest()
	r.SelfTest = SelfTest{OK: err == nil, Seconds: time.Since(start).Seconds()}
	if err != nil {
		r.SelfTest.Error = err.Error()
		r.Problems = append(r.Problems, "two ranks cannot run: "+err.Error())
	}
	return r
}

func selfTest() (err error) {
	defer try.Caught(&err)
	temp := try.To(scratch.Make("doctor-"))
	defer temp.Remove()
	dir := temp.Path
	path := filepath.Join(dir, "selftest.star")
	try.Ok(os.WriteFile(path, []byte(recipe), 0o600))
	var out bytes.Buffer
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, run.Signals...)
	defer signal.Stop(signals)
	result := try.To(run.Run(run.Options{
		Recipe: path, Nproc: 2, History: record.History{Home: filepath.Join(dir, "home")}, Timeout: 10 * time.Second, Hooks: run.Hooks{Signals: signals},
		Output: run.Output{Stdout: &out, Stderr: &out},
	}))
	if result.Failure != nil {
		return fmt.Errorf("%s", result.Failure.Text(2))
	}
	return nil
}
