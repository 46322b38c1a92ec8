package queue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[[]int](Limits{After: 50 * time.Millisecond, At: 10, Full: 20})
		add := func(n, size int) int { return q.Add(size, func(b *[]int) { *b = append(*b, n) }) }
		start := time.Now()
		add(1, 1)
		time.Sleep(20 * time.Millisecond)
		add(2, 1)
		<-q.Ready()
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Errorf("a batch was ready after %v", took)
		}
		if b, some, closed := q.Take(); !slices.Equal(b, []int{1, 2}) || !some || closed {
			t.Error(b, some, closed)
		}

		start = time.Now()
		add(3, 10)
		<-q.Ready()
		if took := time.Since(start); took != 0 {
			t.Errorf("a large batch was ready after %v", took)
		}
		if size := add(4, 10); size != 20 {
			t.Errorf("size %d", size)
		}
		room := make(chan time.Duration)
		wait := func() {
			q.Wait()
			room <- time.Since(start)
		}
		go wait()
		time.Sleep(time.Second)
		q.Take()
		if at := <-room; at != time.Second {
			t.Errorf("there was room after %v", at)
		}

		add(5, 100)
		go wait()
		time.Sleep(time.Second)
		q.Release()
		if at := <-room; at != 2*time.Second {
			t.Errorf("released after %v", at)
		}
		q.Take()
		select {
		case <-q.Ready():
		default:
		}
		q.Close()
		<-q.Ready()
		if b, some, closed := q.Take(); b != nil || some || !closed {
			t.Error(b, some, closed)
		}
		q.Wait()
	})
}
