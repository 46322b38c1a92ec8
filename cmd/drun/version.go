package main

import (
	"runtime"

	"drun/internal/build"

	"github.com/mattn/go-sqlite3"
	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			sqlite, _, _ := sqlite3.Version()
			return answer(cmd, map[string]string{"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "sqlite": sqlite},
				"drun %s (%s %s/%s, SQLite %s)", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, sqlite)
		},
	}
}

func version() string { return build.Own() }
