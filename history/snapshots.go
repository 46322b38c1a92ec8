package history

import (
	"database/sql"
	"time"
)

// Snapshot is what every rank was doing when the run failed, or when a signal asked for it.
type Snapshot struct {
	Time   time.Time   `json:"time"`
	Reason string      `json:"reason"` // the run's status, or the signal that asked
	Ranks  []RankState `json:"ranks"`
}

// RankState is one rank of a snapshot.
type RankState struct {
	Rank     int        `json:"rank"`
	State    string     `json:"state"`
	Call     string     `json:"call"`     // the call that it was in or had made last; "": none
	Number   uint64     `json:"number"`   // of the call among its group's collectives, from 1; 0: point to point, or none
	Group    uint32     `json:"group"`    // 0: all ranks
	Position string     `json:"position"` // in the recipe; "" if unknown
	Seconds  float64    `json:"seconds"`  // for how long it had been doing so
	Recent   []PastCall `json:"recent"`   // its latest calls, newest first
}

// PastCall is a call that a rank made.
type PastCall struct {
	Call     string   `json:"call"`
	Number   uint64   `json:"number"`
	Group    uint32   `json:"group"`
	Position string   `json:"position"`
	Ago      float64  `json:"ago"`     // seconds from its start to the snapshot
	Seconds  *float64 `json:"seconds"` // how long it took; nil: it had not ended, or had not been waited for
	Async    bool     `json:"async"`
}

func (r *Run) putSnapshots(tx *sql.Tx, b *Batch) error {
	for _, s := range b.Snapshots {
		result, err := tx.Exec("INSERT INTO snapshots (run, time, reason) VALUES (?, ?, ?)", r.ID, formatTime(s.Time), s.Reason)
		if err != nil {
			return err
		}
		id, err := result.LastInsertId()
		if err != nil {
			return err
		}
		err = execute(tx, "INSERT INTO snapshot_ranks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", s.Ranks, func(k *RankState) []any {
			return []any{id, k.Rank, k.State, k.Call, k.Number, k.Group, k.Position, k.Seconds}
		})
		if err != nil {
			return err
		}
		for _, k := range s.Ranks {
			nth := 0
			err := execute(tx, "INSERT INTO snapshot_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", k.Recent, func(c *PastCall) []any {
				nth++
				return []any{id, k.Rank, nth, c.Call, c.Number, c.Group, c.Position, c.Ago, c.Seconds, c.Async}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// LastSnapshot reads the latest snapshot of a run, or nil.
func (db *DB) LastSnapshot(run int64) (*Snapshot, error) {
	list, err := db.snapshots(run)
	if len(list) == 0 || err != nil {
		return nil, err
	}
	return &list[len(list)-1], nil
}

// snapshots reads the snapshots of a run, oldest first.
func (db *DB) snapshots(run int64) (list []Snapshot, err error) {
	list = []Snapshot{}
	at := map[int64]int{} // index of a snapshot in the list
	err = db.read(func(rows *sql.Rows) error {
		s := Snapshot{Ranks: []RankState{}}
		var id int64
		err := rows.Scan(&id, timeColumn{&s.Time}, &s.Reason)
		at[id] = len(list)
		list = append(list, s)
		return err
	}, "SELECT id, time, reason FROM snapshots WHERE run = ? ORDER BY id", run)
	if err != nil || len(list) == 0 {
		return list, err
	}
	type place struct {
		snapshot int64
		rank     int
	}
	index := map[place]int{} // index of a rank in its snapshot
	err = db.read(func(rows *sql.Rows) error {
		k := RankState{Recent: []PastCall{}}
		var id int64
		err := rows.Scan(&id, &k.Rank, &k.State, &k.Call, &k.Number, &k.Group, &k.Position, &k.Seconds)
		s := &list[at[id]]
		index[place{id, k.Rank}] = len(s.Ranks)
		s.Ranks = append(s.Ranks, k)
		return err
	}, `SELECT k.* FROM snapshot_ranks k JOIN snapshots s ON s.id = k.snapshot WHERE s.run = ? ORDER BY k.snapshot, k.rank`, run)
	if err != nil {
		return list, err
	}
	return list, db.read(func(rows *sql.Rows) error {
		var c PastCall
		var id int64
		var rank int
		if err := rows.Scan(&id, &rank, &c.Call, &c.Number, &c.Group, &c.Position, &c.Ago, &c.Seconds, &c.Async); err != nil {
			return err
		}
		k := &list[at[id]].Ranks[index[place{id, rank}]]
		k.Recent = append(k.Recent, c)
		return nil
	}, `SELECT c.snapshot, c.rank, c.call, c.number, c."group", c.position, c.ago, c.seconds, c.async
		FROM snapshot_calls c JOIN snapshots s ON s.id = c.snapshot WHERE s.run = ? ORDER BY c.snapshot, c.rank, c.nth`, run)
}
