package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
)

// pollAtMost is how long one request waits for its keys. Longer waits repeat the request, so that each side soon
// notices if the other is gone, and a rank checks the other ranks in between.
//
// A wait that checks nothing in between, such as a backend's while ranks meet, is repeated every pollSeldom.
const (
	pollAtMost = 150 * time.Millisecond
	pollSeldom = 2 * time.Second
)

// Store is a rank's access to one namespace of the run's key-value store. Keys and values are any bytes. The
// methods are those of PyTorch's TCPStore, and several goroutines may call them. Each ends when ctx does; a
// [collective.WaitLimit] limits the waits and is checked during them.
type Store struct {
	space string
	do    func(ctx context.Context, q *Request) (*Reply, error)
}

var _ collective.Store = (*Store)(nil)

// In returns another namespace of the same store.
func (s *Store) In(space string) *Store { return &Store{space, s.do} }

// Memory makes a store for this process alone. Values are copied both ways, as between processes.
func Memory() *Store {
	table := NewTable()
	return &Store{do: func(ctx context.Context, q *Request) (*Reply, error) {
		own := *q
		own.Values = cloned(q.Values)
		r := table.Do(&own, ctx.Done())
		if len(r.Missing) > 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.Values = cloned(r.Values)
		return r, nil
	}}
}

func cloned(values [][]byte) [][]byte {
	return each.Of(values, bytes.Clone)
}

// Remote gives access to the store of another process, to which messages go both ways.
type Remote struct {
	send func(*Request) error

	mu      sync.Mutex
	last    uint64 // number of the latest request
	waiting map[uint64]chan *Reply
}

// silentAtMost is how long a reply may take beyond the wait that was asked for: longer than a run waits for its disk,
// which may hold up the messages of a node's ranks.
const silentAtMost = 5 * time.Minute

// NewRemote sends requests with send, numbered from first on; their replies are passed to Deliver.
func NewRemote(first uint64, send func(*Request) error) *Remote {
	return &Remote{send: send, last: first, waiting: map[uint64]chan *Reply{}}
}

// Store returns the namespace without a name.
func (r *Remote) Store() *Store { return &Store{do: r.do} }

// Deliver accepts a reply; one that answers no request is dropped.
func (r *Remote) Deliver(a *Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to := r.waiting[a.ID]; to != nil {
		to <- a
		delete(r.waiting, a.ID)
	}
}

func (r *Remote) do(ctx context.Context, asked *Request) (*Reply, error) {
	q, answer := *asked, make(chan *Reply, 1)
	r.mu.Lock()
	r.last++
	q.ID = r.last
	r.waiting[q.ID] = answer
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, q.ID)
	}()
	if err := r.send(&q); err != nil {
		return nil, fmt.Errorf("the key-value store cannot be reached: %w", err)
	}
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(q.Wait + silentAtMost):
		return nil, errors.New("the key-value store does not answer")
	}
}

// A MissingError ends a wait for keys that nobody has set.
type MissingError struct {
	Keys  []string
	After time.Duration
	Cause error // why the wait ended; collective.ErrTimeout if its time was up
}

func (e *MissingError) Error() string {
	const most = 8
	shown := each.Of(e.Keys[:min(len(e.Keys), most)], quote)
	text, verb := "key ", " was"
	if len(e.Keys) > 1 {
		text, verb = "keys ", " were"
	}
	text += strings.Join(shown, ", ")
	if n := len(e.Keys) - len(shown); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	text += fmt.Sprintf("%s not set within %vs", verb, e.After.Round(time.Millisecond).Seconds())
	if !errors.Is(e.Cause, collective.ErrTimeout) {
		text += ": " + e.Cause.Error()
	}
	return text
}

func (e *MissingError) Unwrap() error { return e.Cause }

func (s *Store) Set(ctx context.Context, key string, value []byte) error {
	return s.MultiSet(ctx, []string{key}, [][]byte{value})
}

