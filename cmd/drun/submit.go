package main

import (
	"cmp"

	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drun/engine/recipe"
	"drun/engine/rendezvous"
	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/secret"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/plugins/host"
	"drun/runs/submit"
)

func newSubmit() *cobra.Command {
	var s submission
	run := newRun()
	cmd := &cobra.Command{
		Use:        "submit TARGET RECIPE.star",
		SuggestFor: []string{"queue", "sbatch", "launch"},
		Short:      "Run a recipe on a cluster, or in a queue on this machine",
		Long: `Hands a run to a target: the queue on this machine (local), a Slurm cluster or a Kubernetes cluster, which a file names
(drun targets). It takes the flags of drun run; the recipe and all that it loads go along as they are now. The run stands in
the history at once, as pending, and drun show, logs and ui follow it home. drun jobs lists the jobs.

A job that its scheduler interrupts, because its time is over or another job comes first, saves if the recipe calls
run.should_stop(), and goes on from there with the same bits.`,
		Example: `  drun submit local train.star -p lr=0.1
  drun submit hpc train.star -n 4 --nnodes 8 --time 12:00:00 --name big
  drun submit hpc train.star --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error { return s.submit(cmd, args[0], args[1]) },
	}
	f := cmd.Flags()
	f.SetNormalizeFunc(run.Flags().GetNormalizeFunc())
	run.Flags().VisitAll(func(flag *pflag.Flag) {
		flag.Value = &noted{flag.Value, flag.Name, &s.given}
		if unfit[flag.Name] != "" {
			flag.Hidden = true
		}
		f.AddFlag(flag)
	})
	s.more(f)
	f.BoolVar(&s.dry, "dry-run", false, "print what would be handed over, and hand nothing over")
	f.BoolVar(&s.wait, "wait", false, "wait for the end of the run, and end with its exit code")
	return cmd
}

// noted is a flag that remembers what was given.
type noted struct {
	pflag.Value
	name string
	to   *[][2]string
}

func (n *noted) Set(text string) error {
	*n.to = append(*n.to, [2]string{n.name, text})
	return n.Value.Set(text)
}

// unfit are the flags of drun run that a job cannot have, and why.
var unfit = map[string]string{
	"hosts": "the scheduler chooses the hosts", "launched": "the scheduler starts the nodes", "node-rank": "the scheduler numbers the nodes",
	"rdzv": "the nodes of a job find each other", "master-addr": "the nodes of a job find each other", "master-port": "the nodes of a job find each other",
	"rdzv-id": "the nodes of a job find each other", "rdzv-backend": "the nodes of a job find each other", "rdzv-conf": "the nodes of a job find each other",
	"rdzv-secret-file": "the nodes of a job find each other", "insecure": "the nodes of a job find each other", "standalone": "a job of one node needs no flag",
	"elastic-world": "a job's number of nodes is fixed", "reuse": "drun runs --where finds finished runs",
}

// submission are the flags of drun submit.
type submission struct {
	given     [][2]string // those of drun run, in their order
	dry, wait bool
	copies    []string
	sums      string
}

// more adds the flags that drun run does not have.
func (s *submission) more(f *pflag.FlagSet) {
	for _, k := range submit.Keys {
		if k.Flag {
			f.String(k.Name, "", k.Usage+" ("+strings.ReplaceAll(k.Kinds, " ", ", ")+")")
		}
	}
	f.StringArrayVar(&s.copies, "copy", nil, "`file or folder` of the recipe's folder that goes along (repeatable); what arrives is checked by its SHA-256")
	f.StringVar(&s.sums, "sums", "", "`file` of SHA-256 sums, as sha256sum prints them, of data on the target, which is compared before the job is queued; relative names are beneath the first --data")
}

func (s *submission) submit(cmd *cobra.Command, target, name string) (err error) {
	defer try.Caught(&err)
	r := try.To(s.request(cmd, target, name))
	if s.dry {
		_, err := io.WriteString(cmd.OutOrStdout(), terminal.Lines(try.To(submit.Plan(r))))
		return err
	}
	j := try.To(hand(cmd, r))[0]
	if !s.wait {
		return answer(cmd, jobOf(j), "job %s: run %d %s is %s; drun logs -f %s follows it", submit.NameOf(j), j.Run, j.RunName, j.State, j.RunName)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "job %s: run %d %s\n", submit.NameOf(j), j.Run, j.RunName)
	return waitFor(cmd, []*history.Job{j})
}

// hand hands a request over, and has its jobs followed. Of one that a signal interrupts nothing is left.
func hand(cmd *cobra.Command, r *submit.Request) ([]*history.Job, error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	jobs, err := submit.Submit(ctx, r)
	switch {
	case err == nil:
		err = follow(r.Home)
	case ctx.Err() != nil:
		err = exit.Errorf(exit.Interrupted, "interrupted: nothing is handed over")
	}
	return jobs, err
}

// request makes a request of the command line, whose recipe and parameters are checked.
func (s *submission) request(cmd *cobra.Command, target, name string) (r *submit.Request, err error) {
	defer try.Caught(&err)
	f := cmd.Flags()
	get := func(flag string) string { // drun sweep does not have all of them
		text, _ := f.GetString(flag)
		return text
	}
	t := try.To(submit.FindTarget(try.To(submit.ReadTargets(submit.TargetsFile())), target))
	for _, k := range submit.Keys {
		if k.Flag && f.Changed(k.Name) {
			try.Ok(t.Set(k.Name, get(k.Name)))
		}
	}
	r = &submit.Request{Home: homeOf(cmd), Version: version(), Target: t, Copies: s.copies, Nodes: 1}
	if text := get("nnodes"); text != "1" && text != "" {
		least, most, err := rendezvous.ParseNodes(text)
		if err != nil || least > 0 {
			return nil, usage("for example --nnodes 2", "--nnodes %s: a job has a fixed number of nodes", text)
		}
		r.Nodes = most
	}
	if text := get("nproc"); t.Kind == submit.Local {
		r.Ranks = try.To(ranks(text))
	} else if r.Ranks, err = strconv.Atoi(text); err != nil || r.Ranks < 1 || r.Ranks > run.MaxHere {
		return nil, usage("the nodes of "+t.Name+" have other cores than this machine: give a number", "-n %s: a job for %s wants a number of ranks, 1 to %d", text, t.Name, run.MaxHere)
	}
	if s.sums != "" {
		if r.Sums, err = readSmall(s.sums); err != nil || len(r.Sums) == 0 {
			return nil, usage("for example sha256sum *.csv >sums, in the folder with the data", "--sums %s: it is empty, or cannot be read: %v", s.sums, err)
		}
	}
	if t.Kind == "kubernetes" { // its runs come home from the server
		r.Server = try.To(followed(get("server")))
		if r.Token = try.To(tokenFor(r.Server)); r.Server != "" && r.Token == "" {
			return nil, usage("drun login "+r.Server, "--server %s: there is no token for it, which the pods need", r.Server)
		}
	}
	r.Threads, _ = f.GetInt("threads")
	if r.Grace = try.To(f.GetDuration("grace")); !f.Changed("grace") && t.Kind != submit.Local {
		r.Grace = 90 * time.Second
		r.Args = []string{"--grace=" + r.Grace.String()}
	}
	params := try.To(s.arguments(r))
	r.Bundle = try.To(recipe.Read(name))
	try.Ok(looksRight(cmd, r.Bundle, r.Nodes*r.Ranks > 1))
	if f.Lookup("jobs") == nil { // a sweep checks each of its cells
		try.Ok(run.CheckParams(r.Bundle, r.Filed, params))
	}
	seed, _ := f.GetInt64("seed")
	r.Info = history.RunInfo{Name: get("name"), Recipe: r.Bundle.Name, Project: string(r.Bundle.Project), WorldSize: r.Nodes * r.Ranks, Backend: cmp.Or(get("backend"), "shm"), Seed: seed, Threads: max(r.Threads, 1), Deterministic: true,
		Given: records.Given{Command: secret.Arguments(os.Args), Version: version()}}
	if r.Nodes > 1 || get("backend") != "" && get("backend") != "shm" {
		for _, p := range host.List(host.Dirs()) {
			if p.Named && !p.Hidden {
				r.Plugins = append(r.Plugins, p.Path)
			}
		}
	}
	return r, nil
}

// looksRight is drun check before anything is queued: a fault that is certain is an error, others are told.
func looksRight(cmd *cobra.Command, b *recipe.Bundle, several bool) error {
	try.Ok(b.Check())
	notes, certain := checked(b, several)
	if certain != nil {
		message, excerpt := b.Fault(certain.File, int32(certain.Line), int32(certain.Col), certain.Message) //nolint:gosec // a position in a file
		return exit.Errorf(exit.Recipe, "%s", strings.TrimRight(message+"\n"+excerpt, "\n"))
	}
	for _, note := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), terminal.Escape(note))
	}
	return nil
}

// arguments makes the flags of the job's drun run of those that were given, and returns the recipe's parameters among them.
func (s *submission) arguments(r *submit.Request) (params []string, err error) {
	away := !submit.Here(r.Target)
	for _, g := range s.given {
		flag, text := g[0], g[1]
		switch why, ext := unfit[flag], filepath.Ext(text); {
		case why != "":
			return nil, usage("leave it out", "--%s is not for jobs: %s", flag, why)
		case flag == "name", flag == "nnodes", flag == "server" && r.Target.Kind == "kubernetes":
			continue // the job has them otherwise
		case flag == "params":
			r.Filed = try.To(readParams(text))
			continue
		case flag == "param":
			params = append(params, text)
		case (flag == "data" || flag == "plugin-dir") && away && !filepath.IsAbs(text):
			return nil, usage("--copy takes files of the recipe's folder along", "--%s %s: give the folder's whole path on %s", flag, text, r.Target.Name)
		case flag == "data":
			r.Data = append(r.Data, try.To(filepath.Abs(text)))
		case flag == "resume" && away && (ext == ".safetensors" || ext == ".npz"):
			return nil, usage("drun push takes a run there, whose name --resume then gives", "--resume %s: a file of weights does not go along", text)
		}
		r.Args = append(r.Args, "--"+flag+"="+text)
	}
	if cpus := r.Target.Number("cpus"); r.Threads == 0 && (away || cpus > 0 || r.Target.Kind == "slurm") {
		r.Threads = max(1, cmp.Or(cpus, r.Ranks)/r.Ranks)
		r.Args = append(r.Args, "--threads="+strconv.Itoa(r.Threads))
	}
	return params, nil
}

func newTargets() *cobra.Command {
	return &cobra.Command{
		Use:        "targets",
		SuggestFor: []string{"clusters", "hosts"},
		Short:      "List where jobs can go",
		Long: `Lists the targets of drun submit: local, the queue on this machine, and those that a file names, targets.toml in the folder
drun of your configuration ($DRUN_TARGETS names another). It has a section for each target:

  [hpc]
  kind = "slurm"
  host = "me@login.example.com"   # as ssh takes it; leave it out on the login node itself
  folder = "/shared/me/drun"      # on a disk that the login node and the nodes share
  partition = "gpu"

` + keysText(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := submit.TargetsFile()
			targets := try.To(submit.ReadTargets(path))
			fmt.Fprintf(cmd.ErrOrStderr(), "targets of %s\n", path)
			return show(cmd, targets, func(out io.Writer, targets []*submit.Target) error {
				w := terminal.NewTable(out)
				row(w, "TARGET", "KIND", "WHERE")
				for _, t := range targets {
					row(w, t.Name, t.Kind, cmp.Or(t.Get("host"), t.Get("context"), map[string]string{"kubernetes": "kubectl's context"}[t.Kind], "this machine"))
				}
				return w.Flush()
			})
		},
	}
}

func keysText() string {
	text := "What a target may have, and of which kind it must be:\n\n"
	for _, k := range submit.Keys {
		text += fmt.Sprintf("  %-10s  %s (%s)\n", k.Name, k.Usage, strings.ReplaceAll(k.Kinds, " ", ", "))
	}
	return strings.TrimRight(text, "\n")
}
