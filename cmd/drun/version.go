package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/mattn/go-sqlite3"
	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sqlite, _, _ := sqlite3.Version()
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), map[string]string{"version": version(), "go": runtime.Version(),
					"os": runtime.GOOS, "arch": runtime.GOARCH, "sqlite": sqlite})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "drun %s (%s %s/%s, SQLite %s)\n",
				version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, sqlite)
			return err
		},
	}
}

// version is the module's version, or the commit from which drun was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision + modified
}
