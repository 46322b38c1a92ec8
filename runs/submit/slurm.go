package submit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/plugins/host"
)

// slurm speaks to Slurm by its commands, on a login node. It needs no accounting: squeue knows a job for some minutes after its
// end, and the script leaves drun's exit code in a file, which is believed before what Slurm says.
type slurm struct{ at machine }

// What scripts on a target end with, if a job cannot go there.
const (
	noFolder    = 91
	noScheduler = 92
	notSame     = 94
	noStart     = 95
)

// drunArch is how uname -m calls an architecture of Go.
var drunArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

func (s slurm) look(ctx context.Context, r *Request, uid string) (p place, err error) {
	defer try.Caught(&err)
	t := r.Target
	if Here(t) {
		p = try.To(ownPlace(r, uid))
		if _, err := s.at.run(ctx, "command -v sbatch squeue scancel scontrol >/dev/null", nil); err != nil {
			return p, exit.WithHint(exit.Errorf(exit.Usage, "%s: Slurm's commands (sbatch, squeue, scancel, scontrol) are not on this machine", t.Name), "on another machine, give the target its login node: host = \"login.example.com\"")
		}
		return p, nil
	}
	version := folderOf(r.Version)
	script := "umask 077; cd; f=" + words([]string{t.Get("folder")}) + "; case $f in '~/'*) f=$HOME/${f#'~/'};; '~') f=$HOME;; esac\n" +
		`mkdir -p "$f/jobs" "$f/bin" && cd "$f" && [ -w jobs ] || exit ` + strconv.Itoa(noFolder) + "\n" +
		"command -v sbatch squeue scancel scontrol >/dev/null || exit " + strconv.Itoa(noScheduler) + "\n" +
		`echo "folder $f"; echo "arch $(uname -m)"; df -Pk . | awk 'NR==2 {print "free", $4}'; [ -x "bin/` + version + `/drun" ] && echo have` + "\n"
	for _, dir := range r.Needs {
		script += "[ -d " + words([]string{dir}) + " ] || echo missing " + words([]string{dir}) + "\n"
	}
	out, err := s.at.run(ctx, script+":", nil)
	if failed := (*CommandError)(nil); errors.As(err, &failed) {
		switch failed.Code {
		case noFolder:
			return p, exit.WithHint(exit.Errorf(exit.Usage, "%s: the folder %s cannot be made or written there: %s", t.Name, t.Get("folder"), failed.Words), "the target's folder is on a disk of yours that the login node and the nodes share")
		case noScheduler:
			return p, exit.Errorf(exit.Usage, "%s: Slurm's commands (sbatch, squeue, scancel, scontrol) are not in the PATH of a shell that ssh starts on %s", t.Name, t.Get("host"))
		}
	}
	try.Ok(err)
	found := pairs(out)
	if dir := first(found["missing"]); dir != "" {
		return p, exit.WithHint(exit.Errorf(exit.Usage, "--data %s: %s has no such folder", dir, t.Name), "--data names a folder there; --copy takes files of the recipe's folder along")
	}
	root := first(found["folder"])
	p = place{folder: root + "/jobs/" + uid, home: root + "/home", program: root + "/bin/" + version + "/drun", upload: found["have"] == nil}
	p.dir = p.folder + "/files"
	if own := t.Get("drun"); own != "" {
		p.program, p.upload = own, false
	}
	if arch := first(found["arch"]); p.upload && arch != drunArch[runtime.GOARCH] {
		return p, exit.WithHint(exit.Errorf(exit.Usage, "%s has processors of the kind %s, and this drun is for %s", t.Name, arch, cmp.Or(drunArch[runtime.GOARCH], runtime.GOARCH)),
			"put the drun for "+arch+" of the same version there, with drun-plugin-host and plugins beside it, and give the target its path: drun = \"/path/drun\"")
	}
	return p, nil
}

