// Package transfer carries states between ranks, the agents of their nodes and the coordinator: in memory files on
// one machine, and in pieces over the links between machines. engine/record and engine/node use it.
package transfer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"drun/collective/sharedmem"
	"drun/engine"
	"drun/internal/exit"
	"drun/internal/try"

	"golang.org/x/sync/errgroup"
)

// Region is memory through which states go to and from the ranks of this machine. It has no name outside this
// process and ends with it. Pages that nobody writes to take no memory.
type Region struct {
	Mem     []byte
	Used    int64 // bytes, from its beginning
	Written int64 // bytes from its beginning that already have memory
	// Holds is what the previous save left in it, by offset, as far as is known.
	Holds map[int64]Content

	file   *os.File
	number uint64
	lent   atomic.Bool // ranks may read it for as long as they live
}

// Content identifies data: equal data has equal content.
type Content struct {
	DType, Sum string
	Bytes      int64
}

// WriteAt writes through the file, not the mapping, where a lack of memory would kill the process.
func (g *Region) WriteAt(data []byte, offset int64) (int, error) {
	n, err := g.file.WriteAt(data, offset)
	if err != nil {
		err = fmt.Errorf("cannot hold %d bytes of a checkpoint in memory: %w", len(data), err)
	}
	return n, err
}

// Lend lets a rank of this machine restore its part of a checkpoint from the file.
func (g *Region) Lend(to *engine.Restored) {
	g.lent.Store(true)
	to.File, to.Size = g.path(), g.Used
}

// Ask lets a rank of this machine hand over its part of a checkpoint in the file.
func (g *Region) Ask(to *engine.HandOver) {
	to.File, to.Region, to.Size, to.Written = g.path(), g.number, g.Used, g.Used <= g.Written
}

// path is where the ranks of this machine can open the region.
func (g *Region) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), g.file.Fd()) }

// Close ends the region; ranks that have opened it keep their memory.
func (g *Region) Close() {
	_ = sharedmem.Unmap(g.Mem)
	g.file.Close()
}

var lastNumber atomic.Uint64

// Number returns a number for a region or a state that is unique in this process.
func Number() uint64 { return lastNumber.Add(1) }

// Regions keeps an unused region for the next checkpoint: memory that the kernel has already provided is several
// times faster to write.
type Regions struct {
	mu    sync.Mutex
	spare *Region
}

func (p *Regions) Take(bytes int64) (_ *Region, err error) {
	defer try.Caught(&err)
	p.mu.Lock()
	g := p.spare
	p.spare = nil
	p.mu.Unlock()
	size := sharedmem.PageRound(int(bytes))
	if g != nil && size <= len(g.Mem) && len(g.Mem) <= 2*size {
		g.Used = bytes
		return g, nil
	}
	if g != nil {
		g.Close()
	}
	file := try.To(sharedmem.Create(engine.StateMemory))
	mem, err := sharedmem.Map(file, 0, size)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &Region{file: file, number: Number(), Mem: mem, Used: bytes}, nil
}

// Give takes back a region that no rank writes to or opens any more; it may be nil.
func (p *Regions) Give(g *Region) {
	if g == nil {
		return
	}
	if g.lent.Load() {
		g.Close()
		return
	}
	p.mu.Lock()
	g, p.spare = p.spare, g
	p.mu.Unlock()
	if g != nil {
		g.Close()
	}
}

func (p *Regions) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare != nil {
		p.spare.Close()
		p.spare = nil
	}
}

// Over a link, the side that needs a state asks for it piece by piece, and the other only answers. This bounds the
// memory of both, and nothing arrives unasked. To save, the coordinator asks a node for the SHA-256
// sums of what its ranks have handed over, then for the chunks that neither another node nor the store has. To
// restore, a node asks the coordinator once for what its ranks need between them.

// Range is a range of bytes in a state's memory.
type Range struct {
	_             struct{} `cbor:",toarray"`
	Offset, Bytes int64
}

