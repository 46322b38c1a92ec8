package checkpoints

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"drun/internal/sqldb"
	"drun/internal/try"
)

// Copy writes a copy of the catalog to a new file at path and lists the packs that it refers to, which OpenPack
// opens. If nothing was ever saved, the error is *ErrNone.
func Copy(home, path string) (packs []string, err error) {
	defer try.Caught(&err)
	current := try.To(openCatalog(home))
	defer current.Close()
	try.Ok(sqldb.Copy(file(home), path))
	copied := file(home)
	copied.Path = path
	reader := try.To(sqldb.OpenReadOnly(copied))
	defer reader.Close()
	packs, err = sqldb.Column[string](reader, "SELECT file FROM packs ORDER BY id")
	for _, name := range packs {
		if !packName().MatchString(name) {
			return nil, damaged(filepath.Join(home, "checkpoints.db"), fmt.Errorf("packs.file: %s is no name of a pack", quote(name)))
		}
	}
	return packs, sqldb.Wrap(path, err)
}

// OpenPack opens the file of a pack. A pack never changes, but may be gone: the error is then fs.ErrNotExist.
func OpenPack(home, name string) (*os.File, error) {
	path := filepath.Join(home, "checkpoints", name)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, sqldb.Wrap(path, err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, damaged(path, errors.Join(err, errors.New("it is not a file of its own")))
	}
	return f, nil
}
