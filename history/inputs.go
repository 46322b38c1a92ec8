package history

import "database/sql"

// RankPlace is where a rank ran, and with what it computed.
type RankPlace struct {
	Rank      int    `json:"rank"`
	Node      int    `json:"node"`
	LocalRank int    `json:"local_rank"`
	Host      string `json:"host"`
	Threads   int    `json:"threads"`
	Kernels   string `json:"kernels"` // avx512, avx2, neon or scalar
}

// DataFile is a file that the recipe read. A file that changed meanwhile, or is
// another one on another node, is there once for each content.
type DataFile struct {
	Path   string `json:"path"` // beneath the recipe's folder; absolute in a --data folder
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

func (r *Run) putRanks(tx *sql.Tx, b *Batch) error {
	for _, p := range b.Ranks {
		if _, err := tx.Exec("INSERT OR REPLACE INTO ranks (run, rank, node, local_rank, host, threads, kernels) VALUES (?, ?, ?, ?, ?, ?, ?)",
			r.ID, p.Rank, p.Node, p.LocalRank, p.Host, p.Threads, p.Kernels); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) putDataFiles(tx *sql.Tx, b *Batch) error {
	for _, f := range b.DataFiles {
		if _, err := tx.Exec("INSERT OR IGNORE INTO data_files (run, path, sha256, bytes) VALUES (?, ?, ?, ?)", r.ID, f.Path, f.SHA256, f.Bytes); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) ranks(run int64) (list []RankPlace, err error) {
	list = []RankPlace{}
	err = db.read(func(rows *sql.Rows) error {
		var p RankPlace
		err := rows.Scan(&p.Rank, &p.Node, &p.LocalRank, &p.Host, &p.Threads, &p.Kernels)
		list = append(list, p)
		return err
	}, "SELECT rank, node, local_rank, host, threads, kernels FROM ranks WHERE run = ? ORDER BY rank", run)
	return list, err
}

func (db *DB) dataFiles(run int64) (list []DataFile, err error) {
	list = []DataFile{}
	err = db.read(func(rows *sql.Rows) error {
		var f DataFile
		err := rows.Scan(&f.Path, &f.SHA256, &f.Bytes)
		list = append(list, f)
		return err
	}, "SELECT path, sha256, bytes FROM data_files WHERE run = ? ORDER BY path, sha256", run)
	return list, err
}
