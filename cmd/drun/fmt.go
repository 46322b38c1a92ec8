package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/starlib/lang"
	"drun/tools/format"
)

const maxRecipe = 16 << 20 // bytes; larger files get an error of their own

func newFmt() *cobra.Command {
	var f formatting
	cmd := &cobra.Command{
		Use:   "fmt FILE.star|FOLDER...",
		Short: "Format recipes in one standard layout",
		Long: "Formats recipes as buildifier does: spaces, line breaks and quotes change, but not what a recipe means. Prints the\n" +
			"names of the files that were changed. A folder stands for every .star file beneath it; - reads stdin and writes\n" +
			"stdout. -d prints what would change, --check only the names, and neither writes anything.\n\n" +
			"Exit code: 0, or 1 if a file has a syntax error, or if --check or -d found a file that would change. The other files\n" +
			"are formatted all the same. --json prints a list of {\"file\", \"changed\", \"error\"}.",
		RunE: f.run,
	}
	cmd.Flags().BoolVarP(&f.diff, "diff", "d", false, "print the lines that would change, and write nothing")
	cmd.Flags().BoolVar(&f.check, "check", false, "print the names of files that would change, and write nothing")
	return cmd
}

type formatting struct{ diff, check bool }

// formatted is the result for a file.
type formatted struct {
	File    string `json:"file"`
	Changed bool   `json:"changed"`
	Error   string `json:"error,omitempty"`
}

func (f *formatting) run(cmd *cobra.Command, args []string) (err error) {
	defer try.Caught(&err)
	files := try.To(recipesIn(args...))
	var list []formatted
	failed, asJSON := false, wantsJSON(cmd) && !f.diff
	for _, file := range files {
		one := formatted{File: file}
		if one.Changed, err = f.file(cmd, file); err != nil {
			if located := (*lang.Error)(nil); !errors.As(err, &located) && exit.CodeOf(err) == exit.Usage {
				return err
			}
			one.Error = err.Error()
		}
		failed = failed || err != nil || one.Changed && (f.check || f.diff)
		switch {
		case asJSON: // the list says it
		case err != nil:
			fmt.Fprintf(cmd.ErrOrStderr(), "drun: %s\n", terminal.Lines(err.Error()))
		case one.Changed && !f.diff && file != "-":
			fmt.Fprintln(cmd.OutOrStdout(), terminal.Escape(file))
		}
		list = append(list, one)
	}
	if asJSON {
		try.Ok(printJSON(cmd.OutOrStdout(), list))
	}
	return failedIf(failed)
}

// file formats a file, and reports whether that changes it.
func (f *formatting) file(cmd *cobra.Command, name string) (changed bool, err error) {
	var src []byte
	shown := name
	if name == "-" {
		shown = "stdin"
		src, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxRecipe))
	} else {
		src, err = os.ReadFile(name)
	}
	if err != nil {
		return false, usage("", "%v", err)
	}
	out, err := format.Source(shown, src)
	if err != nil {
		return false, err
	}
	changed = !bytes.Equal(src, out)
	switch {
	case f.diff:
		_, err = io.WriteString(cmd.OutOrStdout(), paintDiff(cmd.OutOrStdout(), udiff.Unified(shown, shown, string(src), string(out))))
	case f.check:
	case name == "-":
		_, err = cmd.OutOrStdout().Write(out)
	case changed:
		err = replace(name, out)
	}
	return changed, err
}

// replace writes a file atomically, keeping its mode; a link stays a link.
func replace(name string, content []byte) (err error) {
	defer try.Caught(&err)
	name = try.To(filepath.EvalSymlinks(name))
	info := try.To(os.Stat(name))
	_, err = create(name, info.Mode().Perm(), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	return err
}

// recipesIn lists files, and the recipes beneath folders, each once.
func recipesIn(names ...string) ([]string, error) {
	var all []string
	listed := map[string]bool{}
	for _, name := range names {
		files, err := recipesOf(name)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if !listed[filepath.Clean(file)] {
				listed[filepath.Clean(file)] = true
				all = append(all, file)
			}
		}
	}
	return all, nil
}

// recipesOf lists a file, or the recipes beneath a folder.
func recipesOf(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return nil, usage("", "%s: %v", name, p.Err)
	}
	if err != nil || !info.IsDir() {
		if err == nil && !info.Mode().IsRegular() {
			return nil, usage("", "%s is not a regular file", name)
		}
		return []string{name}, err
	}
	var files []string
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != name && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() && filepath.Ext(path) == ".star" {
			files = append(files, path)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		return nil, usage("", "%s has no .star files", name)
	}
	return files, err
}
