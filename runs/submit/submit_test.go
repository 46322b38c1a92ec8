package submit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"drun/engine/recipe"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/internal/testlimit"
)

func TestSlurmStates(t *testing.T) {
	for _, c := range []struct {
		state, reason, nodes string
		want                 history.Status
		says                 string
	}{
		{"PENDING", "Priority", "", history.Pending, "others come first"},
		{"PENDING", "Resources", "", history.Pending, "waits for free nodes"},
		{"PENDING", "QOSMaxJobsPerUserLimit", "", history.Pending, "Slurm's reason: QOSMaxJobsPerUserLimit"},
		{"RUNNING", "None", "n[1-2]", history.Running, "on n[1-2]"},
		{"COMPLETING", "None", "n1", history.Running, "on n1"},
		{"SUSPENDED", "None", "n1", history.Running, "suspended on n1"},
		{"COMPLETED", "None", "n1", history.Done, "on n1"},
		{"CANCELLED by 1000", "None", "None assigned", history.Cancelled, "by scancel"},
		{"CANCELLED+", "None", "", history.Cancelled, "by scancel"},
		{"PREEMPTED", "None", "n1", history.Preempted, "another job took its nodes"},
		{"TIMEOUT", "TimeLimit", "n1", history.Interrupted, "--time"},
		{"OUT_OF_MEMORY", "OutOfMemory", "n1", history.Failed, "out of memory: --memory"},
		{"NODE_FAIL", "NodeDown", "n1", history.Lost, "a node failed on n1"},
		{"FAILED", "NonZeroExitCode", "n1", history.Failed, "share?"},
		{"FAILED", "RaisedSignal:9(Killed)", "n1", history.Failed, "RaisedSignal"},
	} {
		if s := slurmState(c.state, c.reason, c.nodes); s.Status != c.want || !strings.Contains(s.Reason, c.says) {
			t.Errorf("%s, %s: %s, %q", c.state, c.reason, s.Status, s.Reason)
		}
	}
}

// A job's exit code is believed before its scheduler; only the reason of an interruption is the scheduler's.
func TestExitCodeComesFirst(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		code  int
		said  history.Status
		asked bool
		want  history.Status
	}{
		{0, history.Cancelled, true, history.Done},
		{1, history.Done, false, history.Failed},
		{3, history.Lost, false, history.Failed},
		{130, history.Cancelled, false, history.Cancelled},
		{130, history.Preempted, false, history.Preempted},
		{130, history.Failed, false, history.Interrupted},
		{130, "", false, history.Interrupted},
		{130, "", true, history.Cancelled},
		{137, history.Failed, false, history.Failed},
		{137, history.Lost, false, history.Lost},
		{137, history.Running, false, history.Failed},
		{137, "", false, history.Failed},
	} {
		j := &history.Job{}
		if c.asked {
			j.Asked = &now
		}
		if got := (slurm{}).over(j, strconv.Itoa(c.code), State{Status: c.said}); got.Status != c.want || got.Code == nil || *got.Code != c.code {
			t.Errorf("%d and %q: %s", c.code, c.said, got.Status)
		}
	}
}

func TestRefusals(t *testing.T) {
	for words, hint := range map[string]string{
		"sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified":                                   "--account or --partition",
		"sbatch: error: invalid partition specified: gpus\nsbatch: error: Batch job submission failed: Invalid partition name specified":           "--partition",
		"sbatch: error: Batch job submission failed: Node count specification invalid":                                                             "--nnodes",
		"sbatch: error: Batch job submission failed: Requested node configuration is not available":                                                "--nnodes, --cpus",
		"sbatch: error: CPU count per node can not be satisfied":                                                                                   "-n, --threads or --cpus",
		"sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)":                              "--time",
		"sbatch: error: Batch job submission failed: Invalid qos specification":                                                                    "--qos",
		"sbatch: error: Batch job submission failed: Invalid feature specification":                                                                "--constraint",
		"sbatch: error: Memory specification can not be satisfied\nsbatch: error: Batch job submission failed: Requested node configuration is no": "--memory",
		"sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)":        "fewer jobs",
		"sbatch: error: Batch job submission failed: Invalid job array specification":                                                              "fewer combinations",
	} {
		err := refused(words)
		if !strings.Contains(exit.HintOf(err), hint) || strings.Contains(err.Error(), "sbatch: error") || !strings.HasPrefix(err.Error(), "Slurm refuses the job: ") {
			t.Errorf("%v; hint: %s; want %s", err, exit.HintOf(err), hint)
		}
	}
}

