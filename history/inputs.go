package history

import (
	"database/sql"

	"drun/history/records"
)

func (r *Run) putRanks(tx *sql.Tx, b *Batch) error {
	return execute(tx, "INSERT OR REPLACE INTO ranks (run, rank, node, local_rank, host, threads, kernels) VALUES (?, ?, ?, ?, ?, ?, ?)", b.Ranks,
		func(p *records.RankPlace) []any {
			return []any{r.ID, p.Rank, p.Node, p.LocalRank, p.Host, p.Threads, p.Kernels}
		})
}

func (r *Run) putDataFiles(tx *sql.Tx, b *Batch) error {
	return execute(tx, "INSERT OR IGNORE INTO data_files (run, path, sha256, bytes, modified, position) VALUES (?, ?, ?, ?, ?, ?)", b.DataFiles,
		func(f *records.DataFile) []any {
			var modified any // NULL: unknown
			if f.Modified != nil {
				modified = formatTime(*f.Modified)
			}
			return []any{r.ID, f.Path, f.SHA256, f.Bytes, modified, f.Position}
		})
}

func (db *DB) ranks(run int64) ([]records.RankPlace, error) {
	return list(db, func(p *records.RankPlace) []any {
		return []any{&p.Rank, &p.Node, &p.LocalRank, &p.Host, &p.Threads, &p.Kernels}
	}, "SELECT rank, node, local_rank, host, threads, kernels FROM ranks WHERE run = ? ORDER BY rank", run)
}

func (db *DB) dataFiles(run int64) ([]records.DataFile, error) {
	return list(db, func(f *records.DataFile) []any {
		return []any{&f.Path, &f.SHA256, &f.Bytes, timeOrNone{&f.Modified}, &f.Position}
	},
		"SELECT path, sha256, bytes, modified, coalesce(position, '') FROM data_files WHERE run = ? ORDER BY path, sha256", run)
}
