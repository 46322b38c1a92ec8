package submit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/plugins/host"
)

// slurm speaks to Slurm by its commands, on a login node. It needs no accounting: squeue knows a job for some minutes after its
// end, and the script leaves drun's exit code in a file, which is believed before what Slurm says.
type slurm struct{ at machine }

// drunArch is how uname -m calls an architecture of Go.
var drunArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

func (s slurm) look(ctx context.Context, r *Request, uid string) (p place, err error) {
	defer try.Caught(&err)
	t, own := r.Target, Here(r.Target)
	if own {
		p = try.To(ownPlace(r, uid))
	} else {
		p.Program, p.Lacking = try.To2(programs(r))
	}
	out, err := s.at.run(ctx, fill("slurm-look.sh", &job{Request: r, place: p}), nil)
	switch word, said := failure(out, err); word {
	case "folder":
		return p, exit.WithHint(exit.Errorf(exit.Usage, "%s: the folder %s cannot be made or written there: %s", t.Name, t.Get("folder"), said), "the target's folder is on a disk of yours that the login node and the nodes share")
	case "scheduler":
		return p, exit.WithHint(exit.Errorf(exit.Usage, "%s: Slurm's commands (sbatch, squeue, scancel, scontrol) are not in the PATH of a shell on %s", t.Name, cmp.Or(t.Get("host"), "this machine")), `a target's login node is its host = "login.example.com"`)
	}
	try.Ok(err)
	found := pairs(out)
	if dir := first(found["missing"]); dir != "" {
		return p, exit.WithHint(exit.Errorf(exit.Usage, "--data %s: %s has no such folder", dir, t.Name), "--data names a folder there; --copy takes files of the recipe's folder along")
	}
	if own {
		return p, nil
	}
	lacking := p.Lacking
	if p = placeIn(first(found["folder"]), uid, p.Program); found["have"] == nil {
		p.Lacking = lacking
	}
	if arch := first(found["arch"]); len(p.Lacking) > 0 && arch != drunArch[runtime.GOARCH] {
		return p, exit.WithHint(exit.Errorf(exit.Usage, "%s has processors of the kind %s, and this drun is for %s", t.Name, arch, cmp.Or(drunArch[runtime.GOARCH], runtime.GOARCH)),
			"put the drun for "+arch+" of the same version there, with drun-plugin-host and plugins beside it, and give the target its path: drun = \"/path/drun\"")
	}
	return p, nil
}

// programs are drun and what belongs to it. On a target they are in a folder beneath bin that is named by the version and by
// their content, so that what is there is not sent again. A target that names its own drun needs none of them.
func programs(r *Request) (drun string, list []packed, err error) {
	defer try.Caught(&err)
	if own := r.Target.Get("drun"); own != "" {
		return own, nil, nil
	}
	list = []packed{{name: "drun", from: try.To(os.Executable()), mode: 0o700}}
	if helper, err := host.FindProgram(); err == nil {
		list = append(list, packed{name: host.Program, from: helper, mode: 0o700})
	}
	for _, plugin := range r.Plugins {
		list = append(list, packed{name: "plugins/" + filepath.Base(plugin), from: plugin, mode: 0o700})
	}
	sums := try.To(sumsOf(list))
	key := sha256.Sum256([]byte(sums))
	version := regexp.MustCompile(`[^A-Za-z0-9_.+-]`).ReplaceAllString(r.Version, "-")
	return fmt.Sprintf("bin/%s-%x/drun", version, key[:4]), append(list, packed{name: "sums", content: []byte(sums)}), nil
}

func (s slurm) text(j *job) string { return fill("slurm.sh", j) }

