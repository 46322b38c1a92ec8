package table

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// The descriptions in an Arrow file or stream (schema, footer, batches) are flatbuffers: tables whose slots lead to
// values, lists and other tables. The library takes the lengths in them on trust, so they are checked here first.

// What a message is.
const (
	isSchema     = 1
	isDictionary = 2
	isRecords    = 3
)

// What a description may claim: elements of an array (bits of a batch's bytes), and bytes that one byte unpacks to at
// the most.
const (
	maxElements = 8 * maxBatch
	lz4Ratio    = 255
	zstdRatio   = 128 << 10 / 4 // a block of one byte again and again
	maxWindow   = maxPage / 2
)

// arrowTable is a table of a description.
type arrowTable struct{ *flatbuffers.Table }

func rootTable(buf []byte) arrowTable {
	return arrowTable{&flatbuffers.Table{Bytes: buf, Pos: flatbuffers.GetUOffsetT(buf)}}
}

func (t arrowTable) field(slot int) flatbuffers.UOffsetT {
	return flatbuffers.UOffsetT(t.Offset(flatbuffers.VOffsetT(4 + 2*slot)))
}

// table is the table in a slot; false if there is none.
func (t arrowTable) table(slot int) (arrowTable, bool) {
	o := t.field(slot)
	if o == 0 {
		return arrowTable{}, false
	}
	return arrowTable{&flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(t.Pos + o)}}, true
}

// list is where the list in a slot begins, and how many elements it has: no more than there are bytes for.
func (t arrowTable) list(slot, size int) (at, n int, err error) {
	o := t.field(slot)
	if o == 0 {
		return 0, 0, nil
	}
	at, n = int(t.Vector(o)), t.VectorLen(o)
	if at+size*n > len(t.Bytes) {
		return 0, 0, fmt.Errorf("a list of %d elements at byte %d of a description of %d bytes", n, at, len(t.Bytes))
	}
	return at, n, nil
}

func (t arrowTable) int64(at int) int64 { return int64(binary.LittleEndian.Uint64(t.Bytes[at:])) }

// arrowNeeds is what a batch has for its columns: nodes (an array's length), buffers, and lengths of lists of buffers
// (views). bare counts the arrays that had one buffer more before the format's version 5.
type arrowNeeds struct{ nodes, buffers, views, bare int }

func (a *arrowNeeds) add(b arrowNeeds) {
	a.nodes, a.buffers, a.views, a.bare = a.nodes+b.nodes, a.buffers+b.buffers, a.views+b.views, a.bare+b.bare
}

// arrowShape is what the batches of a file have, by its schema: those of its rows, and of each dictionary.
type arrowShape struct {
	records      arrowNeeds
	dictionaries map[int64]arrowNeeds
	fields       int // that the schema may still have
	text         int // bytes of names and notes that it may still have
}

// takes is an error if a schema's names are too long together: tables may share them, and the library copies each.
func (s *arrowShape) takes(n int) error {
	if s.text -= n; s.text < 0 {
		return fmt.Errorf("its names and metadata take more than %d bytes", maxMetadata)
	}
	return nil
}

// notes goes through a table's list of names and values.
func (s *arrowShape) notes(t arrowTable, slot int) error {
	at, n, err := t.list(slot, 4)
	if err != nil {
		return err
	}
	for i := range n {
		pair := arrowTable{&flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(flatbuffers.UOffsetT(at + 4*i))}}
		for slot := range 2 {
			_, n, err := pair.list(slot, 1)
			if err = errors.Join(err, s.takes(n+16)); err != nil {
				return err
			}
		}
	}
	return nil
}

// arrowSchema goes through the fields of a schema: they are tables that may share their children, so that a few bytes
// can stand for any number of fields. root has the schema in a slot: a footer in 1; a message in 2, its header.
func arrowSchema(root arrowTable, slot int) (*arrowShape, error) {
	s := &arrowShape{dictionaries: map[int64]arrowNeeds{}, fields: maxFields, text: maxMetadata}
	schema, ok := root.table(slot)
	if !ok {
		return nil, errors.New("there is none")
	}
	if err := s.notes(root, 4); err != nil { // a message's, and a footer's
		return nil, err
	}
	if err := s.notes(schema, 2); err != nil {
		return nil, err
	}
	var err error
	s.records, err = s.columns(schema, 1, 0)
	return s, err
}

