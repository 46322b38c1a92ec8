package history

import (
	"database/sql"

	"drun/history/records"
	"drun/internal/try"
)

// The rows of a snapshot in its tables.
type (
	snapshotRow struct {
		ID int64 `json:"id"`
		records.Snapshot
	}
	snapshotRank struct {
		Snapshot int64 `json:"snapshot"`
		records.RankState
	}
	snapshotCall struct {
		Snapshot int64 `json:"snapshot"`
		Rank     int   `json:"rank"`
		Nth      int   `json:"nth"`
		records.PastCall
	}
)

func (r *Run) putSnapshots(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	for _, s := range b.Snapshots {
		result := try.To(tx.Exec("INSERT INTO snapshots (run, time, reason) VALUES (?, ?, ?)", r.ID, formatTime(s.Time), s.Reason))
		id := try.To(result.LastInsertId())
		var ranks []snapshotRank
		var calls []snapshotCall
		for _, k := range s.Ranks {
			ranks = append(ranks, snapshotRank{id, k})
			for i, c := range k.Recent {
				calls = append(calls, snapshotCall{id, k.Rank, i + 1, c})
			}
		}
		try.Ok(insertAll(tx, "", "snapshot_ranks", ranks, ""))
		try.Ok(insertAll(tx, "", "snapshot_calls", calls, ""))
	}
	return nil
}

// LastSnapshot reads the latest snapshot of a run, or nil.
func (db *DB) LastSnapshot(run int64) (*records.Snapshot, error) {
	list, err := db.snapshots(run)
	if len(list) == 0 || err != nil {
		return nil, err
	}
	return &list[len(list)-1], nil
}

// snapshots reads the snapshots of a run, oldest first.
func (db *DB) snapshots(run int64) (_ []records.Snapshot, err error) {
	defer try.Caught(&err)
	const of = " WHERE snapshot IN (SELECT id FROM snapshots WHERE run = ?) ORDER BY snapshot, rank"
	all, err := rows[snapshotRow](db, "snapshots WHERE run = ? ORDER BY id", run)
	if err != nil || len(all) == 0 {
		return []records.Snapshot{}, err
	}
	ranks := try.To(rows[snapshotRank](db, "snapshot_ranks"+of, run))
	calls := try.To(rows[snapshotCall](db, "snapshot_calls"+of+", nth", run))
	type place struct {
		snapshot int64
		rank     int
	}
	recent, states := map[place][]records.PastCall{}, map[int64][]records.RankState{}
	for _, c := range calls {
		at := place{c.Snapshot, c.Rank}
		recent[at] = append(recent[at], c.PastCall)
	}
	for _, k := range ranks {
		k.Recent = append([]records.PastCall{}, recent[place{k.Snapshot, k.Rank}]...)
		states[k.Snapshot] = append(states[k.Snapshot], k.RankState)
	}
	list := make([]records.Snapshot, len(all))
	for i, s := range all {
		list[i] = s.Snapshot
		list[i].Ranks = append([]records.RankState{}, states[s.ID]...)
	}
	return list, nil
}
