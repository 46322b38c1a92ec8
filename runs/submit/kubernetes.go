package submit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

// kubernetes writes a JobSet, which kubectl applies with its own login. The recipe goes along as a ConfigMap; drun is in the
// image, and its home on a volume.
type kubernetes struct{}

// mostCaptured limits a ConfigMap, which Kubernetes does to 1 MiB, in base64 too.
const mostCaptured = 1_000_000

func (kubernetes) look(_ context.Context, r *Request, uid string) (p place, err error) {
	switch {
	case r.Cells != nil:
		return p, exit.Errorf(exit.Usage, "%s: a sweep goes to Slurm or to the target local; on Kubernetes, submit its runs one by one", r.Target.Name)
	case len(r.Copies) > 0:
		return p, exit.Errorf(exit.Usage, "--copy: data for Kubernetes lies on the target's volumes, or in its image")
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		return p, exit.WithHint(exit.Errorf(exit.Usage, "kubectl is not in the PATH"), "install it, and log in to the cluster")
	}
	return placeInPod(r, uid), nil
}

func placeInPod(r *Request, uid string) place {
	_, home, _ := strings.Cut(r.Target.Lists["volumes"][0], ":")
	return place{folder: "/job", dir: "/job", home: home, program: "drun"}
}

func (kubernetes) send(context.Context, *job) error { return nil }

// name is what the job's objects are called; the pods' names, which are longer, have at most 63 bytes.
func (j *job) name() string {
	run := strings.Trim(strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		}
		return '-'
	}, j.runs[0].Name), "-")
	return "run-" + strings.Trim(run[:min(len(run), 20)], "-") + "-" + strings.ToLower(j.runs[0].UID[:min(5, len(j.runs[0].UID))])
}

type object = map[string]any

// manifest are the Secret with which the pods recognise each other, the ConfigMap with the recipe, and the JobSet.
func (k kubernetes) manifest(j *job, secret string) []object {
	t, name := j.Target, j.name()
	meta := func() object {
		m := object{"name": name, "labels": object{"app.kubernetes.io/name": "drun", "app.kubernetes.io/instance": name}}
		if ns := t.Get("namespace"); ns != "" {
			m["namespace"] = ns
		}
		return m
	}
	args := []string{"run", j.Bundle.Name}
	for _, arg := range j.Args {
		args = append(args, strings.ReplaceAll(arg, InJob, j.folder+"/"))
	}
	if j.Nodes > 1 {
		args = append(args, "--nnodes", strconv.Itoa(j.Nodes), "--rdzv", name+"-workers-0-0."+name+":29500")
	}
	args = append(args, "--name", j.runs[0].Name)
	if !slices.ContainsFunc(j.Args, func(arg string) bool { return strings.HasPrefix(arg, "--resume") }) {
		args = append(args, "--resume", "auto")
	}
	env := []any{object{"name": "DRUN_HOME", "value": j.home}, object{"name": FileVariable, "value": j.folder + "/job.json"},
		object{"name": "DRUN_RDZV_SECRET", "valueFrom": object{"secretKeyRef": object{"name": name, "key": "secret"}}}}
	mounts, volumes := []any{object{"name": "job", "mountPath": j.folder, "readOnly": true}}, []any{object{"name": "job", "configMap": object{"name": name}}}
	for i, v := range t.Lists["volumes"] {
		claim, at, _ := strings.Cut(v, ":")
		mounts = append(mounts, object{"name": fmt.Sprintf("volume-%d", i), "mountPath": at})
		volumes = append(volumes, object{"name": fmt.Sprintf("volume-%d", i), "persistentVolumeClaim": object{"claimName": claim}})
	}
	requests, limits := object{"cpu": strconv.Itoa(j.cpus())}, object{}
	if m := t.Get("memory"); m != "" {
		requests["memory"], limits["memory"] = m+"i", m+"i"
	}
	if g := t.Get("gpus"); g != "" {
		limits["nvidia.com/gpu"] = g[strings.LastIndexByte(g, ':')+1:]
	}
	resources := object{"requests": requests}
	if len(limits) > 0 {
		resources["limits"] = limits
	}
	pod := object{
		"restartPolicy": "Never", "terminationGracePeriodSeconds": int((j.Grace + 30*time.Second) / time.Second),
		"containers": []any{object{"name": "drun", "image": t.Get("image"), "args": args, "env": env, "resources": resources, "volumeMounts": mounts}},
		"volumes":    volumes,
	}
	spec := object{
		"completionMode": "Indexed", "completions": j.Nodes, "parallelism": j.Nodes, "backoffLimit": 0,
		"podFailurePolicy": object{"rules": []any{object{"action": "FailJob", "onExitCodes": object{"operator": "In", "values": []int{1, 2, 5, 8}}}}},
		"template":         object{"spec": pod},
	}
	set := object{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta(),
		"spec": object{
			"failurePolicy":  object{"maxRestarts": 100, "rules": []any{object{"name": "lasting", "action": "FailJobSet", "onJobFailureReasons": []string{"PodFailurePolicy"}}}},
			"replicatedJobs": []any{object{"name": "workers", "replicas": 1, "template": object{"spec": spec}}},
		},
	}
	if queue := t.Get("queue"); queue != "" {
		set["metadata"].(object)["labels"].(object)["kueue.x-k8s.io/queue-name"] = queue
		set["spec"].(object)["suspend"] = true // until Kueue admits it
	}
	data := object{"job.json": string(j.file())}
	for file, content := range j.Files {
		data[file] = string(content)
	}
	return []object{
		{"apiVersion": "v1", "kind": "Secret", "metadata": meta(), "type": "Opaque", "stringData": object{"secret": secret}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(), "data": data},
		set,
	}
}

