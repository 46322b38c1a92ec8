package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/collective/sharedmem"
	"drun/engine"
	"drun/internal/memory"
	"drun/starlib/checkpoint"
)

// A rank writes what it is asked for where it is asked to, and says so where it cannot, or where its memory does not
// suffice.
func TestHandOver(t *testing.T) {
	part := []checkpoint.Item{{Data: []byte("first")}, {Data: []byte("second")}}
	spans := []engine.Span{{Entry: 1, Offset: 128}, {Entry: 0, Offset: 64}}
	mem, err := sharedmem.Create(engine.StateMemory)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), mem.Fd())
	if h := new(regions).handOver(&engine.HandOver{File: path, Spans: spans}, part); h.Error != "" {
		t.Fatalf("got %+v", h)
	}
	got := make([]byte, 134)
	if _, err := mem.ReadAt(got, 0); err != nil || !bytes.Equal(got[64:69], part[0].Data) || !bytes.Equal(got[128:], part[1].Data) {
		t.Errorf("the memory has %q (%v)", got, err)
	}

	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("not drun's"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"", other, "/proc/1/fd/999"} {
		h := new(regions).handOver(&engine.HandOver{File: file, Spans: spans}, part)
		if h.Error == "" {
			t.Errorf("%q: got %+v", file, h)
		}
	}
	if h := new(regions).handOver(&engine.HandOver{}, part); h.Error != "" {
		t.Errorf("nothing to hand over: %s", h.Error)
	}
	if now, err := os.ReadFile(other); err != nil || string(now) != "not drun's" {
		t.Errorf("a file that is not drun's was changed: %q (%v)", now, err)
	}

	// Memory that has been written before is written through a mapping, of the latest two regions.
	var r regions
	for n := range uint64(3) {
		part[0].Data = []byte(fmt.Sprintf("n = %d", n))
		for range 2 {
			if h := r.handOver(&engine.HandOver{File: path, Region: n, Size: 134, Written: true, Spans: spans}, part); h.Error != "" {
				t.Fatalf("got %+v", h)
			}
		}
		if _, err := mem.ReadAt(got, 0); err != nil || !bytes.Equal(got[64:69], part[0].Data) || !bytes.Equal(got[128:], part[1].Data) {
			t.Errorf("the memory has %q (%v)", got, err)
		}
	}
	if len(r) != 2 {
		t.Errorf("%d regions are mapped, want 2", len(r))
	}

	// A region that is used for more than before is mapped anew.
	if err := mem.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{134, 6000} {
		far := []engine.Span{{Entry: 1, Offset: size - 6}}
		if h := r.handOver(&engine.HandOver{File: path, Region: 9, Size: size, Written: true, Spans: far}, part); h.Error != "" {
			t.Fatalf("got %+v", h)
		}
		if _, err := mem.ReadAt(got[:6], size-6); err != nil || string(got[:6]) != "second" {
			t.Errorf("a region of %d bytes has %q (%v)", size, got[:6], err)
		}
	}

	memory.Share(1<<40, 0)
	defer memory.Share(1, 0)
	if h := new(regions).handOver(&engine.HandOver{File: path, Spans: spans}, part); !strings.Contains(h.Error, "cannot copy 11 bytes of the state") {
		t.Errorf("without memory: got %+v", h)
	}
}
