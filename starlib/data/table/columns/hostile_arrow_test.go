package columns

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"

	"drun/starlib/data/table"
)

// lie is an Arrow stream or file of one column of texts (views), and one batch that claims what it likes.
type lie struct {
	kind       byte // of the message; 0: records
	dictionary bool // the column has one, and the batch is that
	name       int  // bytes of the column's name
	fields     int  // that there are of it; 0: 1
	nodes      [][2]int64
	buffers    [][2]int64
	views      []int64
	counted    int // that the list of views says it has, if it is not 0; -1: none
	notes      int // that the message says it has
	note       int // bytes of each; 0: there are none
	codec      int // 0: none; 1: LZ4; 2: zstd
	body       string
	size       int64 // that it says its body has, if it is not 0
}

func (l lie) schema(b *flatbuffers.Builder) flatbuffers.UOffsetT {
	name := b.CreateString(strings.Repeat("n", l.name))
	b.StartObject(0)
	text := b.EndObject()
	b.StartObject(2)
	b.PrependInt32Slot(0, 32, 0)
	index := b.EndObject()
	b.StartObject(4)
	b.PrependUOffsetTSlot(1, index, 0)
	encoding := b.EndObject()
	b.StartObject(7)
	b.PrependUOffsetTSlot(0, name, 0)
	b.PrependByteSlot(2, 24, 0)
	b.PrependUOffsetTSlot(3, text, 0)
	if l.dictionary {
		b.PrependUOffsetTSlot(4, encoding, 0)
	}
	field := b.EndObject()
	n := max(l.fields, 1)
	b.StartVector(4, n, 4)
	for range n {
		b.PrependUOffsetT(field)
	}
	fields := b.EndVector(n)
	b.StartObject(4)
	b.PrependUOffsetTSlot(1, fields, 0)
	return b.EndObject()
}

// message is a message with its header, which a function builds, and its body.
func (l lie) message(kind byte, header func(b *flatbuffers.Builder) flatbuffers.UOffsetT, body string) []byte {
	b := flatbuffers.NewBuilder(0)
	h := header(b)
	var notes flatbuffers.UOffsetT
	if l.notes > 0 && kind != byte(ipc.MessageSchema) {
		text := b.CreateString(strings.Repeat("v", l.note))
		b.StartObject(2)
		b.PrependUOffsetTSlot(1, text, 0)
		pair := b.EndObject()
		have := 0
		if l.note > 0 {
			have = l.notes
		}
		b.StartVector(4, have, 4)
		for range have {
			b.PrependUOffsetT(pair)
		}
		notes = b.EndVector(l.notes)
	}
	size := int64(len(body))
	if l.size != 0 && kind != byte(ipc.MessageSchema) {
		size = l.size
	}
	b.StartObject(5)
	b.PrependInt16Slot(0, 4, 0)
	b.PrependByteSlot(1, kind, 0)
	b.PrependUOffsetTSlot(2, h, 0)
	b.PrependInt64Slot(3, size, 0)
	b.PrependUOffsetTSlot(4, notes, 0)
	b.Finish(b.EndObject())
	content := b.FinishedBytes()
	content = append(content, make([]byte, -len(content)&7)...)
	out := binary.LittleEndian.AppendUint32([]byte("\xff\xff\xff\xff"), uint32(len(content)))
	return append(append(out, content...), body...)
}

// batch builds the description of the batch.
func (l lie) batch(b *flatbuffers.Builder) flatbuffers.UOffsetT {
	pairs := func(list [][2]int64) flatbuffers.UOffsetT {
		b.StartVector(16, len(list), 8)
		for i := len(list) - 1; i >= 0; i-- {
			b.PrependInt64(list[i][1])
			b.PrependInt64(list[i][0])
		}
		return b.EndVector(len(list))
	}
	nodes, buffers := pairs(l.nodes), pairs(l.buffers)
	b.StartVector(8, len(l.views), 8)
	for i := len(l.views) - 1; i >= 0; i-- {
		b.PrependInt64(l.views[i])
	}
	counted := len(l.views)
	if l.counted != 0 {
		counted = max(l.counted, 0)
	}
	views := b.EndVector(counted)
	var packing flatbuffers.UOffsetT
	if l.codec > 0 {
		b.StartObject(2)
		b.PrependByteSlot(0, byte(l.codec-1), 0)
		packing = b.EndObject()
	}
	b.StartObject(5)
	b.PrependInt64Slot(0, 1, 0)
	b.PrependUOffsetTSlot(1, nodes, 0)
	b.PrependUOffsetTSlot(2, buffers, 0)
	b.PrependUOffsetTSlot(3, packing, 0)
	b.PrependUOffsetTSlot(4, views, 0)
	batch := b.EndObject()
	if !l.dictionary {
		return batch
	}
	b.StartObject(3)
	b.PrependUOffsetTSlot(1, batch, 0)
	return b.EndObject()
}

