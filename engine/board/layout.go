package board

import (
	"sync/atomic"
	"unsafe"

	"drun/collective/sharedmem"

	"golang.org/x/sys/unix"
)

// The region, from its start:
//
//	header     one page
//	cause      the first cause of an abort, as JSON
//	slots      one per rank: what it is doing
//	names      one table per rank: files, builtins and its note, to which slots and journals refer
//	needs      one per rank: the ranks it waits for
//	ended      a number per rank and other rank: see traffic.go
//	flows      the same
//	snapshot   what every rank did when the run was aborted, as JSON
//	groups     one window per group number, at groupsAt + number*groupStride:
//	             a gate and the name of a backend, then a line and a journal per rank
//	             of the world, since disjoint groups may share a number
//
// Each rank writes only its own slot, names, line and journal.
const (
	causeAt   = 4096
	slotSize  = sharedmem.CacheLine
	nameSize  = 128
	maxNames  = 128
	noteIndex = maxNames - detailSize/nameSize // index of the rank's note
	// The end of a table holds more about the rank's call, see detail.
	detailSize = 8 * nameSize
	tableSize  = nameSize * maxNames

	linesAt    = 4096 // after the gate
	journalLen = 32   // calls of a group that a rank's journal remembers
)

// layout says where the parts are for a world of that size. Only pages that are written take memory.
type layout struct {
	causeSize, slotsAt, namesAt, needsAt, needsSize, endedAt, flowsAt, snapshotAt, snapshotSize int
	groupsAt, groupStride                                                                       int64
	maxGroups                                                                                   int64
}

func newLayout(world int) layout {
	l := layout{causeSize: max(1<<20, world*1024), snapshotSize: max(8<<20, world*(16<<10))}
	l.slotsAt = causeAt + l.causeSize
	l.namesAt = l.slotsAt + sharedmem.PageRound(world*slotSize)
	l.needsAt = l.namesAt + world*tableSize // see deadlock.go
	l.needsSize = (needsBytes(world) + sharedmem.CacheLine - 1) / sharedmem.CacheLine * sharedmem.CacheLine
	l.endedAt = l.needsAt + sharedmem.PageRound(world*l.needsSize)
	l.flowsAt = l.endedAt + sharedmem.PageRound(4*world*world)
	l.snapshotAt = l.flowsAt + sharedmem.PageRound(int(unsafe.Sizeof(flow{}))*world*world)
	l.groupsAt = max(1<<30, int64(sharedmem.PageRound(l.snapshotAt+l.snapshotSize)))
	l.groupStride = max(8<<20, int64(sharedmem.PageRound(groupWindow(world))))
	l.maxGroups = (sharedmem.Size - l.groupsAt) / l.groupStride
	return l
}

const magic = 0x64_72_75_6e_62_64_30_34 // "drunbd04"

type identity struct {
	magic uint64
	world uint32
}

type header struct {
	magic    uint64
	world    uint32
	aborting atomic.Uint32 // see abort.go
	abortBy  int32
	causeLen uint32
	abortAt  int64
	stop     atomic.Uint32
	asked    atomic.Uint32
	asks     atomic.Uint32 // requests for copies of other nodes' boards, see mirror.go
	told     atomic.Uint32 // the latest request that was answered

	groups      atomic.Uint32 // group numbers in use are below this
	snapshotLen uint32
}

// slot holds what a rank is doing.
type slot struct {
	state atomic.Uint32
	group uint32        // of the latest call
	calls atomic.Uint64 // calls in that group's journal, the latest included
	file  uint32        // name index + 1 of the latest position outside of calls
	line  int32
	col   int32
	note  uint32 // name index + 1
	since int64  // CLOCK_MONOTONIC of the latest change of state

	entered int64 // the call that the rank waits for
	// Nanoseconds spent in calls that ended, and of these asleep.
	spent, slept atomic.Int64
}

// line is a rank's progress in a group.
type line struct {
	arrived atomic.Uint64 // sequence number of the latest collective it started
	calls   atomic.Uint64 // entries ever written to its journal
	// The fingerprints of odd and even collectives, for backends that do not compare them: every rank has read one
	// before it is reused.
	posted [2]struct {
		seq         atomic.Uint64
		fingerprint uint64
	}
	_ [sharedmem.CacheLine - 48]byte
}

// entry is one call in a journal, a layout of shared memory without pointers. ver is odd while it is being written.
type entry struct {
	ver                       atomic.Uint32
	kind, dtype, reduce, dims uint8
	seq                       uint64
	began, ended              int64
	count                     int64
	root, peer, tag           int32
	file                      uint32 // name index + 1
	line, col                 int32
	shape                     [7]int64
	async, waited             bool // waited: the rank waits for it, or has
	form                      uint8
	_                         byte
	builtin                   uint32 // name index + 1
}

// names is a rank's table of files and builtins. Slots and journals hold its indexes plus one, since writing text
// at every call would cost too much. An entry near its end is the rank's note, which is overwritten each time.
type names struct {
	table []byte
	known map[string]uint32
	// The latest lookups, by address: the same strings mostly recur.
	recent [16]struct {
		text  string
		index uint32
	}
}

// index gives the number of s, 0 for "". Text that no longer fits in the table shares the last entry before the note.
func (n *names) index(s string) uint32 {
	if s == "" {
		return 0
	}
	data := unsafe.StringData(s)
	recent := &n.recent[uintptr(unsafe.Pointer(data))>>4%uintptr(len(n.recent))]
	if len(s) == len(recent.text) && data == unsafe.StringData(recent.text) {
		return recent.index
	}
	i, ok := n.known[s]
	if !ok {
		if n.known == nil {
			n.known = map[string]uint32{}
		}
		i = min(uint32(len(n.known))+1, noteIndex-1)
		text := s
		if i == noteIndex-1 {
			text = "(another name)"
		}
		if len(text) >= nameSize { // the end of a path tells more than its start
			text = "…" + text[len(text)-nameSize+8:]
		}
		n.write(i, text)
		n.known[s] = i
	}
	recent.text, recent.index = s, i
	return i
}

// note gives the number of a text that is shown for a while, 0 for "".
func (n *names) note(s string) uint32 {
	if s == "" {
		return 0
	}
	if len(s) >= nameSize {
		s = s[:nameSize-4] + "…"
	}
	n.write(noteIndex, s)
	return noteIndex
}

func (n *names) write(i uint32, text string) {
	at := n.table[(i-1)*nameSize:][:nameSize]
	at[0] = byte(copy(at[1:], text))
}

func (b *Board) name(rank int, index uint32) string {
	if index == 0 || index > maxNames {
		return ""
	}
	at := b.mem[b.namesAt+rank*tableSize+int(index-1)*nameSize:][:nameSize]
	return string(at[1:][:min(int(at[0]), nameSize-1)])
}

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
