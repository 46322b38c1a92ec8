package worker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"drun/engine"
	"drun/starlib"
	"drun/starlib/codec"
	"drun/starlib/lang"
	startensor "drun/starlib/tensor"
	"drun/tensor"

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
	t.write(site, digestOfValue(v))
}

// updated records the parameters after an optimizer's step, which itself returns nothing.
func (t *tracer) updated(thread *starlark.Thread, params [][]byte) {
	sum := uint64(0)
	for _, p := range params {
		sum = xxh3.HashSeed(p, sum)
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

// digestOfValue covers everything that a value holds, as far as it is data.
func digestOfValue(v starlark.Value) uint64 {
	switch v := v.(type) {
	case *startensor.Value:
		t, err := tensor.Contiguous(v.Tensor())
		if err != nil {
			return 0
		}
		return xxh3.HashSeed(t.Bytes(), xxh3.HashString(fmt.Sprint(t.DType(), t.Shape())))
	case starlib.Stateful:
		sum := xxh3.HashString(v.(starlark.Value).Type())
		for _, e := range v.State() {
			sum = mix(mix(sum, xxh3.HashString(e.Name)), digestOfValue(e.Value))
		}
		return sum
	case *starlark.List: // these may hold values that are not plain
		return digestOfItems(v)
	case starlark.Tuple:
		return digestOfItems(v)
	}
	if data, err := codec.Encode(v); err == nil {
		return xxh3.Hash(data)
	}
	sum := xxh3.HashString(v.Type())
	if has, is := v.(starlark.HasAttrs); is {
		for _, name := range []string{"x", "y"} { // of a dataset
			if x, err := has.Attr(name); err == nil && x != nil && v.Type() == "Dataset" {
				sum = mix(sum, digestOfValue(x))
			}
		}
	}
	return sum
}

// digestOfItems limits the depth of a value that contains itself, as Encode does.
func digestOfItems(v starlark.Indexable) uint64 {
	if data, err := codec.Encode(v); err == nil {
		return xxh3.Hash(data)
	}
	sum := xxh3.HashString(v.Type())
	for i := range v.Len() {
		switch x := v.Index(i).(type) {
		case *starlark.List, starlark.Tuple:
			sum = mix(sum, xxh3.HashString(x.Type()))
		default:
			sum = mix(sum, digestOfValue(x))
		}
	}
	return sum
}

func mix(a, b uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:], a)
	binary.LittleEndian.PutUint64(buf[8:], b)
	return xxh3.Hash(buf[:])
}
