package board

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// index gives the number of s, 0 for "". Text that no longer fits in the table shares the last entry before the
// note.
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

// name reads an entry of a rank's table.
func (b *Board) name(rank int, index uint32) string {
	if index == 0 || index > maxNames {
		return ""
	}
	at := b.mem[b.namesAt+rank*tableSize+int(index-1)*nameSize:][:nameSize]
	return string(at[1:][:min(int(at[0]), nameSize-1)])
}

// monotonic reads CLOCK_MONOTONIC in nanoseconds.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
