package checkpoints

import "fmt"

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
