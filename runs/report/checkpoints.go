package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"drun/checkpoints"
	"drun/engine/record"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/starlib/checkpoint"
)

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

// Checkpoints lists the checkpoints of a run, or the one that RUN@STEP names; store is nil if nothing was ever
// saved.
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
