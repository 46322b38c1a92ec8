package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"drun/check"
	"drun/engine/recipe"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/testing"
	"drun/starlib/universe"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check RECIPE.star...",
		Short: "Find faults in recipes without running them",
		Long: "Reads recipes and the files they load, and runs nothing. Errors are unknown names and attributes,\n" +
			"calls whose arguments do not fit, calls that are not allowed at top level, and tensors whose shapes\n" +
			"cannot fit, as far as the source says what they are. Warnings are\n" +
			"collectives under a branch or loop that depends on the rank, where some ranks would wait for\n" +
			"ranks that never come, and parameters that are rebound instead of changed.\n\n" +
			"Exit code: 0 no findings, 1 findings, 2 usage (also a recipe that cannot be read).\n" +
			"--json prints a list of {\"file\", \"line\", \"col\", \"severity\", \"message\"}.",
		Args: arguments(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			modules, names := universe.Modules(), universe.Names()
			ref := check.NewReference(modules, names)
			tests := testing.Module("")
			names = maps.Clone(names)
			names[tests.Name] = tests.Build(&starlib.Rank{WorldSize: 1})
			withTests := check.NewReference(append(modules, tests), names)
			found := []check.Finding{}
			sources := map[string][]byte{}
			for _, name := range args {
				list, err := checkRecipe(ref, withTests, name, sources)
				if err != nil {
					return err
				}
				found = append(found, list...)
			}
			found = check.Sort(found)
			err := show(cmd, found, func(out io.Writer, found []check.Finding) error { return printFindings(out, found, sources) })
			if err == nil && len(found) > 0 {
				err = exitStatus(exit.Recipe)
			}
			return err
		},
	}
}

// checkRecipe checks one recipe and adds the contents of its files to sources. It
// returns an error if the recipe cannot be read.
func checkRecipe(ref, withTests *check.Reference, name string, sources map[string][]byte) ([]check.Finding, error) {
	bundle, faults := recipe.ReadAll(name)
	var found []check.Finding
	for _, fault := range faults {
		located := (*lang.Error)(nil)
		if !errors.As(fault, &located) {
			return nil, fault
		}
		found = append(found, check.FromError(located)...)
	}
	if recipe.HaveTests(bundle.Sources) {
		ref = withTests
	}
	var files []check.File
	for _, s := range bundle.Sources {
		parsed, err := lang.Parse(recipe.Display(name, s.Path), s.Content)
		if err != nil {
			return nil, err
		}
		sources[parsed.Name] = s.Content
		files = append(files, check.File{Path: s.Path, File: parsed})
	}
	return append(found, check.Check(ref, files, bundle.Project.Resolve)...), nil
}

// printFindings prints each finding and its line of source.
func printFindings(out io.Writer, found []check.Finding, sources map[string][]byte) error {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s:%d:%d: %s: %s\n", f.File, f.Line, f.Col, f.Severity, f.Message)
		if lines := strings.Split(string(sources[f.File]), "\n"); f.Line > 0 && f.Line <= len(lines) {
			if text := strings.TrimSpace(lines[f.Line-1]); text != "" {
				fmt.Fprintf(&b, "    %s\n", text)
			}
		}
	}
	_, err := io.WriteString(out, terminal.Lines(b.String()))
	return err
}
