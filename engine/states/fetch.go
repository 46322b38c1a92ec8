package states

import (
	"crypto/sha256"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Over a link, the side that needs a state asks for it, piece by piece, and the other only answers. So the memory of both is
// bounded, and nothing comes that was not asked for. To save, the coordinator asks a node for the SHA-256 of what its ranks have
// handed over, and then for the chunks that nobody else has and the store has not. To restore, a node asks the coordinator for
// what its ranks have between them, once.

// Range is some bytes of a state's memory.
type Range struct {
	_             struct{} `cbor:",toarray"`
	Offset, Bytes int64
}

// Want asks for the bytes of a range, or for the SHA-256 of some.
type Want struct {
	ID     uint64 // of the question
	State  uint64 // its number, with the side that has it
	Ranges []Range
	Sums   bool `cbor:",omitempty"`
}

// Got answers it.
type Got struct {
	ID    uint64
	Data  []byte `cbor:",omitempty"`
	Error string `cbor:",omitempty"`
}

const (
	// mostBytes bounds each range, and with it an answer: a chunk of a checkpoint.
	mostBytes = 1 << 20
	// mostSums bounds how much is hashed for one question.
	mostSums = 16
	// pieceBytes is how much of a restored state comes in one message, and pieces how many of them are under way at a time.
	pieceBytes = 1 << 18
	pieces     = 8
	// silentFor is how long the other side may answer nothing at all.
	silentFor = time.Minute
)

// Held are the states that the other side may ask for.
type Held struct {
	mu sync.RWMutex
	by map[uint64]*Region
}

// Put makes a state's memory known by a number.
func (h *Held) Put(state uint64, g *Region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[uint64]*Region{}
	}
	h.by[state] = g
}

// Remove makes it unknown. Then nobody reads it any more.
func (h *Held) Remove(state uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, state)
}

// Answer gives what was asked for, or says why not.
func (h *Held) Answer(w *Want) *Got {
	h.mu.RLock()
	defer h.mu.RUnlock()
	got := &Got{ID: w.ID}
	g := h.by[w.State]
	fits := g != nil && len(w.Ranges) > 0 && (len(w.Ranges) == 1 || w.Sums && len(w.Ranges) <= mostSums)
	for _, r := range w.Ranges {
		fits = fits && r.Offset >= 0 && r.Bytes > 0 && r.Bytes <= mostBytes && r.Offset <= g.Used-r.Bytes
	}
	if !fits {
		got.Error = fmt.Sprintf("state %d is not held, or has no such bytes", w.State)
		return got
	}
	if !w.Sums {
		r := w.Ranges[0]
		got.Data = slices.Clone(g.Mem[r.Offset:][:r.Bytes])
		return got
	}
	got.Data = make([]byte, sha256.Size*len(w.Ranges))
	var next atomic.Int64
	var hashers sync.WaitGroup
	for range min(len(w.Ranges), runtime.GOMAXPROCS(0)) {
		hashers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(w.Ranges)); i = next.Add(1) - 1 {
				sum := sha256.Sum256(g.Mem[w.Ranges[i].Offset:][:w.Ranges[i].Bytes])
				copy(got.Data[sha256.Size*i:], sum[:])
			}
		})
	}
	hashers.Wait()
	return got
}

// Source is the other side of a link, as one that has states.
type Source struct {
	name string
	send func(*Want)

	mu    sync.Mutex
	last  uint64
	open  map[uint64]chan *Got
	gone  error
	heard time.Time // when an answer came last
}

// NewSource makes one of what sends it questions; name is for messages.
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

// Deliver takes an answer; one to no question is dropped.
func (s *Source) Deliver(g *Got) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	if to := s.open[g.ID]; to != nil {
		to <- g
		delete(s.open, g.ID)
	}
}

// End says that no answers come any more.
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

// ask waits for an answer of so many bytes.
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
	asked := time.Now()
	s.mu.Unlock()
	s.send(w)
	for limit := silentFor; ; {
		select {
		case g := <-to:
			switch {
			case g == nil:
				return nil, s.gone
			case g.Error != "":
				return nil, fmt.Errorf("%s: %s", s.name, g.Error)
			case int64(len(g.Data)) != bytes:
				return nil, fmt.Errorf("%s has sent %d bytes of a state where it was asked for %d", s.name, len(g.Data), bytes)
			}
			return g.Data, nil
		case <-time.After(limit):
		}
		s.mu.Lock()
		since := time.Since(asked)
		if s.heard.After(asked) {
			since = time.Since(s.heard)
		}
		if limit = silentFor - since; limit <= 0 {
			delete(s.open, w.ID)
			s.mu.Unlock()
			return nil, fmt.Errorf("%s has not sent what it has of a state for %v", s.name, silentFor)
		}
		s.mu.Unlock()
	}
}

// Sums gives the SHA-256 of ranges.
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

// Chunk gives the bytes of a range, whose SHA-256 Sums has told.
func (s *Source) Chunk(state uint64, r Range, sum [sha256.Size]byte) ([]byte, error) {
	data, err := s.ask(&Want{State: state, Ranges: []Range{r}}, r.Bytes)
	if err == nil && sha256.Sum256(data) != sum {
		return nil, fmt.Errorf("%s has offered a chunk with the SHA-256 %x and sent other bytes", s.name, sum)
	}
	return data, err
}

// Copy puts a range into other memory, from the offset at on.
func (s *Source) Copy(to io.WriterAt, at int64, state uint64, r Range) error {
	var copying sync.WaitGroup
	var mu sync.Mutex
	var failed error
	places := make(chan struct{}, pieces)
	for from := int64(0); from < r.Bytes; from += pieceBytes {
		places <- struct{}{}
		mu.Lock()
		stop := failed != nil
		mu.Unlock()
		if stop {
			break
		}
		copying.Go(func() {
			defer func() { <-places }()
			n := min(pieceBytes, r.Bytes-from)
			data, err := s.ask(&Want{State: state, Ranges: []Range{{Offset: r.Offset + from, Bytes: n}}}, n)
			if err == nil {
				_, err = to.WriteAt(data, at+from)
			}
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	copying.Wait()
	return failed
}
