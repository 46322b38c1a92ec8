package checkpoints

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"drun/internal/each"
	"drun/internal/try"
)

// Sum is a SHA-256 over everything that the ranks have saved in a checkpoint, and its score; not over its step or its run,
// so that the same state has the same sum in a replay. It is computed from the SHA-256 of the chunks, without reading them.
func (s *Store) Sum(run string, ref Ref) (_ string, err error) {
	defer try.Caught(&err)
	info := try.To(s.Find(run, ref))
	_, plans := try.To2(s.plan(run, info.Ref(), ranksOf(info)))
	sum := sha256.New()
	score := ""
	if info.Score != nil {
		score = strconv.FormatFloat(*info.Score+0, 'g', -1, 64) // SQLite has no -0
	}
	fmt.Fprintf(sum, "%d %s\n", len(plans), score)
	for rank, plan := range plans {
		for _, e := range plan {
			fmt.Fprintf(sum, "%d %q %q %q %d %d %s\n", rank, e.Name, e.Kind, e.DType, e.Shape, e.bytes, e.sums())
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// ViewAll is View of all ranks.
func (s *Store) ViewAll(info Info) (*View, error) { return s.View(info.Run, info.Ref(), ranksOf(info)) }

func ranksOf(info Info) []int {
	return each.UpTo(info.WorldSize, func(rank int) int { return rank })
}
