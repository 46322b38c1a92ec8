// Package memory is the wall around a rank's memory: how much of the machine's is the rank's own, how much the process
// uses, and what happens when it uses more. The worker and the prompt start [Watch], which looks at the process as a
// whole; whoever knows a size before asking for memory asks [Fits].
package memory

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

var (
	limit atomic.Int64 // 0: not looked up yet
	heap  atomic.Int64 // of Go, when it was last looked at

	// outside is the memory that Go does not see: what is in use of it, and what is kept beside that for the next time.
	outside = func() (used, kept int) { return 0, 0 }
	relieve = func() {} // gives back what is kept
)

// Of is the limit of one of so many ranks that have these bytes together: the system and what drun itself needs keep a tenth.
func Of(bytes, ranks int) int { return max(bytes/max(ranks, 1)/10*9, 1) }

// Share limits the process to its share of this machine's memory, which so many ranks use together. They may have been
// told how much that is, in bytes; 0: it is looked up.
func Share(ranks, bytes int) {
	if bytes == 0 {
		bytes = Machine()
	}
	limit.Store(int64(Of(bytes, ranks)))
}

// Limit is how many bytes this process may use: without [Share], as the only rank of this machine.
func Limit() int {
	if n := limit.Load(); n > 0 {
		return int(n)
	}
	Share(1, 0)
	return int(limit.Load())
}

// LargestValue is how many bytes one value may take that comes from elsewhere, a file or another rank. It is there
// several times for a moment: packed, unpacked, and as values of the recipe.
func LargestValue() int { return max(Limit()/8, min(128<<20, Limit()/2)) }

// Outside says who counts the memory that Go does not see: count gives what is in use of it, and what is kept for the
// next time, which relieve gives back.
func Outside(count func() (used, kept int), relief func()) { outside, relieve = count, relief }

// Heap is how much of Go's heap was in use, with its garbage, when it was last looked at.
func Heap() int { return int(heap.Load()) }

// Look looks at Go's heap.
func Look() int {
	s := [1]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s[:])
	n := int(s[0].Value.Uint64())
	heap.Store(int64(n))
	return n
}

// Used is how many bytes the process uses, with garbage.
func Used() int {
	used, _ := outside()
	return Look() + used
}

// Collect finds what is garbage. What lies outside of Go's heap comes back a moment after its owners are gone.
func Collect() {
	runtime.GC()
	for before := Used(); ; {
		time.Sleep(time.Millisecond)
		now := Used()
		if now >= before {
			return
		}
		before = now
	}
}

// Fits refuses what n times each bytes more would be too much for; what it is begins the error. The little that the
// watch notices in time passes unseen.
func Fits(n, each int, what string) error {
	if n <= 0 || each <= 0 || n <= Limit()/64/each {
		return nil
	}
	if n <= Limit()/each {
		if bytes := n * each; Used()+bytes <= Limit() {
			return nil
		} else if Collect(); Used()+bytes <= Limit() {
			return nil
		}
	}
	return fmt.Errorf("%s takes %s, and this rank may use %s, of which %s are in use", what,
		Text(float64(n)*float64(each)), Text(float64(Limit())), Text(float64(Used())))
}

// Text is a number of bytes as a person reads it.
func Text(bytes float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if bytes >= unit.size {
			return fmt.Sprintf("%.1f %s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.0f KiB", bytes/1024)
}