// columns is what the fields in a slot need.
func (s *arrowShape) columns(t arrowTable, slot, deep int) (all arrowNeeds, err error) {
	if deep > 60 {
		return all, errors.New("its fields are nested more than 60 deep")
	}
	at, n, err := t.list(slot, 4)
	if err != nil {
		return all, err
	}
	if s.fields -= n; s.fields < 0 {
		return all, fmt.Errorf("more than %d fields", maxFields)
	}
	for i := range n {
		child := arrowTable{&flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(flatbuffers.UOffsetT(at + 4*i))}}
		one, err := s.column(child, deep)
		if err != nil {
			return all, err
		}
		all.add(one)
	}
	return all, nil
}

// column is what a field needs.
func (s *arrowShape) column(t arrowTable, deep int) (arrowNeeds, error) {
	_, n, err := t.list(0, 1)
	if err = errors.Join(err, s.takes(n)); err == nil {
		err = s.notes(t, 6)
	}
	if err != nil {
		return arrowNeeds{}, err
	}
	children, err := s.columns(t, 5, deep+1)
	if err != nil {
		return arrowNeeds{}, err
	}
	kind := t.GetByteSlot(4+2*2, 0)
	details, described := t.table(3)
	needs := arrowNeeds{nodes: 1, buffers: 2}
	switch kind {
	case 1: // null
		needs.buffers = 0
	case 4, 5, 19, 20: // bytes and texts
		needs.buffers = 3
	case 10: // a timestamp, with its zone
		if described {
			_, n, err := details.list(1, 1)
			if err = errors.Join(err, s.takes(n)); err != nil {
				return needs, err
			}
		}
	case 12, 17, 21: // lists and maps
		needs.add(children)
	case 13, 16: // a struct, a list of fixed size
		needs.buffers = 1
		needs.add(children)
	case 14: // a union
		needs.buffers, needs.bare = 1, 1
		if described {
			_, n, err := details.list(1, 4)
			if err = errors.Join(err, s.takes(4*n)); err != nil {
				return needs, err
			}
			if details.GetInt16Slot(4, 0) == 1 { // dense
				needs.buffers = 2
			}
		}
		needs.add(children)
	case 22: // run-end encoded
		needs.buffers, needs.bare = 0, 1
		needs.add(children)
	case 23, 24: // views of bytes and texts
		needs.views = 1
	case 25, 26: // views of lists
		needs.buffers = 3
		needs.add(children)
	}
	if encoding, ok := t.table(4); ok {
		s.dictionaries[encoding.GetInt64Slot(4, 0)] = needs
		needs = arrowNeeds{nodes: 1, buffers: 2}
	}
	return needs, nil
}

// check goes through the description of a batch, whose body has size bytes.
func (s *arrowShape) check(message []byte, body io.ReaderAt, size int64) error {
	return guarded(func() error {
		root := rootTable(message)
		batch, ok := root.table(2)
		if !ok {
			return errors.New("it has no description")
		}
		needs, old := s.records, root.GetInt16Slot(4, 0) < 4
		if root.GetByteSlot(4+2*1, 0) == isDictionary {
			id := batch.GetInt64Slot(4, 0)
			if needs, ok = s.dictionaries[id]; !ok {
				return fmt.Errorf("there is no dictionary %d", id)
			}
			if batch, ok = batch.table(1); !ok {
				return errors.New("it has no description")
			}
			old = true // as the library reads it
		}
		if old {
			needs.buffers += needs.bare
		}
		notes := &arrowShape{text: maxMetadata}
		if err := notes.notes(root, 4); err != nil {
			return err
		}
		nodes, n, err := batch.list(1, 16)
		if err != nil {
			return err
		}
		if n < needs.nodes {
			return fmt.Errorf("it has %d arrays, and its columns %d", n, needs.nodes)
		}
		for i := range n {
			if length := batch.int64(nodes + 16*i); length < 0 || length > maxElements {
				return fmt.Errorf("its array %d has %d elements, and may have %d", i, length, int64(maxElements))
			}
		}
		buffers, have, err := batch.list(2, 16)
		if err != nil {
			return err
		}
		views, n, err := batch.list(4, 8)
		if err != nil {
			return err
		}
		if n < needs.views {
			return fmt.Errorf("it has %d numbers of buffers of views, and its columns %d", n, needs.views)
		}
		for i := range n {
			more := batch.int64(views + 8*i)
			if more < 0 || more > int64(have) {
				return fmt.Errorf("a view has %d buffers, and the batch %d", more, have)
			}
			needs.buffers += int(more)
		}
		if have < needs.buffers {
			return fmt.Errorf("it has %d buffers, and its columns %d", have, needs.buffers)
		}
		packing, packed := batch.table(3)
		left := int64(maxBatch)
		for i := range have {
			at, length := batch.int64(buffers+16*i), batch.int64(buffers+16*i+8)
			if length == 0 {
				continue
			}
			if at < 0 || length < 0 || at > size || length > size-at {
				return fmt.Errorf("its buffer %d has %d bytes from byte %d on, of %d", i, length, at, size)
			}
			if packed {
				unpacked, err := unpackedSize(io.NewSectionReader(body, at, length), packing.GetByteSlot(4, 0))
				if err == nil && unpacked > left {
					err = fmt.Errorf("the buffers up to it unpack to more than %d bytes", maxBatch)
				}
				if err != nil {
					return fmt.Errorf("its buffer %d: %w", i, err)
				}
				left -= unpacked
			}
		}
		return nil
	})
}

