package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"drun/internal/freeport"
	"drun/internal/programs"
)

// A placement is how many ranks each node has, and the backend.
type placement struct {
	name    string
	nodes   []int
	backend string
}

func (p placement) ranks() (n int) {
	for _, ranks := range p.nodes {
		n += ranks
	}
	return n
}

var (
	shm     = placement{name: "shm", nodes: []int{3}, backend: "shm"}
	gloo    = placement{name: "gloo", nodes: []int{3}, backend: "gloo"}
	mpi     = placement{name: "mpi", nodes: []int{3}, backend: "mpi"}
	two     = placement{name: "2 nodes", nodes: []int{2, 2}, backend: "gloo"}
	apart   = placement{name: "shm, a drun for each rank", nodes: []int{1, 1, 1}, backend: "shm"}
	uneven  = placement{name: "1+2+3", nodes: []int{1, 2, 3}, backend: "gloo"}
	four    = placement{name: "4 nodes", nodes: []int{1, 2, 1, 2}, backend: "gloo"}
	shmAnd2 = []placement{shm, two}
)

// A failure is one that drun tells of, and how it comes about.
type failure struct {
	kind   string
	in     []placement
	tries  int    // for each of DRUN_TEST_CAUSES
	recipe string // its ranks print "ready"; victim is a rank
	victim int    // from the last one; anyRank: a random rank
	strike func(nodes []*exec.Cmd, victim int) error
	disk   bool // node 0's home has little room
	code   int
	cause  string // a pattern; V is the victim
}

const anyRank = -1

const endless = `
    while True:
        dist.all_reduce(tensor.zeros(100000))`

var failures = []failure{
	{kind: "killed", in: []placement{two, uneven, four}, tries: 2, recipe: endless, victim: anyRank, strike: killWorker, code: 3, cause: `rank V: killed by signal 9 \(SIGKILL\)`},
	{kind: "killed, own group", in: []placement{shm, two}, tries: 1, recipe: `
    g = dist.new_group(list(range(dist.world_size())), backend = "gloo")
    while True:
        dist.all_reduce(tensor.zeros(100000), group = g)`, victim: anyRank, strike: killWorker, code: 3, cause: `rank V: killed by signal 9 \(SIGKILL\)`},
	{kind: "killed, rpc", in: []placement{shm, gloo, two}, tries: 1, recipe: `
    while True:
        if dist.rank() == 0:
            for to in range(1, dist.world_size()):
                dist.rpc(to, twice, 1)
        dist.serve()`, victim: anyRank, strike: killWorker, code: 3, cause: `rank V: killed by signal 9 \(SIGKILL\)`},
	{kind: "killed, mpi", in: []placement{mpi}, tries: 1, recipe: endless, victim: anyRank, strike: killWorker, code: 3, cause: `rank V: killed by signal 9 \(SIGKILL\)`},
	{kind: "error", in: shmAnd2, tries: 1, recipe: `
    if dist.rank() == victim:
        fail("this is why")` + endless, code: 1, cause: `rank V: recipe.star:\d+:\d+: fail: this is why`},
	{kind: "error of all", in: shmAnd2, tries: 1, recipe: `
    fail("this is why")`, code: 1, cause: `rank 0: recipe.star:\d+:\d+: fail: this is why`},
	{kind: "exit", in: shmAnd2, tries: 1, recipe: endless, victim: anyRank, strike: abortWorker, code: 3, cause: `rank V: exited with status 2`},
	{kind: "return", in: shmAnd2, tries: 1, recipe: `
    if dist.rank() == victim:
        return` + endless, code: 5, cause: `rank 0: recipe.star:\d+:\d+: dist.all_reduce: collective \d+: rank V has returned from main while others wait for it`},
	{kind: "mismatch", in: shmAnd2, tries: 1, recipe: `
    if dist.rank() == victim:
        dist.barrier()` + endless, code: 5, cause: `rank 0: recipe.star:\d+:\d+: dist.all_reduce: collective \d+: the ranks disagree`},
	{kind: "deadlock", in: shmAnd2, tries: 1, recipe: `
    dist.recv((dist.rank() + 1) % dist.world_size())`, code: 5, cause: `rank 0: recipe.star:\d+:\d+: dist.recv: ranks wait for each other in a circle: rank 0 for rank 1, .*`},
	{kind: "timeout", in: shmAnd2, tries: 1, recipe: `
    if dist.rank() == victim:
        for i in range(1 << 40):
            pass
    dist.barrier(timeout = 1)`, code: 4, cause: `rank 0: recipe.star:\d+:\d+: dist.barrier: dist.barrier at recipe.star:\d+:\d+ timed out after T: waiting for rank V; arrived: ranks 0, 1.*`},
	{kind: "lost node", in: []placement{apart, two}, tries: 1, recipe: endless, strike: killAgent, code: 3, cause: `rank [2V]: its drun \(process\) is gone: the connection ended`},
	{kind: "lost node 0", in: []placement{apart, two}, tries: 1, recipe: endless, strike: killHead, code: 3, cause: `the connection to the run.s first process, at ADDRESS, ended: this process.s ranks were killed`},
	{kind: "plugin killed", in: []placement{gloo, two}, tries: 1, recipe: endless, victim: anyRank, strike: killPlugin, code: 6,
		cause: `rank V: recipe.star:\d+:\d+: dist.all_reduce: backend gloo failed on rank V: the plugin is gone: it was killed by signal 9 \(SIGKILL\).*`},
	{kind: "full disk", in: shmAnd2, tries: 1, recipe: `
    for i in range(1 << 40):
        run.log(x = i)`, disk: true, code: 7, cause: `.*the disk is full.*`},
}

