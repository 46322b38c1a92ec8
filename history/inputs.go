package history

import (
	"database/sql"
	"time"
)

// RankPlace is where a rank ran, and with what it computed.
type RankPlace struct {
	Rank      int    `json:"rank"`
	Node      int    `json:"node"`
	LocalRank int    `json:"local_rank"`
	Host      string `json:"host"`
	Threads   int    `json:"threads"`
	Kernels   string `json:"kernels"` // amx, avx512bf16, avx512, avx2, neon or scalar
}

// DataFile is a file that the recipe read. A file that changed meanwhile, or is
// another one on another node, is there once for each content.
type DataFile struct {
	Path   string `json:"path"` // beneath the recipe's folder; absolute in a --data folder
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// Modified is when it was changed last before it was read; nil: not known.
	Modified *time.Time `json:"modified"`
	Position string     `json:"position"` // of the call in the recipe that read it first; "": not known
}

func (r *Run) putRanks(tx *sql.Tx, b *Batch) error {
	return execute(tx, "INSERT OR REPLACE INTO ranks (run, rank, node, local_rank, host, threads, kernels) VALUES (?, ?, ?, ?, ?, ?, ?)", b.Ranks,
		func(p *RankPlace) []any {
			return []any{r.ID, p.Rank, p.Node, p.LocalRank, p.Host, p.Threads, p.Kernels}
		})
}

func (r *Run) putDataFiles(tx *sql.Tx, b *Batch) error {
	return execute(tx, "INSERT OR IGNORE INTO data_files (run, path, sha256, bytes, modified, position) VALUES (?, ?, ?, ?, ?, ?)", b.DataFiles,
		func(f *DataFile) []any {
			var modified any // NULL: not known
			if f.Modified != nil {
				modified = formatTime(*f.Modified)
			}
			return []any{r.ID, f.Path, f.SHA256, f.Bytes, modified, f.Position}
		})
}

func (db *DB) ranks(run int64) ([]RankPlace, error) {
	return list(db, func(p *RankPlace) []any {
		return []any{&p.Rank, &p.Node, &p.LocalRank, &p.Host, &p.Threads, &p.Kernels}
	}, "SELECT rank, node, local_rank, host, threads, kernels FROM ranks WHERE run = ? ORDER BY rank", run)
}

func (db *DB) dataFiles(run int64) ([]DataFile, error) {
	return list(db, func(f *DataFile) []any {
		return []any{&f.Path, &f.SHA256, &f.Bytes, timeOrNone{&f.Modified}, &f.Position}
	},
		"SELECT path, sha256, bytes, modified, coalesce(position, '') FROM data_files WHERE run = ? ORDER BY path, sha256", run)
}
