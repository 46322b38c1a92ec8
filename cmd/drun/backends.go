package main

import (
	"context"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"drun/plugins/host"
)

// defaultBackend is what the environment asks for, else shm.
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
	return "shm"
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
	cmd.AddCommand(newTrust(&dirs))
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
	list := []backendInfo{{Name: "shm", BuiltIn: true, Version: version(), Usable: true}}
	for _, p := range host.List(host.Dirs(dirs...)) {
		list = append(list, inspect(cmd.Context(), p))
	}
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
		usable := "yes"
		if !b.Usable {
			usable = "no: " + oneLine.Replace(b.Problem)
		}
		if b.Version == "" {
			b.Version = "-"
		}
		row(w, b.Name, b.Version, sum[:min(12, len(sum))], usable, where)
	}
	return w.Flush()
}

func inspect(ctx context.Context, p *host.Plugin) backendInfo {
	b := backendInfo{Name: p.Name, Path: p.Path}
	if p.Hidden {
		b.Problem = "another plugin of this name is found first"
		return b
	}
	ctx, stop := context.WithTimeout(ctx, probeLimit)
	defer stop()
	err := p.Sum()
	if b.SHA256 = p.SHA256; err == nil {
		var about host.About
		about, err = host.Probe(ctx, p)
		b.Version, b.Problem = about.Version, about.Problem
	}
	if err != nil {
		b.Problem = err.Error()
	}
	b.Usable = b.Problem == ""
	return b
}

func newTrust(dirs *[]string) *cobra.Command {
	return &cobra.Command{
		Use:   "trust NAME",
		Short: "Accept a plugin whose program has changed",
		Args:  arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := host.Find(args[0], host.Dirs(*dirs...))
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
