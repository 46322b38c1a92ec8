package ui

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/history"
	"drun/history/historytest"
	"drun/history/records"
	"drun/internal/freeport"
)

// TestLargeHistory measures the pages of a history of 10,000 runs and 10 million points, and of 20 runs of 100,000 points
// more. The history is made in $DRUN_TEST_LARGE, or used if it is there; without that the test is skipped.
func TestLargeHistory(t *testing.T) {
	home := os.Getenv("DRUN_TEST_LARGE")
	if home == "" {
		t.Skip("make ui-bench runs it: it takes minutes")
	}
	if _, err := os.Stat(filepath.Join(home, "filled")); err != nil {
		if err := historytest.Fill(home, historytest.Large); err != nil {
			t.Fatal(err)
		}
		fillLong(t, home)
		if err := os.WriteFile(filepath.Join(home, "filled"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd, address, _ := startUI(t, home)
	p := browse(t, address)
	p.until("document.documentElement.dataset.ready !== undefined && document.querySelectorAll('#rows tr').length > 20")
	for range 2 { // the second time the files are in memory
		p.open("/")
		p.until("document.documentElement.dataset.ready !== undefined && document.querySelectorAll('#rows tr').length > 20")
	}
	const interactive = "performance.getEntriesByName('ready')[0].startTime"
	page := eval[float64](p, interactive)
	t.Logf("the workspace is interactive after %.0f ms", page)
	p.open("/?where=id+%3C%3D+10000") // runs like most; the 20 newest have 100,000 points
	const firstChart = "performance.getEntriesByName('drawn')[0].startTime"
	p.until("performance.getEntriesByName('drawn').length > 0 && location.search !== ''")
	p.until("[...document.querySelectorAll('#charts figure')].filter(f => f.chart.visible).every(f => f.chart.loaded)")
	all := eval[float64](p, "performance.getEntriesByType('resource').filter(e => e.name.includes('curves')).reduce((a, e) => Math.max(a, e.responseEnd), 0)")
	t.Logf("the first chart of 20 runs is there after %.0f ms, and the points of all charts that can be seen after %.0f ms", eval[float64](p, firstChart), all)
	p.shot("large-workspace")

	p.open("/?view=table")
	p.until("document.querySelectorAll('#rows tr').length > 20")
	p.run("for (const t of [...document.querySelectorAll('#rows input')].slice(0, 20)) t.click()")
	time.Sleep(3 * time.Second) // that is how long it takes to select them by hand, at least
	p.run("document.getElementById('compare').click()")
	p.until("location.pathname === '/compare.html' && performance.getEntriesByName('drawn').length > 0")
	chart := eval[float64](p, "performance.getEntriesByName('drawn')[0].startTime")
	t.Logf("the first chart of 20 runs with 100,000 points each is there %.0f ms after the click", chart)
	t.Log(eval[string](p, "performance.getEntriesByType('resource').map(e => `${e.name.replace(/.*api.v1./, '').slice(0, 40)} ${e.startTime.toFixed(0)} to ${e.responseEnd.toFixed(0)} (first byte ${e.responseStart.toFixed(0)}) ${e.encodedBodySize} bytes`).concat(performance.getEntriesByType('mark').map(e => e.name + ' ' + e.startTime.toFixed(0)), performance.getEntriesByType('paint').map(e => e.name + ' ' + e.startTime.toFixed(0)), performance.getEntriesByType('navigation').map(e => `DOM ${e.domInteractive.toFixed(0)} ${e.domContentLoadedEventEnd.toFixed(0)} `)).join('\\n')"))
	p.shot("large")

	resident := memory(t, cmd.Process.Pid)
	t.Logf("the server has %d MB in memory, at most %d MB", resident[0]>>20, resident[1]>>20)
	if page > 500 || all > 1000 || chart > 300 || resident[1] > 150<<20 {
		t.Error("want at most 500 ms, 1 s, 300 ms and 150 MB")
	}
}

// TestMLflowPage measures MLflow's page with the same runs, in the same Chromium: until its table of runs shows rows that can be
// clicked. make exchange installs MLflow.
func TestMLflowPage(t *testing.T) {
	home := os.Getenv("DRUN_TEST_LARGE")
	if home == "" {
		t.Skip("make ui-bench runs it: it takes minutes")
	}
	program, err := filepath.Abs("../../bin/exchange/bin/mlflow")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("pyarrow, TensorBoard and MLflow are not installed: make bin/exchange")
	}
	drun, err := filepath.Abs("../../bin/drun")
	if err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(home, "mlflow.db")
	if _, err := os.Stat(store); err != nil {
		command(t, program, "db", "upgrade", "sqlite:///"+store+".new")
		db, err := history.OpenReadOnly(home)
		if err != nil {
			t.Fatal(err)
		}
		ids := []string{}
		list, err := db.Select(history.Selection{})
		db.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			ids = append(ids, strconv.FormatInt(r.ID, 10))
		}
		command(t, drun, append([]string{"export", "--home", home, "--to", "mlflow", "--output", store + ".new"}, ids...)...)
		if err := os.Rename(store+".new", store); err != nil {
			t.Fatal(err)
		}
	}
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	server := exec.Command(program, "server", "--backend-store-uri", "sqlite:///"+store, "--default-artifact-root", t.TempDir(), "--host", "127.0.0.1", "--port", port, "--workers", "1")
	server.Env = append(os.Environ(), "MLFLOW_DISABLE_TELEMETRY=true", "DO_NOT_TRACK=true")
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // its workers too
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		_ = server.Wait()
	})
	var experiment struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	for deadline := time.Now().Add(3 * time.Minute); experiment.Experiment.ID == ""; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("MLflow's server does not answer")
		}
		resp, err := http.Get("http://" + address + "/api/2.0/mlflow/experiments/get-by-name?experiment_name=drun")
		if err == nil {
			_ = json.NewDecoder(resp.Body).Decode(&experiment)
			resp.Body.Close()
		}
	}
	p := browseFor(t, "http://"+address+"/health", 5*time.Minute)
	p.foreign = true
	took := 0.0
	for range 3 { // at last with the files in memory
		p.open("/health")
		start := time.Now()
		p.open("/#/experiments/" + experiment.Experiment.ID + "/runs")
		p.until("document.querySelectorAll('a[href*=\"/runs/\"]').length >= 10")
		took = time.Since(start).Seconds()
	}
	t.Logf("MLflow's table of runs is there after %.0f ms", 1000*took)
	p.shot("mlflow")
}

