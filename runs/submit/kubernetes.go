package submit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

// kubernetes writes a JobSet, which kubectl creates with its own login. The recipe goes along as a ConfigMap; drun is in the
// image, and its home on a volume.
type kubernetes struct{}

// mostCaptured limits a ConfigMap, which Kubernetes does to 1 MiB.
const mostCaptured = 1_000_000

func (kubernetes) look(_ context.Context, r *Request, _ string) (p place, err error) {
	switch {
	case r.Cells != nil:
		return p, exit.Errorf(exit.Usage, "%s: a sweep goes to Slurm or to the target local; on Kubernetes, submit its runs one by one", r.Target.Name)
	case len(r.Copies) > 0 || len(r.Sums) > 0:
		return p, exit.Errorf(exit.Usage, "--copy and --sums: data for Kubernetes lies on the target's volumes, or in its image, where only the pods read it")
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		return p, exit.WithHint(exit.Errorf(exit.Usage, "kubectl is not in the PATH"), "install it, and log in to the cluster")
	}
	return placeInPod(r), nil
}

func placeInPod(r *Request) place {
	_, home, _ := strings.Cut(r.Target.List("volumes")[0], ":")
	return place{Folder: "/job", Dir: "/job", RunHome: home, Program: "drun"}
}

// pods are a job for Kubernetes, for the template.
type pods struct {
	*job
	Secret string // by which the pods recognise each other
}

// PodName is what the job's objects are called; the pods' names, which are longer, have at most 63 bytes.
func (p pods) PodName() string {
	run := regexp.MustCompile(`[^a-z0-9]`).ReplaceAllString(strings.ToLower(p.Name()), "-")
	uid := p.runs[0].UID
	return "run-" + strings.Trim(run[:min(len(run), 20)], "-") + "-" + strings.ToLower(uid[:min(5, len(uid))])
}

func (p pods) PodArguments() []string {
	args, name := p.Arguments(), p.PodName()
	if p.Nodes > 1 {
		args = append(args, "--nnodes", strconv.Itoa(p.Nodes), "--rdzv", name+"-workers-0-0."+name+":29500")
	}
	if p.Server != "" {
		args = append(args, "--server", p.Server)
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(", "$$(") // Kubernetes would put a variable there
	}
	return args
}

func (p pods) Config() string { return string(p.file()) }

func (kubernetes) text(j *job) string {
	shown := *j.Request
	shown.Token = "…"
	return fill("kubernetes.yaml", pods{&job{&shown, placeInPod(j.Request), j.runs}, "…"})
}

func (kubernetes) submit(ctx context.Context, j *job) (string, error) {
	p := pods{j, rand.Text()}
	text := fill("kubernetes.yaml", p)
	if len(text) > mostCaptured {
		return "", exit.Errorf(exit.Usage, "the recipe and what it loads have %d bytes, more than a ConfigMap takes", len(text))
	}
	_, err := kubectl(ctx, j.Target, strings.NewReader(text), "create", "-f", "-")
	return p.PodName(), err
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
	return execute(ctx, in, append([]string{"kubectl", "--request-timeout=30s"}, args...)...)
}

func (k kubernetes) drop(ctx context.Context, j *job) {
	if len(j.runs) > 0 {
		_, _ = kubectl(ctx, j.Target, nil, "delete", "--ignore-not-found", "jobset,configmap,secret", pods{job: j}.PodName())
	}
}

func (k kubernetes) states(ctx context.Context, jobs []*history.Job) (_ map[int64]State, err error) {
	defer try.Caught(&err)
	t := specOf(jobs[0]).Target
	var sets, all struct{ Items []thing }
	try.Ok(json.Unmarshal([]byte(try.To(kubectl(ctx, &t, nil, "get", "jobset", "-l", "app.kubernetes.io/name=drun", "-o", "json"))), &sets))
	try.Ok(json.Unmarshal([]byte(try.To(kubectl(ctx, &t, nil, "get", "pods", "-l", "jobset.sigs.k8s.io/jobset-name", "-o", "json"))), &all))
	out := map[int64]State{}
	for _, set := range sets.Items {
		for _, j := range jobs {
			if j.Handle == set.Metadata.Name {
				own := slices.DeleteFunc(slices.Clone(all.Items), func(p thing) bool { return p.Metadata.Labels["jobset.sigs.k8s.io/jobset-name"] != j.Handle })
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
			s = ended(j, strconv.Itoa(*code))
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

func (k kubernetes) logs(ctx context.Context, j *history.Job) (string, error) {
	t := specOf(j).Target
	text, err := kubectl(ctx, &t, nil, "logs", "--prefix", "--tail=-1", "-l", "jobset.sigs.k8s.io/jobset-name="+j.Handle)
	if err != nil && strings.Contains(err.Error(), "No resources found") {
		err = nil
	}
	return text, err
}
