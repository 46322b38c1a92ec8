//go:build !race

package sharedmem

import "sync/atomic"

// Publish stores v after all earlier writes, as an atomic store does, but continues before others can see it: later reads
// may happen first. [Fence] prevents that.
//
//go:noescape
func Publish(w *atomic.Uint64, v uint64)

// Publish32 is Publish for 32-bit words.
//
//go:noescape
func Publish32(w *atomic.Uint32, v uint32)

// Fence waits until all that was published can be seen.
func Fence()

// LoadFence lets no later load come before an earlier one: a reader needs it before it checks a version again to see
// that what it read was whole.
func LoadFence()

// StoreFence lets no later store be seen before an earlier one.
func StoreFence()
