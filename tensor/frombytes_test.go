package tensor

import (
	"strings"
	"testing"

	"drun/element"
)

// A shape that the bytes do not make takes no memory.
func TestFromBytesOfAnyShape(t *testing.T) {
	for _, shape := range [][]int{{1 << 40}, {1 << 62}, {1 << 32, 1 << 32}, {3}, {-1}} {
		_, err := FromBytes(NewContext(), make([]byte, 8), shape, element.Float32)
		if err == nil || strings.Contains(err.Error(), "memory") {
			t.Errorf("%v: %v", shape, err)
		}
	}
	if _, err := FromBytes(NewContext(), make([]byte, 8), []int{2, 1}, element.Float32); err != nil {
		t.Error(err)
	}
}
