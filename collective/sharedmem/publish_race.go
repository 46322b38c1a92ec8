//go:build race

package sharedmem

import "sync/atomic"

// Publish stores v after all earlier writes. The race detector understands only
// sync/atomic.
func Publish(w *atomic.Uint64, v uint64) { w.Store(v) }

// Publish32 is Publish for words of 32 bits.
func Publish32(w *atomic.Uint32, v uint32) { w.Store(v) }

// Fence has nothing to wait for here.
func Fence() {}

// LoadFence likewise: loads and stores are of sync/atomic.
func LoadFence() {}

// StoreFence likewise.
func StoreFence() {}
