package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/plugins/host"
)

// defaultBackend returns the environment's choice; "" leaves the choice to drun.
func defaultBackend() string {
	if name := os.Getenv("DRUN_BACKEND"); name != "" {
		return name
	}
	// PyTorch's variable may name one backend per kind of device: cpu:gloo,cuda:nccl.
	for entry := range strings.SplitSeq(os.Getenv("TORCH_DISTRIBUTED_BACKEND"), ",") {
		device, name, both := strings.Cut(entry, ":")
		switch {
		case both && device == "cpu":
			return name
		case !both && entry != "":
			return entry
		}
	}
	return ""
}

func newBackends() *cobra.Command {
	var dirs []string
	cmd := &cobra.Command{
		Use:   "backends [NAME]",
		Short: "List the backends of collectives; test, measure and trust them",
		Long: "Lists the backends: the built-in one and the plugins that were found, in search order; with NAME, everything\n" +
			"about one. Each plugin is started briefly and asked whether it can run here. A plugin that is only in $PATH,\n" +
			"and was neither used by a run nor trusted before, is listed but not started.",
		RunE: func(cmd *cobra.Command, args []string) error {
			list := append([]backendInfo{{Name: "shm", BuiltIn: true, Version: version(), Trusted: true, Usable: true}}, findPlugins(cmd, dirs, args...)...)
			if len(args) == 0 {
				return show(cmd, list, listBackends)
			}
			list = slices.DeleteFunc(list, func(b backendInfo) bool { return b.Name != args[0] })
			if len(list) == 0 {
				_, err := findPlugin(args[0], dirs)
				return err
			}
			return show(cmd, list, printBackends)
		},
	}
	cmd.PersistentFlags().StringArrayVar(&dirs, "plugin-dir", nil, "`folder` in which to look for plugins first (repeatable)")
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
	Trusted bool   `json:"trusted"` // built in, or this program was used or trusted before
	Usable  bool   `json:"usable"`
	Problem string `json:"problem,omitempty"`

	asked bool // it was started, or is known to have changed
}

// listBackends shows a table that fits the terminal, and beneath it why some backends do not run here.
func listBackends(out io.Writer, list []backendInfo) error {
	columns := terminal.Width(out)
	w := terminal.NewTable(out)
	row(w, "BACKEND", "VERSION", "RUNS HERE", "WHERE")
	for _, b := range list {
		row(w, cut(b.Name, columns/4), cut(cmp.Or(b.Version, "-"), columns/4), b.verdict(), cut(b.where(), columns/4))
	}
	err := w.Flush()
	for _, b := range list {
		if b.Problem != "" {
			fmt.Fprintf(out, "\n%s: %s\n", b.Name, terminal.Escape(b.Problem))
		}
	}
	return err
}

func printBackends(out io.Writer, list []backendInfo) error {
	for i, b := range list {
		if i > 0 {
			fmt.Fprintln(out)
		}
		w := terminal.NewTable(out)
		row(w, "backend", b.Name)
		row(w, "version", cmp.Or(b.Version, "-"))
		row(w, "runs here", b.verdict())
		if b.Problem != "" {
			row(w, "because", terminal.Escape(b.Problem))
		}
		if b.BuiltIn {
			row(w, "where", b.where())
		} else {
			row(w, "file", b.Path)
			row(w, "SHA-256", cmp.Or(b.SHA256, "-"))
			row(w, "trusted", map[bool]string{true: "yes", false: "no"}[b.Trusted])
		}
		try.Ok(w.Flush())
	}
	return nil
}

func (b *backendInfo) verdict() string {
	switch {
	case b.Usable:
		return "yes"
	case b.asked:
		return "no"
	}
	return "not asked"
}

func (b *backendInfo) where() string {
	if b.BuiltIn {
		return "built in"
	}
	return filepath.Dir(b.Path)
}

// cut shortens a text at its beginning, since the end of a path tells more.
func cut(text string, columns int) string {
	r := []rune(text)
	if columns = max(columns, 12); len(r) <= columns {
		return text
	}
	return "…" + string(r[len(r)-columns+1:])
}

