package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
)

// listed is an artifact, or a file that the run wrote beside the history.
type listed struct {
	records.Artifact
	Path string `json:"path,omitempty"` // of the file
}

func newArtifacts() *cobra.Command {
	var step int64
	var kind, output, save string
	cmd := &cobra.Command{
		Use:   "artifacts RUN [NAME]",
		Short: "List and save what a run has kept",
		Long: `Lists what a recipe has kept with run.artifact, image, histogram and table, and the files that it wrote with
checkpoint.save_file. --save DIR writes everything into a folder, under safe names; with NAME, --output
writes one to a file, or to stdout with --output -.`,
		Example: `  drun artifacts last
  drun artifacts last samples --step 9 --output samples.png
  drun artifacts last --save kept`,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen := cmd.Flags().Changed("step")
			switch {
			case len(args) == 1 && (output != "" || chosen || kind != ""):
				return usage("drun artifacts RUN NAME --output FILE", "--output, --step and --kind want the name of one artifact")
			case len(args) == 2 && save != "":
				return usage("", "--save writes all that was kept: give no name")
			case len(args) == 2 && output == "":
				return usage("--output - writes to stdout", "where to? give --output FILE")
			}
			return withRun(cmd, args[0], func(db *history.DB, id int64) error {
				all := try.To(db.Artifacts(id))
				switch {
				case save != "":
					return exit.WithCode(saveArtifacts(cmd, db, all, save), exit.Storage)
				case len(args) == 2:
					var found *records.Artifact // the newest, or that of the step
					for i := range all {
						a := &all[i]
						if a.Name != args[1] || chosen && (a.Step == nil || *a.Step != step) || kind != "" && a.Kind != kind {
							continue
						}
						if found != nil && found.Kind != a.Kind {
							return usage("choose one with --kind "+found.Kind+" or --kind "+a.Kind, "run %d has several kinds of artifact named %q", id, args[1])
						}
						found = a
					}
					if found == nil {
						return absent(cmd, all, id, args[1], kind, chosen, step)
					}
					return writeArtifact(cmd, db, found, output)
				}
				out := make([]listed, len(all))
				for i := range all {
					out[i].Artifact = all[i]
				}
				files := try.To(outputFiles(filepath.Join(homeOf(cmd), "outputs", strconv.FormatInt(id, 10))))
				return show(cmd, append(out, files...), printArtifacts)
			})
		},
	}
	cmd.Flags().Int64Var(&step, "step", 0, "the artifact of step `N` (default: the newest)")
	cmd.Flags().StringVar(&kind, "kind", "", "the artifact of this `kind`, if several have the name: bytes, text, tensor, image, histogram or table")
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the artifact to a `file`; -: to stdout")
	cmd.Flags().StringVar(&save, "save", "", "write all artifacts into a `folder`")
	return cmd
}

// absent is the error for an artifact that the run has not kept: it names those that exist, or a file of that name.
func absent(cmd *cobra.Command, all []records.Artifact, id int64, name, kind string, chosen bool, step int64) error {
	problem := fmt.Sprintf("run %d has kept no %s%q%s", id, strings.TrimPrefix(kind+" ", " "), name, atStep(chosen, step))
	files := try.To(outputFiles(filepath.Join(homeOf(cmd), "outputs", strconv.FormatInt(id, 10))))
	for _, f := range files {
		if f.Name == name {
			return usage("the recipe wrote it with checkpoint.save_file: copy "+f.Path, "%s, but a file of that name", problem)
		}
	}
	var names, steps []string
	for _, a := range all {
		if a.Name == name && a.Step != nil {
			steps = append(steps, whole(*a.Step))
		}
		if !slices.Contains(names, a.Name) {
			names = append(names, a.Name)
		}
	}
	hint := "it has kept " + strings.Join(names, ", ")
	if len(names) == 0 {
		hint = "it has kept nothing: run.artifact, image, histogram and table keep things"
	} else if slices.Contains(names, name) {
		hint = "it has kept " + name + " in another form, or without a step"
		if len(steps) > 0 {
			hint = "it has kept " + name + " at the steps " + strings.Join(steps, ", ")
		}
	}
	return usage(shorten(hint, longestHint), "%s", problem)
}

const longestHint = 300

func atStep(chosen bool, step int64) string {
	if !chosen {
		return ""
	}
	return fmt.Sprintf(" at step %d", step)
}

func outputFiles(folder string) (files []listed, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		files = append(files, listed{records.Artifact{Name: name, Kind: "file", Bytes: info.Size(), Time: info.ModTime().UTC()}, path})
		return err
	})
	return files, err
}

func printArtifacts(out io.Writer, list []listed) error {
	return printList(out, list, []column[listed]{
		{"NAME", func(a listed) any { return a.Name }},
		{"STEP", func(a listed) any { return known(a.Step, whole) }},
		{"KIND", func(a listed) any { return a.Kind }},
		{"BYTES", func(a listed) any { return humanize.IBytes(uint64(a.Bytes)) }},
		{"KEPT", func(a listed) any { return localTime(a.Time) }},
		{"SHA-256, OR FILE", func(a listed) any { return cmp.Or(a.Path, a.SHA256) }},
	})
}

func writeArtifact(cmd *cobra.Command, db *history.DB, a *records.Artifact, output string) error {
	data, err := db.Content(a)
	if err != nil {
		return exit.WithCode(err, exit.Storage)
	}
	if output == "-" {
		if out := cmd.OutOrStdout(); terminal.Is(out) {
			if a.Kind != "text" && a.Kind != "table" && a.Kind != "histogram" {
				return usage("--output FILE, or a pipe", "%s is %s, and stdout is a terminal", a.Name, a.Kind)
			}
			data = []byte(terminal.Lines(string(data)))
		}
		_, err = cmd.OutOrStdout().Write(data)
		return err
	}
	return exit.WithCode(os.WriteFile(output, data, 0o666), exit.Storage)
}

// saveArtifacts writes all artifacts into a folder, and never over an existing file.
func saveArtifacts(cmd *cobra.Command, db *history.DB, all []records.Artifact, folder string) (err error) {
	defer try.Caught(&err)
	try.Ok(os.MkdirAll(folder, 0o777))
	for i := range all {
		a := &all[i]
		path := try.To(createNew(filepath.Join(folder, fileName(a)), try.To(db.Content(a))))
		fmt.Fprintln(cmd.OutOrStdout(), terminal.Line(path))
	}
	return nil
}

// createNew writes a new file, with a number in its name if that exists already.
func createNew(path string, data []byte) (name string, err error) {
	suffix := filepath.Ext(path)
	name = path
	for n := 2; ; n++ {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if err == nil {
			_, err = file.Write(data)
			return name, errors.Join(err, file.Close())
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		name = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, suffix), n, suffix)
	}
}

// fileName returns a file name for an artifact that cannot lead to another folder, whatever the recipe called it.
func fileName(a *records.Artifact) string {
	plain := regexp.MustCompile(`[^a-zA-Z0-9._-]`).ReplaceAllString(a.Name, "_")
	if plain = strings.TrimLeft(plain, ".-"); plain == "" {
		plain = "_"
	}
	if a.Step != nil {
		suffix := filepath.Ext(plain)
		plain = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(plain, suffix), *a.Step, suffix)
	}
	if suffix := report.Suffixes[a.Kind]; filepath.Ext(plain) == "" || suffix != "" && a.Kind != "text" && filepath.Ext(plain) != suffix {
		plain += suffix
	}
	return plain
}