func (s slurm) send(ctx context.Context, j *job) (err error) {
	defer try.Caught(&err)
	files := j.files(s.text(j))
	copies, sums := try.To2(j.copies())
	if Here(j.Target) {
		_, err := s.at.send(ctx, j.folder, files, "")
		return err
	}
	files = append(append(files, copies...), packed{name: "sums", content: []byte(sums)})
	if j.upload {
		try.Ok(s.sendProgram(ctx, j))
	}
	check := "mkdir -p files && { [ ! -s sums ] || sha256sum -c --quiet sums >&2; } || exit " + strconv.Itoa(notSame) + "\n" +
		words([]string{j.program, "version", "--json"}) + " || exit " + strconv.Itoa(noStart) + "\n"
	if j.Info.Name != "" {
		check += "[ ! -e " + words([]string{j.home + "/history.db"}) + " ] || " +
			words([]string{j.program, "runs", "--home", j.home, "--all", "--json", "--columns", "id", "--where", fmt.Sprintf("name == %q", j.Info.Name)}) + "\n"
	}
	out, err := s.at.send(ctx, j.folder, files, check)
	failed := (*CommandError)(nil)
	if errors.As(err, &failed) {
		switch failed.Code {
		case notSame:
			return exit.Errorf(exit.Storage, "what arrived is not what was sent: %s", failed.Words)
		case noStart:
			return exit.WithHint(exit.Errorf(exit.Usage, "drun does not start there: %s", cmp.Or(failed.Words, first(strings.Split(out, "\n")))),
				"a drun that was built for that system can be named in the target: drun = \"/path/drun\"")
		}
	}
	try.Ok(full(err))
	if theirs := field(out, "version"); theirs != j.Version {
		return exit.WithHint(exit.Errorf(exit.Usage, "%s there is %s, and this drun %s", j.program, theirs, j.Version), "put the same version there, or leave drun out of the target: then it is copied")
	}
	if field(out, "id") != "" {
		return exit.WithHint(exit.Errorf(exit.Usage, "the name %s is taken there, by an earlier run", j.Info.Name), "give another --name")
	}
	return nil
}

// field finds a field's value in JSON that a command has printed; "": there is none.
func field(text, name string) string {
	found := regexp.MustCompile(`"` + name + `": ?"?([^",\n}]*)`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}

// sendProgram sends drun, which takes its name only once all of it is there.
func (s slurm) sendProgram(ctx context.Context, j *job) (err error) {
	defer try.Caught(&err)
	own := try.To(os.Executable())
	list := []packed{{name: "drun", from: own, mode: 0o700}}
	if helper, err := host.FindProgram(); err == nil {
		list = append(list, packed{name: host.Program, from: helper, mode: 0o700})
	}
	for _, plugin := range j.Plugins {
		list = append(list, packed{name: "plugins/" + filepath.Base(plugin), from: plugin, mode: 0o700})
	}
	var sums strings.Builder
	for _, f := range list {
		fmt.Fprintf(&sums, "%s  %s\n", try.To(sumOf(f.from)), f.name)
	}
	to := filepath.Dir(j.program)
	part := to + "." + filepath.Base(j.folder)
	_, err = s.at.send(ctx, part, append(list, packed{name: "sums", content: []byte(sums.String())}),
		"sha256sum -c --quiet sums >&2 && { mv -T "+words([]string{part, to})+" 2>/dev/null || { [ -x "+words([]string{to + "/drun"})+" ] && rm -rf "+words([]string{part})+"; }; }")
	if err != nil {
		_, _ = s.at.run(ctx, "rm -rf "+words([]string{part}), nil)
	}
	return full(err)
}

// full explains an error of sending.
func full(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); strings.Contains(text, "quota") || strings.Contains(text, "No space") {
		return exit.WithHint(exit.Errorf(exit.Storage, "there is no room: %w", err), "make room in the target's folder, or name another in the file of targets")
	}
	return err
}

