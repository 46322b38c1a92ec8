//go:build !amd64

package sharedmem

// Stream copies src to dst, which is as long and too large for the caches.
func Stream(dst, src []byte) { copy(dst, src) }
