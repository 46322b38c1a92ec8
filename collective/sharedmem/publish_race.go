//go:build race

package sharedmem

import "sync/atomic"

// Publish stores v after all earlier writes. The race detector understands only sync/atomic.
func Publish(w *atomic.Uint64, v uint64) { w.Store(v) }

// Publish32 is Publish for 32-bit words.
func Publish32(w *atomic.Uint32, v uint32) { w.Store(v) }

// Fence has nothing to wait for here.
func Fence() {}

// LoadFence does nothing here: loads and stores are sync/atomic's.
func LoadFence() {}

// StoreFence does nothing here.
func StoreFence() {}
