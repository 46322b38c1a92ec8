package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"drun/engine"
	"drun/plugins/host"
)

// defaultBackend is what the environment asks for; "": drun chooses.
func defaultBackend() string {
	if name := os.Getenv("DRUN_BACKEND"); name != "" {
		return name
	}
	// PyTorch's may name one for each kind of device: cpu:gloo,cuda:nccl.
	for part := range strings.SplitSeq(os.Getenv("TORCH_DISTRIBUTED_BACKEND"), ",") {
		device, name, both := strings.Cut(part, ":")
		switch {
		case both && device == "cpu":
			return name
		case !both && part != "":
			return part
		}
	}
	return ""
}

func newBackends() *cobra.Command {
	var dirs []string
	cmd := &cobra.Command{
		Use:   "backends",
		Short: "List the engines of collectives; test, measure and trust them",
		Long: "Lists the engines of collectives: the built-in one, and the plugins that were found, in the order in\n" +
			"which they are looked for. Each plugin is started for a moment and asked whether it can run here.",
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return listBackends(cmd, dirs) },
	}
	cmd.PersistentFlags().StringArrayVar(&dirs, "plugin-dir", nil, "`folder` to look for plugins in first (repeatable)")
	cmd.AddCommand(newTest(&dirs), newBench(&dirs), newTrust(&dirs))
	return cmd
}

// backendInfo is a backend as `drun backends --json` shows it.
type backendInfo struct {
	Name    string `json:"name"`
	BuiltIn bool   `json:"built_in"`
	Version string `json:"version"`
	Path    string `json:"path,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Usable  bool   `json:"usable"`
	Problem string `json:"problem,omitempty"`
}

const probeLimit = 10 * time.Second

func listBackends(cmd *cobra.Command, dirs []string) error {
	list := append([]backendInfo{{Name: "shm", BuiltIn: true, Version: version(), Usable: true}}, findPlugins(cmd, dirs)...)
	out := cmd.OutOrStdout()
	if wantsJSON(cmd) {
		return printJSON(out, list)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(w, "BACKEND", "VERSION", "SHA-256", "RUNS HERE", "WHERE")
	for _, b := range list {
		where, sum := b.Path, b.SHA256
		if b.BuiltIn {
			where, sum = "built in", "-"
		}
		if b.Version == "" {
			b.Version = "-"
		}
		row(w, b.Name, b.Version, sum[:min(12, len(sum))], b.verdict(), where)
	}
	return w.Flush()
}

// verdict is whether it runs here.
func (b *backendInfo) verdict() string {
	if b.Usable {
		return "yes"
	}
	return "no: " + oneLine.Replace(b.Problem)
}

// findPlugins lists all plugins, each asked whether it can run here. One that has
// changed since it was trusted is not run.
func findPlugins(cmd *cobra.Command, dirs []string) []backendInfo {
	list := []backendInfo{}
	for _, p := range host.List(host.Dirs(dirs...)) {
		list = append(list, inspect(cmd.Context(), homeOf(cmd), p))
	}
	return list
}

func inspect(ctx context.Context, home string, p *host.Plugin) backendInfo {
	b := backendInfo{Name: p.Name, Path: p.Path}
	if p.Hidden {
		b.Problem = "another plugin of this name is found first"
		return b
	}
	ctx, stop := context.WithTimeout(ctx, probeLimit)
	defer stop()
	err := host.Check(home, p)
	if b.SHA256 = p.SHA256; err == nil {
		err = probe(ctx, p, &b)
	}
	if changed := new(host.ChangedError); errors.As(err, &changed) {
		err = fmt.Errorf("%w; %s", err, changed.Advice())
	}
	if err != nil {
		b.Problem = err.Error()
	}
	b.Usable = b.Problem == ""
	return b
}

// probe has the plugin started and asked.
func probe(ctx context.Context, p *host.Plugin, b *backendInfo) error {
	program, err := host.FindProgram()
	if err != nil {
		return err
	}
	var out, words bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "probe", p.Name, p.Path)
	cmd.Stdout, cmd.Stderr = &out, &words
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(words.String()); text != "" {
			return errors.New(text)
		}
		return err
	}
	return json.Unmarshal(out.Bytes(), b)
}

// findPlugin finds the plugin of that name.
func findPlugin(name string, dirs []string) (*host.Plugin, error) {
	if name == "shm" {
		return nil, usage("drun's own tests prove it", "shm is built in, and no plugin")
	}
	return host.Find(name, host.Dirs(dirs...))
}

func newTest(dirs *[]string) *cobra.Command {
	var deterministic bool
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Run the conformance suite against a plugin",
		Long: "Runs the suite that every backend must pass, with a process of the plugin for each rank. An engine may add\n" +
			"numbers in an order of its own; with --deterministic it must give the bits of shm.",
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := findPlugin(args[0], *dirs)
			if err == nil {
				err = host.Verify(homeOf(cmd), p)
			}
			if err != nil {
				return err
			}
			if b := inspect(cmd.Context(), homeOf(cmd), p); !b.Usable {
				return engine.Errorf(engine.ExitBackend, "%s cannot run here: %s", p.Name, b.Problem)
			}
			program, err := host.FindProgram()
			if err != nil {
				return err
			}
			suite := exec.CommandContext(cmd.Context(), program, "test", p.Name, p.Path)
			if deterministic {
				suite.Env = append(os.Environ(), "DRUN_DETERMINISTIC=1")
			}
			suite.Stdout, suite.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := suite.Run(); errors.As(err, new(*exec.ExitError)) {
				return exitStatus(engine.ExitBackend) // it has said why
			} else if err != nil {
				return err
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&deterministic, "deterministic", false, "reductions in the order of the ranks: the bits of shm")
	return cmd
}

func newTrust(dirs *[]string) *cobra.Command {
	return &cobra.Command{
		Use:   "trust NAME",
		Short: "Accept a plugin whose program has changed",
		Args:  arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := findPlugin(args[0], *dirs)
			if err != nil {
				return err
			}
			if err := host.Trust(homeOf(cmd), p); err != nil {
				return err
			}
			cmd.PrintErrf("trusted %s: SHA-256 %s\n", p.Path, p.SHA256)
			return nil
		},
	}
}
