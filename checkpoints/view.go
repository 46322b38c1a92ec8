package checkpoints

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"drun/internal/try"
)

// View is the data of some ranks of a checkpoint, read from the packs as it is asked for: it takes little memory,
// however large the data is. Its methods may be called concurrently.
type View struct {
	Info  Info
	Parts [][]Located // by rank, in the order asked for; entries with equal data share an offset, a multiple of 64
	Size  int64       // in bytes

	store *Store
	reads []reading // ordered by offset

	mu     sync.Mutex
	idle   []*chunkReader
	recent []*recent // latest first
	closed bool
}

// mostRecent is how many chunks a view keeps for partial reads: that many callers can read in different places.
const mostRecent = 8

// recent is a chunk that was read or is being read.
type recent struct {
	n    int
	once sync.Once
	data []byte
	err  error
}

var errClosed = errors.New("the checkpoint is no longer open for reading")

// View opens a view of some ranks of a checkpoint. Without such a checkpoint the error is *ErrNone.
func (s *Store) View(run string, ref Ref, ranks []int) (*View, error) {
	info, plans, err := s.plan(run, ref, ranks)
	v := &View{store: s, Info: info}
	if err == nil {
		v.Parts, v.reads, v.Size = arrange(plans)
	}
	return v, err
}

// ReadAt reads bytes of the data. It checks every chunk against its sum before returning any of it: bytes that have
// changed are a *sqldb.Error.
func (v *View) ReadAt(p []byte, offset int64) (n int, err error) {
	defer try.Caught(&err)
	try.FailIf(offset < 0 || offset > v.Size, "there is no byte %d among %d", offset, v.Size)
	for i := v.at(offset); n < len(p) && i < len(v.reads); i++ {
		r := &v.reads[i]
		if gap := min(r.offset-offset, int64(len(p)-n)); gap > 0 { // a gap between entries
			clear(p[n:][:gap])
			n, offset = n+int(gap), offset+gap
		}
		if n == len(p) {
			break
		}
		data := try.To(v.chunk(i))
		took := copy(p[n:], data[offset-r.offset:])
		n, offset = n+took, offset+int64(took)
	}
	if gap := min(v.Size-offset, int64(len(p)-n)); gap > 0 { // a gap after the last entry
		clear(p[n:][:gap])
		n += int(gap)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// at is the index of the first chunk that ends after an offset.
func (v *View) at(offset int64) int {
	i, _ := slices.BinarySearchFunc(v.reads, offset, func(r reading, offset int64) int {
		if r.offset+r.bytes <= offset {
			return -1
		}
		return 1
	})
	return i
}

// chunk returns a chunk, of which others may want bytes at the same time or next.
func (v *View) chunk(n int) ([]byte, error) {
	v.mu.Lock()
	i := slices.IndexFunc(v.recent, func(c *recent) bool { return c.n == n })
	var c *recent
	if i >= 0 {
		c = v.recent[i]
		v.recent = slices.Delete(v.recent, i, i+1)
	} else {
		c = &recent{n: n}
	}
	v.recent = slices.Insert(v.recent, 0, c)
	v.recent = v.recent[:min(len(v.recent), mostRecent)]
	v.mu.Unlock()
	c.once.Do(func() {
		c.err = v.with(func(chunks *chunkReader) error {
			return v.use(chunks, n, func(data []byte) error {
				c.data = bytes.Clone(data)
				return nil
			})
		})
	})
	return c.data, c.err
}

// Copy copies the chunks that begin within a range of the data to the same offsets of to, on all cores. Of several
// errors it returns that of the first chunk.
func (v *View) Copy(to io.WriterAt, from, size int64) error {
	first, last := v.at(from), v.at(from+size)
	for first < last && v.reads[first].offset < from {
		first++
	}
	for last < len(v.reads) && v.reads[last].offset < from+size {
		last++
	}
	next, errs := atomic.Int64{}, make([]error, last-first)
	var readers sync.WaitGroup
	for range min(len(errs), runtime.GOMAXPROCS(0)) {
		readers.Go(func() {
			_ = v.with(func(chunks *chunkReader) error {
				for i := int(next.Add(1) - 1); i < len(errs); i = int(next.Add(1) - 1) {
					errs[i] = v.use(chunks, first+i, func(data []byte) error {
						_, err := to.WriteAt(data, v.reads[first+i].offset)
						return err
					})
					if errs[i] != nil {
						next.Store(int64(len(errs)))
					}
				}
				return nil
			})
		})
	}
	readers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// InOrder gives do the chunks of entries one after the other, while later ones are read on other cores. do must not keep
// the data.
func (v *View) InOrder(entries []Located, do func(data []byte) error) (err error) {
	var chunks []int
	for _, e := range entries {
		for n := v.at(e.Offset); n < len(v.reads) && v.reads[n].offset < e.Offset+e.Bytes; n++ {
			chunks = append(chunks, n)
		}
	}
	turn := make(chan struct{}) // closed when the chunk before the next one is done
	close(turn)
	var next sync.Mutex
	var readers sync.WaitGroup
	for range min(len(chunks), runtime.GOMAXPROCS(0)+1) {
		readers.Go(func() {
			_ = v.with(func(reader *chunkReader) error {
				for failed := false; !failed; {
					next.Lock()
					if len(chunks) == 0 {
						next.Unlock()
						break
					}
					n, mine, done := chunks[0], turn, make(chan struct{})
					chunks, turn = chunks[1:], done
					next.Unlock()
					e := v.use(reader, n, func(data []byte) error {
						if <-mine; err != nil {
							return nil
						}
						return do(data)
					})
					if <-mine; err == nil {
						err = e
					}
					failed = err != nil
					close(done)
				}
				return nil
			})
		})
	}
	readers.Wait()
	return err
}

// with lends do a reader that may have packs open already.
func (v *View) with(do func(chunks *chunkReader) error) error {
	v.mu.Lock()
	chunks := v.store.chunkReader()
	if last := len(v.idle) - 1; last >= 0 {
		chunks, v.idle = v.idle[last], v.idle[:last]
	}
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.closed {
			chunks.close()
		} else {
			v.idle = append(v.idle, chunks)
		}
	}()
	return do(chunks)
}

// use reads a chunk.
func (v *View) use(chunks *chunkReader, n int, do func(data []byte) error) error {
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	if closed {
		return errClosed
	}
	return chunks.use(v.reads[n].place, v.reads[n].name, quickly, do)
}

// Release frees the memory and the files that reading has taken. Reading may go on.
func (v *View) Release() {
	v.mu.Lock()
	idle := v.idle
	v.idle, v.recent = nil, nil
	v.mu.Unlock()
	for _, chunks := range idle {
		chunks.close()
	}
}

// Close ends the view: further reads fail.
func (v *View) Close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.Release()
}
