package data

import (
	"encoding/binary"
	"fmt"
)

// parseIDX reads the format of MNIST's files: two zero bytes, the type, the number
// of dimensions, the sizes, the elements; all big-endian.
// http://yann.lecun.com/exdb/mnist/ (section "the IDX file format")
func parseIDX(content []byte) (*array, error) {
	if len(content) < 4 || content[0] != 0 || content[1] != 0 {
		return nil, fmt.Errorf("byte 0: not an idx file, which begins with two zero bytes, a type and a number of dimensions")
	}
	code, ok := map[byte]string{8: "u1", 9: "i1", 11: "i2", 12: "i4", 13: "f4", 14: "f8"}[content[2]]
	if !ok {
		return nil, fmt.Errorf("byte 2: unknown type 0x%02x", content[2])
	}
	a := &array{kind: elements[code], swapped: true}
	at := 4
	for range content[3] {
		if at+4 > len(content) {
			return nil, fmt.Errorf("truncated at byte %d, within the sizes of %d dimensions", len(content), content[3])
		}
		a.shape = append(a.shape, int(binary.BigEndian.Uint32(content[at:])))
		at += 4
	}
	return a, a.fill(content, at)
}
