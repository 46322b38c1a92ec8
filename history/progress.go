package history

import "drun/history/records"

// Progress is the progress of a running run; nil: none was reported.
func (db *DB) Progress(run int64) (*records.Progress, error) {
	found, err := rows[records.Progress](db, "progress WHERE run = ?", run)
	if len(found) == 0 || err != nil {
		return nil, err
	}
	return &found[0], nil
}
