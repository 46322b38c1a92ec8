package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"drun/history"
	"drun/internal/programs"

	"github.com/rogpeppe/go-internal/testscript"
)

// section gives the code blocks of a section of docs/schedulers.md; with "", of what comes before the first.
func section(t *testing.T, title string) (blocks []string) {
	t.Helper()
	content, err := os.ReadFile("../../docs/schedulers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(content), "\n## ") {
		if name, _, _ := strings.Cut(part, "\n"); name == title || title == "" {
			for _, block := range regexp.MustCompile("(?s)```[a-z]+\n(.*?)```").FindAllStringSubmatch(part, -1) {
				blocks = append(blocks, block[1])
			}
			return blocks
		}
	}
	t.Fatalf("docs/schedulers.md has no section %q", title)
	return nil
}

// launched runs a script in which drun and its plugins are there, with files beside it.
func launched(t *testing.T, script string, files map[string]string) {
	t.Helper()
	more := t.TempDir()
	if haveMPI() && strings.Contains(script, "slurm-ranks") {
		if err := programs.Link(more, "drun-backend-mpi"); err != nil {
			t.Fatal(err)
		}
	}
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		script += fmt.Sprintf("\n-- %s --\n%s", name, text)
	}
	script = "plugins bin\nenv DRUN_PLUGIN_PATH=$WORK/bin:" + more + "\n" + script
	file := filepath.Join(t.TempDir(), "launched.txtar")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Files: []string{file}, Setup: func(env *testscript.Env) error {
		env.Setenv("NO_COLOR", "1")
		env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/config")
		env.Setenv("TESTDATA", testdata)
		env.Setenv("SLURM_LIMIT", os.Getenv("SLURM_LIMIT"))
		env.Setenv("SLURM_ACCOUNTING", os.Getenv("SLURM_ACCOUNTING"))
		env.Setenv("SLURMD_TIMEOUT", os.Getenv("SLURMD_TIMEOUT"))
		// Open MPI's mpirun, for root and on few cores.
		env.Setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
		env.Setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
		return nil
	}, Cmds: commands(map[string]func(*testscript.TestScript, []string){"plugins DIR [mpi]": buildPlugins})})
}

// printed looks in the file got for the lines of the file want.
const printed = `
while read -r line; do
    grep -q -F -e "$line" got || { echo "not printed: $line"; cat got; exit 1; }
done < want
`

func TestOpenMPIDocument(t *testing.T) {
	out, err := exec.Command("mpirun", "--version").Output()
	if err != nil || !strings.Contains(string(out), "Open MPI") && !strings.Contains(string(out), "OpenRTE") {
		t.Skip("Open MPI is not installed: apt-get install libopenmpi-dev openmpi-bin pkgconf")
	}
	mpiPage(t, "Open MPI", "")
}

func TestHydraDocument(t *testing.T) {
	if _, err := exec.LookPath("mpiexec.hydra"); err != nil {
		t.Skip("MPICH is not installed: apt-get install mpich")
	}
	// Two at once have different ports, though Hydra gives both the same variables.
	mpiPage(t, "MPICH and other launchers with Hydra", `
mpiexec.hydra -n 3 drun run train.star --home first >one 2>&1 & one=$!
mpiexec.hydra -n 3 drun run train.star --home second >two 2>&1 || { cat two; exit 1; }
wait $one || { cat one; exit 1; }
`)
}

func mpiPage(t *testing.T, title, more string) {
	recipe, blocks := section(t, ""), section(t, title)
	if len(recipe) != 1 || len(blocks) != 2 {
		t.Fatalf("%d and %d blocks", len(recipe), len(blocks))
	}
	launched(t, "exec sh all.sh\ncp stdout got\nexec sh lines.sh\n", map[string]string{
		"train.star": recipe[0], "all.sh": "set -e\nexec 2>&1\n" + blocks[0] + more, "want": blocks[1], "lines.sh": printed})
}

