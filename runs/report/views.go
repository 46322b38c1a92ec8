// Package report makes what people and programs are shown of the history and the checkpoints: the values that the
// command line prints as JSON with --json and the pages of drun ui fetch.
package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"drun/checkpoints"
	"drun/engine/record"
	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/starlib/checkpoint"
)

// JSON writes a value and a line end, on one line if indent is empty. It escapes characters that would control a
// terminal.
func JSON(out io.Writer, v any, indent string) error {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(out, terminal.JSON(b.String()))
	return err
}

// Find finds the runs that refs name, in their order.
func Find(refs []string, find func(ref string) (id int64, err error)) ([]int64, error) {
	ids := make([]int64, len(refs))
	for i, ref := range refs {
		var err error
		if ids[i], err = find(ref); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Points returns the points of a run's metrics, of all or of those with the names: with lineage also those of the runs
// that it was resumed from, with an attempt from 0 what that attempt recorded, and with most above 0 at most so many of
// each metric and rank.
func Points(db *history.DB, id int64, names []string, lineage bool, attempt, most int) (list []records.Point, err error) {
	switch {
	case lineage:
		list, err = db.LineagePoints(id, names...)
	case attempt >= 0:
		list, err = db.AttemptPoints(id, attempt, names...)
	default:
		list, err = db.Points(id, names...)
	}
	if most > 0 {
		list = history.Downsample(list, most)
	}
	return list, err
}

// Suffixes end the names of files with artifacts, by their kind.
var Suffixes = map[string]string{"text": ".txt", "tensor": ".safetensors", "image": ".png", "histogram": ".json", "table": ".json"}

// Ranks is what the ranks of a run do now, or did when the history was last told.
type Ranks struct {
	Live     bool              `json:"live"`    // the run goes on, and its agent has answered
	Problem  string            `json:"problem"` // why the agent has not answered; "" if it has, or the run has ended
	Hint     string            `json:"hint"`
	Snapshot *records.Snapshot `json:"snapshot"` // nil: the ranks have not started, or the history has none
}

// Doing tells what the ranks of a run do. It asks a running run, which costs that next to nothing. For any other
// run, or one that does not answer, it returns the latest snapshot in the history.
func Doing(ctx context.Context, db *history.DB, id int64) (_ *Ranks, err error) {
	defer try.Caught(&err)
	found := try.To(db.Select(history.Selection{IDs: []int64{id}}))
	r := &Ranks{}
	if len(found) > 0 && found[0].Status == history.Running {
		s, silent := db.Doing(ctx, id)
		if silent == nil {
			r.Live, r.Snapshot = true, s
			return r, nil
		}
		if !errors.As(silent, new(*history.SilentError)) {
			return nil, silent
		}
		found = try.To(db.Select(history.Selection{IDs: []int64{id}}))
		if len(found) > 0 && found[0].Status == history.Running { // it has not ended since
			r.Problem, r.Hint = silent.Error(), exit.HintOf(silent)
		}
	}
	r.Snapshot, err = db.LastSnapshot(id)
	return r, err
}

// File is a captured file in the form of `drun source --json`.
type File struct {
	records.Source
	Content string `json:"content"`
}

// Files returns the captured files of a run, in their order.
func Files(sources []records.Source) []File {
	return each.Of(sources, func(s records.Source) File { return File{s, string(s.Content)} })
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

// Kept is a checkpoint in a list.
type Kept struct {
	Step     int64          `json:"step"`
	Bytes    int64          `json:"bytes"`
	Score    *records.Float `json:"score"`
	Time     time.Time      `json:"time"`
	Best     bool           `json:"best"`
	Verified *bool          `json:"verified"`          // nil: not checked
	Missing  bool           `json:"missing,omitempty"` // only the history has it

	Run  history.Summary  `json:"-"`
	Info checkpoints.Info `json:"-"`
}

func (k Kept) String() string { return fmt.Sprintf("%s@%d", k.Run.Name, k.Step) }

// Checkpoints lists the checkpoints of a run, or the one that RUN@STEP names; store is nil if nothing was ever saved.
func Checkpoints(db *history.DB, store *checkpoints.Store, spec string) (list []Kept, err error) {
	defer try.Caught(&err)
	name, step, one := strings.Cut(spec, "@")
	id := try.To(db.Find(name))
	ref, err := checkpoints.ParseRef(step)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "%s: %s", spec, err)
	}
	show := try.To(db.Get(id))
	list = []Kept{}
	infos := try.To(store.List(show.UID))
	best, err := store.Find(show.UID, checkpoints.Best)
	var wanted checkpoints.Info
	if err == nil || errors.As(err, new(*checkpoints.ErrNone)) {
		wanted, err = store.Find(show.UID, ref)
	}
	if err != nil && !errors.As(err, new(*checkpoints.ErrNone)) {
		return nil, err
	}
	missing := record.Missing(&show.Summary, infos)
	if one {
		missing = nil
		if c := record.MissingAt(&show.Summary, infos, step); c != nil {
			missing, infos = []history.Checkpoint{*c}, nil
		}
	}
	if show.Status == history.Running {
		missing = nil // it may be removing some at this moment
	}
	for _, info := range infos {
		if !one || info.Same(wanted) {
			list = append(list, Kept{Step: info.Step, Bytes: info.Bytes, Score: (*records.Float)(info.Score), Time: info.Time,
				Best: info.Same(best), Run: show.Summary, Info: info})
		}
	}
	for _, c := range missing {
		list = append(list, Kept{Step: c.Step, Bytes: c.Bytes, Score: c.Score, Time: c.Time, Missing: true, Run: show.Summary})
	}
	if one && len(list) == 0 {
		return nil, &history.NotFound{What: spec + ": the run has no such checkpoint", Near: "drun checkpoints " + name + " lists them"}
	}
	return list, nil
}

// Tensors returns what a rank saved in a checkpoint. If the ranks saved different tensors, chosen must say that the
// user chose the rank.
func Tensors(store *checkpoints.Store, k Kept, rank int, chosen bool) (_ []checkpoint.Item, err error) {
	defer try.Caught(&err)
	if rank < 0 || rank >= k.Info.WorldSize {
		return nil, exit.Errorf(exit.Usage, "--rank %d: %s has the ranks 0 to %d", rank, k, k.Info.WorldSize-1)
	}
	_, entries := try.To2(store.Load(k.Info.Run, k.Info.Ref(), rank))
	differ := try.To(store.Differing(k.Info.Run, k.Info.Ref()))
	items := make([]checkpoint.Item, len(entries))
	for i, e := range entries {
		if e.DType != "" && slices.Contains(differ, e.Name) && !strings.HasPrefix(e.Name, "/") && !chosen {
			return nil, exit.WithHint(exit.Errorf(exit.Usage, "%s: the ranks have different tensors %s", k, e.Name), "--rank 0 writes those of rank 0")
		}
		items[i] = checkpoint.Item{Name: e.Name, DType: e.DType, Shape: e.Shape, Data: e.Data}
	}
	return items, nil
}

// Gone returns the error for a checkpoint that only the history has, or nil.
func (k Kept) Gone(home string) error {
	if !k.Missing {
		return nil
	}
	return record.MissingError(home, k.Run.Name, k.Step)
}
