// Package queue collects what many goroutines produce into batches for the one that
// writes or sends it. Adding never waits; a producer that can wait calls Wait. It is
// used by the history's writer, the links between nodes, a worker's recorder and its debugger.
package queue

import (
	"sync"
	"time"
)

// Limits say when a batch is ready, and when producers should wait.
type Limits struct {
	After time.Duration // from the first addition; 0: at once
	At    int           // the size at which it is ready sooner; 0: any
	Full  int           // the size from which on Wait waits
}

// Queue holds the batch that is being filled.
type Queue[B any] struct {
	limits Limits
	ready  chan struct{}
	timer  *time.Timer

	mu       sync.Mutex
	room     sync.Cond
	batch    B
	size     int
	some     bool // something was added
	released bool
	closed   bool
}

// New makes an empty queue.
func New[B any](limits Limits) *Queue[B] {
	q := &Queue[B]{limits: limits, ready: make(chan struct{}, 1)}
	q.room.L = &q.mu
	q.timer = time.AfterFunc(time.Hour, q.Flush)
	q.timer.Stop()
	return q
}

// Add puts something of that size into the batch, and returns the batch's size. After Close it does nothing.
func (q *Queue[B]) Add(size int, put func(*B)) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.size
	}
	first := !q.some
	put(&q.batch)
	q.some = true
	q.size += size
	switch {
	case q.limits.After == 0 || q.limits.At > 0 && q.size >= q.limits.At:
		q.Flush()
	case first:
		q.timer.Reset(q.limits.After)
	}
	return q.size
}

// Wait waits while the queue is full and neither released nor closed.
func (q *Queue[B]) Wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.size >= q.limits.Full && !q.released && !q.closed {
		q.room.Wait()
	}
}

// Size returns the size of the batch that is being filled.
func (q *Queue[B]) Size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// Release ends all waits, now and until Hold is called.
func (q *Queue[B]) Release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.released = true
	q.room.Broadcast()
}

// Hold makes Wait wait again.
func (q *Queue[B]) Hold() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.released = false
}

// Close says that nothing more is added, and makes the last batch ready.
func (q *Queue[B]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.room.Broadcast()
	q.Flush()
}

// Flush makes the batch ready, even if it is empty.
func (q *Queue[B]) Flush() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Ready gets a value when a batch should be taken.
func (q *Queue[B]) Ready() <-chan struct{} { return q.ready }

// Take empties the queue. some reports that something was added, closed that nothing will follow.
func (q *Queue[B]) Take() (batch B, some, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var empty B
	batch, some = q.batch, q.some
	q.batch, q.size, q.some = empty, 0, false
	q.timer.Stop()
	q.room.Broadcast()
	return batch, some, q.closed
}
