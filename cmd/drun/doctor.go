package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"drun/engine/doctor"
	"drun/history"
	"drun/internal/elapsed"
	"drun/internal/terminal"
)

type storage struct {
	Path       string `json:"path"`
	WAL        bool   `json:"wal"`
	FileSystem string `json:"file_system,omitempty"` // if a write-ahead log is not safe on it
}

func (s storage) String() string {
	if s.WAL {
		return s.Path + ", databases with a write-ahead log"
	}
	return fmt.Sprintf("%s, databases with a rollback journal, which is slower: a write-ahead log is not safe on %s", s.Path, s.FileSystem)
}

func newDoctor() *cobra.Command {
	var dirs []string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine can run: cores, instruction sets, backends, a two-rank self-test",
		RunE: func(cmd *cobra.Command, _ []string) error {
			home := storage{Path: homeOf(cmd)}
			home.WAL, home.FileSystem = history.Journal(home.Path)
			r := struct {
				*doctor.Report
				Plugins []backendInfo `json:"plugins"`
				Home    storage       `json:"home"`
			}{doctor.Examine(), findPlugins(cmd, dirs), home}
			out := cmd.OutOrStdout()
			if wantsJSON(cmd) {
				if err := printJSON(out, r); err != nil {
					return err
				}
			} else {
				w := terminal.NewTable(out)
				row(w, "machine", fmt.Sprintf("%s/%s, %d cores", r.OS, r.Arch, r.Cores))
				row(w, "kernels", fmt.Sprintf("%s (available: %s; DRUN_KERNEL forces one)", r.Kernels, strings.Join(r.Paths, ", ")))
				row(w, "backends", strings.Join(r.Backends, ", ")+" (built in)")
				for _, p := range r.Plugins {
					verdict := p.verdict()
					if p.Problem != "" {
						verdict += ": drun backends " + p.Name + " says why"
					}
					row(w, "plugin", fmt.Sprintf("%s, %s: %s", strings.TrimSpace(p.Name+" "+p.Version), p.Path, verdict))
				}
				row(w, "home", home.String())
				outcome := "ok, in " + elapsed.Text(r.SelfTest.Seconds)
				if !r.SelfTest.OK {
					outcome = "FAILED"
				}
				row(w, "two ranks", outcome)
				w.Flush()
				for _, p := range r.Problems {
					fmt.Fprintf(out, "problem: %s\n", terminal.Lines(p))
				}
			}
			return failedIf(len(r.Problems) > 0)
		},
	}
	cmd.Flags().StringArrayVar(&dirs, "plugin-dir", nil, "`folder` in which to look for plugins first (repeatable)")
	return cmd
}
