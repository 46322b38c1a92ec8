package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"drun/tools/lsp"
)

func newLSP() *cobra.Command {
	return &cobra.Command{
		Use:   "lsp",
		Short: "Serve editors: the language server for recipes",
		Long: "Speaks the Language Server Protocol on stdin and stdout, for an editor that starts it: diagnostics, completion, hover,\n" +
			"definitions and formatting. docs/editors.md says how to set up VS Code and Neovim.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failedIf(!lsp.New(version(), cmd.ErrOrStderr()).Serve(cmd.Context(), standard{cmd.InOrStdin(), cmd.OutOrStdout()}))
		},
	}
}

// standard is stdin and stdout as one stream.
type standard struct {
	io.Reader
	io.Writer
}

func (s standard) Close() error {
	var err error
	for _, end := range []any{s.Reader, s.Writer} {
		if c, ok := end.(io.Closer); ok {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}