func (k kubernetes) text(j *job) string {
	j.place = placeInPod(j.Request, "")
	return yamlOf(k.manifest(j, "…"))
}

// yamlOf writes objects as YAML: its texts are those of JSON, which YAML contains.
func yamlOf(objects []object) string {
	var b strings.Builder
	for i, o := range objects {
		if i > 0 {
			b.WriteString("---\n")
		}
		text, _ := json.Marshal(o) // plain data: it cannot fail
		var plain any
		_ = json.Unmarshal(text, &plain)
		yaml(&b, plain, 0)
	}
	return b.String()
}

func yaml(b *strings.Builder, v any, depth int) {
	indent := strings.Repeat("  ", depth)
	scalar := func(v any) bool {
		switch v := v.(type) {
		case map[string]any:
			return len(v) == 0
		case []any:
			return !slices.ContainsFunc(v, func(e any) bool { _, is := e.(map[string]any); return is })
		}
		return true
	}
	one := func(v any) string {
		text, _ := json.Marshal(v)
		return string(text)
	}
	switch v := v.(type) {
	case map[string]any:
		order := []string{"apiVersion", "kind", "metadata", "name"}
		for _, key := range slices.SortedFunc(maps.Keys(v), func(a, c string) int {
			at := func(s string) int { i := slices.Index(order, s); return (i + len(order) + 1) % (len(order) + 1) }
			return cmp.Or(cmp.Compare(at(a), at(c)), cmp.Compare(a, c))
		}) {
			if scalar(v[key]) {
				fmt.Fprintf(b, "%s%s: %s\n", indent, key, one(v[key]))
			} else {
				fmt.Fprintf(b, "%s%s:\n", indent, key)
				yaml(b, v[key], depth+1)
			}
		}
	case []any:
		for _, e := range v {
			var item strings.Builder
			yaml(&item, e, depth+1)
			fmt.Fprintf(b, "%s- %s", indent, strings.TrimPrefix(item.String(), indent+"  "))
		}
	}
}

func (k kubernetes) submit(ctx context.Context, j *job) (string, error) {
	objects := k.manifest(j, rand.Text())
	if n := len(j.file()); n > mostCaptured {
		return "", exit.Errorf(exit.Usage, "the recipe and what it loads have %d bytes, more than a ConfigMap takes", n)
	}
	text, _ := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": objects})
	_, err := kubectl(ctx, j.Target, bytes.NewReader(text), "create", "-f", "-")
	return j.name(), err
}

