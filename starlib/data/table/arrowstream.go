package table

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
)

// The kinds of messages.
const (
	isSchema     = 1
	isDictionary = 2
	isRecords    = 3
)

// arrowStream gives the library the messages of a stream; a file is one, too, between its magic and its footer. Each
// describes itself in flatbuffers (tables whose slots lead to values, lists and other tables), from which the library
// makes lists as long as they claim to be: a claim without the bytes for it would exhaust memory and end the process.
type arrowStream struct {
	in     *bufio.Reader
	n      int64  // bytes that are read
	file   Random // nil: a stream
	memory memory.Allocator
	given  *ipc.Message
	skip   int           // record batches that are passed over before the next message
	views  int           // columns of views in a record batch
	others map[int64]int // and in a dictionary
	fields int           // in the schema, those within others too
}

// Message returns the next message, valid until the next call; io.EOF is the stream's end marker, which must be there.
func (s *arrowStream) Message() (m *ipc.Message, err error) {
	s.Release()
	err = guarded(func() error {
		for {
			content, size, kind, err := s.description()
			if err != nil {
				return err
			}
			if kind == isRecords && s.skip > 0 {
				s.skip--
				if s.n += size; s.file != nil {
					s.in.Reset(io.NewSectionReader(s.file, s.n, max(0, s.file.Size()-s.n)))
				} else if _, err := io.CopyN(io.Discard, s.in, size); err != nil {
					return errEarly
				}
				continue
			}
			body := memory.NewResizableBuffer(s.memory)
			defer body.Release()
			for have := 0; have < int(size); have = body.Len() {
				body.Resize(min(int(size), max(4*have, 16<<20))) // no more than the stream turns out to have
				if err := s.fill(body.Bytes()[have:]); err != nil {
					return err
				}
			}
			m = ipc.NewMessage(memory.NewBufferBytes(content), body)
			s.given = m
			return nil
		}
	})
	return m, err
}

var errEarly = errors.New("truncated: it ends early")

func (s *arrowStream) fill(b []byte) error {
	n, err := io.ReadFull(s.in, b)
	if s.n += int64(n); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEarly
	}
	return err
}

// description reads what a message says about itself, including the length of its body and its kind.
func (s *arrowStream) description() (content []byte, size int64, kind byte, err error) {
	length := make([]byte, 4)
	if err = s.fill(length); err == nil && string(length) == "\xff\xff\xff\xff" { // which older ones do not have
		err = s.fill(length)
	}
	n := int32(binary.LittleEndian.Uint32(length))
	switch {
	case err != nil:
		return nil, 0, 0, err
	case n == 0:
		return nil, 0, 0, io.EOF
	case n < 4 || n > maxMetadata:
		return nil, 0, 0, fmt.Errorf("a message's description of %d bytes: at most %d are allowed", n, maxMetadata)
	}
	if content, err = io.ReadAll(io.LimitReader(s.in, int64(n))); err == nil && len(content) < int(n) {
		err = errEarly
	}
	if s.n += int64(len(content)); err != nil {
		return nil, 0, 0, err
	}
	root := arrowTable{&flatbuffers.Table{Bytes: content, Pos: flatbuffers.GetUOffsetT(content)}}
	if size = root.GetInt64Slot(4+2*3, 0); size < 0 || size > maxBatch {
		return nil, 0, 0, fmt.Errorf("a message's body of %d bytes: at most %d are allowed", size, maxBatch)
	}
	kind = root.GetByteSlot(4+2*1, 0)
	return content, size, kind, s.check(root, kind)
}

// check checks the lists in a message's description.
func (s *arrowStream) check(root arrowTable, kind byte) error {
	header, ok := root.table(2)
	if !ok {
		return errors.New("a message without a description")
	}
	err := root.notes(4)
	if err != nil {
		return err
	}
	need := s.views
	switch kind {
	case isSchema:
		s.fields, s.others = 0, map[int64]int{}
		s.views, err = s.columns(header, 1)
		return errors.Join(err, header.notes(2))
	case isDictionary:
		need = s.others[header.GetInt64Slot(4, 0)]
		if header, ok = header.table(1); !ok {
			return errors.New("a dictionary without a description")
		}
	}
	_, buffers, err := header.list(2, 16)
	if err != nil {
		return err
	}
	at, n, err := header.list(4, 8)
	if err == nil && n < need {
		err = fmt.Errorf("it has %d numbers of buffers of views, and its columns %d", n, need)
	}
	for i := 0; i < n && err == nil; i++ {
		if v := int64(binary.LittleEndian.Uint64(header.Bytes[at+8*i:])); v < 0 || v > int64(buffers) {
			err = fmt.Errorf("a view has %d buffers, and the batch %d", v, buffers)
		}
	}
	return err
}

// Release frees the memory of the message.
func (s *arrowStream) Release() {
	if s.given != nil {
		s.given.Release()
		s.given = nil
	}
}

// Retain does nothing: no readers share the stream.
func (s *arrowStream) Retain() {}

// arrowTable is a table of a description.
type arrowTable struct{ *flatbuffers.Table }

// at is where the value in a slot is; 0 if there is none.
func (t arrowTable) at(slot int) flatbuffers.UOffsetT {
	return flatbuffers.UOffsetT(t.Offset(flatbuffers.VOffsetT(4 + 2*slot)))
}

// table is the table in a slot; false if there is none.
func (t arrowTable) table(slot int) (arrowTable, bool) {
	o := t.at(slot)
	if o == 0 {
		return arrowTable{}, false
	}
	return arrowTable{&flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(t.Pos + o)}}, true
}

// list is where the list in a slot begins, and how many elements it has: no more than there are bytes for.
func (t arrowTable) list(slot, size int) (at, n int, err error) {
	o := t.at(slot)
	if o == 0 {
		return 0, 0, nil
	}
	at, n = int(t.Vector(o)), t.VectorLen(o)
	if at+size*n > len(t.Bytes) {
		return 0, 0, fmt.Errorf("a list of %d elements at byte %d of a description of %d bytes", n, at, len(t.Bytes))
	}
	return at, n, nil
}

func (t arrowTable) notes(slot int) error {
	_, _, err := t.list(slot, 4)
	return err
}

// columns counts the columns of views in a slot, which may share their children, so that few bytes can stand for very many.
func (s *arrowStream) columns(t arrowTable, slot int) (views int, err error) {
	at, n, err := t.list(slot, 4)
	if s.fields += n; err == nil && s.fields > maxFields {
		err = fmt.Errorf("more than %d fields", maxFields)
	}
	for i := 0; i < n && err == nil; i++ {
		field := arrowTable{&flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(flatbuffers.UOffsetT(at + 4*i))}}
		var own int
		if own, err = s.columns(field, 5); err == nil {
			err = field.notes(6)
		}
		if kind := field.GetByteSlot(4+2*2, 0); kind == 23 || kind == 24 { // of bytes, of texts
			own++
		}
		if encoding, ok := field.table(4); ok {
			s.others[encoding.GetInt64Slot(4, 0)], own = own, 0
		}
		views += own
	}
	return views, err
}
