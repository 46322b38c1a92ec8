package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"drun/internal/exit"
	"drun/starlib/universe"
)

func newDoc() *cobra.Command {
	var search, html string
	c := &cobra.Command{
		Use:   "doc [NAME]",
		Short: "Print the reference of the builtins, search it, or write it as pages",
		Long: "Prints the signatures and documentation of NAME: a module (dist), a builtin (dist.all_reduce), a type\n" +
			"(Tensor) or a method. Without a name it lists everything, one per line.\n" +
			"--search lists the builtins that have all words of a text in their name, signature or documentation, the\n" +
			"best match first. --html writes the reference as pages with a search field, which need no server and no network.",
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			if search, html := flags.Changed("search"), flags.Changed("html"); search && html || len(args) > 0 && (search || html) {
				return usage("one of them at a time", "a name, --search and --html exclude each other")
			}
			switch {
			case flags.Changed("search"):
				entries := universe.Reference().Search(search)
				if len(entries) == 0 {
					return exit.WithHint(fmt.Errorf("nothing in the reference has all of %q", search), "drun doc lists everything")
				}
				return show(cmd, entries, printFound)
			case flags.Changed("html"):
				return writePages(html, universe.Reference())
			}
			if len(args) == 0 {
				return show(cmd, universe.Reference(), printFound)
			}
			name := args[0]
			entries := universe.Reference().Find(name)
			if len(entries) == 0 {
				return usage("drun doc lists them all; drun doc --search "+name+" looks for it everywhere", "there is no builtin %q", name)
			}
			return show(cmd, entries, printReference)
		},
	}
	c.Flags().StringVar(&search, "search", "", "list the builtins that have all words of `TEXT`, the best match first")
	c.Flags().StringVar(&html, "html", "", "write the reference as pages into the new or empty folder `DIR`")
	return c
}

// printReference writes each entry's declaration, with its documentation beneath it.
func printReference(out io.Writer, entries universe.Entries) error {
	for i, e := range entries {
		title, between := e.Declaration(), "\n"
		if e.Kind == universe.KindModule || e.Kind == universe.KindType {
			title = string(e.Kind) + " " + title
		}
		if i == 0 {
			between = ""
		}
		if _, err := fmt.Fprintf(out, "%s%s\n    %s\n", between, title, strings.ReplaceAll(strings.TrimSpace(e.Doc), "\n", "\n    ")); err != nil {
			return err
		}
	}
	return nil
}

func printFound(out io.Writer, entries universe.Entries) error {
	for _, e := range entries {
		if _, err := fmt.Fprintf(out, "%-28s %s\n", e.Path(), e.Summary()); err != nil {
			return err
		}
	}
	return nil
}
