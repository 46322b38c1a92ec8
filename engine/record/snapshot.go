package record

import (
	"context"
	"slices"

	"drun/collective"
	"drun/engine/board"
	"drun/history"
	"drun/history/records"
)

// Snapshot stores what the ranks were doing, and why that was asked for.
func (r *rows) Snapshot(s *board.Snapshot, reason string) {
	r.writer.add(len(s.Ranks), 0, func(b *history.Batch) { b.Snapshots = append(b.Snapshots, stored(s, reason)) })
}

// answer tells those who ask what the ranks do, in the form that the history would keep.
func (r *rows) answer(doing func(context.Context) (*board.Snapshot, error)) {
	r.run.Answer(func(ctx context.Context) (*records.Snapshot, error) {
		s, err := doing(ctx)
		if s == nil || err != nil {
			return nil, err
		}
		now := stored(s, "asked")
		return &now, nil
	})
}

// stored is a snapshot as the history keeps it.
func stored(s *board.Snapshot, reason string) records.Snapshot {
	out := records.Snapshot{Time: s.At, Reason: reason}
	for _, r := range s.Ranks {
		state := r.State.String()
		if r.Note != "" && r.State == collective.Running {
			state = r.Note
		}
		k := records.RankState{Rank: r.Rank, State: state, Position: place(r.Pos), Seconds: r.For.Seconds(), Recent: []records.PastCall{}}
		if r.Call.Kind != collective.NoKind {
			k.Call, k.Number, k.Group = r.Call.String(), r.Call.Seq, r.Call.Group
		}
		for _, c := range r.Recent {
			p := records.PastCall{Call: c.Description.String(), Number: c.Seq, Group: c.Group, Position: place(c.Pos), Ago: c.Began.Seconds(), Async: c.Async}
			if c.Ended {
				took := c.Took.Seconds()
				p.Seconds = &took
			}
			k.Recent = append(k.Recent, p)
		}
		out.Ranks = append(out.Ranks, k)
	}
	slices.SortFunc(out.Ranks, func(x, y records.RankState) int { return x.Rank - y.Rank })
	return out
}

func place(p collective.Position) string {
	if p.File == "" {
		return ""
	}
	return p.String()
}