func (s slurm) text(j *job) string {
	t := j.Target
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/sh\n#SBATCH --job-name=%s\n", cmp.Or(j.Info.Name, j.runs[0].Name))
	fmt.Fprintf(&b, "#SBATCH --nodes=%d --ntasks-per-node=1 --cpus-per-task=%d\n", j.Nodes, j.cpus())
	fmt.Fprintf(&b, "#SBATCH --requeue --open-mode=append --signal=TERM@%d\n", int((j.Grace+30*time.Second)/time.Second))
	out := j.folder + "/output"
	if j.Cells != nil {
		out += "-%a"
		limit := ""
		if j.AtOnce > 0 {
			limit = fmt.Sprintf("%%%d", j.AtOnce)
		}
		fmt.Fprintf(&b, "#SBATCH --array=1-%d%s\n", len(j.Cells), limit)
	}
	fmt.Fprintf(&b, "#SBATCH --output=%q\n", out)
	for _, o := range [][2]string{{"account", "account"}, {"partition", "partition"}, {"qos", "qos"}, {"constraint", "constraint"}, {"time", "time"}, {"gpus", "gpus-per-node"}, {"memory", "mem"}} {
		if value := t.Get(o[0]); value != "" {
			fmt.Fprintf(&b, "#SBATCH --%s=%s\n", o[1], value)
		}
	}
	for _, option := range t.Lists["options"] {
		fmt.Fprintf(&b, "#SBATCH %s\n", option)
	}
	exit := "exit"
	if j.Cells != nil {
		exit += "-$SLURM_ARRAY_TASK_ID"
	}
	b.WriteString("umask 077\n")
	if setup := t.Get("setup"); setup != "" {
		b.WriteString(strings.TrimRight(setup, "\n") + "\n")
	}
	fmt.Fprintf(&b, "cd %s || exit\n%ssrun --kill-on-bad-exit=0 --cpus-per-task=%d %s\ncode=$?\n", words([]string{j.dir}), j.environment("SLURM_ARRAY_TASK_ID"), j.cpus(), j.command())
	fmt.Fprintf(&b, `if [ $code = %d ] || [ $code = %d ]; then # it was to end before its time, or lost a node: it goes on from its checkpoint
    scontrol requeue "$SLURM_JOB_ID" && exit $code
fi
cd %s && echo $code >%s.part && mv %[4]s.part %[4]s
exit $code
`, 130, 3, words([]string{j.folder}), exit)
	return b.String()
}

func (s slurm) submit(ctx context.Context, j *job) (string, error) {
	out, err := s.at.run(ctx, "cd "+words([]string{j.folder})+" && sbatch --parsable script", nil)
	if failed := (*CommandError)(nil); errors.As(err, &failed) {
		return "", refused(failed.Words)
	}
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	handle, _, _ := strings.Cut(lines[len(lines)-1], ";") // a federation adds the cluster
	if _, err := strconv.Atoi(handle); err != nil {
		return "", exit.Errorf(exit.Recipe, "sbatch answered %q, which is no job's number", out)
	}
	return handle, nil
}

// refusals are words of sbatch, and what to change.
var refusals = [][2]string{
	{"policy", "--time, --nnodes or --account, or submit fewer jobs at once: the account has a limit"},
	{"account/partition combination", "--account or --partition, or the target's account and partition"},
	{"invalid account", "--account, or the target's account"},
	{"partition", "--partition, or the target's partition; sinfo lists them"},
	{"qos", "--qos, or the target's qos"},
	{"time limit", "--time, or the target's time"},
	{"feature", "--constraint, or the target's constraint"},
	{"node count", "--nnodes: fewer nodes, or another --partition"},
	{"more processors", "-n, --threads or --cpus: fewer cores a node"},
	{"cpu count", "-n, --threads or --cpus: fewer cores a node"},
	{"memory", "--memory, or the target's memory"},
	{"node configuration", "--nnodes, --cpus, --memory, --gpus: no node is like that"},
	{"gres", "--gpus, or the target's gpus"},
	{"array", "fewer combinations at once: the cluster limits the size of an array"},
}