// findPlugins lists all plugins, or those with the given names, and asks each whether it can run here.
func findPlugins(cmd *cobra.Command, dirs []string, names ...string) []backendInfo {
	list := []backendInfo{}
	for _, p := range host.List(host.Dirs(dirs...)) {
		if len(names) == 0 || slices.Contains(names, p.Name) {
			list = append(list, inspect(cmd.Context(), homeOf(cmd), p))
		}
	}
	return list
}

// inspect asks a plugin whether it can run. It does not start one that has changed since it was trusted, or one
// that is only in $PATH and not trusted yet.
func inspect(ctx context.Context, home string, p *host.Plugin) backendInfo {
	b := backendInfo{Name: p.Name, Path: p.Path}
	if p.Hidden {
		b.Problem = "another plugin of this name is found first"
		return b
	}
	trusted, err := host.Check(home, p)
	b.SHA256, b.Trusted = p.SHA256, trusted
	if err == nil && !trusted && !p.Named {
		b.Problem = fmt.Sprintf("it is only in $PATH and was not used or trusted before, so it was not started; to trust it: drun backends trust %s", p.Name)
		return b
	}
	if err == nil {
		var program string
		if program, err = host.FindProgram(); err == nil {
			err = host.Ask(ctx, program, "probe", p, &b)
		}
	}
	if errors.As(err, new(host.ChangedError)) {
		err = fmt.Errorf("%w; %s", err, exit.HintOf(err))
	}
	if err != nil {
		b.Problem = err.Error()
	}
	b.Usable, b.asked = b.Problem == "", true
	return b
}

func findPlugin(name string, dirs []string) (*host.Plugin, error) {
	if name == "shm" {
		return nil, usage("drun's own tests cover it", "shm is built in, not a plugin")
	}
	return host.Find(name, host.Dirs(dirs...))
}

// verified finds a plugin that is unchanged since it was pinned, or pins it, and the program that starts it.
func verified(cmd *cobra.Command, name string, dirs []string) (p *host.Plugin, program string, err error) {
	defer try.Caught(&err)
	p = try.To(findPlugin(name, dirs))
	try.Ok(host.Verify(homeOf(cmd), p))
	program = try.To(host.FindProgram())
	return p, program, nil
}

func newTest(dirs *[]string) *cobra.Command {
	var deterministic, hierarchy bool
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Run the conformance suite against a plugin",
		Long: "Runs the suite that every backend must pass, with one process of the plugin for each rank. A backend may add\n" +
			"numbers in its own order; with --deterministic its results must have the same bits as shm's.\n" +
			"With --hierarchy it connects two nodes, as in a run over several: the ranks of each node share memory, and one process\n" +
			"of the plugin per link carries what goes between the nodes. The results must then have shm's bits, too.",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, program := try.To2(verified(cmd, args[0], *dirs))
			if b := inspect(cmd.Context(), homeOf(cmd), p); !b.Usable { // Verify has pinned it, so inspect asks it
				return exit.Errorf(exit.Backend, "%s cannot run here: %s", p.Name, b.Problem)
			}
			which := "test"
			switch {
			case hierarchy:
				which = "test-hierarchy"
			case deterministic:
				which = "test-deterministic"
			}
			err := host.Run(cmd.Context(), program, which, p, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if errors.As(err, new(*exec.ExitError)) {
				return exit.Errorf(exit.Backend, "the backend %s does not pass the suite", p.Name)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&deterministic, "deterministic", false, "require the same bits as shm, which adds in the order of the ranks")
	cmd.Flags().BoolVar(&hierarchy, "hierarchy", false, "let it connect two nodes whose ranks share memory")
	return cmd
}

func newTrust(dirs *[]string) *cobra.Command {
	return &cobra.Command{
		Use:   "trust NAME",
		Short: "Accept a plugin whose program has changed",
		RunE: func(cmd *cobra.Command, args []string) error {
			p := try.To(findPlugin(args[0], *dirs))
			try.Ok(host.Trust(homeOf(cmd), p))
			cmd.PrintErrf("trusted %s: SHA-256 %s\n", p.Path, p.SHA256)
			return nil
		},
	}
}
