package mesh

import (
	"bytes"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
)

// A length that is a lie costs no memory, and ends as what comes does.
func TestLengthsAreNotBelieved(t *testing.T) {
	for _, n := range []uint64{0, 10, 64 << 20, 64<<20 + 1} {
		want := bytes.Repeat([]byte{7}, int(n))
		if got, err := readExtra(bytes.NewReader(want), n); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, n := range []uint64{1 << 40, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		if _, err := readExtra(io.LimitReader(strings.NewReader(strings.Repeat("x", 1000)), 1000), n); err == nil {
			t.Errorf("%d bytes came in 1000", n)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were taken for lies", grown)
	}
}
