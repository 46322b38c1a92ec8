package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/starlib/universe"
	"drun/starlib/universe/pages"
)

func newDoc() *cobra.Command {
	var search, html string
	c := &cobra.Command{
		Use:   "doc [NAME]",
		Short: "Print the reference of the builtins, search it, or write it as pages",
		Long: "Prints the signatures and documentation of NAME: a module (dist), a builtin (dist.all_reduce), a type\n" +
			"(Tensor) or a method, or what there is instead of a name of PyTorch's. Without a name it lists the modules, the\n" +
			"types and the names without a module; with --json, everything.\n" +
			"--search lists the builtins that have all words of a text in their name, signature or documentation, the\n" +
			"best match first. --html writes the reference as pages with a search field, which need no server and no network;\n" +
			"make site, in drun's folder, writes them together with the guides.",
		Example: `  drun doc checkpoint.save_file
  drun doc DataLoader
  drun doc --search "save weights"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			if search, html := flags.Changed("search"), flags.Changed("html"); search && html || len(args) > 0 && (search || html) {
				return usage("one of them at a time", "a name, --search and --html exclude each other")
			}
			switch {
			case flags.Changed("search"):
				entries := universe.Reference().Search(search)
				if says, instead := universe.Reference().Instead(search); says != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "PyTorch's %s: %s\n", terminal.Escape(search), says)
					entries = append(instead, entries.Without(instead)...)
				} else if len(entries) == 0 {
					return exit.WithHint(fmt.Errorf("nothing in the reference has all of %q", search), "drun doc lists the modules; fewer words find more")
				}
				return show(cmd, entries, printFound)
			case flags.Changed("html"):
				if old, err := os.ReadDir(html); err == nil && len(old) > 0 {
					return usage("name a folder that is new or empty", "%s is not empty", html)
				}
				return pages.Write(html, universe.Reference(), nil)
			}
			if len(args) == 0 {
				return show(cmd, universe.Reference(), printIndex)
			}
			name := args[0]
			entries := universe.Reference().Find(name)
			says, instead := universe.Reference().Instead(name)
			if len(entries) == 0 && says == "" {
				entries = universe.Reference().Find(strings.TrimPrefix(name, "torch."))
			}
			if len(entries) == 0 && says != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "PyTorch's %s: %s\n", terminal.Escape(name), says)
				entries = instead
			} else if len(entries) == 0 {
				return usage("drun doc lists the modules; drun doc --search "+name+" looks for it everywhere", "there is no builtin %q", name)
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
		fmt.Fprintf(out, "%s%s\n    %s\n", between, title, strings.ReplaceAll(strings.TrimSpace(e.Doc), "\n", "\n    "))
	}
	return nil
}

// printIndex lists the modules and types, each with a line, and the names without a module.
func printIndex(out io.Writer, entries universe.Entries) error {
	var names []string
	for _, kind := range []universe.Kind{universe.KindModule, universe.KindType} {
		fmt.Fprintf(out, "%sS\n", strings.ToUpper(string(kind)))
		for _, e := range entries {
			if e.Kind == kind {
				fmt.Fprintf(out, "  %-17s %s\n", e.Name, e.Summary())
			} else if e.Owner == "" && e.Kind == universe.KindBuiltin && kind == universe.KindType {
				names = append(names, e.Name)
			}
		}
		fmt.Fprintln(out)
	}
	_, err := fmt.Fprintf(out, "WITHOUT A MODULE\n  %s\n\ndrun doc NAME prints what one of these has, drun doc --search TEXT finds what does something.\n", strings.Join(names, " "))
	return err
}

func printFound(out io.Writer, entries universe.Entries) error {
	for _, e := range entries {
		fmt.Fprintf(out, "%-28s %s\n", e.Path(), e.Summary())
	}
	return nil
}
