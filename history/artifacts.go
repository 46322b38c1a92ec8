package history

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"drun/history/records"
	"drun/internal/try"
)

// oneKind are the kinds of run.artifact, which count as one.
var oneKind = map[string]bool{"bytes": true, "text": true, "tensor": true}

// stepOf is an artifact's step as its row has it; -1: none.
func stepOf(a *records.Artifact) int64 {
	if a.Step == nil {
		return -1
	}
	return *a.Step
}

func (r *Run) putArtifacts(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	for i := range b.Artifacts {
		a := &b.Artifacts[i]
		sum := sha256.Sum256(a.Data)
		sha := hex.EncodeToString(sum[:])
		data := a.Data
		if data == nil {
			data = []byte{}
		}
		var before string
		err := tx.QueryRow(`DELETE FROM artifacts WHERE run = ?1 AND name = ?2 AND step = ?3
			AND (kind = ?4 OR ?4 IN ('bytes', 'text', 'tensor') AND kind IN ('bytes', 'text', 'tensor')) RETURNING sha256`,
			r.ID, a.Name, stepOf(a), a.Kind).Scan(&before)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		try.To(tx.Exec("INSERT OR IGNORE INTO contents VALUES (?, ?)", sha, data))
		try.To(tx.Exec("INSERT INTO artifacts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			r.ID, a.Name, stepOf(a), a.Rank, a.Kind, len(a.Data), sha, formatTime(a.Time)))
		if before != "" && before != sha {
			try.To(tx.Exec("DELETE FROM contents WHERE sha256 = ?1 AND NOT EXISTS (SELECT 1 FROM artifacts WHERE sha256 = ?1)", before))
		}
	}
	return nil
}

// Artifacts lists what a run has kept, ordered by name, step and kind.
func (db *DB) Artifacts(run int64) ([]records.Artifact, error) {
	all := []records.Artifact{}
	err := db.read(func(rows *sql.Rows) error {
		var a records.Artifact
		var step int64
		err := rows.Scan(&a.Name, &step, &a.Rank, &a.Kind, &a.Bytes, &a.SHA256, timeColumn{&a.Time})
		if step >= 0 {
			a.Step = &step
		}
		all = append(all, a)
		return err
	}, "SELECT name, step, rank, kind, bytes, sha256, time FROM artifacts WHERE run = ? ORDER BY name, step, kind", run)
	return all, err
}

// Content reads an artifact's content, and checks that it is what was kept.
func (db *DB) Content(a *records.Artifact) ([]byte, error) {
	var data []byte
	found := false
	err := db.read(func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&data)
	}, "SELECT data FROM contents WHERE sha256 = ?", a.SHA256)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); !found || hex.EncodeToString(sum[:]) != a.SHA256 {
		return nil, fmt.Errorf("the content of %q is damaged", a.Name)
	}
	return data, nil
}
