package checkpoints

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"drun/internal/sqldb"
)

// Load returns the entries of one rank in the order in which they were saved.
// Every chunk is checked against its SHA-256: bytes that have changed are a
// *sqldb.Error, never a result. Without such a checkpoint the error is
// *ErrNone.
func (s *Store) Load(run string, ref Ref, rank int) (Info, []Entry, error) {
	id, info, err := s.find(run, ref)
	if err != nil {
		return info, nil, err
	}
	if rank < 0 || rank >= info.WorldSize {
		return info, nil, fmt.Errorf("checkpoint of step %d has ranks 0 to %d, not %d", info.Step, info.WorldSize-1, rank)
	}
	ids, entries, err := s.entries(id, rank)
	if err != nil {
		return info, nil, sqldb.Wrap(s.path, err)
	}
	packs := openPacks{folder: s.packs, open: map[string]*sql.DB{}}
	defer packs.close()
	for i := range entries {
		if err := s.fill(&entries[i], ids[i], packs); err != nil {
			return info, nil, err
		}
	}
	return info, entries, nil
}

// entries lists what a rank saved, with room for the data.
func (s *Store) entries(checkpoint int64, rank int) (ids []int64, entries []Entry, err error) {
	rows, err := s.sql.Query(`SELECT id, name, kind, dtype, shape, bytes FROM entries
		WHERE checkpoint = ? AND rank = ? ORDER BY id`, checkpoint, rank)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, size int64
		var e Entry
		var shape string
		if err := rows.Scan(&id, &e.Name, &e.Kind, &e.DType, &shape, &size); err != nil {
			return nil, nil, err
		}
		if err := json.Unmarshal([]byte(shape), &e.Shape); err != nil {
			return nil, nil, err
		}
		e.Data = make([]byte, 0, max(size, 0))
		ids, entries = append(ids, id), append(entries, e)
	}
	return ids, entries, rows.Err()
}

func (s *Store) fill(e *Entry, id int64, packs openPacks) error {
	rows, err := s.sql.Query(`SELECT c.sha256, c.row, p.file FROM entry_chunks ec
		JOIN chunks c ON c.sha256 = ec.sha256 JOIN packs p ON p.id = c.pack WHERE ec.entry = ? ORDER BY ec.n`, id)
	if err != nil {
		return sqldb.Wrap(s.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var sha, file string
		var row int64
		if err := rows.Scan(&sha, &row, &file); err != nil {
			return sqldb.Wrap(s.path, err)
		}
		data, err := packs.read(file, row)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != sha {
			return damaged(filepath.Join(s.packs, file), fmt.Errorf("a chunk of %q does not have its SHA-256", e.Name))
		}
		e.Data = append(e.Data, data...)
	}
	if err := rows.Err(); err != nil {
		return sqldb.Wrap(s.path, err)
	}
	if len(e.Data) != cap(e.Data) {
		return damaged(s.path, fmt.Errorf("%q has %d bytes of %d", e.Name, len(e.Data), cap(e.Data)))
	}
	return nil
}

func damaged(path string, err error) error {
	return &sqldb.Error{Path: path, What: "is damaged", Hint: "resume from another checkpoint of the run", Err: err}
}

// openPacks reads chunks from packs, which never change.
type openPacks struct {
	folder string
	open   map[string]*sql.DB
}

func (p openPacks) read(file string, row int64) ([]byte, error) {
	path := filepath.Join(p.folder, file)
	db := p.open[file]
	if db == nil {
		if _, err := os.Stat(path); err != nil {
			return nil, damaged(path, err)
		}
		var err error
		if db, err = sql.Open("sqlite3", packURI(path, "immutable=1&mode=ro")); err != nil {
			return nil, sqldb.Wrap(path, err)
		}
		p.open[file] = db
	}
	var data []byte
	if err := db.QueryRow("SELECT data FROM chunks WHERE id = ?", row).Scan(&data); err != nil {
		return nil, damaged(path, err)
	}
	return data, nil
}

func (p openPacks) close() {
	for _, db := range p.open {
		db.Close()
	}
}
