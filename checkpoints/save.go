package checkpoints

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"drun/internal/each"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// ChunkSize is the size in bytes of the chunks into which an entry's data is cut. The cuts are at fixed offsets, so
// that equal tensors give equal chunks.
const ChunkSize = 1 << 20

type chunk struct {
	sha   string
	data  []byte                 // nil: it is elsewhere
	fetch func() ([]byte, error) // gets it, if it is elsewhere
}

// cutting is the data of entries, cut into chunks whose SHA-256 is computed on all cores.
type cutting struct {
	chunks    map[int][][]chunk // by rank and entry; complete once all are hashed
	work      []*chunk          // each distinct chunk once
	elsewhere []*chunk          // each once too, with known SHA-256
	next      atomic.Int64
	hashers   sync.WaitGroup
	hashed    chan *chunk // closed after the last
}

// cut begins to cut and hash. Data at the same memory address is read once.
func cut(parts map[int][]Entry) *cutting {
	type place struct {
		data   *byte
		chunks *Chunk
		bytes  int64
	}
	known := map[place][]chunk{}
	c := &cutting{chunks: map[int][][]chunk{}}
	for rank := range len(parts) {
		for _, e := range parts[rank] {
			at := place{unsafe.SliceData(e.Data), unsafe.SliceData(e.Chunks), e.size()}
			chunks, ok := known[at]
			if !ok {
				chunks = make([]chunk, 0, len(e.Chunks)+(len(e.Data)+ChunkSize-1)/ChunkSize)
				for part := range slices.Chunk(e.Data, ChunkSize) {
					chunks = append(chunks, chunk{data: part})
					c.work = append(c.work, &chunks[len(chunks)-1])
				}
				for _, part := range e.Chunks {
					if part.Data != nil {
						chunks = append(chunks, chunk{data: part.Data})
						c.work = append(c.work, &chunks[len(chunks)-1])
						continue
					}
					chunks = append(chunks, chunk{sha: part.SHA256, fetch: part.Fetch})
					c.elsewhere = append(c.elsewhere, &chunks[len(chunks)-1])
				}
				known[at] = chunks
			}
			c.chunks[rank] = append(c.chunks[rank], chunks)
		}
	}
	c.hashed = make(chan *chunk, len(c.work))
	for range min(len(c.work), runtime.GOMAXPROCS(0)) {
		c.hashers.Go(func() {
			for i := c.next.Add(1) - 1; i < int64(len(c.work)); i = c.next.Add(1) - 1 {
				sum := sha256.Sum256(c.work[i].data)
				c.work[i].sha = hex.EncodeToString(sum[:])
				c.hashed <- c.work[i]
			}
		})
	}
	go func() {
		c.hashers.Wait()
		close(c.hashed)
	}()
	return c
}

// batches yields the chunks by SHA-256 as these become known; chunks that are elsewhere come last.
func (c *cutting) batches(yield func(map[string]*chunk) bool) {
	for first := range c.hashed {
		batch := map[string]*chunk{first.sha: first}
		for range len(c.hashed) {
			more := <-c.hashed
			batch[more.sha] = more
		}
		if !yield(batch) {
			return
		}
	}
	if len(c.elsewhere) > 0 {
		yield(bySum(c.elsewhere))
	}
}

// again yields all chunks, after batches has yielded them before.
func (c *cutting) again(yield func(map[string]*chunk) bool) {
	c.hashers.Wait()
	_ = yield(bySum(c.work)) && yield(bySum(c.elsewhere))
}

func bySum(chunks []*chunk) map[string]*chunk {
	batch := map[string]*chunk{}
	for _, c := range chunks {
		batch[c.sha] = c
	}
	return batch
}

// fetching is how many chunks that are elsewhere are in memory at a time.
const fetching = 16

// fetchAll yields the data of chunks that are elsewhere as it arrives.
func fetchAll(chunks map[string]*chunk) iter.Seq2[map[string][]byte, error] {
	return func(yield func(map[string][]byte, error) bool) {
		type outcome struct {
			sha  string
			data []byte
			err  error
		}
		fetched, stop := make(chan outcome), make(chan struct{})
		var fetchers sync.WaitGroup
		defer fetchers.Wait()
		defer close(stop)
		sums, next := slices.Collect(maps.Keys(chunks)), atomic.Int64{}
		for range min(fetching, len(chunks)) {
			fetchers.Go(func() {
				for i := next.Add(1) - 1; i < int64(len(sums)); i = next.Add(1) - 1 {
					data, err := chunks[sums[i]].fetch()
					select {
					case fetched <- outcome{sums[i], data, err}:
					case <-stop:
						return
					}
				}
			})
		}
		for range len(chunks) {
			if o := <-fetched; !yield(map[string][]byte{o.sha: o.data}, o.err) || o.err != nil {
				return
			}
		}
	}
}

// end waits until nothing reads the data any more.
func (c *cutting) end() {
	c.next.Store(int64(len(c.work)))
	c.hashers.Wait()
}

// Save stores the parts of all ranks as one checkpoint. When it returns nil, the checkpoint is durable and visible,
// and has replaced any of the same step; otherwise, and after a crash, nothing has changed for readers. run is the
// run's UID; parts holds ranks 0 to n-1; score may be nil. Names are unique within a rank.
func (s *Store) Save(run string, step int64, score *float64, parts map[int][]Entry) (Info, error) {
	return s.SaveAfter(-1, run, step, score, parts)
}

// SaveAfter is like Save, and keeps with the checkpoint how many points the run had recorded before it.
func (s *Store) SaveAfter(points int64, run string, step int64, score *float64, parts map[int][]Entry) (Info, error) {
	return s.save(Info{Run: run, Step: step, Score: score, WorldSize: len(parts), Time: time.Now().UTC(), Points: points}, parts)
}

