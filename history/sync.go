package history

import (
	"errors"
	"io/fs"
	"path/filepath"

	"drun/internal/sqldb"
)

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