// kubectl runs the command with a target's context and namespace.
func kubectl(ctx context.Context, t *Target, in io.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for _, key := range []string{"context", "namespace"} {
		if value := t.Get(key); value != "" {
			args = append([]string{"--" + key + "=" + value}, args...)
		}
	}
	cmd := exec.CommandContext(ctx, "kubectl", append([]string{"--request-timeout=30s"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = in, &out, &errs, time.Second
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			return "", exit.Errorf(exit.Usage, "kubectl cannot be started: %w", err)
		}
		return "", &CommandError{cmd.ProcessState.ExitCode(), strings.TrimSpace(errs.String())}
	}
	return out.String(), nil
}

func (k kubernetes) drop(ctx context.Context, j *job) {
	if len(j.runs) > 0 {
		_, _ = kubectl(ctx, j.Target, nil, "delete", "--ignore-not-found", "jobset,configmap,secret", j.name())
	}
}

func (k kubernetes) states(ctx context.Context, jobs []*history.Job) (_ map[int64]State, err error) {
	defer try.Caught(&err)
	t := specOf(jobs[0]).Target
	var sets, pods struct{ Items []thing }
	try.Ok(json.Unmarshal([]byte(try.To(kubectl(ctx, &t, nil, "get", "jobset", "-l", "app.kubernetes.io/name=drun", "-o", "json"))), &sets))
	try.Ok(json.Unmarshal([]byte(try.To(kubectl(ctx, &t, nil, "get", "pods", "-l", "jobset.sigs.k8s.io/jobset-name", "-o", "json"))), &pods))
	out := map[int64]State{}
	for _, set := range sets.Items {
		for _, j := range jobs {
			if j.Handle == set.Metadata.Name {
				own := slices.DeleteFunc(slices.Clone(pods.Items), func(p thing) bool { return p.Metadata.Labels["jobset.sigs.k8s.io/jobset-name"] != j.Handle })
				out[j.ID] = jobSetState(j, set, own)
			}
		}
	}
	return out, nil
}

// thing is what is read of a JobSet or a pod.
type thing struct {
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Suspend  bool
		NodeName string
	}
	Status struct {
		Phase      string
		Restarts   int
		Conditions []struct{ Type, Status, Reason, Message string }

		ContainerStatuses []struct {
			State struct {
				Waiting    *struct{ Reason, Message string }
				Terminated *struct {
					ExitCode int
					Reason   string
				}
			}
		}
	}
}

func jobSetState(j *history.Job, set thing, pods []thing) State {
	is := func(kind string) bool {
		return slices.ContainsFunc(set.Status.Conditions, func(c struct{ Type, Status, Reason, Message string }) bool {
			return c.Type == kind && c.Status == "True"
		})
	}
	var code *int
	why, nodes, pending := "", []string{}, ""
	for _, p := range pods {
		if p.Spec.NodeName != "" && p.Status.Phase == "Running" && !slices.Contains(nodes, p.Spec.NodeName) {
			nodes = append(nodes, p.Spec.NodeName)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == "PodScheduled" && c.Status == "False" {
				pending = c.Message
			}
		}
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" {
				pending = strings.TrimSpace(w.Reason + ": " + w.Message)
			}
			if e := c.State.Terminated; e != nil && (code == nil || *code == 0 || *code == 3) {
				if code = &e.ExitCode; e.Reason == "OOMKilled" {
					why = "out of memory: --memory"
				}
			}
		}
	}
	switch {
	case is("Completed"):
		zero := 0
		return State{Status: history.Done, Code: &zero}
	case is("Failed"):
		s := State{Status: history.Failed}
		if code != nil {
			s = ended(j, *code)
		}
		s.Reason = cmp.Or(why, s.Reason, "it was started again as often as it may be")
		return s
	case set.Spec.Suspend:
		return State{Status: history.Pending, Reason: "Kueue has not admitted it: others come first, or the queue's quota is used"}
	case len(nodes) > 0:
		slices.Sort(nodes)
		return State{Status: history.Running, Reason: "on " + strings.Join(nodes, ",")}
	}
	return State{Status: history.Pending, Reason: cmp.Or(pending, "waits for its pods")}
}

func (k kubernetes) cancel(ctx context.Context, j *history.Job) error {
	t := specOf(j).Target
	_, err := kubectl(ctx, &t, nil, "delete", "--ignore-not-found", "--wait=false", "jobset,configmap,secret", j.Handle)
	return err
}

func (k kubernetes) logs(ctx context.Context, j *history.Job, to io.Writer) error {
	t := specOf(j).Target
	text, err := kubectl(ctx, &t, nil, "logs", "--prefix", "--tail=-1", "-l", "jobset.sigs.k8s.io/jobset-name="+j.Handle)
	if failed := (*CommandError)(nil); errors.As(err, &failed) && strings.Contains(failed.Words, "No resources found") {
		return nil
	}
	_, _ = io.WriteString(to, text)
	return err
}
