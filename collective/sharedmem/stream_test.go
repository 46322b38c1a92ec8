package sharedmem

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestStream(t *testing.T) {
	from := make([]byte, 5000)
	for i := range from {
		from[i] = byte(rand.Uint32())
	}
	for range 3000 {
		n, at, to := rand.IntN(4000), rand.IntN(100), rand.IntN(100)
		out := make([]byte, 5000)
		Stream(out[to:to+n], from[at:at+n])
		if !bytes.Equal(out[to:to+n], from[at:at+n]) || bytes.Count(out[:to], []byte{0}) != to || bytes.Count(out[to+n:], []byte{0}) != 5000-to-n {
			t.Fatalf("%d bytes from %d to %d", n, at, to)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	for _, size := range []int{256 << 10, 16 << 20} {
		src, dst := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{1}, size)
		for name, fn := range map[string]func(dst, src []byte){"stream": Stream, "copy": func(dst, src []byte) { copy(dst, src) }} {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for range b.N {
					for at := 0; at < size; at += 256 << 10 {
						fn(dst[at:at+256<<10], src[at:at+256<<10])
					}
				}
			})
		}
	}
}
