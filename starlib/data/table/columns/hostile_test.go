package columns

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"

	"drun/starlib/data/table"
)

// parquetOf is a file with nothing but a footer.
func parquetOf(footer string) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte("PAR1"+footer), uint32(len(footer))), "PAR1"...)
}

// deepSchema is the description of a file whose only column lies within n groups.
func deepSchema(n int) string {
	var b strings.Builder
	b.WriteString("\x15\x02\x19\xfc") // version 1; a list of structs
	b.Write(binary.AppendUvarint(nil, uint64(n+2)))
	for range n + 1 {
		b.WriteString("\x48\x01g\x15\x02\x00") // name "g", one child
	}
	b.WriteString("\x15\x02\x38\x01x\x00") // an int32
	b.WriteString("\x16\x00\x19\x0c\x00")  // no rows, no row groups
	return b.String()
}

// arrowOf is a stream that begins with a schema whose field has two fields, n levels deep, and all of a level are one.
func arrowOf(n int, body int64) []byte {
	b := flatbuffers.NewBuilder(0)
	name := b.CreateString("x")
	b.StartObject(2)
	b.PrependInt32Slot(0, 8, 0)
	b.PrependBoolSlot(1, true, false)
	integer := b.EndObject()
	var children flatbuffers.UOffsetT
	for range n {
		b.StartObject(7)
		b.PrependUOffsetTSlot(0, name, 0)
		b.PrependByteSlot(2, 2, 0)
		b.PrependUOffsetTSlot(3, integer, 0)
		if children != 0 {
			b.PrependUOffsetTSlot(5, children, 0)
		}
		field := b.EndObject()
		b.StartVector(4, 2, 4)
		b.PrependUOffsetT(field)
		b.PrependUOffsetT(field)
		children = b.EndVector(2)
	}
	b.StartObject(4)
	b.PrependUOffsetTSlot(1, children, 0)
	schema := b.EndObject()
	b.StartObject(5)
	b.PrependInt16Slot(0, 4, 0)
	b.PrependByteSlot(1, 1, 0)
	b.PrependUOffsetTSlot(2, schema, 0)
	b.PrependInt64Slot(3, body, 0)
	b.Finish(b.EndObject())
	out := binary.LittleEndian.AppendUint32([]byte("\xff\xff\xff\xff"), uint32(len(b.FinishedBytes())))
	return append(out, b.FinishedBytes()...)
}

// A small file that stands for very much is an error, before it takes memory or time.
func TestBombsOfColumns(t *testing.T) {
	for _, c := range []struct {
		format  string
		content []byte
		want    string
	}{
		{"parquet", parquetOf(strings.Repeat("\x1c", 5000)), "the footer is corrupt: "},
		{"parquet", parquetOf("\x19" + strings.Repeat("\x19", 5000)), "the footer is corrupt: "},
		{"parquet", parquetOf("\x19\xfc\xff\xff\x7f" + strings.Repeat("\x00", 1<<21)), "the footer is corrupt: "},
		{"parquet", parquetOf(deepSchema(1000)), "the footer is corrupt: opening columns of parquet file: cannot represent parquet columns with more than 255 nested levels"},
		{"parquet", append([]byte("PAR1xxxx"), "\xff\xff\xff\xffPAR1"...), "the footer of 4294967295 bytes does not fit into the file"},
		{"parquet", []byte("PAR1"), "not a Parquet file: too short"},
		{"arrow", arrowOf(1, 1<<50), "not an Arrow file or stream, or its schema is corrupt: could not read message schema: message body length 1125899906842624 exceeds limit 1073741824"},
		{"arrow", []byte("\xff\xff\xff\xff\xff\xff\xff\x7f"), "not an Arrow file or stream, or its schema is corrupt: could not read message schema: message metadata length 2147483647 exceeds limit 67108864"},
		{"arrow", []byte("ARROW1\x00\x00\xff\xff\xff\x7fARROW1"), "not an Arrow file or stream, or its schema is corrupt: could not read message schema: message metadata length 2147483647 exceeds limit 67108864"},
		{"arrow", []byte("FEA1xxxxxxxxFEA1"), "this is Feather's first version, which is not supported: write"},
	} {
		if _, err := openBytes(c.format, c.content, nil); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.40q: %v\nwant %s", c.content, err, c.want)
		}
	}
}

// readAny reads a file that may be anything: its columns have a cell for each row, or there is an error that speaks of the
// file, and not of the program that reads it.
func readAny(t *testing.T, format string, b []byte) error {
	var got *table.Table
	r, err := openBytes(format, b, nil)
	if err == nil {
		defer r.Close()
		if err = r.Seek(table.NewPlace(0, 0)); err == nil {
			got, err = table.ReadColumns(r, 64<<20)
		}
	}
	if err != nil {
		for _, word := range []string{"runtime", "interface", "nil pointer", "out of range [", "unknown error"} {
			if strings.Contains(err.Error(), word) {
				t.Fatalf("an error of the program: %v", err)
			}
		}
		return err
	}
	for _, c := range got.Columns {
		if c.Len() != got.Rows && got.Rows > 0 {
			t.Fatalf("column %s has %d cells of %d", c.Name, c.Len(), got.Rows)
		}
		for i := range got.Rows {
			c.Cell(i)
		}
	}
	return nil
}

// A file with a wrong byte is an error or other cells, and nothing else. (In Arrow, a list that claims very many elements
// may end the process for lack of memory.)
func TestGarbledColumns(t *testing.T) {
	for _, name := range []string{"snappy.parquet", "v2.parquet", "runs.parquet", "lz4.parquet", "gzip.parquet", "zstd.parquet", "brotli.parquet", "none.parquet"} {
		format, b := testFile(t, name)
		g := rand.New(rand.NewPCG(1, 2))
		for range 100 {
			corrupt := bytes.Clone(b)
			for range 1 + g.IntN(3) {
				at := g.IntN(len(b))
				if g.IntN(2) == 0 { // in the description, mostly
					at = len(b) - 1 - g.IntN(len(b)/4)
				}
				corrupt[at] = byte(g.Uint32())
			}
			_ = readAny(t, format, corrupt)
		}
	}
}

// Whatever a file holds, it is read or there is an error, or the process ends for lack of memory.
func FuzzColumns(f *testing.F) {
	for _, name := range []string{"snappy.parquet", "int96.parquet", "v2.parquet", "runs.parquet", "unfit.parquet", "lz4.feather", "zstd.arrow", "odd.arrow"} {
		format, b := testFile(f, name)
		f.Add(format == "parquet", b)
	}
	f.Add(true, parquetOf(deepSchema(3)))
	f.Add(false, arrowOf(3, 0))
	for _, dictionary := range []bool{false, true} {
		l := honestText()
		l.dictionary, l.notes, l.note = dictionary, 1, 1
		f.Add(false, l.file())
		f.Add(false, l.stream())
		l.codec, l.body = 2, packedTo(16, "\x28\xb5\x2f\xfd\x20\x10\x83\x00\x00\x02") // 16 times 02
		l.buffers[1][1] = int64(len(l.body))
		f.Add(false, l.file())
		f.Add(false, l.stream())
	}
	f.Fuzz(func(t *testing.T, parquet bool, b []byte) {
		_ = readAny(t, map[bool]string{true: "parquet", false: "arrow"}[parquet], b)
	})
}
