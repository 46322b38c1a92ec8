package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
)

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
	for {
		info, err := s.Find(run, ref)
		if err != nil {
			return info, nil, err
		}
		_, before, err := s.generation(s.sql)
		if err != nil {
			return info, nil, err
		}
		faults, err := s.verify(info)
		gone := len(faults) > 0 && errors.Is(faults[0].Err, fs.ErrNotExist)
		if gone || errors.As(err, new(*ErrNone)) {
			// Another process may have moved the chunks, or removed the checkpoint.
			if _, now, gerr := s.generation(s.sql); gerr == nil && now != before {
				continue
			}
		}
		return info, faults, err
	}
}

func (s *Store) verify(info Info) (faults []Fault, err error) {
	reader := s.chunkReader()
	defer reader.close()
	seen := map[string]bool{}
	for rank := range info.WorldSize {
		_, plans, _, err := s.plan(info.Run, info.Ref(), []int{rank})
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
