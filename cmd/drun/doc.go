package main

import (
	"github.com/spf13/cobra"

	"drun/starlib/universe"
)

func newDoc() *cobra.Command {
	return &cobra.Command{
		Use:   "doc [NAME]",
		Short: "Print the reference of the builtins, also as a stub for editors",
		Long: "Prints every builtin's signature and docstring as a Python stub, which editors understand. Modules and\n" +
			"types are classes there; builtins that Python has too, such as len, are left out unless you name them.\n" +
			"NAME is a module (dist), a builtin (dist.all_reduce), a type (Tensor) or a method.",
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
			return show(cmd, entries, printStub)
		},
	}
}
