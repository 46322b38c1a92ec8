package worker

import (
	"bufio"
	"encoding/binary"
	"os"
	"path/filepath"

	"drun/engine"
	"drun/engine/debug"
	"drun/starlib"
	"drun/starlib/lang"

	"github.com/zeebo/xxh3"
	"go.starlark.net/starlark"
)

// tracer writes a digest of every value that the recipe computes to the rank's trace file, for `drun diff --trace`.
// See engine.TraceFile.
type tracer struct {
	lang.Tracer
	file  *os.File
	out   *bufio.Writer
	known map[lang.Site]uint64
}

func newTracer(dir string, rank int) (*tracer, error) {
	file, err := os.Create(filepath.Join(dir, engine.TraceFile(rank)))
	if err != nil {
		return nil, err
	}
	t := &tracer{file: file, out: bufio.NewWriterSize(file, 1<<16), known: map[lang.Site]uint64{}}
	t.Values = t.add
	return t, nil
}

func (t *tracer) close() {
	_ = t.out.Flush() // a trace that is cut short is recognized as such
	_ = t.file.Close()
}

func (t *tracer) add(site lang.Site, v starlark.Value) {
	if site.Op == "elapsed" || site.Op == "params" {
		return // never the same; and what went in is known
	}
	t.write(site, debug.Digest(v))
}

// updated records the parameters after an optimizer's step, which itself returns nothing.
func (t *tracer) updated(thread *starlark.Thread, params []starlib.Memory) {
	sum := uint64(0)
	for _, p := range params {
		sum = xxh3.HashSeed(p.Bytes(0, p.Len()), sum)
	}
	t.write(lang.Site{Op: "step", Pos: starlib.Position(thread)}, sum)
}

// write adds a record: the number of the site, its text if the number is new, and the digest.
func (t *tracer) write(site lang.Site, sum uint64) {
	n, known := t.known[site]
	if !known {
		n = uint64(len(t.known))
		t.known[site] = n
	}
	var buf []byte
	buf = binary.AppendUvarint(buf, n)
	if !known {
		text := site.Op + "\x00" + site.Pos.String()
		buf = binary.AppendUvarint(buf, uint64(len(text)))
		buf = append(buf, text...)
	}
	buf = binary.LittleEndian.AppendUint64(buf, sum)
	_, _ = t.out.Write(buf)
}
