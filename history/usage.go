package history

import "drun/history/records"

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
}

func (db *DB) rankUsage(run int64) ([]RankUsage, error) {
	return rows[RankUsage](db, `(SELECT rank, sum(cpu) AS cpu, max(peak) AS peak, sum(collectives) AS collectives, sum(waiting) AS waiting FROM
			(SELECT rank, max(cpu) AS cpu, max(peak) AS peak, max(collectives) AS collectives, max(waiting) AS waiting
			FROM rank_usage WHERE run = ? GROUP BY attempt, rank) GROUP BY rank) ORDER BY rank`, run)
}
