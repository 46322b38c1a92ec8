package history

import (
	"database/sql"
	"time"

	"drun/history/records"
)

func (r *Run) putUsage(tx *sql.Tx, b *Batch) error {
	return execute(tx, "INSERT OR REPLACE INTO rank_usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", b.Usage, func(u *records.Usage) []any {
		var resident any
		if u.Resident > 0 {
			resident = u.Resident
		}
		return []any{r.ID, u.Attempt, u.Rank, u.Time.UnixMicro(), u.CPU, resident, u.Peak, u.Collectives, u.Waiting}
	})
}

// Usage returns the samples of a run, ordered by attempt, rank and time.
func (db *DB) Usage(run int64) ([]records.Usage, error) {
	all := []records.Usage{}
	err := db.read(func(rows *sql.Rows) error {
		var u records.Usage
		var at int64
		err := rows.Scan(&u.Attempt, &u.Rank, &at, &u.CPU, &u.Resident, &u.Peak, &u.Collectives, &u.Waiting)
		u.Time = time.UnixMicro(at).UTC()
		all = append(all, u)
		return err
	}, `SELECT attempt, rank, time, cpu, coalesce(resident, 0), peak, collectives, waiting FROM rank_usage
		WHERE run = ? ORDER BY attempt, rank, time`, run)
	return all, err
}

// RankUsage sums up what a rank used in all attempts.
type RankUsage struct {
	Rank        int     `json:"rank"`
	CPU         float64 `json:"cpu"` // in seconds, as are the others
	Peak        int64   `json:"peak"`
	Collectives float64 `json:"collectives"`
	Waiting     float64 `json:"waiting"`
}

func (db *DB) rankUsage(run int64) ([]RankUsage, error) {
	return list(db, func(u *RankUsage) []any { return []any{&u.Rank, &u.CPU, &u.Peak, &u.Collectives, &u.Waiting} },
		`SELECT rank, sum(cpu), max(peak), sum(collectives), sum(waiting) FROM
			(SELECT rank, max(cpu) AS cpu, max(peak) AS peak, max(collectives) AS collectives, max(waiting) AS waiting
			FROM rank_usage WHERE run = ? GROUP BY attempt, rank) GROUP BY rank ORDER BY rank`, run)
}