// stream is the batch in a stream.
func (l lie) stream() []byte {
	out := l.message(byte(ipc.MessageSchema), l.schema, "")
	return append(append(out, l.records()...), "\xff\xff\xff\xff\x00\x00\x00\x00"...)
}

func (l lie) records() []byte {
	kind := byte(ipc.MessageRecordBatch)
	if l.dictionary {
		kind = byte(ipc.MessageDictionaryBatch)
	}
	if l.kind != 0 {
		kind = l.kind
	}
	return l.message(kind, l.batch, l.body)
}

// file is the stream in a file, of whose footer nothing is read.
func (l lie) file() []byte {
	return append(append([]byte("ARROW1\x00\x00"), l.stream()...), "\x00\x00\x00\x00ARROW1"...)
}

// packedTo is a compressed buffer that says how many bytes it unpacks to.
func packedTo(size int64, content string) string {
	all := string(binary.LittleEndian.AppendUint64(nil, uint64(size))) + content
	return all + strings.Repeat("\x00", -len(all)&7)
}

// honestText is a batch of one text that is as it says.
func honestText() lie {
	return lie{name: 1, nodes: [][2]int64{{1, 0}}, buffers: [][2]int64{{0, 0}, {0, 16}}, views: []int64{0}, body: "\x02\x00\x00\x00ab" + strings.Repeat("\x00", 10)}
}

// A batch that claims what is not there is an error that names the place, or it is read as it is without that.
func TestLiesOfArrow(t *testing.T) {
	const place = "record batch 0, before byte "
	for _, file := range []bool{false, true} {
		for _, c := range []struct {
			name string
			lie  func(l *lie)
			read bool // all the same
		}{
			{"nothing", func(l *lie) {}, true},
			{"less than no buffers of a view", func(l *lie) { l.views[0] = -1 }, true},
			{"buffers that views have together", func(l *lie) { l.views = []int64{1, 1} }, false},
			{"a longer list of views", func(l *lie) { l.counted = 1 << 22 }, true},
			{"no nodes", func(l *lie) { l.nodes = nil }, false},
			{"a node of 2^40 elements", func(l *lie) { l.nodes[0][0] = 1 << 40 }, false},
			{"a node of -1 elements", func(l *lie) { l.nodes[0][0] = -1 }, false},
			{"a buffer missing", func(l *lie) { l.buffers = l.buffers[:1] }, false},
			{"a buffer beyond the body", func(l *lie) { l.buffers[1][1] = 1 << 20 }, false},
			{"a buffer before the body", func(l *lie) { l.buffers[1][0] = -16 }, false},
			{"a list of notes", func(l *lie) { l.notes = 1 << 22 }, false},
			{"LZ4 that unpacks to 9 MiB", func(l *lie) { l.codec, l.body = 1, packedTo(9<<20, "\x00") }, false},
			{"zstd that unpacks to 9 MiB", func(l *lie) { l.codec, l.body = 2, packedTo(9<<20, "\x00") }, false},
			{"zstd that unpacks to -2 bytes", func(l *lie) { l.codec, l.body = 2, packedTo(-2, "\x00") }, false},
			{"another compression", func(l *lie) { l.codec = 8 }, false},
			{"a size cut off", func(l *lie) { l.codec, l.buffers[1][1] = 1, 7 }, false},
			{"a body that is not there", func(l *lie) { l.size = 1<<20 - 8 }, false},
			{"a body that takes too much", func(l *lie) { l.size = 1<<40 - 8 }, false},
		} {
			for _, dictionary := range []bool{false, true} {
				l := honestText()
				c.lie(&l)
				l.dictionary = dictionary
				b := l.stream()
				if file {
					b = l.file()
				}
				var got *table.Table
				r, err := openBytes("arrow", b, nil)
				if err == nil {
					got, err = table.ReadColumns(r, 0)
					r.Close()
				}
				if err != nil && (c.read || !strings.HasPrefix(err.Error(), place)) {
					t.Errorf("%s (file %v, dictionary %v): %v\nwant %s", c.name, file, dictionary, err, place)
				}
				if err == nil && !dictionary && (!c.read || got.Rows != 1 || got.Columns[0].Texts[0] != "ab") || err == nil && dictionary && got.Rows > 0 {
					t.Errorf("%s (file %v, dictionary %v): %v", c.name, file, dictionary, got.Columns[0].Texts)
				}
			}
		}
	}
}
