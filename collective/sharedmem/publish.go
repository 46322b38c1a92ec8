//go:build !race

package sharedmem

import "sync/atomic"

// Publish stores v after all earlier writes, as an atomic store does, but goes
// on before others can see it: what is read next may be read before. [Fence]
// forbids that.
//
//go:noescape
func Publish(w *atomic.Uint64, v uint64)

// Publish32 is Publish for words of 32 bits.
//
//go:noescape
func Publish32(w *atomic.Uint32, v uint32)

// Fence waits until all that was published can be seen.
func Fence()

// LoadFence lets no later load come before an earlier one: a reader that looks
// at a version again, to see that what it read was whole, needs it in between.
func LoadFence()

// StoreFence lets no later store be seen before an earlier one.
func StoreFence()
