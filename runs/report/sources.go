package report

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"drun/history"
	"drun/history/records"
	"drun/internal/try"
)

// File is a captured file in the form of `drun source --json`.
type File struct {
	records.Source
	Content string `json:"content"`
}

// Files returns the captured files of a run, in their order.
func Files(sources []records.Source) []File {
	files := []File{}
	for _, s := range sources {
		files = append(files, File{s, string(s.Content)})
	}
	return files
}

// SourceDiff is a unified diff of the files that two runs were made from. The two recipes count as the same file,
// whatever their paths.
func SourceDiff(db *history.DB, a, b int64) (_ string, err error) {
	defer try.Caught(&err)
	old := try.To(db.Sources(a))
	now := try.To(db.Sources(b))
	key := func(s records.Source) string {
		if s.Role == "recipe" {
			return "recipe"
		}
		return s.Path
	}
	var keys []string
	sides := [2]map[string]records.Source{{}, {}}
	for i, list := range [][]records.Source{old, now} {
		for _, s := range list {
			if _, known := sides[0][key(s)]; !known || i == 0 {
				keys = append(keys, key(s))
			}
			sides[i][key(s)] = s
		}
	}
	var out strings.Builder
	for _, k := range keys {
		names, contents := [2]string{}, [2]string{}
		for i, id := range []int64{a, b} {
			s, has := sides[i][k]
			names[i], contents[i] = fmt.Sprintf("run %d: %s", id, s.Path), string(s.Content)
			if !has {
				names[i] = "/dev/null"
			}
		}
		out.WriteString(udiff.Unified(names[0], names[1], contents[0], contents[1]))
	}
	return out.String(), nil
}

// Comparison is how runs differ; for two runs, with the differing lines of their recipes.
type Comparison struct {
	*history.Comparison
	Diff string `json:"recipe_diff"`
}

// Compare compares the runs with these ids.
func Compare(db *history.DB, ids []int64) (*Comparison, error) {
	c, err := db.Compare(ids)
	if err != nil {
		return nil, err
	}
	diff := ""
	if len(ids) == 2 {
		diff, err = SourceDiff(db, ids[0], ids[1])
	}
	return &Comparison{c, diff}, err
}
