package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"drun/collective"
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
	link
}

var _ collective.Store = (*Store)(nil)

// link carries requests to the table.
type link interface {
	do(ctx context.Context, q *request) (*reply, error)
	Close() error
}

// Memory makes a store for this process alone, in a world of one rank.
func Memory() *Store { return &Store{link: memory{newTable()}} }

// Unavailable makes a store whose every call fails with err.
func Unavailable(err error) *Store { return &Store{link: unavailable{err}} }

type unavailable struct{ err error }

func (u unavailable) do(context.Context, *request) (*reply, error) { return nil, u.err }
func (u unavailable) Close() error                                 { return nil }

// In returns another namespace of the same store. Close closes both.
func (s *Store) In(space string) *Store { return &Store{space: space, link: s.link} }

// A MissingError ends a wait for keys that nobody has set.
type MissingError struct {
	Keys  []string
	After time.Duration
	Cause error // why the wait ended; collective.ErrTimeout if its time was up
}

func (e *MissingError) Error() string {
	const most = 8
	shown := make([]string, min(len(e.Keys), most))
	for i := range shown {
		shown[i] = quote(e.Keys[i])
	}
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
	_, err := s.ask(ctx, &request{Op: opSet, Keys: keys, Values: values})
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
	r, err := s.ask(ctx, &request{Op: opGet, Keys: keys})
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
	r, err := s.ask(ctx, &request{Op: opAdd, Keys: []string{key}, Amount: amount})
	if err != nil {
		return 0, err
	}
	return r.Number, nil
}

// CompareSet changes a key's value from expected to desired; a key that does not exist is created if expected is
// empty. It returns the value afterwards, empty if the key still does not exist.
func (s *Store) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	r, err := s.ask(ctx, &request{Op: opCompareSet, Keys: []string{key}, Values: [][]byte{expected, desired}})
	if err != nil {
		return nil, err
	}
	if len(r.Values) != 1 {
		return nil, fmt.Errorf("the store gave %d values for one key", len(r.Values))
	}
	return r.Values[0], nil
}

func (s *Store) Append(ctx context.Context, key string, value []byte) error {
	_, err := s.ask(ctx, &request{Op: opAppend, Keys: []string{key}, Values: [][]byte{value}})
	return err
}

func (s *Store) Wait(ctx context.Context, keys []string) error {
	_, err := s.ask(ctx, &request{Op: opWait, Keys: keys})
	return err
}

func (s *Store) Check(ctx context.Context, keys []string) (bool, error) {
	r, err := s.ask(ctx, &request{Op: opCheck, Keys: keys})
	if err != nil {
		return false, err
	}
	return r.Number != 0, nil
}

func (s *Store) Delete(ctx context.Context, key string) (bool, error) {
	r, err := s.ask(ctx, &request{Op: opDelete, Keys: []string{key}})
	if err != nil {
		return false, err
	}
	return r.Number != 0, nil
}

func (s *Store) NumKeys(ctx context.Context) (int, error) {
	r, err := s.ask(ctx, &request{Op: opNumKeys})
	if err != nil {
		return 0, err
	}
	return int(r.Number), nil
}

// ask makes a request, and repeats it until its keys exist or its time is up.
func (s *Store) ask(ctx context.Context, q *request) (*reply, error) {
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

// memory is a link to a table in this process. Values are copied both ways, as over a connection.
type memory struct{ table *table }

func (m memory) do(ctx context.Context, q *request) (*reply, error) {
	own := *q
	own.Values = cloned(q.Values)
	r := m.table.do(&own, ctx.Done())
	if len(r.Missing) > 0 && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.Values = cloned(r.Values)
	return r, nil
}

func (m memory) Close() error { return nil }

func cloned(values [][]byte) [][]byte {
	out := make([][]byte, len(values))
	for i, v := range values {
		out[i] = slices.Clone(v)
	}
	return out
}
