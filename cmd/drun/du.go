package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/try"
)

// runSize is how many bytes a run takes. All but Shared go with it.
type runSize struct {
	ID          int64          `json:"id"`
	Name        string         `json:"name"`
	Status      history.Status `json:"status"`
	Trashed     *time.Time     `json:"trashed,omitempty"`
	Checkpoints int64          `json:"checkpoints"`
	Artifacts   int64          `json:"artifacts"`
	Files       int64          `json:"files"`
	Shared      int64          `json:"shared"` // of checkpoints and artifacts that other runs need, too
}

func (r *runSize) own() int64 { return r.Checkpoints + r.Artifacts + r.Files }

type homeSize struct {
	Runs  []runSize        `json:"runs"`
	Files map[string]int64 `json:"files"` // of the files and folders in the home
	Bytes int64            `json:"bytes"`
}

func newDu() *cobra.Command {
	return &cobra.Command{
		Use:        "du",
		SuggestFor: []string{"size", "usage", "df"},
		Short:      "Show how much disk space the runs take",
		Long: `Shows how much disk space each run takes, the largest first, and the files of the home. CHECKPOINTS, ARTIFACTS and FILES
(of checkpoint.save_file) are what drun rm and drun gc would free for a run; SHARED are checkpoints and artifacts that
equal those of other runs, and are stored once for all of them. Parameters, metrics and logs are in history.db, and not
counted for any run. Data that no checkpoint needs any more stays in checkpoints until drun gc.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			db := try.To(openHistory(cmd))
			defer db.Close()
			store := try.To(checkpoints.OpenIfAny(homeOf(cmd)))
			defer store.Close()
			return show(cmd, try.To(measure(homeOf(cmd), db, store)), printSizes)
		},
	}
}

// measure finds how much space the runs and files of a home take. The store is nil if nothing was ever saved.
func measure(home string, db *history.DB, store *checkpoints.Store) (*homeSize, error) {
	all := append(try.To(db.Select(history.Selection{})), try.To(db.Select(history.Selection{Trashed: true}))...)
	saved, savedShared := try.To2(store.RunBytes())
	kept, keptShared := try.To2(db.ArtifactBytes())
	sizes := &homeSize{Runs: []runSize{}, Files: map[string]int64{}}
	for _, r := range all {
		files := try.To(bytesIn(filepath.Join(home, "outputs", whole(r.ID))))
		run := runSize{r.ID, r.Name, r.Status, r.Trashed, saved[r.UID], kept[r.ID], files, savedShared[r.UID] + keptShared[r.ID]}
		if run.own()+run.Shared > 0 {
			sizes.Runs = append(sizes.Runs, run)
		}
	}
	slices.SortStableFunc(sizes.Runs, func(a, b runSize) int { return cmp.Or(cmp.Compare(b.own(), a.own()), cmp.Compare(b.Shared, a.Shared)) })
	for _, name := range []string{"history.db", "checkpoints.db", "checkpoints", "outputs", "spool", "replaced"} {
		bytes := try.To(bytesIn(filepath.Join(home, name))) + try.To(bytesIn(filepath.Join(home, name+"-wal")))
		sizes.Files[name] = bytes
		sizes.Bytes += bytes
	}
	return sizes, nil
}

// bytesIn adds up a file, or the files in a folder; 0: there is none.
func bytesIn(path string) (bytes int64, err error) {
	files, err := outputFiles(path)
	for _, f := range files {
		bytes += f.Bytes
	}
	return bytes, err
}

func printSizes(out io.Writer, sizes *homeSize) error {
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	try.Ok(printList(out, sizes.Runs, []column[runSize]{
		{"ID", func(r runSize) any { return whole(r.ID) }},
		{"NAME", func(r runSize) any { return r.Name }},
		{"STATUS", func(r runSize) any {
			if r.Trashed != nil {
				return "in the trash"
			}
			return painterFor(out).status(r.Status)
		}},
		{"CHECKPOINTS", func(r runSize) any { return size(r.Checkpoints) }},
		{"ARTIFACTS", func(r runSize) any { return size(r.Artifacts) }},
		{"FILES", func(r runSize) any { return size(r.Files) }},
		{"SHARED", func(r runSize) any { return size(r.Shared) }},
	}))
	fmt.Fprintf(out, "\nthe home takes %s:", size(sizes.Bytes))
	for _, name := range slices.Sorted(maps.Keys(sizes.Files)) {
		fmt.Fprintf(out, " %s %s;", name, size(sizes.Files[name]))
	}
	_, err := fmt.Fprintln(out, " drun gc frees what nothing needs")
	return err
}
