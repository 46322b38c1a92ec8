package history

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"drun/history/records"
	"drun/internal/sqldb"
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
func (db *DB) snapshots(run int64) ([]records.Snapshot, error) {
	all, err := snapshotsIn(db.sql, run)
	return all, sqldb.Wrap(db.path, err)
}

func snapshotsIn(in sqldb.Queryer, run int64) (_ []records.Snapshot, err error) {
	defer try.Caught(&err)
	const of = " WHERE snapshot IN (SELECT id FROM snapshots WHERE run = ?) ORDER BY snapshot, rank"
	all, err := rowsIn[snapshotRow](in, "snapshots WHERE run = ? ORDER BY id", run)
	if err != nil || len(all) == 0 {
		return []records.Snapshot{}, err
	}
	ranks := try.To(rowsIn[snapshotRank](in, "snapshot_ranks"+of, run))
	calls := try.To(rowsIn[snapshotCall](in, "snapshot_calls"+of+", nth", run))
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

// Usage returns the samples of a run, ordered by attempt, rank and time.
func (db *DB) Usage(run int64) ([]records.Usage, error) {
	return rows[records.Usage](db, "rank_usage WHERE run = ? ORDER BY attempt, rank, time", run)
}

// RankUsage sums up what a rank used in all attempts.
type RankUsage struct {
	Rank        int     `json:"rank"`
	CPU         float64 `json:"cpu"` // in seconds, as are the others
	Peak        int64   `json:"peak"`
	Collectives float64 `json:"collectives"`
	Waiting     float64 `json:"waiting"`

	MachineCPU      float64 `json:"machine_cpu" db:",null"` // of the whole machine, if the rank is its node's first
	MachineMemory   int64   `json:"machine_memory" db:",null"`
	MachineSent     int64   `json:"machine_sent" db:",null"`
	MachineReceived int64   `json:"machine_received" db:",null"`
}

func (db *DB) rankUsage(run int64) ([]RankUsage, error) {
	return rows[RankUsage](db, `(SELECT rank, sum(cpu) AS cpu, max(peak) AS peak, sum(collectives) AS collectives, sum(waiting) AS waiting,
				sum(machine_cpu) AS machine_cpu, max(machine_memory) AS machine_memory, sum(machine_sent) AS machine_sent, sum(machine_received) AS machine_received FROM
			(SELECT rank, max(cpu) AS cpu, max(peak) AS peak, max(collectives) AS collectives, max(waiting) AS waiting,
				max(machine_cpu) AS machine_cpu, max(machine_memory) AS machine_memory, max(machine_sent) AS machine_sent, max(machine_received) AS machine_received
			FROM rank_usage WHERE run = ? GROUP BY attempt, rank) GROUP BY rank) ORDER BY rank`, run)
}

// Digests returns the digests of each rank's parameters, by rank and number of the update, of the latest attempt
// that made the update.
func (db *DB) Digests(run int64) ([]map[int64][records.DigestSize]byte, error) {
	var byRank []map[int64][records.DigestSize]byte
	err := db.read(func(rows *sql.Rows) error {
		var u records.Updates
		try.Ok(rows.Scan(&u.Rank, &u.First, &u.Digests))
		for len(byRank) <= u.Rank {
			byRank = append(byRank, map[int64][records.DigestSize]byte{})
		}
		for part := range slices.Chunk(u.Digests, records.DigestSize) {
			if len(part) == records.DigestSize {
				byRank[u.Rank][u.First] = [records.DigestSize]byte(part)
			}
			u.First++
		}
		return nil
	}, "SELECT rank, first, digests FROM updates WHERE run = ? AND rank >= 0 AND rank < (SELECT world_size FROM runs WHERE id = run) ORDER BY attempt, first", run)
	return byRank, err
}

// Marks lists at how many updates rank 0 saved and recorded steps, latest last.
func (db *DB) Marks(run int64) ([]records.Mark, error) {
	return rows[records.Mark](db, "step_marks WHERE run = ? ORDER BY attempt, seq", run)
}

// oneKind are the kinds of run.artifact, which count as one.
var oneKind = map[string]bool{"bytes": true, "text": true, "tensor": true}

// stepOf is an artifact's step as its row has it; -1: none.
func stepOf(a *records.Artifact) int64 {
	if a.Step == nil {
		return -1
	}
	return *a.Step
}

func (r *Run) putArtifacts(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	for i := range b.Artifacts {
		a := &b.Artifacts[i]
		sum := sha256.Sum256(a.Data)
		sha := hex.EncodeToString(sum[:])
		data := a.Data
		if data == nil {
			data = []byte{}
		}
		var before string
		err := tx.QueryRow(`DELETE FROM artifacts WHERE run = ?1 AND name = ?2 AND step = ?3
			AND (kind = ?4 OR ?4 IN ('bytes', 'text', 'tensor') AND kind IN ('bytes', 'text', 'tensor')) RETURNING sha256`,
			r.ID, a.Name, stepOf(a), a.Kind).Scan(&before)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		try.To(tx.Exec("INSERT OR IGNORE INTO contents VALUES (?, ?)", sha, data))
		try.To(tx.Exec("INSERT INTO artifacts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			r.ID, a.Name, stepOf(a), a.Rank, a.Kind, len(a.Data), sha, formatTime(a.Time)))
		if before != "" && before != sha {
			try.To(tx.Exec("DELETE FROM contents WHERE sha256 = ?1 AND NOT EXISTS (SELECT 1 FROM artifacts WHERE sha256 = ?1)", before))
		}
	}
	return nil
}

// Artifacts lists what a run has kept, ordered by name, step and kind.
func (db *DB) Artifacts(run int64) ([]records.Artifact, error) {
	all, err := artifactsIn(db.sql, run)
	return all, sqldb.Wrap(db.path, err)
}

func artifactsIn(in sqldb.Queryer, run int64) ([]records.Artifact, error) {
	all := []records.Artifact{}
	err := sqldb.Each(in, func(rows *sql.Rows) error {
		var a records.Artifact
		var step int64
		err := rows.Scan(&a.Name, &step, &a.Rank, &a.Kind, &a.Bytes, &a.SHA256, timeColumn{&a.Time})
		if step >= 0 {
			a.Step = &step
		}
		all = append(all, a)
		return err
	}, "SELECT name, step, rank, kind, bytes, sha256, time FROM artifacts WHERE run = ? ORDER BY name, step, kind", run)
	return all, err
}

// ArtifactBytes returns, by run, how many bytes of contents only its artifacts have, and how many those of other runs have
// too.
func (db *DB) ArtifactBytes() (own, shared map[int64]int64, err error) {
	own, shared = map[int64]int64{}, map[int64]int64{}
	err = db.read(func(rows *sql.Rows) error {
		var run, only, more int64
		err := rows.Scan(&run, &only, &more)
		own[run], shared[run] = only, more
		return err
	}, `WITH has AS (SELECT DISTINCT run, sha256, bytes FROM artifacts), counts AS (SELECT sha256, count(*) AS runs FROM has GROUP BY sha256)
		SELECT run, sum(iif(runs = 1, bytes, 0)), sum(iif(runs > 1, bytes, 0)) FROM has JOIN counts USING (sha256) GROUP BY run`)
	return own, shared, err
}

// Content reads an artifact's content, and checks that it is what was kept.
func (db *DB) Content(a *records.Artifact) (_ []byte, err error) {
	defer try.Caught(&err)
	var data []byte
	found := false
	try.Ok(db.read(func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&data)
	}, "SELECT data FROM contents WHERE sha256 = ?", a.SHA256))
	if sum := sha256.Sum256(data); !found || hex.EncodeToString(sum[:]) != a.SHA256 {
		return nil, fmt.Errorf("the content of %q is damaged", a.Name)
	}
	return data, nil
}
