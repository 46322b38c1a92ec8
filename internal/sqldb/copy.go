package sqldb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/mattn/go-sqlite3"
)

// Copy writes a copy of the database, as it is at one moment, to a new file at
// path, with SQLite's backup API. Others may keep writing to it. A missing file
// gives an error that is fs.ErrNotExist.
func Copy(f File, path string) error {
	reader, err := OpenReadOnly(f)
	if err != nil {
		return err
	}
	defer reader.Close()
	to := f
	to.Path = path
	if err := to.create(); err != nil {
		return Wrap(path, err)
	}
	copied, err := sql.Open("sqlite3", to.dsn("mode=rw"))
	if err != nil {
		return Wrap(path, err)
	}
	err = withConn(reader.DB, func(from *sqlite3.SQLiteConn) error {
		return withConn(copied, func(to *sqlite3.SQLiteConn) error {
			backup, err := to.Backup("main", from, "main")
			if err != nil {
				return err
			}
			done, err := backup.Step(-1)
			if err == nil && !done {
				err = errors.New("the copy is not complete")
			}
			return errors.Join(err, backup.Finish())
		})
	})
	return Wrap(path, errors.Join(err, copied.Close()))
}

func withConn(db *sql.DB, fn func(*sqlite3.SQLiteConn) error) error {
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(raw any) error { return fn(raw.(*sqlite3.SQLiteConn)) })
}
