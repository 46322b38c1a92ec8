package collective

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A WaitLimit is a context that limits each wait that uses it to Limit, counted from that wait's start. Unlike
// context.WithTimeout it is made once and used for many waits, and costs nothing until a wait has to sleep.
type WaitLimit struct {
	context.Context
	Limit time.Duration // of each wait; 0: none
	// Check is called now and then while a wait sleeps; its error ends the wait. It may be nil.
	Check func() error
	Wake  <-chan struct{} // closed once Check returns an error, so that [Wait] notices at once; may be nil
}

// Within returns a context that lets each wait last at most limit.
func Within(parent context.Context, limit time.Duration) *WaitLimit {
	return &WaitLimit{Context: parent, Limit: limit}
}

// Value returns the WaitLimit itself for its key, so that contexts derived from it keep the limit.
func (p *WaitLimit) Value(key any) any {
	if key == (waitLimitKey{}) {
		return p
	}
	return p.Context.Value(key)
}

type waitLimitKey struct{}

// Also returns a context whose waits also end with check's error, and which keeps the WaitLimit in ctx.
func Also(ctx context.Context, check func() error) *WaitLimit {
	p := limitOf(ctx)
	if p == nil {
		return &WaitLimit{Context: ctx, Check: check}
	}
	return &WaitLimit{Context: ctx, Limit: p.Limit, Check: func() error {
		if err := check(); err != nil || p.Check == nil {
			return err
		}
		return p.Check()
	}}
}

func limitOf(ctx context.Context) *WaitLimit {
	if p, ok := ctx.(*WaitLimit); ok {
		return p
	}
	p, _ := ctx.Value(waitLimitKey{}).(*WaitLimit)
	return p
}

// ErrTimeout is the cause when a wait exceeds its Limit.
var ErrTimeout = errors.New("collective: timed out")

// A Sleep tells a wait that has spun without success how long to sleep. Make one per wait, when the spinning ends.
type Sleep struct {
	ctx      context.Context
	limit    *WaitLimit
	start    time.Time
	deadline time.Time
	due      time.Time // when the sleep that Next has told ends
	still    time.Duration
	slice    time.Duration
}

// While a debugger holds ranks still, no time limit of a wait runs.
var stillSince, stillFor atomic.Int64 // nanoseconds; since is 0 while none is held

// Stand says whether ranks are held still from now on. The limits of all waits of this process are put off by as long as they are.
func Stand(still bool) {
	now := time.Since(clockStart).Nanoseconds()
	if since := stillSince.Load(); since != 0 {
		stillFor.Add(now - since)
		stillSince.Store(0)
	}
	if still {
		stillSince.Store(max(1, now))
	}
}

// Still is for how long ranks have been held still since the process began.
func Still() time.Duration {
	total := stillFor.Load()
	if since := stillSince.Load(); since != 0 {
		total += time.Since(clockStart).Nanoseconds() - since
	}
	return time.Duration(total)
}

var clockStart = time.Now()

// stoppedAfter is how much later than it was due a sleep must end to show that this process was stopped (Ctrl-Z) meanwhile.
// That time does not count.
const stoppedAfter = 3 * time.Second

// The lengths of a wait's sleeps: short at first, since most waits are short; then long enough that many sleeping ranks
// cost nothing, yet short enough that an abort is noticed in time.
const (
	firstSlice = time.Millisecond
	lastSlice  = 20 * time.Millisecond
)

// NewSleep begins the sleeping phase of a wait under ctx.
func NewSleep(ctx context.Context) Sleep {
	s := Sleep{ctx: ctx, start: time.Now(), slice: firstSlice}
	s.limit = limitOf(ctx)
	if s.limit != nil && s.limit.Limit > 0 {
		s.deadline, s.due, s.still = s.start.Add(s.limit.Limit), s.start, Still()
	}
	return s
}

// Left returns at most how much longer the wait may last, or longest.
func (s *Sleep) Left(longest time.Duration) time.Duration {
	if s.deadline.IsZero() {
		return longest
	}
	return max(0, min(longest, time.Until(s.deadline)))
}

// Next returns how long to sleep before checking the condition again, or the error that ends the wait.
func (s *Sleep) Next() (time.Duration, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, context.Cause(s.ctx)
	}
	if s.limit != nil && s.limit.Check != nil {
		if err := s.limit.Check(); err != nil {
			return 0, err
		}
	}
	slice := s.slice
	s.slice = min(2*s.slice, lastSlice)
	if !s.deadline.IsZero() {
		now := time.Now()
		if late := now.Sub(s.due); late > stoppedAfter {
			s.deadline = s.deadline.Add(late)
		} else if still := Still(); still != s.still {
			s.deadline, s.still = s.deadline.Add(still-s.still), still
		}
		left := s.deadline.Sub(now)
		if left <= 0 {
			return 0, ErrTimeout
		}
		slice = min(slice, left)
		s.due = now.Add(slice)
	}
	return slice, nil
}

// IsClosed reports whether done is closed, without waiting for it.
func IsClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Wait blocks until done is closed or ctx ends, and respects a WaitLimit in ctx. It is for waits on goroutines rather
// than on shared memory: without a Check it wakes only once, at the end.
func Wait(ctx context.Context, done <-chan struct{}) error {
	if IsClosed(done) {
		return nil
	}
	sleep := NewSleep(ctx)
	var timer *time.Timer
	for {
		slice, err := sleep.Next()
		if err != nil {
			if IsClosed(done) {
				return nil
			}
			return err
		}
		var tick <-chan time.Time
		var wake <-chan struct{}
		if sleep.limit != nil && (sleep.limit.Check != nil || !sleep.deadline.IsZero()) {
			wake = sleep.limit.Wake
			if sleep.limit.Check == nil {
				slice = time.Until(sleep.deadline)
				sleep.due = sleep.deadline
			}
			if timer == nil {
				timer = time.NewTimer(slice)
				defer timer.Stop()
			} else {
				timer.Reset(slice)
			}
			tick = timer.C
		}
		select {
		case <-done:
			return nil
		case <-ctx.Done():
		case <-wake:
		case <-tick:
		}
	}
}

// Run calls do on a goroutine of its own and returns its error; early says that ctx has ended, with err, before do has.
func Run(ctx context.Context, do func() error) (early bool, err error) {
	var result error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result = do()
	}()
	if err := Wait(ctx, done); err != nil {
		return true, err
	}
	return false, result
}
