package history

import (
	"database/sql"
	"slices"
)

// DigestSize is how many bytes a digest of the parameters has.
const DigestSize = 8

// Updates are digests of a rank's parameters after each of some updates in a row.
type Updates struct {
	Attempt, Rank int
	First         int64  // number of the first, from 1
	Digests       []byte // DigestSize bytes each
}

// Mark says how many updates rank 0 had made when it saved or recorded a step, for Count points at equal
// distances.
type Mark struct {
	Attempt, Seq      int
	Name              string // of the metric; "": checkpoint.save
	Step, Updates     int64
	StepBy, UpdatesBy int64
	Count             int64
}

// At is the number of updates at a step, if that is among the points.
func (m Mark) At(step int64) (updates int64, is bool) {
	n := int64(0) // of the point
	if m.StepBy != 0 {
		n = (step - m.Step) / m.StepBy
	}
	if n < 0 || n >= m.Count || m.Step+n*m.StepBy != step {
		return 0, false
	}
	if m.StepBy == 0 {
		n = m.Count - 1 // the latest of the points that have the same step
	}
	return m.Updates + n*m.UpdatesBy, true
}

func (r *Run) putUpdates(tx *sql.Tx, b *Batch) error {
	err := execute(tx, "INSERT OR REPLACE INTO updates (run, attempt, rank, first, digests) VALUES (?, ?, ?, ?, ?)", b.Updates,
		func(u *Updates) []any { return []any{r.ID, u.Attempt, u.Rank, u.First, u.Digests} })
	if err != nil {
		return err
	}
	return execute(tx, `INSERT OR REPLACE INTO step_marks (run, attempt, seq, name, step, updates, step_by, updates_by, count)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, b.Marks, func(m *Mark) []any {
		return []any{r.ID, m.Attempt, m.Seq, m.Name, m.Step, m.Updates, m.StepBy, m.UpdatesBy, m.Count}
	})
}

// Digests are those of the parameters of each rank, by rank and number of the update: of the latest
// attempt that made it.
func (db *DB) Digests(run int64) ([]map[int64][DigestSize]byte, error) {
	var byRank []map[int64][DigestSize]byte
	err := db.read(func(rows *sql.Rows) error {
		var u Updates
		if err := rows.Scan(&u.Rank, &u.First, &u.Digests); err != nil {
			return err
		}
		for len(byRank) <= u.Rank {
			byRank = append(byRank, map[int64][DigestSize]byte{})
		}
		for part := range slices.Chunk(u.Digests, DigestSize) {
			if len(part) == DigestSize {
				byRank[u.Rank][u.First] = [DigestSize]byte(part)
			}
			u.First++
		}
		return nil
	}, "SELECT rank, first, digests FROM updates WHERE run = ? AND rank >= 0 AND rank < (SELECT world_size FROM runs WHERE id = run) ORDER BY attempt, first", run)
	return byRank, err
}

// Marks lists at how many updates rank 0 saved and recorded steps, the latest last.
func (db *DB) Marks(run int64) ([]Mark, error) {
	return list(db, func(m *Mark) []any {
		return []any{&m.Attempt, &m.Seq, &m.Name, &m.Step, &m.Updates, &m.StepBy, &m.UpdatesBy, &m.Count}
	}, "SELECT attempt, seq, name, step, updates, step_by, updates_by, count FROM step_marks WHERE run = ? ORDER BY attempt, seq", run)
}
