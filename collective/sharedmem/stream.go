//go:build !amd64

package sharedmem

// Stream copies src to dst, of the same length and too large for the caches.
func Stream(dst, src []byte) { copy(dst, src) }
