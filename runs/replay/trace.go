package replay

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"drun/engine"
	"drun/internal/exit"
	"drun/internal/try"
)

func makeFolder(path string) (string, error) { return path, os.Mkdir(path, 0o700) }

// compareTraces returns the first operation whose result differs between two replays, of the rank that reached it
// first. ended: both replays ended as expected, so a difference in length counts.
func compareTraces(pair [2]*past, ranks int, ended bool) (first *Operation, err error) {
	at := -1
	for rank := range ranks {
		var traces [2]*trace
		for i, p := range pair {
			file, err := os.Open(filepath.Join(p.replay.Trace, engine.TraceFile(rank)))
			if errors.Is(err, fs.ErrNotExist) { // the replay did not get that far
				continue
			}
			if err != nil {
				return nil, err
			}
			defer file.Close()
			traces[i] = &trace{in: bufio.NewReaderSize(file, 1<<16)}
		}
		if traces[0] == nil || traces[1] == nil {
			continue
		}
		for n := 0; at < 0 || n < at; n++ {
			a, endA := traces[0].next()
			b, endB := traces[1].next()
			if err := errors.Join(damaged(endA), damaged(endB)); err != nil {
				return nil, err
			}
			if endA != nil && endB != nil || (endA != nil || endB != nil) && !ended {
				break
			}
			if endA != nil || endB != nil || a.op != b.op || a.sum != b.sum {
				at, first = n, &Operation{Line: a.line, Op: a.op, Rank: rank, LineB: b.line, OpB: b.op}
				break
			}
		}
	}
	return first, nil
}

// damaged is the error for an invalid record. The last one may be cut short.
func damaged(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// trace reads what a rank has computed.
type trace struct {
	in    *bufio.Reader
	sites []computed
}

// computed is a value computed at a place in the recipe.
type computed struct {
	op, line string
	sum      [8]byte
}

func (t *trace) next() (c computed, err error) {
	defer try.Caught(&err)
	n := try.To(binary.ReadUvarint(t.in))
	if n == uint64(len(t.sites)) {
		length := try.To(binary.ReadUvarint(t.in))
		text := make([]byte, min(length, 1<<20))
		try.To(io.ReadFull(t.in, text))
		op, line, _ := strings.Cut(string(text), "\x00")
		t.sites = append(t.sites, computed{op: op, line: line})
	}
	if n >= uint64(len(t.sites)) {
		return c, exit.Errorf(exit.Storage, "a trace of a replay is damaged")
	}
	c = t.sites[n]
	_, err = io.ReadFull(t.in, c.sum[:])
	return c, err
}
