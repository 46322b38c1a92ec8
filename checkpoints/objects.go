package checkpoints

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"drun/internal/exit"
	"drun/internal/sqldb"
)

// Objects keeps chunks outside of the home, such as in a bucket. A chunk is there before a checkpoint with it is in the catalog,
// where it has no pack, and the row elsewhere.
type Objects interface {
	// Put keeps data; when it returns nil, a crash does not lose it. It may be there already.
	Put(sum string, data []byte) error
	// Get returns the data, which the store compares with the sum. What is not there is fs.ErrNotExist.
	Get(sum string) ([]byte, error)
}

// elsewhere is the column row of a chunk that Objects has; that of one in a pack is 1 or more, of one in the catalog NULL.
const elsewhere = 0

// atOnce is how many chunks are on their way to Objects at a time.
const atOnce = 8

// addElsewhere accepts chunks, and hands them over.
func (p *pack) addElsewhere(chunks map[string][]byte) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, sha := range slices.Sorted(maps.Keys(chunks)) {
		p.rows = append(p.rows, packRow{sha: sha, bytes: len(chunks[sha])})
		p.has[sha] = true
		group.Go(func() error { return p.store.Objects.Put(sha, chunks[sha]) })
	}
	return group.Wait()
}

// fromElsewhere reads a chunk that is not in the home.
func (s *Store) fromElsewhere(sha string) ([]byte, error) {
	if s.Objects == nil {
		return nil, &unreachable{exit.WithHint(&sqldb.Error{Path: s.path, What: "has a chunk that is in a bucket"}, "whoever serves this home names the bucket with drun serve --artifacts; drun pull takes runs from there, too")}
	}
	data, err := s.Objects.Get(sha)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = &unreachable{err}
	}
	return data, err
}

// unreachable is an error of Objects, which says nothing about the checkpoint.
type unreachable struct{ error }

func (e *unreachable) Unwrap() error { return e.error }

// IsElsewhere reports whether an error says that a chunk could not be had from where it is, outside of the home.
func IsElsewhere(err error) bool { return errors.As(err, new(*unreachable)) }

// Offload moves all packs to Objects.
func (s *Store) Offload() error {
	return s.rewrite(func(packUse) (bool, error) { return true, nil }, nil)
}

// Sweep calls remove with those of these chunks that no checkpoint has. Nothing is saved meanwhile by this store, which is the
// only one that writes to its Objects.
func (s *Store) Sweep(sums []string, remove func(sum string) error) error {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	unused, err := s.Lacking(sums)
	for _, sum := range unused {
		if err == nil {
			err = remove(sum)
		}
	}
	return err
}