// refused is the error of a job that sbatch does not take, in its words.
func refused(words string) error {
	words = strings.TrimPrefix(strings.TrimPrefix(words, "sbatch: error: "), "Batch job submission failed: ")
	words = strings.ReplaceAll(strings.ReplaceAll(words, "sbatch: error: ", ""), "Batch job submission failed: ", "")
	hint := ""
	for _, r := range refusals {
		if strings.Contains(strings.ToLower(words), r[0]) {
			hint = "change " + r[1]
			break
		}
	}
	return exit.WithHint(exit.Errorf(exit.Usage, "Slurm refuses the job: %s", words), hint)
}

func (s slurm) drop(ctx context.Context, j *job) {
	if j.folder != "" {
		_, _ = s.at.run(ctx, "rm -rf "+words([]string{j.folder}), nil)
	}
}

func (s slurm) states(ctx context.Context, jobs []*history.Job) (_ map[int64]State, err error) {
	defer try.Caught(&err)
	script := `u=$(id -un); q=$(squeue -h -r -t all -u "$u" -o '%i|%T|%r|%N') || exit 95; printf '%s\n' "$q" | sed 's/^/queue /'` + "\n"
	for _, j := range jobs {
		script += "[ ! -e " + words([]string{specOf(j).of("exit")}) + " ] || echo exit " + j.Handle + " $(cat " + words([]string{specOf(j).of("exit")}) + ")\n"
	}
	found := pairs(try.To(s.at.run(ctx, script+":", nil)))
	queue, codes := map[string]State{}, map[string]int{}
	for _, line := range found["queue"] {
		if f := strings.SplitN(line, "|", 4); len(f) == 4 {
			queue[f[0]] = slurmState(f[1], f[2], f[3])
		}
	}
	for _, line := range found["exit"] {
		handle, code, _ := strings.Cut(line, " ")
		if n, err := strconv.Atoi(code); err == nil {
			codes[handle] = n
		}
	}
	out, unknown := map[int64]State{}, []*history.Job{}
	for _, j := range jobs {
		state, queued := queue[j.Handle]
		code, over := codes[j.Handle]
		switch {
		case over:
			out[j.ID] = s.over(j, code, state)
		case queued:
			out[j.ID] = state
		default:
			unknown = append(unknown, j)
		}
	}
	if len(unknown) > 0 {
		try.Ok(s.ask(ctx, unknown, out))
	}
	return out, nil
}

// over is the state of a job whose script has left an exit code. Slurm knows why it was interrupted.
func (s slurm) over(j *history.Job, code int, said State) State {
	end := ended(j, code)
	if end.Status == history.Interrupted && (said.Status == history.Cancelled || said.Status == history.Preempted) || code > 128 && code != int(exit.Interrupted) && said.Status.Known() && said.Status.Ended() {
		end.Status, end.Reason = said.Status, said.Reason
	}
	return end
}

// ask looks for jobs that squeue no longer knows: scontrol does for some minutes, and accounting, where there is any, for good.
func (s slurm) ask(ctx context.Context, jobs []*history.Job, out map[int64]State) error {
	handles := make([]string, len(jobs))
	for i, j := range jobs {
		handles[i] = j.Handle
	}
	script := "for j in " + strings.Join(handles, " ") + "; do scontrol -o show job $j 2>/dev/null | sed \"s/^/scontrol $j /\"; done\n" +
		"sacct -P -n -X -o JobID,State,NodeList -j " + strings.Join(handles, ",") + " 2>/dev/null | sed 's/^/sacct /'\n:"
	text, err := s.at.run(ctx, script, nil)
	if err != nil {
		return err
	}
	found, states := pairs(text), map[string]State{}
	for _, line := range found["sacct"] {
		if f := strings.Split(line, "|"); len(f) == 3 {
			states[f[0]] = slurmState(f[1], "", f[2])
		}
	}
	for _, line := range found["scontrol"] {
		handle, rest, _ := strings.Cut(line, " ")
		fields := map[string]string{}
		for _, f := range strings.Fields(rest) {
			name, value, _ := strings.Cut(f, "=")
			fields[name] = value
		}
		if fields["JobState"] != "" {
			states[handle] = slurmState(fields["JobState"], fields["Reason"], fields["NodeList"])
		}
	}
	for _, j := range jobs {
		if state, is := states[j.Handle]; is {
			out[j.ID] = state
		}
	}
	return nil
}

