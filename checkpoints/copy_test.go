package checkpoints

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

// A checkpoint is entered elsewhere only with all of its chunks, as it was saved, and what arrived in parts is not needed again.
func TestCopyOfACheckpoint(t *testing.T) {
	from, to := open(t, t.TempDir()), open(t, t.TempDir())
	score := 0.5
	data := noise(1, 3*ChunkSize+77)
	want := []Entry{{Name: "w", Kind: "tensor", DType: "uint8", Shape: []int{len(data)}, Data: data}, {Name: "none", Kind: "value", Data: []byte{}}, {Name: "again", Kind: "value", Data: data[:ChunkSize]}}
	_, err := from.SaveAfter(7, "r", 3, &score, map[int][]Entry{0: want, 1: want[:1]})
	ok(t, err)
	info, err := from.Find("r", Last)
	ok(t, err)
	m, err := from.Manifest(info)
	ok(t, err)
	sums := []string{}
	for _, c := range m.Chunks() {
		sums = append(sums, c.SHA256)
	}
	if len(sums) != 4 || m.Bytes != int64(len(data)) {
		t.Errorf("%d chunks of %d bytes", len(sums), m.Bytes)
	}
	if _, err := to.Enter(m); !IsLacking(err) {
		t.Errorf("without its chunks: %v", err)
	}
	for part := range slices.Chunk(sums, 2) {
		var chunks [][]byte
		ok(t, from.ReadChunks(part, func(_ string, data []byte) error { chunks = append(chunks, bytes.Clone(data)); return nil }))
		ok(t, to.Receive("r", chunks))
		ok(t, to.Receive("r", chunks)) // as when an answer was lost
	}
	if lacking, err := to.Lacking(sums); err != nil || len(lacking) > 0 {
		t.Errorf("lacking are %v, %v", lacking, err)
	}
	for what, spoil := range map[string]func(*Manifest){
		"sum":   func(m *Manifest) { m.Sum = m.Ranks[0][0].Chunks[0].SHA256 },
		"bytes": func(m *Manifest) { m.Ranks[1][0].Chunks[3].Bytes-- },
		"order": func(m *Manifest) { slices.Reverse(m.Ranks[0][0].Chunks) },
		"shape": func(m *Manifest) { m.Ranks[0][0].Shape = []int{-1} },
		"ranks": func(m *Manifest) { m.Ranks = nil },
		"time":  func(m *Manifest) { m.Time = time.Time{} },
		"run":   func(m *Manifest) { m.Run = incoming + "r" },
	} {
		bad, err := from.Manifest(info)
		ok(t, err)
		spoil(bad)
		if _, err := to.Enter(bad); err == nil {
			t.Errorf("%s: it was entered", what)
		}
		if list, err := to.List("r"); err != nil || len(list) > 0 {
			t.Errorf("%s: there are %v, %v", what, list, err)
		}
	}
	for _, want := range []bool{false, true} {
		if there, err := to.Enter(m); err != nil || there != want {
			t.Errorf("entered: %v, %v", there, err)
		}
	}
	ok(t, to.Arrived("r"))
	found, entries, err := to.Load("r", Best, 0)
	ok(t, err)
	if found.Points != 7 || *found.Score != 0.5 || found.Time != info.Time.Truncate(time.Microsecond) || !bytes.Equal(entries[0].Data, data) {
		t.Errorf("it is %+v", found)
	}
	all, err := to.All()
	ok(t, err)
	if len(all) != 1 {
		t.Errorf("what arrived in parts is still there: %v", all)
	}
}
