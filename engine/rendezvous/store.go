package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// Beneath returns a namespace of this one's own.
func (s *Store) Beneath(space string) *Store { return s.In(s.space + "\x00" + space) }

// Memory makes a store for this process alone. Values are copied both ways, as between processes.
func Memory() *Store {
	table := NewTable()
	return &Store{do: func(ctx context.Context, q *Request) (*Reply, error) {
		own := *q
		own.Values = each.Of(q.Values, slices.Clone)
		r := table.Do(&own, ctx.Done())
		if len(r.Missing) > 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.Values = each.Of(r.Values, slices.Clone)
		return r, nil
	}}
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
	Queue bool  // it was for a value in a queue
}

func (e *MissingError) Error() string {
	const most = 8
	shown := each.Of(e.Keys[:min(len(e.Keys), most)], quote)
	text, verb := "key ", " was"
	if e.Queue {
		text = "queue "
	}
	if len(e.Keys) > 1 {
		text, verb = "keys ", " were"
	}
	text += strings.Join(shown, ", ")
	if n := len(e.Keys) - len(shown); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	verb += " not set"
	if e.Queue {
		verb = " has no value"
	}
	text += fmt.Sprintf("%s within %vs", verb, e.After.Round(time.Millisecond).Seconds())
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
func (s *Store) MultiGet(ctx context.Context, keys []string) ([][]byte, error) {
	r, err := s.ask(ctx, &Request{Op: opGet, Keys: keys})
	if err != nil {
		return nil, err
	}
	if len(r.Values) != len(keys) {
		return nil, fmt.Errorf("the store gave %d values for %d keys", len(r.Values), len(keys))
	}
	return r.Values, nil
}

// Add adds to a counter, which starts at 0, and returns the sum. The counter's value is decimal text.
func (s *Store) Add(ctx context.Context, key string, amount int64) (int64, error) {
	return s.number(ctx, &Request{Op: opAdd, Keys: []string{key}, Amount: amount})
}

// CompareSet changes a key's value from expected to desired; a key that does not exist is created if expected is
// empty. It returns the value afterwards, or expected if the key still does not exist.
func (s *Store) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	return s.value(ctx, "key", &Request{Op: opCompareSet, Keys: []string{key}, Values: [][]byte{expected, desired}})
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
	n, err := s.number(ctx, &Request{Op: opCheck, Keys: keys})
	return n != 0, err
}

func (s *Store) Delete(ctx context.Context, key string) (bool, error) {
	n, err := s.number(ctx, &Request{Op: opDelete, Keys: []string{key}})
	return n != 0, err
}

func (s *Store) NumKeys(ctx context.Context) (int, error) {
	n, err := s.number(ctx, &Request{Op: opNumKeys})
	return int(n), err
}

// Keys lists the keys of the namespace, sorted.
func (s *Store) Keys(ctx context.Context) ([]string, error) {
	r, err := s.ask(ctx, &Request{Op: opKeys})
	if err != nil {
		return nil, err
	}
	return each.Of(r.Values, func(key []byte) string { return string(key) }), nil
}

// queues has the namespace's queues, which are not among its keys.
func (s *Store) queues() *Store { return s.Beneath("queues") }

// Push adds a value to the end of a queue.
func (s *Store) Push(ctx context.Context, queue string, value []byte) error {
	_, err := s.queues().ask(ctx, &Request{Op: opPush, Keys: []string{queue}, Values: [][]byte{value}})
	return err
}

// Pop waits until a queue has a value, and takes the first one out.
func (s *Store) Pop(ctx context.Context, queue string) ([]byte, error) {
	return s.queues().value(ctx, "queue", &Request{Op: opPop, Keys: []string{queue}})
}

// Queued returns how many values a queue has.
func (s *Store) Queued(ctx context.Context, queue string) (int, error) {
	n, err := s.queues().number(ctx, &Request{Op: opQueued, Keys: []string{queue}})
	return int(n), err
}

// number makes a request that a number answers.
func (s *Store) number(ctx context.Context, q *Request) (_ int64, err error) {
	defer try.Caught(&err)
	return try.To(s.ask(ctx, q)).Number, nil
}

// value makes a request that one value answers, of what is named.
func (s *Store) value(ctx context.Context, of string, q *Request) (_ []byte, err error) {
	defer try.Caught(&err)
	r := try.To(s.ask(ctx, q))
	try.FailIf(len(r.Values) != 1, "the store gave %d values for one %s", len(r.Values), of)
	return r.Values[0], nil
}

// ask makes a request, and repeats it until its keys exist or its time is up.
func (s *Store) ask(ctx context.Context, q *Request) (*Reply, error) {
	q.Space = s.space
	if err := q.check(); err != nil {
		return nil, err
	}
	within, _ := ctx.(*collective.WaitLimit)
	start := time.Now()
	sleep := collective.NewSleep(ctx)
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if q.Op.waits() {
			if q.Wait = pollAtMost; within == nil {
				q.Wait = pollSeldom
			}
			q.Wait = sleep.Left(q.Wait)
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
		_, err = sleep.Next()
		if errors.Is(err, collective.ErrTimeout) {
			return nil, &MissingError{r.Missing, within.Limit, err, q.Op == opPop}
		}
		if err != nil {
			return nil, &MissingError{r.Missing, time.Since(start), err, q.Op == opPop}
		}
	}
}