// Want asks for the bytes of a range, or for the SHA-256 of several.
type Want struct {
	ID     uint64 // of this request
	State  uint64 // its number, on the side that has it
	Ranges []Range
	Sums   bool `cbor:",omitempty"`
}

// Got answers Want.
type Got struct {
	ID    uint64
	Data  []byte    `cbor:",omitempty"`
	Error string    `cbor:",omitempty"`
	Code  exit.Code `cbor:",omitempty"` // of the error
	Hint  string    `cbor:",omitempty"` // what to do about it
}

const (
	// mostBytes limits a range, and so an answer: a chunk of a checkpoint.
	mostBytes = 1 << 20
	// mostSums limits how much is hashed for one request.
	mostSums = 16
	// pieceBytes is how much of a restored state one message carries, and pieces how many of them are under way at
	// a time.
	pieceBytes = 1 << 18
	pieces     = 8
	// silentFor is how long an answer may take: the other side's disk may be slow, and others may wait for it, too.
	silentFor = 5 * time.Minute
)

// Held is the states that the other side may ask for.
type Held struct {
	mu sync.RWMutex
	by map[uint64]held
}

// held is a state: in memory, or read when it is asked for.
type held struct {
	memory *Region
	reader io.ReaderAt
	size   int64
}

// Put registers a state's memory under a number.
func (h *Held) Put(state uint64, g *Region) { h.put(state, held{memory: g, size: g.Used}) }

// PutReader registers a state that is read when it is asked for, by several readers at a time. It gives no SHA-256. Read
// errors are passed on with their exit code and hint.
func (h *Held) PutReader(state uint64, from io.ReaderAt, size int64) {
	h.put(state, held{reader: from, size: size})
}

func (h *Held) put(state uint64, is held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[uint64]held{}
	}
	h.by[state] = is
}

// Remove unregisters a state. Its memory is then no longer read; a read of a state that is not in memory may still
// be under way.
func (h *Held) Remove(state uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, state)
}

// Answer gives what was asked for, or says why not.
func (h *Held) Answer(w *Want) *Got {
	h.mu.RLock()
	is, fits := h.by[w.State]
	if is.reader != nil {
		h.mu.RUnlock() // a disk may not answer
	} else {
		defer h.mu.RUnlock()
	}
	got := &Got{ID: w.ID}
	fits = fits && len(w.Ranges) > 0 && (len(w.Ranges) == 1 || w.Sums && len(w.Ranges) <= mostSums) && !(w.Sums && is.reader != nil)
	for _, r := range w.Ranges {
		fits = fits && r.Offset >= 0 && r.Bytes > 0 && r.Bytes <= mostBytes && r.Offset <= is.size-r.Bytes
	}
	switch {
	case !fits:
		got.Error = fmt.Sprintf("state %d is not held, or has no such bytes", w.State)
	case w.Sums:
		got.Data = sums(is.memory, w.Ranges)
	case is.reader != nil:
		got.Data = make([]byte, w.Ranges[0].Bytes)
		if _, err := is.reader.ReadAt(got.Data, w.Ranges[0].Offset); err != nil {
			got.Data, got.Error, got.Code, got.Hint = nil, err.Error(), exit.CodeOf(err), exit.HintOf(err)
		}
	default:
		r := w.Ranges[0]
		got.Data = slices.Clone(is.memory.Mem[r.Offset:][:r.Bytes])
	}
	return got
}

// sums gives the SHA-256 of each range, computed on all cores.
func sums(g *Region, ranges []Range) []byte {
	out := make([]byte, sha256.Size*len(ranges))
	var hashers errgroup.Group
	hashers.SetLimit(runtime.GOMAXPROCS(0))
	for i, r := range ranges {
		hashers.Go(func() error {
			sum := sha256.Sum256(g.Mem[r.Offset:][:r.Bytes])
			copy(out[sha256.Size*i:], sum[:])
			return nil
		})
	}
	_ = hashers.Wait()
	return out
}

