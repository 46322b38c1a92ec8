package starlibtest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"drun/starlib/checkpoint"
)

// ErrStopped ends a recipe whose store is set to stop it.
var ErrStopped = errors.New("stopped after a checkpoint")

// Store keeps checkpoints in memory.
type Store struct {
	StopAfter int      // the number of checkpoints after which the recipe ends with ErrStopped; 0: none
	Said      []string // what restores told the user
	// SavedBy pretends that this many ranks saved, with differing values of the names in Differ; 0: one.
	SavedBy int
	Differ  []string

	steps []int64
	parts map[int64][]checkpoint.Item
}

// store is the recipe's store as the modules see it: the Store behind it may be replaced until the recipe runs.
type store Recipe

var _ checkpoint.Store = (*store)(nil)

func (r *store) Save(step int64, _ *float64, _ bool, part []checkpoint.Item) error {
	s := r.Store
	if s.parts == nil {
		s.parts = make(map[int64][]checkpoint.Item)
	}
	kept := make([]checkpoint.Item, len(part))
	for i, item := range part {
		item.Data = slices.Clone(item.Data)
		kept[i] = item
	}
	s.steps, s.parts[step] = append(s.steps, step), kept
	if len(s.steps) == s.StopAfter {
		return ErrStopped
	}
	return nil
}

// Restore returns the part of the last step, or of a number.
func (r *store) Restore(step string) (*checkpoint.Restored, error) {
	s := r.Store
	if len(s.steps) == 0 {
		return nil, nil
	}
	n := s.steps[len(s.steps)-1]
	if step != "last" {
		var err error
		if n, err = strconv.ParseInt(step, 10, 64); err != nil || s.parts[n] == nil {
			return nil, fmt.Errorf("there is no checkpoint of step %s", step)
		}
	}
	return &checkpoint.Restored{Step: n, Run: "run test", Saved: max(s.SavedBy, 1), World: r.Rank.WorldSize, Part: s.parts[n], Differ: s.Differ, First: true}, nil
}

func (r *store) Say(line string) { r.Store.Said = append(r.Store.Said, line) }