func TestQueueKeepsItsOrder(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one core")
	}
	jobOf := func(cpus int, memory int64) *history.Job {
		return &history.Job{Spec: spec{CPUs: cpus, Memory: memory}.text()}
	}
	all, one := jobOf(100_000, 0), jobOf(1, 0)
	if begin, why := next([]*history.Job{all, one}, nil); len(begin) != 1 || begin[0] != all || !strings.Contains(why, "waits for 1 cores, of which 0 are free") {
		t.Errorf("the first takes all: %d begin, %s", len(begin), why)
	}
	if begin, why := next([]*history.Job{all, one}, []*history.Job{one}); len(begin) != 0 || !strings.Contains(why, "cores") {
		t.Errorf("none passes the one that waits: %d begin, %s", len(begin), why)
	}
	half := jobOf(1, int64(memory.Machine())/2+1)
	if begin, why := next([]*history.Job{half, half}, nil); len(begin) != 1 || !strings.Contains(why, "of memory") {
		t.Errorf("memory: %d begin, %s", len(begin), why)
	}
}

func request(kind string) *Request {
	b := &recipe.Bundle{Name: "sub/train.star", Dir: "/work/sub", Main: "train.star"}
	b.Sources = []records.Source{records.NewSource("train.star", "recipe", []byte("def main():\n    pass\n"))}
	return &Request{Home: ".drun", Version: "v1", Bundle: b, Nodes: 2, Ranks: 2, Threads: 1, Grace: 90 * time.Second, Args: []string{"--nproc=2", "--param=say=it's $HOME: \"x\"", "--param=at=$(HOME)"},
		Target: &Target{Name: "t", Kind: kind, Values: map[string]string{"image": "registry.example.com/drun", "folder": "/shared/drun", "host": "login", "memory": "16G", "gpus": "a100:1", "volumes": "drun:/drun\ndata:/data"}}}
}

// What is printed is what Kubernetes and JobSet accept, by their schemas, and a changed field is not.
func TestManifest(t *testing.T) {
	kubeconform := "../../bin/kubeconform"
	if _, err := os.Stat(kubeconform); err != nil {
		t.Skip("kubeconform is not installed: make bin/kubeconform")
	}
	r := request("kubernetes")
	r.Target.Values["queue"], r.Target.Values["namespace"] = "team-a", "ml"
	text, err := Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text string) string {
		file := filepath.Join(t.TempDir(), "manifest.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.Command(kubeconform, "-strict", "-summary", "-schema-location", "../../cmd/drun/testdata/kubernetes/{{.ResourceKind}}{{.KindSuffix}}.json", file).CombinedOutput()
		return string(out)
	}
	if out := validate(text); !strings.Contains(out, "Valid: 3, Invalid: 0, Errors: 0, Skipped: 0") {
		t.Errorf("%s\n%s", out, text)
	}
	for _, fault := range [][2]string{{"completions: 2", "completions: two"}, {"restartPolicy", "restartpolicy"}, {"mountPath", "mountpath"}} {
		if out := validate(strings.Replace(text, fault[0], fault[1], 1)); !strings.Contains(out, "Invalid: 1") {
			t.Errorf("with %s it is taken: %s", fault[1], out)
		}
	}
	for _, want := range []string{`"--param=say=it's $HOME: \"x\""`, `"--param=at=$$(HOME)"`, `kueue.x-k8s.io/queue-name: "team-a"`, `nvidia.com/gpu: "1"`, `memory: "16Gi"`, "terminationGracePeriodSeconds: 120", "suspend: true", `cpu: "2"`, "operator: In\n", "values: [1, 2, 5, 8]", "action: FailJobSet", "backoffLimit: 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing:\n%s", want, text)
		}
	}
}

