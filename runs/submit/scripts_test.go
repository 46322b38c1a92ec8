package submit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/engine/recipe"
	"drun/history"
	built "drun/internal/programs"
	"drun/internal/testlimit"
)

// scripted is a job of a Slurm cluster that is reached from this machine, in a folder of its own, and a folder of commands that
// its script finds first. srun and scontrol do what the test says.
func scripted(t *testing.T, srun, scontrol string, cells ...Cell) (j *job, execute func(env ...string) (code int, out string)) {
	t.Helper()
	root, bin := t.TempDir(), t.TempDir()
	drun, err := built.Path("drun")
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Home: root, Bundle: &recipe.Bundle{Name: "x.star"}, Nodes: 1, Ranks: 1, Cells: cells,
		Target: &Target{Name: "hpc", Kind: "slurm", Values: map[string]string{"folder": root, "drun": drun}}}
	j = &job{Request: r, place: placeIn(root, "J", drun), runs: []Run{{"U", "run"}}}
	if cells != nil {
		j.runs = nil
		for _, c := range cells {
			j.runs = append(j.runs, Run{c.Info.UID, c.Info.Name})
		}
	}
	if _, err := (machine{}).send(context.Background(), j.Folder, j.files(fill("slurm.sh", j)), "mkdir files"); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"srun": srun, "scontrol": "echo scontrol $@ >>" + root + "/told; " + scontrol} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return j, func(env ...string) (int, string) {
		cmd := exec.Command("sh", filepath.Join(j.Folder, "script"))
		cmd.Env = append(append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "SLURM_JOB_ID=7"), env...)
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
}

func content(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}

// A job that was interrupted or lost a node is requeued, and has not ended; any other has, and leaves its exit code.
func TestWhatIsRequeued(t *testing.T) {
	for code, requeued := range map[string]bool{"0": false, "1": false, "2": false, "3": true, "5": false, "130": true, "137": false} {
		j, execute := scripted(t, "exit "+code, "")
		if got, out := execute(); got == 0 != (code == "0") {
			t.Errorf("%s: the script ends with %d: %s", code, got, out)
		}
		left, told := content(j.Folder+"/exit"), content(j.Root()+"/told")
		if requeued && (told != "scontrol requeue 7" || left != "") || !requeued && (told != "" || left != code) {
			t.Errorf("%s: told %q, left %q", code, told, left)
		}
	}
}

// Slurm may have requeued a job itself, or may refuse to; only then it has ended.
func TestRequeueThatFails(t *testing.T) {
	for words, left := range map[string]string{"Job is pending execution for job 7": "", "Requested operation is presently disabled": "3"} {
		j, execute := scripted(t, "exit 3", "echo '"+words+"' >&2; exit 1")
		if code, out := execute(); code != 3 || content(j.Folder+"/exit") != left || left != "" && !strings.Contains(out, words) {
			t.Errorf("%s: %d, left %q, %s", words, code, content(j.Folder+"/exit"), out)
		}
	}
}

