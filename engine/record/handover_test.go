package record

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"drun/engine"
	"drun/engine/transfer"
)

// header is the part of a rank whose data is sent separately: each word is dtype:bytes:sum.
func header(entries ...string) *engine.Part {
	p := &engine.Part{Apart: true}
	for _, text := range entries {
		f := strings.Split(text, ":")
		e := engine.Entry{DType: f[0], Sum: []byte(f[2])}
		fmt.Sscan(f[1], &e.Bytes)
		p.Entries = append(p.Entries, e)
	}
	return p
}

// Equal data is handed over once, by ranks that are near, in even shares; what differs in
// size, type or sum, or has no sum, is handed over by each.
func TestEqualDataIsHandedOverOnce(t *testing.T) {
	s := newSaving()
	for rank := range 4 {
		s.parts[rank] = header("float32:400:a", "float32:300:b", "float32:200:c", "float32:100:d", fmt.Sprintf("float32:80:own%d", rank), "int32:80:own0", "float32:0:", "float32:64:", "float32:88:own0")
	}
	size, err := s.share(func(rank int) bool { return rank < 2 })
	if err != nil {
		t.Fatal(err)
	}
	load, count := map[int]int64{}, map[string]int{}
	var used []engine.Span
	for rank, spans := range s.asked {
		for _, span := range spans {
			e := s.parts[rank].Entries[span.Entry]
			load[rank] += e.Bytes
			count[fmt.Sprint(e.DType, e.Bytes, string(e.Sum))]++
			used = append(used, engine.Span{Entry: int(e.Bytes), Offset: span.Offset})
		}
	}
	want := map[string]int{"float32400a": 1, "float32300b": 1, "float32200c": 1, "float32100d": 1, "float3280own0": 1, "float3280own1": 1, "float3280own2": 1, "float3280own3": 1,
		"int3280own0": 1, "float3264": 4, "float3288own0": 1}
	if fmt.Sprint(count) != fmt.Sprint(want) {
		t.Errorf("handed over: %v\nwant %v", count, want)
	}
	if load[2] != 144 || load[3] != 144 {
		t.Errorf("the ranks that are not near hand over %d and %d bytes, want what is theirs alone: 144", load[2], load[3])
	}
	if d := load[0] - load[1]; d < -100 || d > 100 {
		t.Errorf("uneven shares: %v", load)
	}
	slices.SortFunc(used, func(a, b engine.Span) int { return int(a.Offset - b.Offset) })
	for i, span := range used {
		end := size
		if i+1 < len(used) {
			end = used[i+1].Offset
		}
		if span.Offset%align != 0 || span.Offset+int64(span.Entry) > end {
			t.Errorf("%d bytes at %d reach into what is at %d", span.Entry, span.Offset, end)
		}
	}
	for e, from := range s.same {
		a, b := s.parts[e.rank].Entries[e.i], s.parts[from.rank].Entries[from.i]
		if a.DType != b.DType || a.Bytes != b.Bytes || !bytes.Equal(a.Sum, b.Sum) || len(a.Sum) == 0 {
			t.Errorf("%v is taken for %v", a, b)
		}
	}
}