// unpackedSize is the number of bytes that a compressed buffer says it unpacks to.
func unpackedSize(buffer *io.SectionReader, codec byte) (int64, error) {
	head := make([]byte, 8+zstd.HeaderMaxSize)
	n, err := buffer.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if n < 8 {
		return 0, errors.New("truncated: it does not have its unpacked size")
	}
	size, packed := int64(binary.LittleEndian.Uint64(head)), buffer.Size()-8
	if size == -1 { // it is not compressed
		return 0, nil
	}
	ratio := int64(lz4Ratio)
	switch codec {
	case 0:
	case 1:
		ratio = zstdRatio
		var frame zstd.Header
		if frame.Decode(head[8:n]) == nil && max(frame.WindowSize, frame.FrameContentSize) > uint64(max(size, maxWindow)) {
			return 0, errors.New("its zstd data takes too much memory")
		}
	default:
		return 0, fmt.Errorf("its compression, %d, is not supported", codec)
	}
	if size < 0 || size > packed*ratio {
		return 0, fmt.Errorf("it says that it unpacks to %d bytes, and has %d", size, packed)
	}
	return size, nil
}

// arrowStream gives the library the messages of a stream, and checks each.
type arrowStream struct {
	in     *bufio.Reader
	n      int64  // bytes that are read
	first  []byte // the message of the schema, until the library has it
	shape  *arrowShape
	memory memory.Allocator
	given  *ipc.Message
}

// begin reads the schema.
func (s *arrowStream) begin() error {
	message, err := s.next()
	if err == io.EOF {
		err = errors.New("not an Arrow file or stream")
	}
	if err != nil {
		return err
	}
	return guarded(func() (err error) {
		root := rootTable(message)
		if _, ok := root.table(2); !ok || root.GetByteSlot(4+2*1, 0) != isSchema {
			return errors.New("not an Arrow file or stream: it does not begin with a schema")
		}
		s.first = message
		s.shape, err = arrowSchema(root, 2)
		return err
	})
}

// next reads the description of a message; io.EOF is the stream's own end, which it must have.
func (s *arrowStream) next() ([]byte, error) {
	size := make([]byte, 4)
	read := func() error {
		n, err := io.ReadFull(s.in, size)
		if s.n += int64(n); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("truncated: the stream has no end")
			if s.n < 4 {
				err = errors.New("not an Arrow file or stream: it ends early")
			}
		}
		return err
	}
	err := read()
	if err == nil && string(size) == "\xff\xff\xff\xff" {
		err = read()
	}
	if err != nil {
		return nil, err
	}
	n := int32(binary.LittleEndian.Uint32(size))
	switch {
	case n == 0:
		return nil, io.EOF
	case n < 4 || n > maxMetadata:
		if s.shape == nil {
			return nil, errors.New("not an Arrow file or stream")
		}
		return nil, fmt.Errorf("a message's description of %d bytes; it may have %d", n, maxMetadata)
	}
	message, err := io.ReadAll(io.LimitReader(s.in, int64(n)))
	s.n += int64(len(message))
	if err == nil && len(message) < int(n) {
		err = errors.New("truncated: it ends early")
	}
	return message, err
}