// submit does all in one command on the login node.
func (s slurm) submit(ctx context.Context, j *job) (handle string, err error) {
	defer try.Caught(&err)
	list := j.files(s.text(j))
	if !j.Here() {
		copies, sums := try.To2(j.copies())
		list = append(append(list, copies...), packed{name: "sums", content: []byte(sums)})
	}
	beneath := func(folder string, files []packed) {
		for i := range files {
			files[i].name, _ = filepath.Rel(j.Root(), filepath.Join(folder, files[i].name)) // both are there
		}
	}
	beneath(j.Folder, list)
	beneath(j.Part(), j.Lacking)
	out, err := s.at.send(ctx, j.Root(), append(list, j.Lacking...), fill("slurm-submit.sh", j))
	word, said := failure(out, err)
	switch word {
	case "sent":
		return "", exit.Errorf(exit.Storage, "what arrived is not what was sent: %s", said)
	case "start":
		return "", exit.WithHint(exit.Errorf(exit.Usage, "drun does not start there: %s", said), "a drun that was built for that system can be named in the target: drun = \"/path/drun\"")
	case "version":
		theirs := regexp.MustCompile(`"version":"([^"]*)|$`).FindStringSubmatch(out)[1]
		return "", exit.WithHint(exit.Errorf(exit.Usage, "%s there is %s, and this drun %s", j.Program, theirs, j.Version), "put the same version there, or leave drun out of the target: then it is copied")
	case "name":
		return "", exit.WithHint(exit.Errorf(exit.Usage, "the name %s is taken there, by an earlier run", j.Info.Name), "give another --name")
	case "job":
		return "", refused(said)
	}
	if strings.Contains(said, "quota") || strings.Contains(said, "No space") {
		return "", exit.WithHint(exit.Errorf(exit.Storage, "there is no room: %w", err), "make room in the target's folder, or name another in the file of targets")
	}
	try.Ok(differs(out, err))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	handle, _, _ = strings.Cut(lines[len(lines)-1], ";") // a federation adds the cluster
	if _, err := strconv.Atoi(handle); err != nil {
		return "", exit.Errorf(exit.Recipe, "sbatch answered %q, which is no job's number", out)
	}
	return handle, nil
}

func (s slurm) drop(ctx context.Context, j *job) {
	_, _ = s.at.run(ctx, words("rm", "-rf", j.Folder, j.Part()), nil)
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
	words = strings.NewReplacer("sbatch: error: ", "", "Batch job submission failed: ", "").Replace(words)
	hint := ""
	for _, r := range refusals {
		if strings.Contains(strings.ToLower(words), r[0]) {
			hint = "change " + r[1]
			break
		}
	}
	return exit.WithHint(exit.Errorf(exit.Usage, "Slurm refuses the job: %s", words), hint)
}

// states asks for all jobs at once.
func (s slurm) states(ctx context.Context, jobs []*history.Job) (_ map[int64]State, err error) {
	defer try.Caught(&err)
	found, known, left := pairs(try.To(s.at.run(ctx, fill("slurm-states.sh", jobs), nil))), map[string]State{}, map[string]string{}
	for _, line := range found["state"] {
		if f := strings.SplitN(line, "|", 4); len(f) == 4 {
			known[f[0]] = slurmState(f[1], f[2], f[3])
		}
	}
	for _, line := range found["exit"] {
		handle, text, _ := strings.Cut(line, " ")
		left[handle] = text
	}
	out := map[int64]State{}
	for _, j := range jobs {
		state, is := known[j.Handle]
		if text := left[j.Handle]; text != "" {
			state, is = s.over(j, text, state), true
		}
		if is {
			out[j.ID] = state
		}
	}
	return out, nil
}

// over is the state of a job whose script has left an exit code. Slurm knows why it was interrupted.
func (s slurm) over(j *history.Job, text string, said State) State {
	end := ended(j, text)
	killed := end.Code != nil && *end.Code > 128 && *end.Code != int(exit.Interrupted) && said.Status.Known() && said.Status.Ended()
	if killed || end.Status == history.Interrupted && (said.Status == history.Cancelled || said.Status == history.Preempted) {
		end.Status, end.Reason = said.Status, said.Reason
	}
	return end
}

// waits are Slurm's reasons why a job is pending, in plain words.
var waits = map[string]string{
	"None": "waits for the scheduler", "Priority": "others come first", "Resources": "waits for free nodes", "BeginTime": "its time has not come: a job that was requeued waits for two minutes",
	"Dependency": "waits for another job", "JobArrayTaskLimit": "as many runs of the sweep as --jobs says are running", "PartitionTimeLimit": "--time is longer than the partition allows",
	"PartitionNodeLimit": "the partition has fewer nodes than --nnodes", "PartitionDown": "the partition is down", "PartitionConfig": "no node of the partition is like that: -n, --cpus, --memory or --partition", "ReqNodeNotAvail": "nodes that it needs are not available", "Reservation": "waits for its reservation",
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

func (s slurm) logs(ctx context.Context, j *history.Job) (string, error) {
	file := words(specOf(j).of("output"))
	return s.at.run(ctx, "[ ! -e "+file+" ] || cat "+file, nil)
}
