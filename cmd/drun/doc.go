package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"drun/starlib/universe"
)

func newDoc() *cobra.Command {
	return &cobra.Command{
		Use:   "doc [NAME]",
		Short: "The builtins' reference, also as a stub for editors",
		Long: "Prints every builtin's signature and meaning in Python's syntax, so that the output is also a stub\n" +
			"for editors. NAME is a module (dist), a builtin (dist.all_reduce), a type (Tensor) or a method.",
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			entries := universe.Reference().Find(name)
			if len(entries) == 0 {
				return usage("drun doc lists them all", "there is no builtin %q", name)
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), entries)
			}
			return printStub(cmd.OutOrStdout(), entries)
		},
	}
}

// printStub writes entries as a Python stub: modules and types as classes.
func printStub(out io.Writer, entries []universe.Entry) error {
	var b strings.Builder
	owner := ""
	for _, e := range entries {
		if e.Kind == universe.KindModule || e.Kind == universe.KindType {
			owner = e.Name
			fmt.Fprintf(&b, "class %s:\n%s", e.Name, quoted(e.Doc, "    "))
			continue
		}
		indent := ""
		if e.Owner != "" && e.Owner == owner {
			indent = "    "
		}
		if e.Kind == universe.KindAttribute {
			fmt.Fprintf(&b, "\n%s%s: ...\n%s", indent, e.Signature, quoted(e.Doc, indent))
			continue
		}
		fmt.Fprintf(&b, "\n%sdef %s:\n%s", indent, e.Signature, quoted(e.Doc, indent+"    "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func quoted(doc, indent string) string {
	lines := strings.Split(strings.TrimSpace(doc), "\n")
	return indent + `"""` + strings.Join(lines, "\n"+indent) + `"""` + "\n"
}
