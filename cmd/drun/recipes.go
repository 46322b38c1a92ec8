package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/aymanbagabas/go-udiff"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/engine/recipe"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/starlib/lang"
	"drun/tools/check"
	"drun/tools/format"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check RECIPE.star|FOLDER...",
		Short: "Find faults in recipes without running them",
		Long: "Reads recipes and the files they load, without running them. Errors are unknown names and attributes,\n" +
			"calls whose arguments do not fit, calls that are not allowed at top level, and tensors whose shapes\n" +
			"cannot fit, as far as the source says what they are. Warnings are\n" +
			"collectives under a branch or loop that depends on the rank, where some ranks would wait for\n" +
			"ranks that never come, and parameters that are rebound instead of changed.\n\n" +
			"In a folder, every .star file beneath it is checked, except in folders whose names begin with a dot; a file without\n" +
			"main() is then taken for code that others load. The numbers of files and findings go to stderr.\n\n" +
			"Exit code: 0 no findings, 1 findings, 2 usage (also a recipe that cannot be read).\n" +
			"--json prints a list of {\"file\", \"line\", \"col\", \"severity\", \"message\"}.",
		RunE: runCheck,
	}
}

func runCheck(cmd *cobra.Command, args []string) error {
	c := &checker{recipes: check.NewRecipes(), found: []check.Finding{}, sources: map[string][]byte{}}
	folders := false
	for _, name := range args {
		info, err := os.Stat(name)
		if folder := err == nil && info.IsDir(); folder {
			folders = true
			err = c.folder(name)
		} else {
			b, faults := recipe.ReadAll(name, nil)
			err = c.check(b, faults, false)
			c.files++
		}
		try.Ok(err)
	}
	c.found = check.Sort(c.found)
	try.Ok(show(cmd, c.found, c.print))
	if folders {
		fmt.Fprintf(cmd.ErrOrStderr(), "drun: %s\n", c.summary())
	}
	return failedIf(len(c.found) > 0)
}

// A checker collects what is found in several recipes.
type checker struct {
	recipes *check.Recipes
	files   int // that were named, or lie in a named folder
	found   []check.Finding
	sources map[string][]byte // by the names that findings give files
}

// check checks a recipe, as far as it could be read, or a library, which needs no main. It returns an error if the
// recipe cannot be read.
func (c *checker) check(b *recipe.Bundle, faults []error, library bool) error {
	found, _, err := c.recipes.Inspect(b, faults, library)
	if err != nil {
		return err
	}
	for _, s := range b.Sources {
		c.sources[recipe.Display(b.Name, s.Path)] = s.Content
	}
	c.found = append(c.found, found...)
	return nil
}

var definesMain = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^(def\s+)?main\b`) })

// folder checks the files beneath a folder. A file without main that others load is checked only with them, with the
// names that are predeclared there (testing).
func (c *checker) folder(name string) (err error) {
	defer try.Caught(&err)
	files := try.To(recipesIn(name))
	var bundles []*recipe.Bundle
	faults := map[*recipe.Bundle][]error{}
	for _, file := range files {
		b, found := recipe.ReadAll(file, nil)
		if b == nil {
			return found[0]
		}
		bundles, faults[b] = append(bundles, b), found
	}
	// Files that load others come before them.
	slices.SortStableFunc(bundles, func(a, b *recipe.Bundle) int { return cmp.Compare(len(b.Sources), len(a.Sources)) })
	checked := map[string]bool{} // by absolute path
	path := func(b *recipe.Bundle, file string) string { return filepath.Join(b.Dir, filepath.FromSlash(file)) }
	for _, b := range bundles {
		if s := b.Source(b.Main); checked[path(b, b.Main)] && (s == nil || !definesMain().Match(s.Content)) {
			continue
		}
		for _, s := range b.Sources {
			checked[path(b, s.Path)] = true
		}
		try.Ok(c.check(b, faults[b], true))
	}
	c.files += len(files)
	return nil
}

func (c *checker) summary() string {
	errs := 0
	for _, f := range c.found {
		if f.Severity == check.Error {
			errs++
		}
	}
	return fmt.Sprintf("%s checked: %s, %s", english.Plural(c.files, "file", ""), english.Plural(errs, "error", ""), english.Plural(len(c.found)-errs, "warning", ""))
}

func (c *checker) print(out io.Writer, found []check.Finding) error {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s:%d:%d: %s: %s\n", f.File, f.Line, f.Col, f.Severity, f.Message)
		if lines := strings.Split(string(c.sources[f.File]), "\n"); f.Line > 0 && f.Line <= len(lines) {
			if text := strings.TrimSpace(lines[f.Line-1]); text != "" {
				fmt.Fprintf(&b, "    %s\n", text)
			}
		}
	}
	_, err := io.WriteString(out, terminal.Lines(b.String()))
	return err
}

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
		case asJSON: // the list has the same
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
		files := try.To(recipesOf(name))
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
