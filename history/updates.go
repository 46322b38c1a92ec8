package history

import (
	"database/sql"
	"slices"

	"drun/history/records"
)

// Digests returns the digests of each rank's parameters, by rank and number of the update, of the latest attempt
// that made the update.
func (db *DB) Digests(run int64) ([]map[int64][records.DigestSize]byte, error) {
	var byRank []map[int64][records.DigestSize]byte
	err := db.read(func(rows *sql.Rows) error {
		var u records.Updates
		if err := rows.Scan(&u.Rank, &u.First, &u.Digests); err != nil {
			return err
		}
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