// A run that begins again and again at the same step, and saves nothing, does not go on for ever.
func TestNothingIsRequeuedForEver(t *testing.T) {
	j, execute := scripted(t, "exit 130", "")
	db, err := history.Open(j.RunHome)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := db.Begin(history.RunInfo{UID: "U", Recipe: "x.star", WorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	attempts := func(more int, from int64) {
		for range more {
			n++
			if err := r.Write(&history.Batch{AttemptBegins: []history.AttemptBegin{{Attempt: n, Started: time.Now()}}, Supersedes: []history.Supersede{{Attempt: n, FromStep: &from}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	attempts(12, 7)
	attempts(9, 8)
	if code, out := execute(); code != 130 || content(j.Folder+"/exit") != "" {
		t.Fatalf("after nine: %d, %q, %s", code, content(j.Folder+"/exit"), out)
	}
	attempts(1, 8)
	if code, out := execute(); code != 130 || !strings.HasPrefix(content(j.Folder+"/exit"), "130 it has begun ten times") {
		t.Errorf("after ten: %d, %q, %s", code, content(j.Folder+"/exit"), out)
	}
	if told := content(j.Root() + "/told"); told != "scontrol requeue 7" {
		t.Errorf("told %q", told)
	}
}

// Each cell of an array gets its own words, whatever these have.
func TestCellsGetTheirWords(t *testing.T) {
	values := []string{"a\nb", "it's $HOME", "2) ;;\nesac", ""}
	var cells []Cell
	for i, v := range values {
		cells = append(cells, Cell{Args: []string{"-p", "say=" + v}, Info: history.RunInfo{UID: "U-" + string(rune('1'+i)), Name: "n" + string(rune('1'+i))}})
	}
	j, execute := scripted(t, `for a; do printf '<%s>' "$a"; done; exit 3`, "", cells...)
	for i, v := range values {
		n := string(rune('1' + i))
		code, out := execute("SLURM_ARRAY_TASK_ID=" + n)
		if want := "<--resume><auto><-p><say=" + v + "><--name><n" + n + ">"; code != 3 || !strings.Contains(out, want) {
			t.Errorf("cell %s: %d, %s, want %s", n, code, out, want)
		}
	}
	if told := content(j.Root() + "/told"); strings.Count(told, "scontrol requeue 7") != len(values) {
		t.Errorf("told %q", told)
	}
}

// What has become of a job is read of the exit code that it has left, then of squeue, scontrol and accounting.
func TestWhoIsBelieved(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	say := func(program, text string, code int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, program), fmt.Appendf(nil, "#!/bin/sh\ncat <<'EOF'\n%s\nEOF\nexit %d\n", text, code), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const scontrol = "JobId=7 JobName=x JobState=%s Reason=%s Dependency=(null) NodeList=n%d BatchHost=n1"
	for _, c := range []struct {
		exit, squeue, scontrol, sacct string
		want                          history.Status // "": it is not known
		says                          string
	}{
		{exit: "0", squeue: "7|COMPLETED|None|n1", want: history.Done},
		{exit: "0", squeue: "7|FAILED|NonZeroExitCode|n1", want: history.Done},
		{exit: "2 n1: no disk", squeue: "7|COMPLETED|None|n1", want: history.Failed, says: "exit code 2: n1: no disk"},
		{exit: "1", want: history.Failed, says: "exit code 1"},
		{squeue: "7|RUNNING|None|n1", scontrol: fmt.Sprintf(scontrol, "CANCELLED", "None", 1), want: history.Running, says: "on n1"},
		{squeue: "17|RUNNING|None|n1", scontrol: fmt.Sprintf(scontrol, "TIMEOUT", "TimeLimit", 2), want: history.Interrupted, says: "--time"},
		{squeue: "7_1|RUNNING|None|n1", sacct: "7|CANCELLED by 0|n3", want: history.Cancelled, says: "by scancel"},
		{sacct: "7|OUT_OF_MEMORY|n3", scontrol: fmt.Sprintf(scontrol, "COMPLETED", "None", 1), want: history.Done, says: "on n1"},
		{squeue: "8|RUNNING|None|n1"},
	} {
		folder := t.TempDir()
		if c.exit != "" {
			if err := os.WriteFile(folder+"/exit", []byte(c.exit+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		say("squeue", c.squeue, 0)
		say("scontrol", c.scontrol, map[bool]int{true: 1}[c.scontrol == ""])
		say("sacct", c.sacct, 0)
		j := &history.Job{ID: 1, Handle: "7", Spec: spec{Folder: folder}.text()}
		states, err := slurm{}.states(context.Background(), []*history.Job{j})
		if s := states[1]; err != nil || s.Status != c.want || !strings.Contains(s.Reason, c.says) {
			t.Errorf("%+v: %v, %s, %q", c, err, s.Status, s.Reason)
		}
	}
	say("squeue", "slurm_load_jobs error: Unable to contact slurm controller", 1)
	if states, err := (slurm{}).states(context.Background(), []*history.Job{{ID: 1, Handle: "7"}}); err == nil {
		t.Errorf("squeue fails: %v", states)
	}
}

// A sweep is handed over as one array, whose tasks are the cells in their order.
func TestCellsAreTasks(t *testing.T) {
	bin, home := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Chdir(home)
	for program, text := range map[string]string{"sbatch": "cat \"$2\" >../../../handed; echo '7;cluster'", "squeue": "", "scancel": "echo scancel $@ >../handed", "scontrol": ""} {
		if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r := &Request{Home: ".drun", Bundle: &recipe.Bundle{Name: "x.star"}, Nodes: 1, Ranks: 1, AtOnce: 2, Target: &Target{Name: "here", Kind: "slurm"}}
	for _, key := range []string{"a", "b", "c"} {
		r.Cells = append(r.Cells, Cell{Key: key, Info: history.RunInfo{Recipe: "x.star", WorldSize: 1}})
	}
	jobs, err := Submit(context.Background(), r)
	if err != nil || len(jobs) != 3 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	for i, j := range jobs {
		n := fmt.Sprint(i + 1)
		if NameOf(j) != "here:7_"+n || KeyOf(j) != r.Cells[i].Key || !strings.HasSuffix(j.UID, "-"+n) || specOf(j).of("exit") != specOf(j).Folder+"/exit-"+n {
			t.Errorf("%s: cell %s, uid %s, %s", NameOf(j), KeyOf(j), j.UID, j.Spec)
		}
		t.Setenv(FileVariable, specOf(j).Folder+"/job.json")
		t.Setenv(CellVariable, n)
		if _, own, err := ReadFile("x.star"); err != nil || own.UID != j.UID || own.Name != j.RunName {
			t.Errorf("%s: its run is %v, %v", NameOf(j), own, err)
		}
	}
	if script := content("handed"); !strings.Contains(script, "#SBATCH --array=1-3%2\n") {
		t.Errorf("handed over is %s", script)
	}
	for _, names := range [][2]string{{"here:7_2", "here:7_2"}, {jobs[2].RunName, "here:7_3"}, {fmt.Sprint(jobs[0].Run), "here:7_1"}} {
		if j := Find(jobs, names[0]); j == nil || NameOf(j) != names[1] {
			t.Errorf("%s is %v", names[0], j)
		}
	}
	later := *jobs[0] // of the same run
	later.Handle = "8"
	if j := Find(append(jobs, &later), jobs[0].RunName); NameOf(j) != "here:8" {
		t.Errorf("the newest job of a run is not %s", NameOf(j))
	}
}

// Files that go along are named and have their sums; what is no file of the recipe's folder does not.
func TestCopies(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/data", 0o700), os.Mkdir(dir+"/linked", 0o700), os.WriteFile(dir+"/data/a b.csv", []byte("1\n"), 0o600), os.Symlink("/etc/passwd", dir+"/linked/link")); err != nil {
		t.Fatal(err)
	}
	r := &Request{Bundle: &recipe.Bundle{Dir: dir}, Copies: []string{"data", dir + "/data/a b.csv"}}
	list, sums, err := r.copies()
	const line = "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865  files/data/a b.csv\n"
	if err != nil || len(list) != 2 || sums != line+line {
		t.Errorf("%v, %q, %v", list, sums, err)
	}
	for _, name := range []string{"..", "/etc/passwd", "none", "linked"} {
		r.Copies = []string{name}
		if list, _, err := r.copies(); err == nil {
			t.Errorf("%s goes along: %v", name, list)
		}
	}
}

// A job in the queue has drun's variables of its submitter, and no secrets.
func TestEnvironmentOfTheQueue(t *testing.T) {
	for _, variable := range []string{"DRUN_LINKS", "DRUN_TOKEN", "DRUN_RDZV_SECRET", "DRUN_HOME", "ELSE"} {
		t.Setenv(variable, "x")
	}
	if got := strings.Join((&job{}).Environ(), " "); !strings.Contains(got, "DRUN_LINKS=x") || strings.Contains(got, "TOKEN") || strings.Contains(got, "SECRET") || strings.Contains(got, "HOME") || strings.Contains(got, "ELSE") {
		t.Error(got)
	}
}

// Of a job whose submission is interrupted nothing is left.
func TestInterruptedSubmission(t *testing.T) {
	bin, home := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Chdir(home)
	for program, text := range map[string]string{"sbatch": ">" + home + "/waits; while [ -e " + home + "/waits ]; do sleep 0.1; done", "squeue": "", "scancel": "", "scontrol": ""} {
		if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	r := &Request{Home: home, Bundle: &recipe.Bundle{Name: "x.star"}, Nodes: 1, Ranks: 1, Target: &Target{Name: "here", Kind: "slurm"}, Info: history.RunInfo{Recipe: "x.star", WorldSize: 1}}
	go func() {
		_, err := Submit(ctx, r)
		ended <- err
	}()
	if !testlimit.Until(time.Minute, func() bool { _, err := os.Stat("waits"); return err == nil }) {
		t.Fatal("sbatch is not called")
	}
	db, opened := history.Open(home)
	if opened != nil {
		t.Fatal(opened)
	}
	defer db.Close()
	jobs, _ := db.Jobs(true)
	if release, err := handing(home, jobs[0].UID); release != nil || err != nil {
		t.Errorf("nobody is handing it over: %v", err)
	}
	cancel()
	err := <-ended
	_ = os.Remove("waits")
	jobs, _ = db.Jobs(true)
	runs, _ := db.Select(history.Selection{})
	folders, _ := filepath.Glob(home + "/jobs/*/")
	if err == nil || len(jobs)+len(runs)+len(folders) > 0 {
		t.Errorf("%v; left are %v, %v, %v", err, jobs, runs, folders)
	}
}