// Message is the next message, until the one after it is asked for.
func (s *arrowStream) Message() (m *ipc.Message, err error) {
	s.Release()
	message := s.first
	if s.first = nil; message == nil {
		if message, err = s.next(); err != nil {
			return nil, err
		}
	}
	err = guarded(func() error {
		root := rootTable(message)
		size := root.GetInt64Slot(4+2*3, 0)
		if size < 0 || size > maxBatch {
			return fmt.Errorf("message body length %d exceeds limit %d", size, maxBatch)
		}
		body := memory.NewResizableBuffer(s.memory)
		defer body.Release()
		for have := 0; have < int(size); have = body.Len() {
			body.Resize(min(int(size), max(4*have, 16<<20))) // no more than the stream goes on to have
			n, err := io.ReadFull(s.in, body.Bytes()[have:])
			s.n += int64(n)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("truncated: it ends early")
			}
			if err != nil {
				return err
			}
		}
		if kind := root.GetByteSlot(4+2*1, 0); kind == isDictionary || kind == isRecords {
			if err := s.shape.check(message, bytes.NewReader(body.Bytes()), size); err != nil {
				return err
			}
		}
		s.given = ipc.NewMessage(memory.NewBufferBytes(message), body)
		return nil
	})
	return s.given, err
}

// Release gives back the memory of the message.
func (s *arrowStream) Release() {
	if s.given != nil {
		s.given.Release()
		s.given = nil
	}
}

// Retain is for readers that share the stream: there are none.
func (s *arrowStream) Retain() {}

// arrowBlocks is where a file has its batches.
type arrowBlocks struct {
	in      Random
	footer  arrowTable
	shape   *arrowShape
	records int // batches of rows
}

// arrowIndex reads the footer of a file, and checks its dictionaries, which the library reads when it opens the file.
func arrowIndex(in Random) (b *arrowBlocks, err error) {
	footer, err := arrowFooter(in)
	if err != nil {
		return nil, err
	}
	err = guarded(func() (err error) {
		b = &arrowBlocks{in: in, footer: rootTable(footer)}
		if b.shape, err = arrowSchema(b.footer, 1); err != nil {
			return err
		}
		if _, b.records, err = b.footer.list(isRecords, 24); err != nil {
			return fmt.Errorf("record batches: %w", err)
		}
		_, n, err := b.footer.list(isDictionary, 24)
		for i := 0; i < n && err == nil; i++ {
			if err = b.check(isDictionary, i); err != nil {
				err = fmt.Errorf("dictionary %d: %w", i, err)
			}
		}
		return err
	})
	return b, err
}

// check goes through the description of a file's batch of rows, or of a dictionary. What the library checks itself,
// where the batch is and how it begins, is left to it.
func (b *arrowBlocks) check(kind byte, i int) error {
	at, n, err := b.footer.list(int(kind), 24) // the slots of a footer have the same numbers
	if err != nil {
		return err
	}
	if i >= n {
		return fmt.Errorf("the footer has %d batches", n)
	}
	at += 24 * i
	offset, size := b.footer.int64(at), b.footer.int64(at+16)
	length := int64(int32(b.footer.int64(at + 8)))
	if end := b.in.Size(); offset < 0 || length < 12 || length > maxMetadata || size < 0 || size > maxBatch || offset > end-length-size {
		return fmt.Errorf("%d and %d bytes at byte %d of %d", length, size, offset, end)
	}
	message := make([]byte, length)
	if _, err := b.in.ReadAt(message, offset); err != nil {
		return fmt.Errorf("at byte %d: %w", offset, err)
	}
	prefix := 4
	if string(message[:4]) == "\xff\xff\xff\xff" { // which older files do not have
		prefix = 8
	}
	message = message[prefix:]
	err = guarded(func() error {
		if got := rootTable(message).GetByteSlot(4+2*1, 0); got != kind {
			return fmt.Errorf("a message of kind %d, and not %d", got, kind)
		}
		return b.shape.check(message, io.NewSectionReader(b.in, offset+length, size), size)
	})
	if err != nil {
		return fmt.Errorf("at byte %d: %w", offset, err)
	}
	return nil
}

// arrowFooter reads the description at a file's end.
func arrowFooter(in Random) ([]byte, error) {
	size := in.Size()
	tail := make([]byte, 4+len(arrowMagic))
	if size < int64(8+len(tail)) {
		return nil, errors.New("truncated: too short")
	}
	if _, err := in.ReadAt(tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	if string(tail[4:]) != arrowMagic {
		return nil, errors.New("truncated: it does not end with " + arrowMagic)
	}
	n := int64(int32(binary.LittleEndian.Uint32(tail)))
	if n <= 0 || n > size-int64(len(tail))-8 {
		return nil, fmt.Errorf("a footer of %d bytes does not fit into the file", n)
	}
	if n > maxMetadata {
		return nil, fmt.Errorf("the footer has %d bytes, and may have %d", n, maxMetadata)
	}
	footer := make([]byte, n)
	_, err := in.ReadAt(footer, size-int64(len(tail))-n)
	return footer, err
}