// Source is the other side of a link, as the holder of states.
type Source struct {
	name string
	send func(*Want)

	mu   sync.Mutex
	last uint64
	open map[uint64]chan *Got
	gone error
}

// NewSource makes a source that asks with send; name is for messages.
func NewSource(name string, send func(*Want)) *Source {
	return &Source{name: name, send: send, open: map[uint64]chan *Got{}}
}

// GoneError says that the other side has ended.
type GoneError struct {
	Name string
	Why  error
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("%s is gone, and with it the state that it had: %v", e.Name, e.Why)
}

// Deliver accepts an answer; one that answers no request is dropped.
func (s *Source) Deliver(g *Got) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to := s.open[g.ID]; to != nil {
		to <- g
		delete(s.open, g.ID)
	}
}

// End says that no more answers will come.
func (s *Source) End(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone == nil {
		s.gone = &GoneError{s.name, why}
	}
	for id, to := range s.open {
		close(to)
		delete(s.open, id)
	}
}

// ask sends a request and waits for its answer, which must have that many bytes.
func (s *Source) ask(w *Want, bytes int64) ([]byte, error) {
	s.mu.Lock()
	if s.gone != nil {
		s.mu.Unlock()
		return nil, s.gone
	}
	s.last++
	w.ID = s.last
	to := make(chan *Got, 1)
	s.open[w.ID] = to
	s.mu.Unlock()
	s.send(w)
	select {
	case g := <-to:
		switch {
		case g == nil:
			return nil, s.gone
		case g.Error != "":
			err := fmt.Errorf("%s: %s", s.name, g.Error)
			if g.Code != exit.Done {
				err = exit.WithCode(err, g.Code)
			}
			return nil, exit.WithHint(err, g.Hint)
		case int64(len(g.Data)) != bytes:
			return nil, fmt.Errorf("%s has sent %d bytes of a state where it was asked for %d", s.name, len(g.Data), bytes)
		}
		return g.Data, nil
	case <-time.After(silentFor):
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, w.ID)
		return nil, fmt.Errorf("%s has not sent the data of a state that it was asked for within %v", s.name, silentFor)
	}
}

func (s *Source) Sums(state uint64, ranges []Range) (sums [][sha256.Size]byte, err error) {
	for few := range slices.Chunk(ranges, mostSums) {
		data, err := s.ask(&Want{State: state, Ranges: few, Sums: true}, int64(sha256.Size*len(few)))
		if err != nil {
			return nil, err
		}
		for sum := range slices.Chunk(data, sha256.Size) {
			sums = append(sums, [sha256.Size]byte(sum))
		}
	}
	return sums, nil
}

// Chunk gives the bytes of a range, whose SHA-256 must be sum.
func (s *Source) Chunk(state uint64, r Range, sum [sha256.Size]byte) ([]byte, error) {
	data, err := s.ask(&Want{State: state, Ranges: []Range{r}}, r.Bytes)
	if err == nil && sha256.Sum256(data) != sum {
		return nil, fmt.Errorf("%s has offered a chunk with the SHA-256 %x and sent other bytes", s.name, sum)
	}
	return data, err
}

// Copy copies a range to other memory, starting at offset at.
func (s *Source) Copy(to io.WriterAt, at int64, state uint64, r Range) error {
	copying, failing := errgroup.WithContext(context.Background())
	copying.SetLimit(pieces)
	for from := int64(0); from < r.Bytes && failing.Err() == nil; from += pieceBytes {
		copying.Go(func() error {
			n := min(pieceBytes, r.Bytes-from)
			data, err := s.ask(&Want{State: state, Ranges: []Range{{Offset: r.Offset + from, Bytes: n}}}, n)
			if err == nil {
				_, err = to.WriteAt(data, at+from)
			}
			return err
		})
	}
	return copying.Wait()
}