// inSlurm runs a script of testdata in a real Slurm.
func inSlurm(t *testing.T, script string, files map[string]string) {
	if os.Getenv("DRUN_TEST_SLURM") == "" {
		t.Skip("make slurm runs it")
	}
	if !haveGloo() {
		t.Skip("Gloo is not installed: apt-get install libgloo-dev g++")
	}
	check := exec.Command("sh", "testdata/slurm.sh", ".", "testdata/slurm-nothing.sh")
	if out, err := check.CombinedOutput(); check.ProcessState != nil && check.ProcessState.ExitCode() == 77 {
		t.Skip(string(out))
	} else if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	launched(t, fmt.Sprintf("env PAGE=$WORK\nexec sh all.sh $TESTDATA/%s\ncp stdout got\n%s", script, map[bool]string{true: "exec sh lines.sh\n"}[files["lines.sh"] != ""]),
		with(files, "all.sh", "sh $TESTDATA/slurm.sh $(dirname $(command -v drun)) $1 2>&1 || { cat; exit 1; } </dev/null\n"))
}

func with(files map[string]string, name, text string) map[string]string {
	all := map[string]string{name: text}
	for name, text := range files {
		all[name] = text
	}
	return all
}

// Ranks that srun starts, one a task or several, and mpirun in an allocation.
func TestSlurm(t *testing.T) { inSlurm(t, "slurm-ranks.sh", nil) }

// The job of the page is stopped before its time is over, and goes on.
func TestSlurmDocument(t *testing.T) {
	recipe, blocks := section(t, ""), section(t, "Slurm, by hand")
	if len(recipe) != 1 || len(blocks) != 2 || !strings.HasPrefix(blocks[0], "#!/bin/sh") {
		t.Fatalf("%d and %d blocks", len(recipe), len(blocks))
	}
	inSlurm(t, "slurm-page.sh", map[string]string{"train.star": recipe[0], "job.sh": blocks[0], "want": blocks[1], "lines.sh": printed})
}

// The commands of the page, from a machine that reaches the cluster by ssh.
func TestSlurmSubmit(t *testing.T) {
	recipe, blocks := section(t, ""), section(t, "A Slurm cluster")
	if len(recipe) != 1 || len(blocks) != 4 || !strings.HasPrefix(blocks[0], "[hpc]") {
		t.Fatalf("%d and %d blocks", len(recipe), len(blocks))
	}
	target := regexp.MustCompile(`host = "[^"]*"`).ReplaceAllString(blocks[0], `host = "hpc"`)
	target = regexp.MustCompile(`folder = "[^"]*"`).ReplaceAllString(target, `folder = "SHARED"`)
	t.Setenv("SLURM_LIMIT", "600")
	inSlurm(t, "slurm-submit.sh", map[string]string{"train.star": recipe[0], "targets.toml": target, "commands": blocks[1], "want": blocks[2], "sweep": blocks[3], "lines.sh": printed})
}

// A job that ended while nobody looked, in accounting alone.
func TestSlurmAccounting(t *testing.T) {
	for _, program := range []string{"slurmdbd", "mariadbd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed: apt-get install slurmdbd mariadb-server")
		}
	}
	t.Setenv("SLURM_ACCOUNTING", "1")
	inSlurm(t, "slurm-accounting.sh", nil)
}

// Nodes that lack a disk, and nodes that die: the run goes on elsewhere with the same bits.
func TestSlurmNodes(t *testing.T) {
	t.Setenv("SLURMD_TIMEOUT", "10")
	t.Setenv("SLURM_LIMIT", "600")
	inSlurm(t, "slurm-nodes.sh", nil)
}

// A sweep on Slurm is that of this machine, to the bit, although jobs are taken from their nodes.
func TestPreemptedSweep(t *testing.T) {
	if os.Getenv("DRUN_TEST_LONG") == "" {
		t.Skip("make preempted runs it")
	}
	t.Setenv("SLURM_LIMIT", "1500")
	inSlurm(t, "slurm-preempted.sh", nil)
}

