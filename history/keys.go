package history

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Inputs are what decides the bits of a run, except the data that it reads.
type Inputs struct {
	Main      string           // the recipe's path beneath its folder
	Sources   []records.Source // the recipe and the files it loads
	Params    []Param          // as declared, with their values
	Seed      int64
	WorldSize int
	Order     string // order of reductions: "ranks", or the backend that decides
	Numerics  int    // version of drun's arithmetic
	Parent    string // uid and step of the checkpoint that the run was resumed from; "": none
}

// Key is the SHA-256 of the inputs; "" if a parameter is a secret, whose value is not kept.
func (in *Inputs) Key() (string, error) {
	params, err := encodeParams(in.Params)
	if err != nil {
		return "", err
	}
	for _, p := range params {
		if p.Kind == "secret" {
			return "", nil
		}
	}
	slices.SortFunc(params, func(a, b paramColumns) int { return strings.Compare(a.Name, b.Name) })
	sources := slices.Clone(in.Sources)
	for i := range sources {
		sources[i].Role = "" // keys have never had it
	}
	slices.SortFunc(sources, func(a, b records.Source) int { return strings.Compare(a.Path, b.Path) })
	return digest(in.Main, sources, params, in.Seed, in.WorldSize, in.Order, in.Numerics, in.Parent)
}

// bitsKey combines the inputs' key and the data files.
func bitsKey(inputs string, files []records.DataFile) (string, error) {
	parts := []any{inputs}
	slices.SortFunc(files, func(a, b records.DataFile) int {
		return strings.Compare(a.Path+"\x00"+a.SHA256, b.Path+"\x00"+b.SHA256)
	})
	for _, f := range files {
		parts = append(parts, f.Path, f.SHA256)
	}
	return digest(parts...)
}

func digest(parts ...any) (string, error) {
	text, err := json.Marshal(parts)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// Git is the state of the repository that a recipe is in.
type Git struct {
	Commit string `json:"commit"`
	Dirty  bool   `json:"dirty"` // files in the recipe's folder differ from the commit
}

func (r *Run) putKeys(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	if b.Inputs != nil {
		// A run that was continued with another recipe or other parameters has no key.
		try.To(tx.Exec("UPDATE runs SET inputs = CASE WHEN ?1 = '' OR inputs <> ?1 THEN '' ELSE ?1 END WHERE id = ?2", *b.Inputs, r.ID))
	}
	if b.WorldSize != 0 {
		try.To(tx.Exec("UPDATE runs SET world_size = ? WHERE id = ?", b.WorldSize, r.ID))
	}
	if b.Git != nil {
		try.To(tx.Exec("UPDATE runs SET git_commit = ?, git_dirty = ? WHERE id = ?", b.Git.Commit, b.Git.Dirty, r.ID))
	}
	if b.End == nil {
		return nil
	}
	var inputs, folders sql.NullString
	try.Ok(tx.QueryRow("SELECT inputs, data_dirs FROM runs WHERE id = ?", r.ID).Scan(&inputs, &folders))
	var dirs []string
	if folders.Valid {
		try.Ok(json.Unmarshal([]byte(folders.String), &dirs))
	}
	key := any(nil)
	if inputs.String != "" {
		var files []records.DataFile
		try.Ok(sqldb.Each(tx, func(rows *sql.Rows) error {
			var f records.DataFile
			err := rows.Scan(&f.Path, &f.SHA256)
			for _, dir := range dirs { // wherever the folder was
				f.Path = strings.TrimPrefix(f.Path, strings.TrimSuffix(dir, "/")+"/")
			}
			files = append(files, f)
			return err
		}, "SELECT path, sha256 FROM data_files WHERE run = ? ORDER BY path, sha256", r.ID))
		key = try.To(bitsKey(inputs.String, files))
	}
	_, err = tx.Exec("UPDATE runs SET bits_key = ? WHERE id = ?", key, r.ID)
	return err
}

// WithInputs lists the runs with this status whose inputs had this key, newest first. DataFiles tells whether their
// data is the same.
func (db *DB) WithInputs(key string, status Status) ([]Summary, error) {
	if key == "" {
		return []Summary{}, nil
	}
	return db.summaries(&fully, "WHERE inputs = ? AND status = ? AND trashed IS NULL ORDER BY id DESC", key, status)
}