func (s *Store) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	_, err := s.ask(ctx, &Request{Op: opSet, Keys: keys, Values: values})
	return err
}

func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := s.MultiGet(ctx, []string{key})
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// MultiGet waits until all keys exist and returns their values at one moment.
func (s *Store) MultiGet(ctx context.Context, keys []string) (_ [][]byte, err error) {
	defer try.Caught(&err)
	r := try.To(s.ask(ctx, &Request{Op: opGet, Keys: keys}))
	try.FailIf(len(r.Values) != len(keys), "the store gave %d values for %d keys", len(r.Values), len(keys))
	return r.Values, nil
}

// Add adds to a counter, which starts at 0, and returns the sum. The counter's value is decimal text.
func (s *Store) Add(ctx context.Context, key string, amount int64) (int64, error) {
	r, err := s.ask(ctx, &Request{Op: opAdd, Keys: []string{key}, Amount: amount})
	if err != nil {
		return 0, err
	}
	return r.Number, nil
}

// CompareSet changes a key's value from expected to desired; a key that does not exist is created if expected is
// empty. It returns the value afterwards, empty if the key still does not exist.
func (s *Store) CompareSet(ctx context.Context, key string, expected, desired []byte) (_ []byte, err error) {
	defer try.Caught(&err)
	r := try.To(s.ask(ctx, &Request{Op: opCompareSet, Keys: []string{key}, Values: [][]byte{expected, desired}}))
	try.FailIf(len(r.Values) != 1, "the store gave %d values for one key", len(r.Values))
	return r.Values[0], nil
}

func (s *Store) Append(ctx context.Context, key string, value []byte) error {
	_, err := s.ask(ctx, &Request{Op: opAppend, Keys: []string{key}, Values: [][]byte{value}})
	return err
}

func (s *Store) Wait(ctx context.Context, keys []string) error {
	_, err := s.ask(ctx, &Request{Op: opWait, Keys: keys})
	return err
}

func (s *Store) Check(ctx context.Context, keys []string) (bool, error) {
	r, err := s.ask(ctx, &Request{Op: opCheck, Keys: keys})
	if err != nil {
		return false, err
	}
	return r.Number != 0, nil
}

func (s *Store) Delete(ctx context.Context, key string) (bool, error) {
	r, err := s.ask(ctx, &Request{Op: opDelete, Keys: []string{key}})
	if err != nil {
		return false, err
	}
	return r.Number != 0, nil
}

func (s *Store) NumKeys(ctx context.Context) (int, error) {
	r, err := s.ask(ctx, &Request{Op: opNumKeys})
	if err != nil {
		return 0, err
	}
	return int(r.Number), nil
}

// ask makes a request, and repeats it until its keys exist or its time is up.
func (s *Store) ask(ctx context.Context, q *Request) (*Reply, error) {
	q.Space = s.space
	if err := q.check(); err != nil {
		return nil, err
	}
	within, _ := ctx.(*collective.WaitLimit)
	start := time.Now()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if q.Op.waits() {
			if q.Wait = pollAtMost; within == nil {
				q.Wait = pollSeldom
			}
			if within != nil && within.Limit > 0 {
				q.Wait = max(0, min(q.Wait, within.Limit-time.Since(start)))
			}
		}
		r, err := s.do(ctx, q)
		switch {
		case err != nil:
			return nil, err
		case r.Error != "":
			return nil, errors.New(r.Error)
		case len(r.Missing) == 0:
			return r, nil
		case within == nil:
			continue
		}
		if within.Limit > 0 && time.Since(start) >= within.Limit {
			return nil, &MissingError{Keys: r.Missing, After: within.Limit, Cause: collective.ErrTimeout}
		}
		if within.Check != nil {
			if err := within.Check(); err != nil {
				return nil, &MissingError{Keys: r.Missing, After: time.Since(start), Cause: err}
			}
		}
	}
}
