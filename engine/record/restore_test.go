package record

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/rendezvous"
	"drun/history"
)

// A rank reads what it was given until it says that it has, whatever others ask for meanwhile; ranks
// that ask for the same read the same memory.
func TestLoadedForSeveralRanks(t *testing.T) {
	store, err := checkpoints.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	value := func(step, rank int) []byte { return bytes.Repeat([]byte{byte(16*step + rank)}, 2<<20) }
	for step := range 3 {
		parts := map[int][]checkpoints.Entry{}
		for rank := range 3 {
			parts[rank] = []checkpoints.Entry{{Name: "x", Kind: "tensor", DType: "uint8", Shape: []int{2 << 20}, Data: value(step, rank)}, {Name: "none", Kind: "tensor", DType: "uint8", Shape: []int{0}}}
		}
		if _, err := store.Save("r", int64(step), nil, parts); err != nil {
			t.Fatal(err)
		}
	}
	r := &Record{store: store, run: &history.Run{UID: "r"}, places: make([]rendezvous.Place, 3), attempt: newAttempt(0, time.Now(), 0), restores: newRestores()}
	defer r.regions.Close()
	ask := func(rank int, step string, way Way) *engine.Restored {
		t.Helper()
		answer := make(chan *engine.Restored, 1)
		r.Restore(rank, step, way, func(s *engine.Restored) { answer <- s })
		s := <-answer
		if s.Error != "" || len(s.Entries) != 2 || (s.File != "") != (way == Near) || way != Sent && s.Entries[0].Data != nil {
			t.Fatalf("rank %d: %+v", rank, s)
		}
		return s
	}
	check := func(what string, s *engine.Restored, step, rank int) {
		t.Helper()
		got := s.Entries[0].Data
		if s.File != "" {
			file, err := os.Open(s.File)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			got = make([]byte, s.Entries[0].Bytes)
			if _, err := file.ReadAt(got, s.Entries[0].Offset); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, value(step, rank)) {
			t.Errorf("%s: rank %d reads %d… of %d bytes, want %d…", what, rank, got[0], len(got), value(step, rank)[0])
		}
	}
	first := ask(0, "0", Near)
	also := ask(1, "0", Near)
	if first.File != also.File {
		t.Errorf("two ranks read %s and %s", first.File, also.File)
	}
	check("first", first, 0, 0)
	r.Taken(0)
	other := ask(0, "1", Near)
	sent := ask(2, "2", Sent)
	last := ask(2, "2", Near)
	check("kept", also, 0, 1)
	check("another", other, 1, 0)
	check("sent", sent, 2, 2)
	check("last", last, 2, 2)
	for rank := range 3 {
		r.Taken(rank)
		r.Taken(rank) // said twice
	}
	check("again", ask(1, "1", Near), 1, 1)
	r.forgetRestores()
	r.regions.Close()
	if len(r.restores.reading) > 0 || r.restores.loaded != nil {
		t.Error("something is still being read")
	}
	list, _ := os.ReadDir("/proc/self/fd")
	for _, f := range list {
		if name, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.Contains(name, engine.StateMemory) {
			t.Errorf("a memory file is left: %s", name)
		}
	}
}