func (s *Store) save(info Info, parts map[int][]Entry) (Info, error) {
	step := info.Step
	for rank := range len(parts) {
		entries, ok := parts[rank]
		if !ok {
			return info, fmt.Errorf("checkpoint of step %d: the part of rank %d is missing", step, rank)
		}
		names := map[string]bool{}
		for _, e := range entries {
			if names[e.Name] {
				return info, fmt.Errorf("checkpoint of step %d: rank %d has two entries %q", step, rank, e.Name)
			}
			names[e.Name] = true
			info.Bytes += e.size()
		}
	}
	c := cut(parts)
	defer c.end()
	err := s.trySave(info, parts, c, c.batches)
	for tries := 1; errors.Is(err, errChunkGone) && tries < 10; tries++ {
		err = s.trySave(info, parts, c, c.again)
	}
	return info, err
}

// count begins the next generation of a catalog. The error is errChunkGone if another catalog has taken its place,
// which would not recognize the pack as its own.
func count(tx *sql.Tx, store string) (err error) {
	defer try.Caught(&err)
	result := try.To(tx.Exec("UPDATE catalog SET generation = generation + 1 WHERE store = ?", store))
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errChunkGone)
	}
	return nil
}

// errChunkGone says that another process has deleted a chunk that was there when the pack was written; the save
// then starts again.
var errChunkGone = errors.New("chunk is gone")

func (s *Store) trySave(info Info, parts map[int][]Entry, c *cutting, batches iter.Seq[map[string]*chunk]) (err error) {
	from, err := s.origin()
	if err != nil {
		return err
	}
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	p := s.newPack(from)
	defer func() { p.close(err == nil) }()
	defer try.Caught(&err)
	for batch := range batches {
		try.Ok(p.forgetKnown(batch))
		try.Ok(p.addFresh(batch))
	}
	try.Ok(p.sync())
	var unused []string
	var old int64
	err = sqldb.Write(s.sql, s.path, func(tx *sql.Tx) (err error) {
		try.Ok(count(tx, from.store))
		old = try.To(s.replace(tx, info.Run, info.Step))
		try.Ok(s.commit(tx, info, parts, c.chunks, p))
		unused = try.To(s.purge(tx, old != 0))
		return nil
	})
	if old != 0 {
		s.unlock(old)
	}
	if err == nil {
		s.remove(unused)
		err = s.named()
	}
	return err
}

// forgetKnown leaves in fresh only the chunks that the catalog lacks, and those whose pack is no longer whole.
func (p *pack) forgetKnown(fresh map[string]*chunk) error {
	s := p.store
	wanted := sqldb.JSON(slices.Collect(maps.Keys(fresh)))
	return sqldb.Wrap(s.path, sqldb.Each(s.sql, func(rows *sql.Rows) error {
		var sha, file string
		try.Ok(rows.Scan(&sha, &file))
		if _, looked := p.torn[file]; !looked && file != "" {
			p.torn[file] = !s.isWhole(file)
		}
		if !p.torn[file] {
			delete(fresh, sha)
		}
		return nil
	}, "SELECT lower(hex(c.sha256)), coalesce(p.file, '') FROM chunks c LEFT JOIN packs p ON p.id = c.pack WHERE c.sha256 IN (SELECT unhex(value) FROM json_each(?))", wanted))
}

// commit enters the checkpoint into the catalog.
func (s *Store) commit(tx *sql.Tx, info Info, parts map[int][]Entry, cut map[int][][]chunk, p *pack) (err error) {
	defer try.Caught(&err)
	if p.lock == nil {
		// In entry order, large and small chunks fill the catalog's pages better than sorted by SHA-256.
		at := map[string]int{}
		for rank := range len(parts) {
			for _, c := range slices.Concat(cut[rank]...) {
				if _, ok := at[c.sha]; !ok {
					at[c.sha] = len(at)
				}
			}
		}
		slices.SortFunc(p.rows, func(a, b packRow) int { return at[a.sha] - at[b.sha] })
	}
	try.Ok(p.enter(tx))
	result := try.To(tx.Exec("INSERT INTO checkpoints (run, step, score, world_size, bytes, time, points) VALUES (?, ?, ?, ?, ?, ?, ?)",
		info.Run, info.Step, info.Score, info.WorldSize, info.Bytes, info.Time.Format("2006-01-02T15:04:05.000000Z"), info.Points))
	id := try.To(result.LastInsertId())
	for rank := range len(parts) {
		for i, e := range parts[rank] {
			try.Ok(enter(tx, id, info, spot{rank, i, len(parts[rank])}, e, cut[rank][i]))
		}
	}
	return nil
}

func enter(tx *sql.Tx, checkpoint int64, info Info, at spot, e Entry, chunks []chunk) (err error) {
	defer try.Caught(&err)
	if e.Shape == nil {
		e.Shape = []int{}
	}
	sums := each.Of(chunks, func(c chunk) string { return c.sha })
	result := try.To(tx.Exec("INSERT INTO entries (checkpoint, rank, name, kind, dtype, shape, bytes, digest) VALUES (?, ?, ?, ?, ?, ?, ?, unhex(?))",
		checkpoint, at.rank, e.Name, e.Kind, e.DType, sqldb.JSON(e.Shape), e.size(), digest(info, at, e, e.size(), sums)))
	id := try.To(result.LastInsertId())
	for n, c := range chunks {
		result := try.To(tx.Exec("INSERT INTO entry_chunks SELECT ?, ?, id FROM chunks WHERE sha256 = unhex(?)", id, n, c.sha))
		if found, err := result.RowsAffected(); err != nil || found == 0 {
			return errors.Join(err, errChunkGone)
		}
	}
	return nil
}
