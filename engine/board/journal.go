package board

import (
	"bytes"
	"fmt"
	"os"
	"sync/atomic"

	"drun/collective"
	"drun/collective/sharedmem"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
)

// window is a group's part of the board.
type window struct {
	mem  []byte
	gate *sharedmem.Gate
}

func (b *Board) window(id uint32) (_ *window, err error) {
	defer try.Caught(&err)
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.groups[id]; w != nil {
		return w, nil
	}
	try.FailIf(int64(id) >= b.maxGroups, "group number %d is too large: the board holds %d groups", id, b.maxGroups)
	mem := try.To(sharedmem.Map(b.file, b.groupsAt+int64(id)*b.groupStride, groupWindow(b.world)))
	w := &window{mem: mem, gate: sharedmem.At[sharedmem.Gate](mem, 0)}
	b.groups[id] = w
	return w, nil
}

// The name of a group's own backend lies in its window after the gate: its length, then the name. All ranks that make
// the group write it, so that it is on every node's board.
const (
	backendAt   = 2048
	backendSize = 256
)

func (b *Board) setBackend(group uint32, name string) error {
	w, err := b.window(group)
	if err != nil {
		return err
	}
	at := w.mem[backendAt:][:backendSize]
	at[0] = byte(copy(at[1:], name))
	return nil
}

// backendOf is the name of a group's own backend; "": it has none.
func (b *Board) backendOf(group uint32) string {
	w, err := b.window(group)
	if group == 0 || err != nil {
		return ""
	}
	at := w.mem[backendAt:][:backendSize]
	return string(at[1:][:min(int(at[0]), backendSize-1)])
}

// use marks the group's window as having something to show.
func (b *Board) use(group uint32) {
	for {
		n := b.head.groups.Load()
		if n > group || b.head.groups.CompareAndSwap(n, group+1) {
			return
		}
	}
}

// groupWindow is the size of a window: gate, lines and journals; each rank's journal is on pages of its own.
func groupWindow(world int) int {
	return sharedmem.PageRound(linesAt+world*sharedmem.CacheLine) + world*journalLen*128
}

func (w *window) line(rank int) *line {
	return sharedmem.At[line](w.mem, linesAt+rank*sharedmem.CacheLine)
}

func (w *window) entry(rank int, n uint64, world int) *entry {
	journals := sharedmem.PageRound(linesAt + world*sharedmem.CacheLine)
	return sharedmem.At[entry](w.mem, journals+(rank*journalLen+int(n%journalLen))*128)
}

func (e *entry) write(c *collective.Call, file, builtin uint32, at int64) {
	ver := e.ver.Load()
	sharedmem.Publish32(&e.ver, ver+1)
	sharedmem.StoreFence()
	data := c.Data()
	e.kind, e.dtype, e.reduce = uint8(c.Kind), uint8(data.DType), uint8(c.Reduce)
	e.seq, e.began, e.ended = c.Seq, at, 0
	e.count = int64(data.Count())
	e.root, e.peer, e.tag = int32(c.Root), int32(c.Peer), int32(c.Tag)
	e.file, e.line, e.col = file, c.Pos.Line, c.Pos.Col
	e.async, e.waited, e.form, e.builtin = c.Async, false, uint8(c.Form), builtin
	if c.As != dtype.None {
		e.dtype = uint8(c.As)
	}
	e.dims = uint8(min(len(c.Shape), len(e.shape)))
	for i, n := range c.Shape[:e.dims] {
		e.shape[i] = int64(n)
	}
	if c.Shape == nil {
		e.dims = noShape
	}
	sharedmem.Publish32(&e.ver, ver+2)
}

const noShape = 255 // a call without a shape has only its count

// read returns the entry as a description; false if its owner is still writing it.
func (b *Board) read(e *entry, rank int, group uint32) (d collective.Description, began, ended int64, ok bool) {
	for range 1000 {
		ver := e.ver.Load()
		if ver == 0 || ver%2 == 1 {
			sharedmem.Pause()
			continue
		}
		d = collective.Description{
			Kind: collective.Kind(e.kind), DType: dtype.Type(e.dtype), Reduce: dtype.ReduceOp(e.reduce),
			Root: int(e.root), Peer: int(e.peer), Tag: int(uint32(e.tag)), Count: int(e.count), Group: group, Seq: e.seq,
			Backend: b.backendOf(group),
			Origin: collective.Origin{Builtin: b.name(rank, e.builtin), Form: collective.Form(e.form),
				Pos: collective.Position{File: b.name(rank, e.file), Line: e.line, Col: e.col}},
		}
		if dims := e.dims; dims != noShape {
			d.Shape = make([]int, min(int(dims), len(e.shape)))
			for i := range d.Shape {
				d.Shape[i] = int(e.shape[i])
			}
		}
		began, ended = e.began, e.ended
		sharedmem.LoadFence()
		if e.ver.Load() == ver {
			return d, began, ended, true
		}
	}
	return collective.Description{}, 0, 0, false
}