// unreceived are the failures of messages that nobody receives.
func unreceived() (all []failure) {
	for _, form := range []struct{ name, value string }{{"value", "1"}, {"tensor", "tensor.zeros(10)"}, {"MB tensor", "tensor.zeros(1000000)"}} {
		for _, call := range []string{"send", "isend"} {
			for _, group := range []bool{false, true} {
				f := failure{kind: call + " of a " + form.name, in: []placement{shm, gloo, mpi, two}, tries: 2, code: 5}
				f.recipe = fmt.Sprintf(`
    if dist.rank() == 0:
        dist.%s(%s, victim, tag = 3)`, call, form.value)
				f.cause = fmt.Sprintf(`rank 0: recipe.star:\d+:\d+: rank V never received this message from rank 0 with tag 3`)
				if group {
					f.kind += ", group"
					f.recipe = "\n    g = dist.new_group([0, victim])" + strings.Replace(f.recipe, "tag = 3", "tag = 3, group = g", 1) + "\n    dist.destroy_process_group(g)\n    while True:\n        pass"
					f.cause += ` on group \d+`
				}
				all = append(all, f)
			}
		}
	}
	return all
}

// TestCauses has drun fail in every way, DRUN_TEST_CAUSES times a placement, kills six times and messages twice as often, beside a
// program that uses every core (kills: half of them). Each time every node must tell the same cause.
func TestCauses(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("DRUN_TEST_CAUSES"))
	if err != nil {
		t.Skip("make causes runs it: hours of failures")
	}
	drun := haveAll(t)
	wanted := regexp.MustCompile(os.Getenv("DRUN_TEST_CAUSES_OF"))
	var counts []string
	for _, busy := range []bool{false, true} {
		stop := func() {}
		if busy {
			stop = spin(t)
		}
		for _, f := range append(slices.Clip(failures), unreceived()...) {
			for _, p := range f.in {
				name := fmt.Sprintf("%s; %s", f.kind, p.name)
				tries := f.tries * rounds
				switch {
				case !wanted.MatchString(name), p.backend != "shm" && !haveEngine(p.backend), f.disk && !mounts():
					continue
				case f.kind == "killed":
					tries /= 2
					name += map[bool]string{true: "; busy", false: "; quiet"}[busy]
				case !busy:
					continue
				}
				outcomes := repeat(t, drun, f, p, tries)
				for _, outcome := range outcomes {
					counts = append(counts, fmt.Sprintf("%-40s %s", name, outcome))
					t.Log(counts[len(counts)-1])
				}
			}
		}
		stop()
	}
	t.Logf("how often each failure was told how:\n%s", strings.Join(counts, "\n"))
}

