package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/tensor"
)

// array is an array as stored in a file: its elements are at the start of data, in row-major order, or column-major
// with columns.
type array struct {
	kind    fileType
	shape   []int
	columns bool
	swapped bool // the elements' bytes are big-endian
	data    []byte
}

// fileType is a type of elements in files. Types that tensors lack are widened.
type fileType struct {
	name string // as NumPy calls it
	size int
	as   dtype.Type
}

// elements are the types that can be read, by NumPy's codes: kind and size.
var elements = map[string]fileType{
	"f2": {"float16", 2, dtype.Float16}, "f4": {"float32", 4, dtype.Float32}, "f8": {"float64", 8, dtype.Float64},
	"i1": {"int8", 1, dtype.Int8}, "i2": {"int16", 2, dtype.Int32}, "i4": {"int32", 4, dtype.Int32}, "i8": {"int64", 8, dtype.Int64},
	"u1": {"uint8", 1, dtype.Uint8}, "u2": {"uint16", 2, dtype.Int32}, "u4": {"uint32", 4, dtype.Int64}, "u8": {"uint64", 8, dtype.Int64},
	"b1": {"bool", 1, dtype.Bool}, "c8": {"complex64", 8, dtype.Complex64}, "bf": {"bfloat16", 2, dtype.BFloat16},
}

func (a *array) String() string {
	return fmt.Sprintf("%s of shape %s", a.kind.name, tensor.ShapeString(a.shape))
}

// bytes is the size of the elements; an error if no memory could hold them.
func (a *array) bytes() (_ int, err error) {
	defer try.Caught(&err)
	try.FailIf(len(a.shape) > tensor.MaxDims, "%d dimensions, more than %d", len(a.shape), tensor.MaxDims)
	n := uint64(a.kind.size)
	if slices.Contains(a.shape, 0) {
		n = 0
	}
	for _, size := range a.shape {
		try.FailIf(size < 0, "a size of %d", size)
		high, low := bits.Mul64(n, uint64(size))
		if high != 0 || low > math.MaxInt64/8 { // a widened element has up to 8 bytes
			return 0, fmt.Errorf("%s: too many elements for any memory", a)
		}
		n = low
	}
	return int(n), nil
}

// tensor makes a tensor from the array, whose elements must all be there.
func (a *array) tensor(ctx *tensor.Context) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	size := try.To(a.bytes())
	shape := slices.Clone(a.shape)
	if a.columns {
		slices.Reverse(shape)
	}
	t, err := tensor.Empty(ctx, shape, a.kind.as)
	if err == nil {
		err = a.copy(t.Bytes(), a.data[:size])
	}
	if err != nil || !a.columns || len(shape) < 2 {
		return t, err
	}
	back := each.UpTo(len(shape), func(i int) int { return len(shape) - 1 - i })
	t = try.To(tensor.Permute(t, back))
	return tensor.Contiguous(t)
}

// copy copies elements into a tensor's memory, converted to the machine's byte order and the tensor's type.
func (a *array) copy(to, raw []byte) error {
	var order binary.ByteOrder = binary.LittleEndian
	if a.swapped {
		order = binary.BigEndian
	}
	switch a.kind.name {
	case "int16":
		for i, to := 0, view[int32](to); i < len(to); i++ {
			to[i] = int32(int16(order.Uint16(raw[2*i:])))
		}
		return nil
	case "uint16":
		for i, to := 0, view[int32](to); i < len(to); i++ {
			to[i] = int32(order.Uint16(raw[2*i:]))
		}
		return nil
	case "uint32":
		for i, to := 0, view[int64](to); i < len(to); i++ {
			to[i] = int64(order.Uint32(raw[4*i:]))
		}
		return nil
	}
	copy(to, raw)
	word := a.kind.size // the unit that byte order applies to
	if a.kind.as == dtype.Complex64 {
		word = 4
	}
	if a.swapped && word > 1 {
		for i := 0; i+word <= len(to); i += word {
			slices.Reverse(to[i : i+word])
		}
	}
	switch a.kind.name {
	case "uint64":
		for i, v := range view[uint64](to) {
			if v > math.MaxInt64 {
				return fmt.Errorf("element %d is %d, which int64 cannot hold", i, v)
			}
		}
	case "bool":
		for i, v := range to {
			if v > 1 {
				return fmt.Errorf("element %d is %d, neither 0 nor 1 as a bool must be", i, v)
			}
		}
	}
	return nil
}

// one parses a file of one array.
func one(parse func(content []byte) (*array, error)) func(ctx *tensor.Context, content []byte) (*tensor.Tensor, error) {
	return func(ctx *tensor.Context, content []byte) (*tensor.Tensor, error) {
		a, err := parse(content)
		if err != nil {
			return nil, err
		}
		return a.tensor(ctx)
	}
}

// fill takes the elements from byte at, after the header, to the end of content.
func (a *array) fill(content []byte, at int) (err error) {
	defer try.Caught(&err)
	size := try.To(a.bytes())
	switch rest := len(content) - at; {
	case rest < size:
		return fmt.Errorf("truncated: %s takes %d bytes from byte %d on, there are %d", a, size, at, rest)
	case rest > size:
		return fmt.Errorf("%d bytes too many: %s ends at byte %d", rest-size, a, at+size)
	}
	a.data = content[at:]
	return nil
}

// parseIDX reads the format of MNIST's files: two zero bytes, the type, the number of dimensions, the sizes, the
// elements; all big-endian. http://yann.lecun.com/exdb/mnist/ (section "the IDX file format")
func parseIDX(content []byte) (_ *array, err error) {
	defer try.Caught(&err)
	try.FailIf(len(content) < 4 || content[0] != 0 || content[1] != 0, "byte 0: not an idx file, which begins with two zero bytes, a type and a number of dimensions")
	code, ok := map[byte]string{8: "u1", 9: "i1", 11: "i2", 12: "i4", 13: "f4", 14: "f8"}[content[2]]
	try.FailIf(!ok, "byte 2: unknown type 0x%02x", content[2])
	a := &array{kind: elements[code], swapped: true}
	at := 4
	for range content[3] {
		try.FailIf(at+4 > len(content), "truncated at byte %d, within the sizes of %d dimensions", len(content), content[3])
		a.shape = append(a.shape, int(binary.BigEndian.Uint32(content[at:])))
		at += 4
	}
	return a, a.fill(content, at)
}
