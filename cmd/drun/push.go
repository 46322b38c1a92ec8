package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/serve"
	"drun/runs/submit"
	"drun/runs/transfer"
)

// copying are the flags of push and pull.
type copying struct {
	conditions
	transfer.Options
	all bool
}

func (c *copying) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	c.conditions.addFlags(f)
	f.BoolVar(&c.all, "all", false, "all runs of which the other side lacks something")
	f.StringVar(&c.Weights, "weights", "all", "of which checkpoints: none, best or all; with none, files stay, too")
	f.BoolVar(&c.Again, "again", false, "also runs that were removed for good on the receiving side")
	f.BoolVar(&c.Secrets, "with-secrets", false, "the values of secret parameters, too, where --keep-secrets has kept them")
}

// choice is which runs are meant.
func (c *copying) choice(cmd *cobra.Command, refs []string) (transfer.Choice, error) {
	ways := 0
	for _, way := range []bool{len(refs) > 0, len(c.where)+len(c.tags) > 0, c.all} {
		if way {
			ways++
		}
	}
	if ways != 1 {
		return transfer.Choice{}, usage("usage: "+cmd.UseLine(), "either name runs, or choose them with --where and --tag, or take --all")
	}
	c.Quick = len(refs) == 0
	return transfer.Choice{Refs: refs, Where: c.where, Tags: c.tags}, transfer.CheckWeights(c.Weights)
}

func newPush() *cobra.Command {
	var c copying
	cmd := &cobra.Command{
		Use:   "push TARGET [RUN…]",
		Short: "Copy runs to another home or to a server",
		Long: `Copies runs, with what they kept and their checkpoints, to TARGET: the folder of another home, ssh://HOST/FOLDER, where drun is
installed, the address of a server (drun serve), or a target of drun submit. Only what is missing there travels, and what was broken off goes on
where it was when the command is repeated. A run has another number there, and if its name is taken another name. A run
that goes on can be pushed again and again. In ssh://HOST/~/FOLDER the folder is beneath the home directory there.`,
		Example: `  drun push /mnt/shared/.drun last
  drun push ssh://gpu1/~/digits/.drun --all --weights best
  drun push https://runs.example.org --where 'status == "done"'`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.copy(cmd, args, true) },
	}
	c.addFlags(cmd)
	cmd.Flags().StringVar(&c.Project, "project", os.Getenv("DRUN_PROJECT"), "the `project` of a team that runs belong to there, if they have none ($DRUN_PROJECT)")
	return cmd
}

func newPull() *cobra.Command {
	var c copying
	cmd := &cobra.Command{
		Use:   "pull SOURCE [RUN…]",
		Short: "Copy runs from another home or from a server",
		Long: `Copies runs, with what they kept and their checkpoints, from SOURCE into this home. SOURCE is the folder of another home,
ssh://HOST/FOLDER, the address of a server or a target, as for drun push; RUN is a number or a name there.
s3://BUCKET/PREFIX is the bucket of a server (drun serve --artifacts), which need not be running.`,
		Example: `  drun pull ssh://gpu1/~/digits/.drun last
  drun pull https://runs.example.org calm-otter --weights best
  drun run digits.star --resume calm-otter@best`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.copy(cmd, args, false) },
	}
	c.addFlags(cmd)
	return cmd
}

func (c *copying) copy(cmd *cobra.Command, args []string, push bool) error {
	choice := try.To(c.choice(cmd, args[1:]))
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx = transfer.Local(ctx)
	c.Say = func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "drun: %s\n", terminal.Lines(text)) }
	home := try.To(transfer.OpenHome(homeOf(cmd), !push))
	defer home.Close()
	other := try.To(sideAt(cmd, args[0], push))
	defer other.Close()
	if server, is := other.(*transfer.Remote); is {
		server.Say = c.Say
	}
	from, to := transfer.Side(home), other
	if !push {
		from, to = other, home
	}
	runs := try.To(transfer.Find(ctx, from, choice))
	if len(runs) == 0 && !c.all {
		return usage("drun runs takes --where and --tag, too", "no run matches")
	}
	r, err := transfer.Copy(ctx, from, to, runs, c.Options)
	if r == nil {
		return err
	}
	if context.Cause(ctx) != nil {
		err = exit.WithHint(exit.Errorf(exit.Interrupted, "interrupted"), "the same command goes on where it was")
	}
	what := map[bool]string{true: "pushed", false: "pulled"}[push]
	return errors.Join(err, answer(cmd, r, "%s %s: sent %s, %s were there already", what, english.Plural(r.Runs, "run", ""), humanize.IBytes(uint64(r.Sent)), humanize.IBytes(uint64(r.There))))
}

// sideAt opens the other side of a copy.
func sideAt(cmd *cobra.Command, where string, write bool) (transfer.Side, error) {
	if !strings.Contains(where, "://") {
		own, _ := os.Stat(homeOf(cmd))
		if there, err := os.Stat(where); err == nil && own != nil && os.SameFile(own, there) {
			return nil, usage("", "%s is this home itself", where)
		} else if targets, _ := submit.ReadTargets(submit.TargetsFile()); errors.Is(err, fs.ErrNotExist) && slices.ContainsFunc(targets, func(t *submit.Target) bool { return t.Name == where && t.Get("host") != "" }) {
			t, _ := submit.FindTarget(targets, where)
			return sideOf(submit.SourceOn(t), write)
		} else if errors.Is(err, fs.ErrNotExist) && write {
			if _, err := os.Stat(filepath.Dir(filepath.Clean(where))); err != nil {
				return nil, usage("make it first, so that a misspelt name makes no home", "the folder of %s does not exist", where)
			}
		}
		return transfer.OpenHome(where, write)
	}
	at, err := url.Parse(where)
	switch {
	case err != nil || at.Host == "":
		return nil, usage("for example ssh://host/folder or https://runs.example.org", "%q is no address", where)
	case at.Scheme == "ssh":
		command := strings.Fields(cmp.Or(os.Getenv("DRUN_SSH"), "ssh"))
		if port := at.Port(); port != "" {
			command = append(command, "-p", port)
		}
		host := at.Hostname()
		if user := at.User.Username(); user != "" {
			host = user + "@" + host
		}
		return transfer.OverSSH(command, host, "", strings.Replace(at.Path, "/~/", "~/", 1), write)
	case at.Scheme == "s3" && !write:
		return serve.FromBucket(cmd.Context(), where)
	case at.Scheme != "http" && at.Scheme != "https":
		return nil, usage("want a folder, ssh://host/folder, or the https:// address of a server", "%s:// is unknown", at.Scheme)
	}
	return serverAt(where)
}

// newTransferServe is started over ssh by drun push and drun pull.
func newTransferServe() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use:    "transfer-serve",
		Hidden: true,
		Short:  "Answer drun push and drun pull over standard input and output",
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := transfer.OpenHome(homeOf(cmd), write)
			handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { transfer.Fail(w, err) }))
			if err == nil {
				defer home.Close()
				handler = transfer.Handler(home)
			}
			return transfer.ServeStream(handler, cmd.InOrStdin(), os.Stdout)
		},
	}
	cmd.Flags().BoolVar(&write, "write", false, "let runs be entered")
	return cmd
}