func TestJobSetStates(t *testing.T) {
	thingOf := func(text string) (v thing) {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	ended := func(code int) string {
		return fmt.Sprintf(`{"status":{"phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":%d,"reason":"Error"}}}]}}`, code)
	}
	running := `{"metadata":{"name":"a-workers-0-0"},"spec":{"nodeName":"n2"},"status":{"phase":"Running"}}`
	for _, c := range []struct {
		set  string
		pods []string
		want history.Status
		says string
		code int
	}{
		{`{"spec":{"suspend":true}}`, nil, history.Pending, "Kueue has not admitted it", -1},
		{`{}`, []string{`{"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","message":"0/3 nodes are available: 3 Insufficient cpu."}]}}`}, history.Pending, "3 Insufficient cpu", -1},
		{`{}`, []string{`{"spec":{"nodeName":"n1"},"status":{"phase":"Pending","containerStatuses":[{"state":{"waiting":{"reason":"ErrImagePull","message":"no such image"}}}]}}`}, history.Pending, "ErrImagePull: no such image", -1},
		{`{}`, []string{running, `{"spec":{"nodeName":"n1"},"status":{"phase":"Running"}}`}, history.Running, "on n1,n2", -1},
		{`{"status":{"conditions":[{"type":"Completed","status":"True"}]}}`, nil, history.Done, "", 0},
		{`{"status":{"conditions":[{"type":"Failed","status":"True"}]}}`, []string{`{"status":{"phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":1,"reason":"Error"}}}]}}`}, history.Failed, "exit code 1", 1},
		{`{"status":{"conditions":[{"type":"Failed","status":"True"}]}}`, []string{ended(3), ended(0), ended(1), ended(3)}, history.Failed, "exit code 1", 1},
		{`{"status":{"conditions":[{"type":"Failed","status":"True"}]}}`, []string{`{"status":{"phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}}`}, history.Failed, "out of memory", 137},
	} {
		var pods []thing
		for _, p := range c.pods {
			pods = append(pods, thingOf(p))
		}
		s := jobSetState(&history.Job{}, thingOf(c.set), pods)
		code := -1
		if s.Code != nil {
			code = *s.Code
		}
		if s.Status != c.want || !strings.Contains(s.Reason, c.says) || code != c.code {
			t.Errorf("%s, %s: %s, %q, %d", c.set, c.pods, s.Status, s.Reason, code)
		}
	}
}

// entered is a home with a job whose run has not begun, and hear, which has a follower hear of a target and returns the job then.
func entered(t *testing.T) (home string, db *history.DB, job func() *history.Job, hear func(r answer, failing time.Duration) *history.Job) {
	t.Helper()
	home = t.TempDir()
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	id, _, err := db.Enqueue(history.RunInfo{UID: "U", Recipe: "x.star", WorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	err = db.AddJob(&history.Job{Run: id, UID: "U", Target: "hpc", Handle: "7", Spec: spec{Target: Target{Name: "hpc", Kind: "slurm", Values: map[string]string{"host": "none"}}}.text(), Submitted: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	job = func() *history.Job {
		t.Helper()
		all, err := db.Jobs(true)
		if err != nil || len(all) != 1 {
			t.Fatalf("%d jobs, %v", len(all), err)
		}
		return all[0]
	}
	return home, db, job, func(r answer, failing time.Duration) *history.Job {
		t.Helper()
		r.jobs, r.from = []*history.Job{job()}, &asked{}
		if failing > 0 {
			r.from.failing = time.Now().Add(-failing)
		}
		if err := (&Follower{Home: home}).told(db, r); err != nil {
			t.Fatal(err)
		}
		return job()
	}
}

func said(s State) answer { return answer{states: map[int64]State{1: s}} }

// A job that its scheduler does not know is told so, and is lost only after a while; what is not known for other reasons keeps
// its state.
func TestLostOnlyAfterAWhile(t *testing.T) {
	_, db, job, hear := entered(t)
	nothing := answer{states: map[int64]State{}}
	for _, step := range []struct {
		r    answer
		want history.Status
		says string
	}{
		{said(State{Status: history.Running, Reason: "on n1"}), history.Running, "on n1"},
		{answer{err: &UnreachableError{"login", "no route", ""}}, history.Running, "login cannot be reached: no route"},
		{nothing, history.Running, "does not know it at the moment"},
		{nothing, history.Running, "does not know it at the moment"},
		{said(State{Status: history.Pending, Reason: "others come first"}), history.Pending, again + "others come first"},
		{said(State{Status: history.Pending, Reason: "no nodes"}), history.Pending, again + "no nodes"},
	} {
		if got := hear(step.r, 0); got.State != step.want || !strings.Contains(got.Reason, step.says) {
			t.Errorf("%+v: %s, %s", step, got.State, got.Reason)
		}
	}
	miss := func(ago time.Duration) {
		j := job()
		s, past := specOf(j), time.Now().Add(-ago)
		s.Missed = &past
		j.Spec = s.text()
		if err := db.SetJob(j); err != nil {
			t.Fatal(err)
		}
	}
	miss(lostAfter + time.Second)
	hear(said(State{Status: history.Running}), 0)
	if got := hear(nothing, 0); got.State != history.Running {
		t.Errorf("known meanwhile: %s", got.State)
	}
	miss(lostAfter - 10*time.Second)
	if got := hear(nothing, 0); got.State != history.Running {
		t.Errorf("missing for less: %s", got.State)
	}
	miss(lostAfter + time.Second)
	if got := hear(nothing, 0); got.State != history.Lost || got.Ended == nil || got.RunStatus != history.Lost {
		t.Errorf("missing for long: %s, its run %s", got.State, got.RunStatus)
	}
}

// A target that does not answer is waited for, for a week; the run of a job that has ended is, too, or less if the job was to end.
func TestTargetThatDoesNotAnswer(t *testing.T) {
	unreachable := answer{err: &UnreachableError{"login", "no route", ""}}
	over := said(State{Status: history.Done})
	over.pulled = unreachable.err
	for _, c := range []struct {
		r       answer
		asked   bool
		failing time.Duration
		want    history.Status
		says    string
	}{
		{unreachable, false, time.Hour, history.Pending, "not known since"},
		{unreachable, true, time.Hour, history.Pending, "not known since"},
		{unreachable, false, goneAfter + time.Second, history.Lost, "its target has not answered since"},
		{over, false, time.Hour, history.Pending, "its run is not here yet"},
		{over, true, lostAfter - 10*time.Second, history.Pending, "its run is not here yet"},
		{over, true, lostAfter + time.Second, history.Done, ""},
		{over, false, goneAfter + time.Second, history.Done, ""},
	} {
		_, db, _, hear := entered(t)
		if c.asked {
			if err := db.AskEnd(1, true); err != nil {
				t.Fatal(err)
			}
		}
		if got := hear(c.r, c.failing); got.State != c.want || !strings.Contains(got.Reason, c.says) {
			t.Errorf("%+v: %s, %q", c, got.State, got.Reason)
		}
	}
}

// Whoever has asked for the end of a job is told that it was so; if nobody could be asked, the job goes on.
func TestWhoHasEndedIt(t *testing.T) {
	for _, asked := range []bool{true, false} {
		_, db, _, hear := entered(t)
		if err := db.AskEnd(1, asked); err != nil {
			t.Fatal(err)
		}
		if got := hear(said(State{Status: history.Cancelled, Reason: "by scancel"}), 0); got.Reason != map[bool]string{true: byDrun, false: "by scancel"}[asked] {
			t.Errorf("asked %v: %s", asked, got.Reason)
		}
	}
	t.Setenv("DRUN_SSH", "false")
	home, db, job, _ := entered(t)
	if err := Cancel(context.Background(), db, home, job()); err == nil || job().Asked != nil {
		t.Errorf("%v, asked %v", err, job().Asked)
	}
}

// A job whose submitter is gone before a scheduler had it is lost, and not while it is handed over, however long that takes.
func TestSubmitterThatIsGone(t *testing.T) {
	home, db, job, _ := entered(t)
	j := job()
	j.Handle = ""
	if err := db.SetJob(j); err != nil {
		t.Fatal(err)
	}
	release, err := handing(home, "U")
	if err != nil || release == nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, "jobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error)
	go func() { ended <- (&Follower{Home: home}).Run(ctx) }()
	looks := func() { // it has looked once it has removed the file
		Wake(home)
		if !testlimit.Until(time.Minute, func() bool { _, err := os.Stat(wakeFile(home)); return err != nil }) {
			t.Fatal("it does not look")
		}
	}
	for range 3 {
		looks()
	}
	if got := job(); got.State != history.Pending {
		t.Errorf("while it is handed over: %s, %s", got.State, got.Reason)
	}
	release()
	looks()
	if err := <-ended; err != nil || job().State != history.Lost {
		t.Errorf("%v, %s", err, job().State)
	}
}