// The manifests are what Kubernetes and JobSet accept, by their schemas.
func TestKubernetesManifests(t *testing.T) {
	kubeconform := "../../bin/kubeconform"
	if _, err := os.Stat(kubeconform); err != nil {
		t.Skip("kubeconform is not installed: make bin/kubeconform")
	}
	validate := func(file string) (string, error) {
		out, err := exec.Command(kubeconform, "-strict", "-summary", "-schema-location", "testdata/kubernetes/{{.ResourceKind}}{{.KindSuffix}}.json", file).CombinedOutput()
		return string(out), err
	}
	for name, count := range map[string]int{"job": 3, "jobset": 1} {
		file := "../../examples/kubernetes/" + name + ".yaml"
		out, err := validate(file)
		if err != nil || !strings.Contains(out, fmt.Sprintf("Valid: %d, Invalid: 0, Errors: 0, Skipped: 0", count)) {
			t.Errorf("%s: %v %s", name, err, out)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range [][2]string{{"completions: 2", "completions: two"}, {"restartPolicy: Never", "restartpolicy: Never"}, {"mountPath", "mountpath"}} {
			wrong := filepath.Join(t.TempDir(), "wrong.yaml")
			if err := os.WriteFile(wrong, []byte(strings.Replace(string(text), fault[0], fault[1], 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := validate(wrong); err == nil || !strings.Contains(out, "Invalid: 1") {
				t.Errorf("%s with %q is taken: %s", name, fault[1], out)
			}
		}
	}
}

// The commands of the page for the queue on this machine.
func TestQueueDocument(t *testing.T) {
	recipe, blocks := section(t, ""), section(t, "A queue on this machine")
	if len(recipe) != 1 || len(blocks) != 2 {
		t.Fatalf("%d and %d blocks", len(recipe), len(blocks))
	}
	launched(t, "exec sh all.sh\ncp stdout got\nexec sh lines.sh\n", map[string]string{
		"train.star": recipe[0], "all.sh": "set -e\nexec 2>&1\n" + blocks[0], "want": blocks[1], "lines.sh": printed})
}

// What drun submit has a JobSet's pods do, as processes with their numbers and names.
func TestSubmittedPods(t *testing.T) {
	if !haveGloo() {
		t.Skip("Gloo is not installed: apt-get install libgloo-dev g++")
	}
	if err := exec.Command("unshare", "--mount", "--net", "--uts", "true").Run(); err != nil {
		t.Skip("mounts and namespaces take root (in a container, CAP_SYS_ADMIN)")
	}
	recipe, blocks := section(t, ""), section(t, "Kubernetes")
	if len(blocks) != 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	launched(t, "env DRUN_TARGETS=$WORK/targets.toml\nexec sh command.sh\ncp stdout manifest\nrm train.star\nexec unshare --mount --net --uts sh pods.sh", map[string]string{
		"train.star": recipe[0], "targets.toml": blocks[0], "command.sh": blocks[1], "pods.sh": `
set -e
exec 2>&1
ip link set lo up
mkdir job
args=$(sed -n 's/^ *args: \[\(.*\)\]$/\1/p' manifest | tr ',"' ' ')
sed -n 's/^  job.json: \(.*\)$/printf %b \1/p' manifest | sed 's/\\\\/\\\\\\\\/g' | sh | sed "s|\"/job\"|\"$WORK/job\"|" >job/job.json
name=$(echo "$args" | sed 's/.*--rdzv *\([^ ]*\):.*/\1/')
printf '127.0.0.1 localhost\n127.0.0.1 %s\n' "$name" >hosts
mount --bind hosts /etc/hosts
export DRUN_HOME=$WORK/home DRUN_RDZV_SECRET=s3cret DRUN_JOB=$WORK/job/job.json
for pod in 1 0; do
	JOB_COMPLETION_INDEX=$pod drun $args >pod$pod 2>&1 & last=$!
done
wait $last || { cat pod0 pod1 job/job.json; exit 1; }
wait
grep 'rank 3 of 4 on node 1 of 2: step 600' pod0 pod1
drun show weights --home home | grep ': done'
`})
}

// What the manifests have a pod do, as processes with the pods' numbers and names: one is killed, and all start again, as
// the Job and the JobSet do.
func TestKubernetesPods(t *testing.T) {
	if !haveGloo() {
		t.Skip("Gloo is not installed: apt-get install libgloo-dev g++")
	}
	if err := exec.Command("unshare", "--mount", "--net", "--uts", "true").Run(); err != nil {
		t.Skip("mounts and namespaces take root (in a container, CAP_SYS_ADMIN)")
	}
	for _, name := range []string{"job", "jobset"} {
		text, err := os.ReadFile("../../examples/kubernetes/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		list := regexp.MustCompile(`(?s)args: (\[.*?\])`).FindSubmatch(text)
		var args []string
		if list == nil || json.Unmarshal(list[1], &args) != nil || args[0] != "run" {
			t.Fatalf("%s: the arguments of the container are not found", name)
		}
		examples, err := filepath.Abs("../../examples")
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			launched(t, "exec unshare --mount --net --uts sh pods.sh", map[string]string{"pods.sh": fmt.Sprintf(`
set -e
exec 2>&1
ip link set lo up
echo '127.0.0.1 localhost' >hosts
mount --bind hosts /etc/hosts
export DRUN_HOME=$WORK/home DRUN_RDZV_SECRET=s3cret KUBERNETES_SERVICE_HOST=10.0.0.1
pod() { (cd %q && JOB_COMPLETION_INDEX=$1 exec drun %s -p epochs=100) >pod$1 2>&1 & }
pod 1; one=$!
pod 0; zero=$!
sleep 1 # the names of a pod are known after it has started
echo '127.0.0.1 train-0.train train-workers-0-0.train' >>hosts
tries=0
until drun checkpoints digits 2>/dev/null | grep -q '^ *[0-9]'; do
	tries=$((tries + 1)); [ $tries -lt 300 ] || { cat pod0 pod1; exit 1; }
	sleep 0.1
done
kill -9 $one
code=0; wait $zero || code=$?
[ $code = 3 ] || { echo "pod 0 ended with $code"; cat pod0; exit 1; }
wait $one || true
pod 0; zero=$!
pod 1; one=$!
wait $zero || { cat pod0; exit 1; }
wait $one || { cat pod1; exit 1; }
cat pod0 pod1 >all
grep 'checkpoint.restore: step' all && grep 'node 1 of run 1 digits: done' all || { cat all; exit 1; }
# Once it is done, a pod that starts again ends at once.
pod 0; zero=$!
pod 1; wait $! || { cat pod1; exit 1; }
wait $zero || { cat pod0; exit 1; }
`, examples, strings.Join(args, " "))})
		})
	}
}

// Every status is the same word wherever it is shown: for a job and its run, as a table, as JSON, in --where, in SQLite and in
// the documentation.
func TestStatusesAreTheSameWords(t *testing.T) {
	drun, err := programs.Path("drun")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	prints := func(args ...string) string {
		out, err := exec.Command(drun, append(args, "--home", home)...).Output()
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return string(out)
	}
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i, s := range history.Statuses() {
		uid := fmt.Sprint("U", i)
		id, _, err := db.Enqueue(history.RunInfo{UID: uid, Name: fmt.Sprint("run", i), Recipe: "x.star", WorldSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		j := &history.Job{Run: id, UID: uid, Target: "t", Handle: fmt.Sprint("n", i), Spec: `{"target": {"name": "t", "kind": "slurm", "values": {"host": "none"}}}`, Submitted: time.Now()}
		if err := db.AddJob(j); err != nil {
			t.Fatal(err)
		}
		j.State = s
		if err := db.SetJob(j); err != nil {
			t.Fatal(err)
		}
		defer func() { // drun jobs has them followed until all have ended
			j.State = history.Lost
			if err := db.SetJob(j); err != nil {
				t.Error(err)
			}
		}()
		if s == history.Running {
			begun, err := db.Begin(history.RunInfo{Name: "begun", Recipe: "x.star", WorldSize: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer runtime.KeepAlive(begun) // it has the lock without which the run is lost
		}
	}
	t.Setenv("DRUN_SSH", "false")
	tables, texts := "", prints("jobs", "--help")
	for _, page := range []string{"history-tables.md", "schedulers.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		tables += string(text)
	}
	runs, jobs := prints("runs"), prints("jobs")
	runsJSON, jobsJSON := prints("runs", "--json"), prints("jobs", "--json")
	for _, s := range history.Statuses() {
		word := string(s)
		for what, is := range map[string]bool{
			"drun runs":          regexp.MustCompile(`(?m)^\d+ +\S+ +` + word + ` `).MatchString(runs),
			"drun runs --json":   strings.Contains(runsJSON, `"status": "`+word+`"`),
			"drun runs --where":  strings.Contains(prints("runs", "--where", `status == "`+word+`"`, "--columns", "status"), word+"\n"),
			"drun sql":           strings.Contains(prints("sql", "select status from runs where status = '"+word+"'"), word+"\n"),
			"drun jobs":          regexp.MustCompile(`(?m)^t:n\d +` + word + ` `).MatchString(jobs),
			"drun jobs --json":   strings.Contains(jobsJSON, `"state": "`+word+`"`),
			"the jobs in SQLite": strings.Contains(prints("sql", "select state from jobs where state = '"+word+"'"), word+"\n"),
			"drun jobs --help":   strings.Contains(texts, word),
			"the documentation":  strings.Contains(tables, "`"+word+"`"),
		} {
			if !is {
				t.Errorf("%s does not have %q", what, word)
			}
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s%s", runs, jobs, prints("sql", "select id, status from runs"))
	}
}
