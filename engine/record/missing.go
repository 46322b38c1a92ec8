package record

import (
	"path/filepath"
	"slices"
	"strconv"

	"drun/checkpoints"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
)

// Missing lists the checkpoints of a run that the history has and the catalog does not, in the order of saving: the
// catalog is damaged or an older one, or a removal was interrupted. If the run's drun was killed, --keep may have
// removed others, so only the newest and the best are listed.
func Missing(run *history.Summary, list []checkpoints.Info) (missing []history.Checkpoint) {
	missing = unlisted(run.Checkpoints, list)
	if run.Status != history.Lost {
		return missing
	}
	newest, best := newestMissing(run.Checkpoints, list), bestMissing(run.Checkpoints, list)
	return slices.DeleteFunc(missing, func(c history.Checkpoint) bool {
		return (newest == nil || newest.Step != c.Step) && (best == nil || best.Step != c.Step)
	})
}

func unlisted(had []history.Checkpoint, list []checkpoints.Info) (missing []history.Checkpoint) {
	for _, c := range had {
		if !slices.ContainsFunc(list, func(i checkpoints.Info) bool { return i.Step == c.Step }) {
			missing = append(missing, c)
		}
	}
	slices.SortFunc(missing, func(a, b history.Checkpoint) int { return a.Time.Compare(b.Time) })
	return missing
}

// MissingError says that a checkpoint is missing.
func MissingError(home, run string, step int64) error {
	return exit.WithHint(exit.Errorf(exit.Storage, "%s@%d is in the history, but not in %s: that file is damaged or was replaced, or a removal was cut short", run, step, filepath.Join(home, "checkpoints.db")),
		"put the right checkpoints.db back, or let drun gc take what is missing out of the history")
}

// MissingAt returns the checkpoint that a step's number, last (or nothing) or best would have named, if it is
// missing.
func MissingAt(run *history.Summary, list []checkpoints.Info, step string) *history.Checkpoint {
	switch step {
	case "", "last":
		return newestMissing(run.Checkpoints, list)
	case "best":
		return bestMissing(run.Checkpoints, list)
	}
	for _, c := range unlisted(run.Checkpoints, list) {
		if strconv.FormatInt(c.Step, 10) == step {
			return &c
		}
	}
	return nil
}

// newestMissing returns what would have been the newest, if it is missing.
func newestMissing(had []history.Checkpoint, list []checkpoints.Info) *history.Checkpoint {
	missing := unlisted(had, list)
	if len(missing) == 0 {
		return nil
	}
	last := missing[len(missing)-1]
	for _, c := range had {
		if c.Time.After(last.Time) {
			return nil
		}
	}
	return &last
}

// bestMissing returns what would have been the best by score, if it is missing.
func bestMissing(had []history.Checkpoint, list []checkpoints.Info) *history.Checkpoint {
	var best *history.Checkpoint
	for _, c := range unlisted(had, list) {
		if c.Score != nil && (best == nil || *c.Score >= *best.Score) {
			best = &c
		}
	}
	for _, i := range list {
		if best != nil && i.Score != nil && records.Float(*i.Score) > *best.Score {
			return nil
		}
	}
	return best
}
