package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/peterh/liner"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"drun/internal/exit"
	"drun/internal/try"
	"drun/tools/lsp"
	"drun/tools/repl"
)

func newRepl() *cobra.Command {
	var o repl.Options
	var seed int64
	cmd := &cobra.Command{
		Use:   "repl [RECIPE.star]",
		Short: "Evaluate expressions at a prompt",
		Long: "A prompt for tensors and everything else that recipes have, on one rank. The value of an expression is printed, and\n" +
			"is then the value of _. A block ends with an empty line. With a recipe, its top level is executed first, and what it\n" +
			"defines can be used. Nothing is recorded. Ctrl-C stops the current computation, or drops the line; Ctrl-D ends the\n" +
			"prompt. Tab completes names. Lines are kept in $XDG_STATE_HOME/drun/repl (~/.local/state/drun/repl).\n\n" +
			"Statements may also come through a pipe; the exit code is then 1 if one of them failed.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Seed, o.Out, o.Err = uint64(seed), cmd.OutOrStdout(), cmd.ErrOrStderr()
			s := try.To(repl.New(o))
			defer s.Close()
			ok := true
			if len(args) == 1 && !s.Load(args[0]) {
				return exitStatus(exit.Recipe)
			}
			in, isFile := cmd.InOrStdin().(*os.File)
			if isFile && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
				return converse(s, cmd.OutOrStdout())
			}
			lines := bufio.NewReader(cmd.InOrStdin())
			for {
				src, err := repl.Read(func() (string, error) {
					line, err := lines.ReadString('\n')
					if line != "" {
						err = nil
					}
					return strings.TrimSuffix(line, "\n"), err
				})
				if errors.Is(err, io.EOF) {
					break
				}
				try.Ok(err)
				ok = s.Execute(src, nil) && ok
			}
			return failedIf(!ok)
		},
	}
	cmd.Flags().Int64Var(&seed, "seed", 0, "seed of all random numbers")
	cmd.Flags().StringArrayVar(&o.DataDirs, "data", nil, "another `folder` that may be read, besides the working directory (repeatable)")
	return cmd
}

// converse runs the prompt on a terminal.
func converse(s *repl.Session, out io.Writer) error {
	line := liner.NewLiner()
	defer line.Close()
	line.SetCtrlCAborts(true)
	line.SetWordCompleter(func(text string, pos int) (head string, words []string, tail string) {
		return s.Complete(text, pos)
	})
	kept := linesFile()
	if f, err := os.Open(kept); err == nil {
		_, _ = line.ReadHistory(f) // an unreadable history counts as none
		f.Close()
	}
	defer keepLines(line, kept)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)
	for {
		prompt := ">>> "
		src, err := repl.Read(func() (string, error) {
			text, err := line.Prompt(prompt)
			prompt = "... "
			if err == nil && strings.TrimSpace(text) != "" {
				line.AppendHistory(text)
			}
			return text, err
		})
		switch {
		case errors.Is(err, liner.ErrPromptAborted):
			fmt.Fprintln(out)
			continue
		case errors.Is(err, io.EOF):
			fmt.Fprintln(out)
			return nil
		case err != nil:
			return err
		}
		select {
		case <-signals: // a signal that came too late for its line
		default:
		}
		s.Execute(src, signals)
	}
}

// linesFile returns the file with the lines of earlier prompts; "" if there is no home folder.
func linesFile() string {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "drun", "repl")
}

// keepLines saves the lines for the next prompt, if it can.
func keepLines(line *liner.State, file string) {
	if file == "" || os.MkdirAll(filepath.Dir(file), 0o700) != nil {
		return
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = line.WriteHistory(f)
}

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