// repeat causes a failure a number of times, some concurrently, and counts the outcomes.
func repeat(t *testing.T, drun string, f failure, p placement, tries int) (outcomes []string) {
	var mu sync.Mutex
	told := map[string]int{}
	texts := map[string]string{}
	todo := make(chan int, tries)
	for i := range tries {
		todo <- i
	}
	close(todo)
	var pool sync.WaitGroup
	for range max(2, runtime.NumCPU()) {
		pool.Go(func() {
			for range todo {
				outcome, text := attempt(t, drun, f, p)
				mu.Lock()
				told[outcome]++
				texts[outcome] = text
				mu.Unlock()
			}
		})
	}
	pool.Wait()
	want := regexp.MustCompile(fmt.Sprintf("^exit %d, (%s)$", f.code, f.cause))
	for outcome, n := range told {
		outcomes = append(outcomes, fmt.Sprintf("%4d  %s", n, outcome))
		if !want.MatchString(outcome) || len(told) > 1 {
			t.Errorf("%s; %s: %d of %d times: %s", f.kind, p.name, n, tries, outcome)
			if !want.MatchString(outcome) {
				t.Log(texts[outcome])
			}
		}
	}
	slices.Sort(outcomes)
	return outcomes
}

// attempt lets a failure come about, and gives what all nodes told, and their outputs.
func attempt(t *testing.T, drun string, f failure, p placement) (outcome, text string) {
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Error(err)
		return
	}
	defer os.RemoveAll(dir)
	victim := p.ranks() - 1
	if f.victim == anyRank {
		victim = rand.IntN(p.ranks())
	}
	recipe := fmt.Sprintf("def twice(x): return 2 * x\nvictim = %d\ndef main():\n    dist.barrier()\n    print(\"ready\")%s\n", victim, f.recipe)
	rdzv, err := freeport.Address()
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "recipe.star"), []byte(recipe), 0o600), os.Mkdir(filepath.Join(dir, "0"), 0o700))
	if f.disk {
		err = errors.Join(err, unix.Mount("drun-test", filepath.Join(dir, "0"), "tmpfs", 0, "size=1m"))
		defer func() { _ = unix.Unmount(filepath.Join(dir, "0"), unix.MNT_DETACH) }()
	}
	if err != nil {
		t.Error(err)
		return
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	ready := &countdown{word: []byte("ready"), left: p.ranks(), over: make(chan struct{})}
	nodes, outputs := make([]*exec.Cmd, len(p.nodes)), make([]bytes.Buffer, len(p.nodes))
	for i, ranks := range p.nodes {
		args := []string{"run", "recipe.star", "-n", strconv.Itoa(ranks), "--backend", p.backend, "--home", strconv.Itoa(i)}
		env := os.Environ()
		if p.name == apart.name {
			args = []string{"run", "recipe.star", "--home", strconv.Itoa(i)}
			host, port, _ := strings.Cut(rdzv, ":")
			env = append(env, fmt.Sprintf("RANK=%d", i), fmt.Sprintf("WORLD_SIZE=%d", len(p.nodes)), "MASTER_ADDR="+host, "MASTER_PORT="+port)
		} else if len(p.nodes) > 1 {
			args = append(args, "--nnodes", strconv.Itoa(len(p.nodes)), "--node-rank", strconv.Itoa(i), "--rdzv", rdzv)
		}
		nodes[i] = exec.CommandContext(ctx, drun, args...)
		nodes[i].Dir, nodes[i].Env = dir, env
		nodes[i].Stdout = &tee{&outputs[i], ready}
		nodes[i].Stderr = nodes[i].Stdout
		if err := nodes[i].Start(); err != nil {
			t.Error(err)
			return
		}
	}
	if f.strike != nil {
		select {
		case <-ready.over:
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			if err := f.strike(nodes, victim); err != nil {
				t.Error(err)
			}
		case <-ctx.Done():
		}
	}
	for _, node := range nodes {
		_ = node.Wait()
	}
	var told []string
	for i, node := range nodes {
		said := fmt.Sprintf("exit %d, %s", node.ProcessState.ExitCode(), causeIn(outputs[i].String(), victim))
		if ctx.Err() != nil {
			said = "it did not end"
		} else if node.ProcessState.ExitCode() < 0 {
			continue // killed by the test
		}
		if !slices.Contains(told, said) {
			told = append(told, said)
		}
		text += fmt.Sprintf("node %d:\n%s", i, outputs[i].String())
	}
	return strings.Join(told, " | "), fmt.Sprintf("rank %d of %d\n%s", victim, p.ranks(), text)
}