// What a rank says wrongly, or could not do, is an error of the save.
func TestBadHandOver(t *testing.T) {
	for _, c := range []struct {
		name string
		part *engine.Part
		says *engine.Handed
		want string
	}{
		{"negative", header("int8:-1:x"), nil, "has -1 bytes"},
		{"huge", header("int8:1099511627776:", "int8:1:"), nil, "larger than"},
		{"failed", header("int8:8:x"), &engine.Handed{Error: "no memory"}, "rank 0: no memory"},
	} {
		s := newSaving()
		s.parts[0] = c.part
		_, err := s.share(func(int) bool { return true })
		if err == nil && c.says != nil {
			s.take(0, c.says)
			err = s.err
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// A checkpoint in memory is given to ranks of this machine as places in its memory file. Besides the newest there is at most one more such file, for the next.
func TestSnapshotGivesItsMemoryBack(t *testing.T) {
	var r Record
	open := func() int { list, _ := os.ReadDir("/proc/self/fd"); return len(list) }
	before := open()
	for step := range 5 {
		g, err := r.regions.Take(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.WriteAt(bytes.Repeat([]byte{byte(step)}, 1<<20), 0); err != nil {
			t.Fatal(err)
		}
		last := &snapshot{int64(step), 0, map[int]*engine.Part{0: {Apart: true, Entries: []engine.Entry{{Data: g.Mem[64 : 1<<20], Bytes: 1<<20 - 64, Offset: 64}}}}, g, transfer.Number()}
		r.remember(last)
		near := last.part(0, true)
		file, err := os.Open(near.File)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 1)
		if e := near.Entries[0]; e.Data != nil || near.Size != 1<<20 {
			t.Fatalf("step %d: %+v", step, near)
		} else if _, err := file.ReadAt(data, e.Offset); err != nil || data[0] != byte(step) {
			t.Fatalf("step %d: %v, got %v", step, err, data)
		}
		file.Close()
		if n := open(); n > before+2 {
			t.Fatalf("%d files are open, want those before, %d, and two", n, before)
		}
	}
	r.remember(nil)
	r.regions.Close()
	if n := open(); n != before {
		t.Errorf("%d files are open, want %d", n, before)
	}
}

// Data that has not changed since the previous save is not handed over again, by ranks here or elsewhere; data that has
// changed, or whose place other data has taken, is.
func TestUnchangedDataIsNotHandedOverAgain(t *testing.T) {
	var pool transfer.Regions
	defer pool.Close()
	save := func(fail bool, texts ...string) (asked int) {
		t.Helper()
		s := newSaving()
		for rank, text := range texts {
			s.parts[rank] = header(strings.Fields(text)...)
		}
		if err := s.prepare(func(rank int) bool { return rank == 0 }, &pool); err != nil {
			t.Fatal(err)
		}
		for rank := range texts {
			handed := &engine.Handed{}
			for _, span := range s.asked[rank] {
				e := s.parts[rank].Entries[span.Entry]
				copy(s.region.Mem[span.Offset:], bytes.Repeat(e.Sum[:1], int(e.Bytes)))
				asked++
			}
			if fail && rank == 0 {
				handed = &engine.Handed{Error: "full"}
			}
			s.take(rank, handed)
		}
		if fail {
			pool.Give(s.region)
			return asked
		}
		if err := s.fill(); err != nil || s.err != nil {
			t.Fatal(err, s.err)
		}
		for rank, part := range s.parts {
			for _, e := range part.Entries {
				if !bytes.Equal(e.Data, bytes.Repeat(e.Sum[:1], int(e.Bytes))) {
					t.Errorf("rank %d saves %q for %s", rank, e.Data, e.Sum)
				}
			}
		}
		s.hold()
		pool.Give(s.region)
		return asked
	}
	for i, c := range []struct {
		fail  bool
		texts []string
		want  int
	}{
		{false, []string{"float32:80:a float32:70:b", "float32:80:a float32:70:c"}, 3},
		{false, []string{"float32:80:a float32:70:b", "float32:80:a float32:70:c"}, 0},
		{false, []string{"float32:80:a float32:70:b", "float32:80:a float32:70:d"}, 1},
		{false, []string{"float32:80:x float32:70:b", "float32:80:x float32:70:d"}, 1},
		{false, []string{"float32:80:x float32:70:d", "float32:80:x float32:70:b"}, 2}, // elsewhere
		{false, []string{"float32:80:x float32:70:d", "float32:80:x int32:70:b"}, 1},
		{true, []string{"float32:80:x float32:70:e", "float32:80:x int32:70:b"}, 1},
		{false, []string{"float32:80:x float32:70:e", "float32:80:x int32:70:b"}, 3}, // after a failure
	} {
		if got := save(c.fail, c.texts...); got != c.want {
			t.Errorf("save %d: %d entries are handed over, want %d", i, got, c.want)
		}
	}
}