func (b *Board) Row(rank int) collective.Row {
	s := b.slot(rank)
	r := collective.Row{Rank: rank, State: collective.State(s.state.Load()), For: since(s.since), Note: b.name(rank, s.note)}
	r.Stopped = !r.State.Over() && b.stopped(rank) != 0
	if s.since == 0 && !b.isNear(rank) {
		r.State = collective.Unseen
	}
	r.Pos = collective.Position{File: b.name(rank, s.file), Line: s.line, Col: s.col}
	calls, group := s.calls.Load(), s.group
	if calls == 0 {
		return r
	}
	w, err := b.window(group)
	if err != nil {
		return r
	}
	d, began, _, ok := b.read(w.entry(rank, calls-1, b.world), rank, group)
	if !ok {
		return r
	}
	b.fill(&r, d, began)
	return r
}

// stopped is 1 if a rank's process is held still, by SIGSTOP or a debugger, else 0.
func (b *Board) stopped(rank int) uint32 {
	process := b.needsOf(rank).process.Load()
	if !b.isNear(rank) {
		return process
	}
	// After the name, in parentheses, comes the state: T or t.
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if _, state, _ := bytes.Cut(stat, []byte(") ")); len(state) > 0 && state[0]|0x20 == 't' {
		return 1
	}
	return 0
}

// Rows describes what every rank is doing.
func (b *Board) Rows() []collective.Row {
	return each.UpTo(b.world, b.Row)
}

// rowAt is a rank's row with the group's call number seq, if the journal still has it.
func (b *Board) rowAt(w *window, rank int, group uint32, seq uint64) collective.Row {
	r := b.Row(rank)
	calls := w.line(rank).calls.Load()
	for i := range min(calls, journalLen-1) {
		d, began, ended, ok := b.read(w.entry(rank, calls-1-i, b.world), rank, group)
		if ok && d.Seq == seq && d.Kind != collective.NoKind {
			if ended == 0 && !r.State.Over() {
				r.State = collective.Waiting
			}
			d.Detail = b.detail(rank, group, seq)
			b.fill(&r, d, began)
			return r
		}
	}
	return r
}

// fill puts a call into the row; if the rank is in that call, its position is the rank's.
func (b *Board) fill(r *collective.Row, d collective.Description, began int64) {
	r.Call = d
	if r.State == collective.Waiting {
		r.Pos, r.For = d.Pos, since(began)
	} else if r.Pos.File == "" {
		r.Pos = d.Pos
	}
}

// detail is a rank's full description of its latest call, for disagreements in which the short entries of the
// journal look alike. It lies at the end of the rank's names.
type detail struct {
	seq   atomic.Uint64 // of the call, written after the rest
	group uint32
	size  uint32
	text  [detailSize - 16]byte
}

func (b *Board) detailOf(rank int) *detail {
	return sharedmem.At[detail](b.mem, b.namesAt+(rank+1)*tableSize-detailSize)
}

// tell writes the details of a call, which may be empty.
func (g *guard) tell(w *guardedWork) {
	d, text := g.board.detailOf(g.board.rank), ""
	if w.detail != nil {
		text = w.detail()
	}
	if len(text) > len(d.text) {
		text = text[:len(d.text)-3] + "…"
	}
	d.seq.Store(0)
	d.group, d.size = g.group, uint32(copy(d.text[:], text))
	d.seq.Store(w.seq)
}

// told reports whether a rank has written the details of a call.
func (b *Board) told(rank int, group uint32, seq uint64) bool {
	d := b.detailOf(rank)
	return d.seq.Load() == seq && d.group == group
}

// detail gives what tell wrote; it may be empty.
func (b *Board) detail(rank int, group uint32, seq uint64) string {
	if d := b.detailOf(rank); b.told(rank, group, seq) {
		return string(d.text[:min(int(d.size), len(d.text))])
	}
	return ""
}
