package table

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// skim goes through a struct in Thrift's compact protocol, which is what Parquet describes itself in, before a library
// decodes it: the library makes a list of as many elements as the file says, and goes as deep. visit is called with
// each integer or bool and the numbers of the fields that lead to it, at most three. The result is how many bytes the struct has.
func skim(b []byte, visit func(path [3]int, v int64)) (size int, err error) {
	s := skimmer{b: b, visit: visit, left: maxStructs}
	defer func() {
		if p := recover(); p != nil {
			size, err = 0, p.(skimError)
		}
	}()
	s.structure(0, [3]int{})
	return s.at, nil
}

// maxStructs bounds the structs of a description, each of which takes some hundred bytes in memory.
const maxStructs = 1 << 20

type skimError struct{ error }

type skimmer struct {
	b     []byte
	at    int
	left  int
	visit func(path [3]int, v int64)
}

func (s *skimmer) fail(text string, args ...any) {
	panic(skimError{fmt.Errorf("byte %d of the description: %s", s.at, fmt.Sprintf(text, args...))})
}

func (s *skimmer) take(n uint64) []byte {
	if n > uint64(len(s.b)-s.at) {
		panic(skimError{errShort})
	}
	s.at += int(n)
	return s.b[s.at-int(n) : s.at]
}

// errShort: the bytes end within the struct.
var errShort = errors.New("the description ends early")

func (s *skimmer) varint() uint64 {
	v, n := binary.Uvarint(s.b[s.at:])
	if n == 0 {
		panic(skimError{errShort})
	}
	if n < 0 {
		s.fail("a number of more than 64 bits")
	}
	s.at += n
	return v
}

// The types of fields.
const (
	thriftTrue = 1 + iota
	thriftFalse
	thriftByte
	thriftI16
	thriftI32
	thriftI64
	thriftDouble
	thriftBinary
	thriftList
	thriftSet
	thriftMap
	thriftStruct
	thriftUUID
)

func (s *skimmer) structure(depth int, path [3]int) {
	if depth > MaxDepth {
		s.fail("structs are nested more than %d deep", MaxDepth)
	}
	if s.left--; s.left < 0 {
		s.fail("more than %d structs", maxStructs)
	}
	field := 0
	for {
		head := s.take(1)[0]
		if head == 0 {
			return
		}
		if head>>4 != 0 {
			field += int(head >> 4)
		} else {
			v := s.varint()
			field = int(int16(v>>1) ^ -int16(v&1))
		}
		if depth < len(path) {
			path[depth] = field
		}
		kind := int(head & 15)
		if kind != thriftTrue && kind != thriftFalse {
			s.value(kind, depth, path)
		} else if s.visit != nil && depth < len(path) { // the value is the type
			s.visit(path, int64(thriftFalse-kind))
		}
	}
}

func (s *skimmer) value(kind, depth int, path [3]int) {
	switch kind {
	case thriftTrue, thriftFalse, thriftByte:
		s.take(1)
	case thriftI16, thriftI32, thriftI64:
		v := s.varint()
		if s.visit != nil && depth < len(path) {
			s.visit(path, int64(v>>1)^-int64(v&1))
		}
	case thriftDouble:
		s.take(8)
	case thriftUUID:
		s.take(16)
	case thriftBinary:
		s.take(s.varint())
	case thriftList, thriftSet:
		head := s.take(1)[0]
		n := uint64(head >> 4)
		if n == 15 {
			n = s.varint()
		}
		s.elements(n, int(head&15), depth, path)
	case thriftMap:
		n := s.varint()
		if n == 0 {
			return
		}
		kinds := s.take(1)[0]
		if n > uint64(len(s.b)-s.at) {
			panic(skimError{errShort})
		}
		for range n {
			s.element(int(kinds>>4), depth, path)
			s.element(int(kinds&15), depth, path)
		}
	case thriftStruct:
		s.structure(depth+1, path)
	default:
		s.fail("a field of an unknown type (%d)", kind)
	}
}

func (s *skimmer) elements(n uint64, kind, depth int, path [3]int) {
	if n > uint64(len(s.b)-s.at) { // each has a byte at least
		panic(skimError{errShort})
	}
	for range n {
		s.element(kind, depth, path)
	}
}

// element is one of a list; a list of lists goes deeper.
func (s *skimmer) element(kind, depth int, path [3]int) {
	if kind == thriftList || kind == thriftSet || kind == thriftMap {
		if depth++; depth > MaxDepth {
			s.fail("lists are nested more than %d deep", MaxDepth)
		}
	}
	s.value(kind, depth, path)
}
