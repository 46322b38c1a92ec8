package history

import (
	"errors"
	"io/fs"

	"drun/internal/sqldb"
)

// Copy writes a copy of the history, as it is at one moment, to a new file at path.
// Without a history the error is *ErrNone.
func Copy(home, path string) error {
	err := sqldb.Copy(file(home), path)
	if errors.Is(err, fs.ErrNotExist) {
		return &ErrNone{home}
	}
	return err
}
