package mesh

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
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

// What is no frame ends the connection, and is the reason why the rank is lost.
func TestNoFrame(t *testing.T) {
	for _, kind := range []uint8{0, goodbye + 1, 255} {
		ours, theirs := net.Pipe()
		m, p := &Mesh{}, &peer{rank: 3, address: "there", conn: ours, gone: make(chan struct{}), parts: map[uint64]chan []byte{}}
		m.more.L, m.peers = &m.mu, []*peer{p}
		go m.read(p)
		_ = binary.Write(theirs, binary.LittleEndian, frame{Kind: kind})
		select {
		case <-p.gone:
		case <-time.After(10 * time.Second):
			t.Fatalf("a frame of kind %d is taken for one", kind)
		}
		if _, failed := m.Peer(0); failed == nil || failed.Error() != "rank 3 at there: it sent something that is not a frame" {
			t.Errorf("kind %d: %v", kind, failed)
		}
		theirs.Close()
	}
}
