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

// Fault is a chunk that differs from what was saved, or cannot be read.
type Fault struct {
	Rank   int    // the first rank that needs it
	Entry  string // the entry of that rank
	Chunk  int    // its number in the entry, from 0
	SHA256 string // the expected sum
	Err    error
}

// Verify reads back every chunk of a checkpoint and compares its SHA-256. It returns the damaged ones, each once.
// The error says why it could not check.
func (s *Store) Verify(run string, ref Ref) (info Info, faults []Fault, err error) {
	if info, err = s.Find(run, ref); err != nil {
		return info, nil, err
	}
	if faults, err = s.verify(info); len(faults) > 0 {
		if _, gone := s.Find(info.Run, info.Ref()); gone != nil { // another process has removed the checkpoint
			return info, nil, gone
		}
	}
	return info, faults, err
}

func (s *Store) verify(info Info) (faults []Fault, err error) {
	reader := s.chunkReader()
	defer reader.close()
	seen := map[string]bool{}
	for rank := range info.WorldSize {
		_, plans, err := s.plan(info.Run, info.Ref(), []int{rank})
		if err != nil {
			return nil, err
		}
		for _, e := range plans[0] {
			for i, c := range e.chunks {
				if seen[c.sha] {
					continue
				}
				seen[c.sha] = true
				if _, err := reader.read(c, fmt.Sprintf("chunk %d of %s, rank %d,", i, quote(e.Name), rank)); err != nil {
					faults = append(faults, Fault{rank, e.Name, i, c.sha, err})
				}
			}
		}
	}
	return faults, nil
}