// waits are Slurm's reasons why a job is pending, in plain words.
var waits = map[string]string{
	"None": "waits for the scheduler", "Priority": "others come first", "Resources": "waits for free nodes", "BeginTime": "its time has not come: a job that was requeued waits for two minutes",
	"Dependency": "waits for another job", "JobArrayTaskLimit": "as many runs of the sweep as --jobs says are running", "PartitionTimeLimit": "--time is longer than the partition allows",
	"PartitionNodeLimit": "the partition has fewer nodes than --nnodes", "PartitionDown": "the partition is down", "ReqNodeNotAvail": "nodes that it needs are not available", "Reservation": "waits for its reservation",
	"JobHeldUser": "it is held: scontrol release lets it go on", "JobHeldAdmin": "an administrator holds it", "QOSNotAllowed": "the QoS is not allowed in the partition", "BadConstraints": "no node is like that",
	"AssocGrpGRES": "the account's GPUs are in use", "Licenses": "waits for a licence", "launch failed requeued held": "it could not be started, and is held: scontrol release lets it try again",
}

// slurmState is a state as Slurm calls it, with the reason that it gives and the nodes.
func slurmState(state, reason, nodes string) State {
	word, _, _ := strings.Cut(state, " ") // CANCELLED by 1000
	word = strings.TrimSuffix(word, "+")
	on := ""
	if nodes != "" && nodes != "(null)" && nodes != "None assigned" {
		on = "on " + nodes
	}
	switch word {
	case "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD":
		text, known := waits[reason]
		if !known {
			text = "Slurm's reason: " + cmp.Or(reason, word)
		}
		return State{Status: history.Pending, Reason: text}
	case "RUNNING", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING", "RESIZING":
		return State{Status: history.Running, Reason: on}
	case "SUSPENDED", "STOPPED":
		return State{Status: history.Running, Reason: strings.TrimSpace("suspended " + on)}
	case "COMPLETED":
		return State{Status: history.Done, Reason: on}
	case "CANCELLED", "REVOKED":
		return State{Status: history.Cancelled, Reason: "by scancel"}
	case "PREEMPTED":
		return State{Status: history.Preempted, Reason: "another job took its nodes, and the cluster does not requeue it"}
	case "TIMEOUT", "DEADLINE":
		return State{Status: history.Interrupted, Reason: "its time was over: --time, and a recipe that calls run.should_stop() and saves"}
	case "OUT_OF_MEMORY":
		return State{Status: history.Failed, Reason: "out of memory: --memory"}
	case "NODE_FAIL", "BOOT_FAIL":
		return State{Status: history.Lost, Reason: strings.TrimSpace("a node failed " + on)}
	}
	text := "it failed before drun could say why: is the target's folder on a disk that all nodes share?"
	if slices.Contains([]string{"", "None", "NonZeroExitCode"}, reason) {
		return State{Status: history.Failed, Reason: text}
	}
	return State{Status: history.Failed, Reason: "Slurm's reason: " + reason}
}

func (s slurm) cancel(ctx context.Context, j *history.Job) error {
	_, err := s.at.run(ctx, "scancel "+j.Handle, nil)
	return err
}

func (s slurm) logs(ctx context.Context, j *history.Job, to io.Writer) error {
	text, err := s.at.run(ctx, "[ ! -e "+words([]string{specOf(j).of("output")})+" ] || cat "+words([]string{specOf(j).of("output")}), nil)
	if err == nil {
		_, err = io.Copy(to, bytes.NewReader([]byte(text)))
	}
	return err
}