// command runs a program to its end.
func command(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// fillLong adds 20 runs of 100,000 points.
func fillLong(t *testing.T, home string) {
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range 20 {
		random := rand.New(rand.NewPCG(uint64(i), 2))
		r, err := db.Begin(history.RunInfo{Name: fmt.Sprint("long-", i), Recipe: "long.star", WorldSize: 1, Backend: "shm", Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.BeginAttempt(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for step := int64(0); step < 100_000; {
			b := &history.Batch{}
			for range 10_000 {
				b.Points = append(b.Points, records.Point{Name: "loss", Step: step, Value: 2*math.Exp(-float64(step)/2e4) + 0.05*random.NormFloat64(), Exact: true, Time: start.Add(time.Duration(step) * time.Millisecond)})
				step++
			}
			if step == 100_000 {
				b.End = &history.End{Status: history.Done, Seconds: 100}
			}
			if err := r.Write(b); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// memory is what a process has resident, and had at most, in bytes.
func memory(t *testing.T, pid int) (found [2]int64) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		for i, name := range []string{"VmRSS:", "VmHWM:"} {
			if text, ok := strings.CutPrefix(line, name); ok {
				n, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				found[i] = n << 10
			}
		}
	}
	return found
}

// A look at a run that goes on reads what is new, not all of it.
func TestWatchingCostsLittle(t *testing.T) {
	home, r := watched(t)
	if err := r.BeginAttempt(); err != nil {
		t.Fatal(err)
	}
	s := New(home)
	defer s.Close()
	reader, err := s.history()
	if err != nil {
		t.Fatal(err)
	}
	step, shown := int64(0), 0
	write := func(n int) {
		t.Helper()
		b := &history.Batch{}
		for range n {
			b.Points = append(b.Points, records.Point{Name: "loss", Step: step, Value: float64(step), Time: time.Now()})
			step++
		}
		if err := r.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	write(100_000) // a run that went on for long
	v := view{metric: "loss", axis: "step", from: math.Inf(-1), to: math.Inf(1), points: 1000}
	look := func() {
		t.Helper()
		curves, err := s.read(reader, []int64{r.ID}, v)
		if err != nil {
			t.Fatal(err)
		}
		shown = curves[0].Points
	}
	look()
	quickest := time.Hour // others may compute meanwhile
	for range 20 {
		write(100)
		start := time.Now()
		look()
		quickest = min(quickest, time.Since(start))
		if shown != int(step) {
			t.Fatalf("%d of %d points are shown", shown, step)
		}
	}
	if quickest > 20*time.Millisecond {
		t.Errorf("a look at a run of %d points takes %v, though only 100 are new", step, quickest)
	}
}
