package tensor

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"drun/internal/each"
)

// MaxDims is the largest number of dimensions a tensor may have.
const MaxDims = 32

// maxElems is more elements than any tensor has; their size in bytes still fits an int.
const maxElems = 1 << 60

// countElems checks a shape and returns its number of elements.
func countElems(op string, shape []int) (int, error) {
	if len(shape) > MaxDims {
		return 0, fmt.Errorf("%s: %d dimensions; a tensor has at most %d", op, len(shape), MaxDims)
	}
	// A size of zero must not hide an overflow, or a negative size that comes later.
	n, empty := 1, false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("%s: negative size in shape %s", op, ShapeString(shape))
		}
		if d == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo >= maxElems {
			return 0, fmt.Errorf("%s: shape %s has too many elements", op, ShapeString(shape))
		}
		n = int(lo)
	}
	if empty {
		return 0, nil
	}
	return n, nil
}

// ShapeString formats a shape as Python does a tuple: (), (3,), (2, 3).
func ShapeString(shape []int) string {
	if len(shape) == 1 {
		return "(" + strconv.Itoa(shape[0]) + ",)"
	}
	sizes := each.Of(shape, strconv.Itoa)
	return "(" + strings.Join(sizes, ", ") + ")"
}

// shaped is a shape that is formatted by ShapeString only when it is needed.
type shaped []int

func (s shaped) String() string { return ShapeString(s) }

// setContiguous fills strides for row-major order.
func setContiguous(strides, shape []int) {
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = step
		step *= max(shape[i], 1)
	}
}

func isContiguous(shape, strides []int) bool {
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] == 0 {
			return true
		}
		if shape[i] != 1 && strides[i] != step {
			return false
		}
		step *= shape[i]
	}
	return true
}

func sameShape(a, b []int) bool { return slices.Equal(a, b) }

// BroadcastShape returns the common shape of a and b by NumPy's rule, appended
// to dst: sizes are aligned at the right, and a size of 1 is stretched.
func BroadcastShape(op string, dst, a, b []int) ([]int, error) {
	if len(a) < len(b) {
		a, b = b, a
	}
	pad := len(a) - len(b)
	dst = append(dst, a[:pad]...)
	for i, y := range b {
		x := a[pad+i]
		switch {
		case x == y || y == 1:
			dst = append(dst, x)
		case x == 1:
			dst = append(dst, y)
		default:
			return nil, fmt.Errorf("%s: shapes %s and %s do not broadcast: sizes %d and %d differ in dimension %d",
				op, ShapeString(a), ShapeString(b), x, y, pad+i)
		}
	}
	return dst, nil
}

// broadcastStrides writes into dst t's strides when broadcast to the wider shape: 0 where t is stretched.
func broadcastStrides(dst, shape []int, t *Tensor) {
	pad := len(shape) - len(t.shape)
	for i := range shape {
		if i < pad || (t.shape[i-pad] == 1 && shape[i] != 1) {
			dst[i] = 0
		} else {
			dst[i] = t.strides[i-pad]
		}
	}
}

// Axis maps a dimension number, which may count from the end, to 0..ndim-1.
func Axis(op string, dim, ndim int) (int, error) {
	n := max(ndim, 1) // PyTorch lets a scalar have dimension 0
	if dim < -n || dim >= n {
		return 0, fmt.Errorf("%s: dimension %d is out of range: expected %d to %d", op, dim, -n, n-1)
	}
	if dim < 0 {
		dim += n
	}
	return dim, nil
}

// Size returns the size of dimension dim.
func Size(t *Tensor, dim int) (int, error) {
	if len(t.shape) == 0 {
		return 0, fmt.Errorf("size: a tensor without dimensions has no dimension %d", dim)
	}
	a, err := Axis("size", dim, len(t.shape))
	if err != nil {
		return 0, err
	}
	return t.shape[a], nil
}

// index maps an element index, which may count from the end, to 0..size-1.
func index(op string, i, size, dim int) (int, error) {
	if i < -size || i >= size {
		if size == 0 {
			return 0, fmt.Errorf("%s: index %d into dimension %d, which is empty", op, i, dim)
		}
		return 0, fmt.Errorf("%s: index %d is out of range for dimension %d of size %d: expected %d to %d",
			op, i, dim, size, -size, size-1)
	}
	if i < 0 {
		i += size
	}
	return i, nil
}
