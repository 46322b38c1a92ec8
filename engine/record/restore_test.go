package record

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/rendezvous"
	"drun/engine/transfer"
	"drun/history"
	"drun/internal/exit"
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
	r := &Checkpoints{store: store, rows: rows{run: &history.Run{UID: "r"}, attempt: newAttempt(0, time.Now(), 0)}, places: make([]rendezvous.Placement, 3), restores: newRestores()}
	defer r.regions.Close()
	ask := func(rank int, step string, near bool) *engine.Restored {
		t.Helper()
		answer := make(chan *engine.Restored, 1)
		r.Restore(rank, step, near, func(s *engine.Restored) { answer <- s })
		s := <-answer
		if s.Error != "" || len(s.Entries) != 2 || (s.File != "") != near || (s.State != 0) == near || s.Entries[0].Data != nil {
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
		} else if s.State != 0 {
			got = fetched(t, &r.Held, s)
		}
		if !bytes.Equal(got, value(step, rank)) {
			t.Errorf("%s: rank %d reads %d… of %d bytes, want %d…", what, rank, got[0], len(got), value(step, rank)[0])
		}
	}
	away := ask(2, "0", false)
	check("away", away, 0, 2)
	if r.restores.loaded.region != nil {
		t.Error("there is memory for what another node restores")
	}
	first := ask(0, "0", true)
	also := ask(1, "0", true)
	if first.File != also.File {
		t.Errorf("two ranks read %s and %s", first.File, also.File)
	}
	check("first", first, 0, 0)
	check("away, again", away, 0, 2)
	if !away.First || first.First || also.First {
		t.Errorf("one rank must be told that it is the first: %v, %v, %v", away.First, first.First, also.First)
	}
	if took := memoryOf(t, first.File); took < 4<<20 || took > 5<<20 {
		t.Errorf("%d bytes of memory for two ranks of this machine with 2 MiB each", took)
	}
	r.Taken(2)
	r.Taken(0)
	other := ask(0, "1", true)
	last := ask(2, "2", true)
	check("kept", also, 0, 1)
	check("another", other, 1, 0)
	check("last", last, 2, 2)
	for rank := range 3 {
		r.Taken(rank)
		r.Taken(rank) // said twice
	}
	check("again", ask(1, "1", true), 1, 1)
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

// fetched is what a node gets of a rank's first entry.
func fetched(t *testing.T, held *transfer.Held, s *engine.Restored) []byte {
	t.Helper()
	var source *transfer.Source
	source = transfer.NewSource("the coordinator", func(w *transfer.Want) { go func() { source.Deliver(held.Answer(w)) }() })
	to := make(memory, s.Entries[0].Bytes)
	if err := source.Copy(to, 0, s.State, transfer.Range{Offset: s.Entries[0].Offset, Bytes: s.Entries[0].Bytes}); err != nil {
		t.Fatal(err)
	}
	return to
}

// memoryOf is how much a memory file takes.
func memoryOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// A node that asks for what has become unreadable gets the checkpoint, the reason, the code and what to do.
func TestUnreadableForNodes(t *testing.T) {
	home := t.TempDir()
	store, err := checkpoints.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	part := []checkpoints.Entry{{Name: "x", Kind: "tensor", DType: "uint8", Shape: []int{2 << 20}, Data: bytes.Repeat([]byte{7}, 2<<20)}}
	if _, err := store.Save("r", 3, nil, map[int][]checkpoints.Entry{0: part, 1: part}); err != nil {
		t.Fatal(err)
	}
	r := &Checkpoints{store: store, rows: rows{run: &history.Run{UID: "r"}, attempt: newAttempt(0, time.Now(), 0)}, places: make([]rendezvous.Placement, 2), restores: newRestores()}
	r.run.Name = "calm"
	answer := make(chan *engine.Restored, 1)
	r.Restore(1, "last", false, func(s *engine.Restored) { answer <- s })
	s := <-answer
	want := &transfer.Want{State: s.State, Ranges: []transfer.Range{{Bytes: 1 << 18}}}
	if got := r.Held.Answer(want); got.Error != "" || len(got.Data) != 1<<18 {
		t.Fatalf("%d bytes, %s", len(got.Data), got.Error)
	}
	if got := r.Held.Answer(&transfer.Want{State: s.State, Ranges: want.Ranges, Sums: true}); got.Error == "" {
		t.Error("the SHA-256 of what is on disk was given")
	}
	r.Taken(1)
	packs, err := filepath.Glob(filepath.Join(home, "checkpoints", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packs {
		info, err := os.Stat(p)
		if err == nil && info.Size() > 1<<20 {
			err = os.Truncate(p, 1<<20)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var source *transfer.Source
	source = transfer.NewSource("the coordinator", func(w *transfer.Want) { go func() { source.Deliver(r.Held.Answer(w)) }() })
	err = source.Copy(make(memory, 2<<20), 0, s.State, transfer.Range{Bytes: 2 << 20})
	if err == nil || exit.CodeOf(err) != exit.Storage || !strings.Contains(err.Error(), "the coordinator: step 3 of run calm: ") || !strings.Contains(err.Error(), "is damaged") ||
		!strings.Contains(exit.HintOf(err), "drun checkpoints verify calm") {
		t.Errorf("got %v, exit code %d, hint %q", err, exit.CodeOf(err), exit.HintOf(err))
	}
	r.forgetRestores()
	if got := r.Held.Answer(want); got.Error == "" {
		t.Error("it is still given")
	}
}

// memory is written to at offsets, by several at a time.
type memory []byte

func (m memory) WriteAt(data []byte, offset int64) (int, error) { return copy(m[offset:], data), nil }