// note is what drun says of a run that goes on.
var note = regexp.MustCompile("^(looking for|waiting for|the history) ")

// causeIn finds the cause in what a node has printed, without what may differ: numbers of processes and times.
func causeIn(output string, victim int) string {
	for line := range strings.Lines(output) {
		if cause, is := strings.CutPrefix(strings.TrimSpace(line), "drun: "); is && !note.MatchString(cause) {
			cause = regexp.MustCompile(fmt.Sprintf(`\brank %d\b`, victim)).ReplaceAllString(cause, "rank V")
			cause = regexp.MustCompile(`\(process \d+ on [^)]*\)`).ReplaceAllString(cause, "(process)")
			cause = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(cause, "ADDRESS")
			return regexp.MustCompile(`\b[0-9.]+ ?(ms|s)\b`).ReplaceAllString(cause, "T")
		}
	}
	return "no cause"
}

// killWorker kills a rank.
func killWorker(nodes []*exec.Cmd, victim int) error {
	worker, err := workerOf(nodes, victim)
	return errors.Join(err, send(worker, syscall.SIGKILL))
}

// abortWorker has a rank end by itself, as when its C code finds its memory broken.
func abortWorker(nodes []*exec.Cmd, victim int) error {
	worker, err := workerOf(nodes, victim)
	return errors.Join(err, send(worker, syscall.SIGABRT))
}

// killPlugin kills the rank's plugin.
func killPlugin(nodes []*exec.Cmd, victim int) error {
	worker, err := workerOf(nodes, victim)
	if err != nil {
		return err
	}
	plugin, err := child(worker, "drun-backend-")
	return errors.Join(err, send(plugin, syscall.SIGKILL))
}

// killAgent kills the last node's drun.
func killAgent(nodes []*exec.Cmd, _ int) error { return nodes[len(nodes)-1].Process.Kill() }

// killHead kills that of node 0.
func killHead(nodes []*exec.Cmd, _ int) error { return nodes[0].Process.Kill() }

func send(pid int, sig syscall.Signal) error {
	if pid == 0 {
		return nil
	}
	return syscall.Kill(pid, sig)
}

func workerOf(nodes []*exec.Cmd, rank int) (pid int, err error) {
	for _, node := range nodes {
		if pid, err = child(node.Process.Pid, fmt.Sprintf("worker\x00rank\x00%d\x00", rank)); err == nil {
			return pid, nil
		}
	}
	return 0, err
}

// child finds a child process of parent whose command line contains the words.
func child(parent int, words string) (int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for _, pid := range strings.Fields(string(pids)) {
			if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); bytes.Contains(line, []byte(words)) {
				return strconv.Atoi(pid)
			}
		}
	}
	return 0, errors.Join(err, fmt.Errorf("process %d has started no %q", parent, words))
}

// tee writes to an output and lets ready count.
type tee struct {
	to    *bytes.Buffer
	ready *countdown
}

func (w *tee) Write(p []byte) (int, error) {
	w.ready.count(p)
	return w.to.Write(p)
}

// countdown is over when a word has come a number of times.
type countdown struct {
	sync.Mutex
	word []byte
	left int
	over chan struct{}
}

func (c *countdown) count(p []byte) {
	c.Lock()
	defer c.Unlock()
	before := c.left
	if c.left -= bytes.Count(p, c.word); before > 0 && c.left <= 0 {
		close(c.over)
	}
}

// spin keeps every core busy until the test ends, or stop is called.
func spin(t *testing.T) (stop func()) {
	ctx, stop := context.WithCancel(t.Context())
	for range runtime.NumCPU() {
		hog := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		hog.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		started := make(chan error)
		go func() { // it dies with its thread
			runtime.LockOSThread()
			started <- hog.Start()
			_ = hog.Wait()
		}()
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	return stop
}

// haveAll builds all programs that failures need, and gives the path of drun.
func haveAll(t *testing.T) string {
	names := []string{"drun", "drun-plugin-host"}
	for _, engine := range []string{"gloo", "mpi"} {
		if haveEngine(engine) {
			names = append(names, "drun-backend-"+engine)
		}
	}
	var paths []string
	for _, name := range names {
		path, err := programs.Path(name)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("NO_COLOR", "1")
	return paths[0]
}
