package checkpoints

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"drun/internal/sqldb"
	"drun/internal/try"
)

// A checkpoint goes from one store to another as its Manifest and the chunks that the other lacks. These arrive in
// parts, each of which is a checkpoint of the run "incoming UID" until the one that they belong to is there: so what has
// arrived before a connection breaks is not sent again.

// Manifest is a checkpoint without its data.
type Manifest struct {
	Run    string
	Step   int64
	Bytes  int64 // of its chunks, each counted once
	Score  *float64
	Points int64
	Time   time.Time
	Sum    string // see Store.Sum
	Ranks  [][]Listed
}

// Listed is an entry of a manifest.
type Listed struct {
	Name, Kind, DType string
	Shape             []int
	Chunks            []Sized
}

// Sized is a chunk of a manifest.
type Sized struct {
	SHA256 string
	Bytes  int
}

// Manifest reads the manifest of a checkpoint.
func (s *Store) Manifest(info Info) (_ *Manifest, err error) {
	defer try.Caught(&err)
	m := &Manifest{Run: info.Run, Step: info.Step, Score: info.Score, Points: info.Points, Time: info.Time, Sum: try.To(s.Sum(info.Run, info.Ref()))}
	_, plans := try.To2(s.plan(info.Run, info.Ref(), ranksOf(info)))
	for _, plan := range plans {
		list := []Listed{}
		for _, p := range plan {
			l := Listed{Name: p.Name, Kind: p.Kind, DType: p.DType, Shape: p.Shape}
			for _, c := range p.chunks {
				l.Chunks = append(l.Chunks, Sized{c.sha, int(c.bytes)})
			}
			list = append(list, l)
		}
		m.Ranks = append(m.Ranks, list)
	}
	for _, c := range m.Chunks() {
		m.Bytes += int64(c.Bytes)
	}
	return m, nil
}

// Chunks are the chunks of a checkpoint, each once.
func (m *Manifest) Chunks() (list []Sized) {
	seen := map[string]bool{}
	for _, entries := range m.Ranks {
		for _, e := range entries {
			for _, c := range e.Chunks {
				if !seen[c.SHA256] {
					seen[c.SHA256], list = true, append(list, c)
				}
			}
		}
	}
	return list
}

var sumForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// check refuses a manifest that no store has made.
func (m *Manifest) check() error {
	bad := len(m.Ranks) < 1 || len(m.Ranks) > maxRanks || m.Time.Year() < 1970 || m.Time.Year() > 9999 || strings.Contains(m.Run, " ")
	for _, entries := range m.Ranks {
		for _, e := range entries {
			for i, c := range e.Chunks {
				bad = bad || !sumForm().MatchString(c.SHA256) || c.Bytes < 1 || c.Bytes > ChunkSize || i < len(e.Chunks)-1 && c.Bytes != ChunkSize
			}
			bad = bad || slices.ContainsFunc(e.Shape, func(n int) bool { return n < 0 })
		}
	}
	if bad {
		return errors.New("what was sent is no checkpoint of drun")
	}
	return nil
}

// Lacking returns which chunks the store does not have.
func (s *Store) Lacking(sums []string) (lacking []string, err error) {
	if s == nil {
		return sums, nil
	}
	fresh := map[string]*chunk{}
	for _, sum := range sums {
		fresh[sum] = nil
	}
	p := &pack{store: s, torn: map[string]bool{}}
	err = p.forgetKnown(fresh)
	for _, sum := range sums {
		if _, lacks := fresh[sum]; lacks {
			lacking = append(lacking, sum)
		}
	}
	return lacking, err
}

// ReadChunks calls fn with the data of chunks, which it must not keep, after comparing it with the SHA-256. A chunk that
// the store does not have is an error.
func (s *Store) ReadChunks(sums []string, fn func(sum string, data []byte) error) (err error) {
	defer try.Caught(&err)
	try.FailIf(s == nil, "no checkpoint was ever saved")
	reader := s.chunkReader()
	defer reader.close()
	for _, sum := range sums {
		at, err := s.locate(sum)
		try.Ok(sqldb.Wrap(s.path, err))
		try.Ok(reader.use(at, "the chunk "+sum, thoroughly, func(data []byte) error { return fn(sum, data) }))
	}
	return nil
}

// incoming precedes the uid in the run name of parts that have arrived.
const incoming = "incoming "

// Receive keeps chunks of a checkpoint of a run that is still to come.
func (s *Store) Receive(run string, chunks [][]byte) (err error) {
	defer try.Caught(&err)
	list := []Entry{}
	for _, data := range chunks {
		try.FailIf(len(data) < 1 || len(data) > ChunkSize, "a chunk has %d bytes", len(data))
		sum := sha256.Sum256(data)
		list = append(list, Entry{Name: hex.EncodeToString(sum[:]), Kind: "chunk", Data: data})
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	list = slices.CompactFunc(list, func(a, b Entry) bool { return a.Name == b.Name })
	_, err = s.Save(incoming+run, time.Now().UnixNano(), nil, map[int][]Entry{0: list})
	return err
}

// Enter adds a checkpoint whose chunks have all arrived, and reports whether it was there already. It replaces another of the same step.
func (s *Store) Enter(m *Manifest) (there bool, err error) {
	defer try.Caught(&err)
	try.Ok(m.check())
	if info, err := s.Find(m.Run, Step(m.Step)); err == nil {
		if try.To(s.Sum(m.Run, info.Ref())) == m.Sum {
			return true, nil
		}
	} else if !errors.As(err, new(*ErrNone)) {
		return false, err
	}
	parts := map[int][]Entry{}
	for rank, entries := range m.Ranks {
		parts[rank] = []Entry{}
		for _, e := range entries {
			to := Entry{Name: e.Name, Kind: e.Kind, DType: e.DType, Shape: e.Shape}
			for _, c := range e.Chunks {
				to.Chunks = append(to.Chunks, Chunk{SHA256: c.SHA256, Bytes: c.Bytes, Fetch: func() ([]byte, error) { return nil, errChunkLacking }})
			}
			parts[rank] = append(parts[rank], to)
		}
	}
	info := try.To(s.save(Info{Run: m.Run, Step: m.Step, Score: m.Score, WorldSize: len(m.Ranks), Time: m.Time.UTC(), Points: m.Points}, parts))
	if sum, err := s.Sum(m.Run, Step(m.Step)); err != nil || sum != m.Sum {
		if now, err := s.Find(m.Run, Step(m.Step)); err == nil {
			_, _ = s.Delete(now)
		}
		return false, errors.Join(err, fmt.Errorf("the checkpoint of step %d is not what was sent", info.Step))
	}
	return false, nil
}

// errChunkLacking says that a checkpoint was to be entered of which a chunk has not arrived, or was removed since.
var errChunkLacking = errors.New("a chunk of the checkpoint is not here")

// IsLacking reports whether an error of Enter says that the chunks have to be sent again.
func IsLacking(err error) bool { return errors.Is(err, errChunkLacking) }

// Arrived removes what was kept for checkpoints of a run that have all been entered.
func (s *Store) Arrived(run string) error {
	list, err := s.List(incoming + run)
	if err == nil && len(list) > 0 {
		_, err = s.Delete(list...)
	}
	return err
}

// Forget removes what was kept before a time for checkpoints that have not come since.
func (s *Store) Forget(before time.Time) (err error) {
	defer try.Caught(&err)
	all := try.To(s.All())
	_, err = s.Delete(slices.DeleteFunc(all, func(i Info) bool { return !strings.HasPrefix(i.Run, incoming) || i.Time.After(before) })...)
	return err
}
