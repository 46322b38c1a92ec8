package history

import (
	"database/sql"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"drun/internal/sqldb"
	"drun/internal/try"
)

// Copy writes a copy of the history into folder, a home of its own, while runs go on, and returns the names of the
// files. It copies the spools first: batches that move from them to the history meanwhile are in both, which is
// harmless since batches are numbered. saved tells which checkpoints of running runs exist; others are not listed
// in the copy. Without a history the error is *ErrNone.
func Copy(home, folder string, saved func(uid string, step int64) bool) (names []string, err error) {
	spools, err := filepath.Glob(filepath.Join(globEscape(home), "spool", "*"+spoolSuffix))
	if err != nil {
		return nil, err
	}
	for _, path := range spools {
		name := filepath.Join("spool", filepath.Base(path))
		err := copySpool(path, filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // all of it is in the history already
		}
		if err != nil {
			return nil, sqldb.Wrap(path, err)
		}
		names = append(names, name)
	}
	to := file(folder)
	err = sqldb.Copy(file(home), to.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ErrNone{home}
	}
	if err != nil {
		return nil, err
	}
	return append(names, "history.db"), unlist(to, saved)
}

func copySpool(from, to string) (err error) {
	defer try.Caught(&err)
	in, _ := try.To2(openSpool(from))
	defer in.Close()
	try.Ok(os.MkdirAll(filepath.Dir(to), sqldb.FolderMode))
	out := try.To(os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, sqldb.FileMode))
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// unlist removes from a history the checkpoints of running runs that saved does not know.
func unlist(f sqldb.File, saved func(uid string, step int64) bool) error {
	db, err := sqldb.Open(f)
	if err != nil {
		return err
	}
	err = sqldb.Write(db, f.Path, func(tx *sql.Tx) error {
		type row struct{ run, step int64 }
		var gone []row
		err := sqldb.Each(tx, func(rows *sql.Rows) error {
			var r row
			var uid string
			err := rows.Scan(&r.run, &uid, &r.step)
			if err == nil && !saved(uid, r.step) {
				gone = append(gone, r)
			}
			return err
		}, "SELECT r.id, r.uid, c.step FROM checkpoints c JOIN runs r ON r.id = c.run WHERE r.status = ?", Running)
		if err != nil {
			return err
		}
		return execute(tx, "DELETE FROM checkpoints WHERE run = ? AND step = ?", gone, func(r *row) []any { return []any{r.run, r.step} })
	})
	return errors.Join(err, db.Close())
}

// Sync makes the records of a run durable against a crash of the machine, which commits alone do not.
func Sync(home, uid string) error {
	path := filepath.Join(home, "history.db")
	spool := filepath.Join(home, "spool", uid+spoolSuffix)
	for _, name := range []string{path + "-wal", path, spool, home} {
		if err := sqldb.Sync(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sqldb.Wrap(name, err)
		}
	}
	return nil
}
