package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"
)

// open opens a file that the recipe may read, decompressed if its first bytes (not its name) say gzip
// or zstd. size is the number of bytes to come, or -1.
func open(files *starlib.Files, name string) (in io.Reader, size int64, closer io.Closer, err error) {
	defer try.Caught(&err)
	f := try.To(files.Open(name))
	in, packed, err := unpack(f)
	if err != nil {
		f.Close()
		return nil, 0, nil, fmt.Errorf("%s: %w", name, err)
	}
	if packed {
		return in, -1, f, nil
	}
	return in, f.Size(), f, nil
}

// maxWindow bounds the memory of a zstd stream, as the zstd tool does.
const maxWindow = 128 << 20

// unpack decompresses gzip and zstd.
func unpack(f io.Reader) (in io.Reader, packed bool, err error) {
	buffered := bufio.NewReaderSize(f, 64<<10)
	magic, _ := buffered.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, false, packedError("gzip", err)
		}
		return packedReader{unpacked, "gzip"}, true, nil
	case string(magic) == "\x28\xb5\x2f\xfd":
		unpacked, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, false, packedError("zstd", err)
		}
		return packedReader{unpacked, "zstd"}, true, nil
	}
	return buffered, false, nil
}

// packedReader adds the name of the format to errors.
type packedReader struct {
	io.Reader
	format string
}

func (r packedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = packedError(r.format, err)
	}
	return n, err
}

func packedError(format string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("truncated: the %s data ends early", format)
	}
	return fmt.Errorf("the %s data is corrupt: %w", format, err)
}

// readAll reads a whole file into memory that counts as a plain value's.
func readAll(files *starlib.Files, name string) (_ []byte, err error) {
	defer try.Caught(&err)
	in, size, closer := try.To3(open(files, name))
	defer closer.Close()
	limit := int64(files.Largest)
	if limit <= 0 {
		limit = math.MaxInt64 - 1
	}
	try.FailIf(size > limit, "%s: it has %d bytes, and one value may take at most %d; tensors may take more, such as the arrays in a .npy file", name, size, limit)
	var content bytes.Buffer
	if size >= 0 {
		content.Grow(int(size) + bytes.MinRead) // large enough that reading never grows it
	}
	_, err = content.ReadFrom(io.LimitReader(in, limit+1))
	try.FailIf(err != nil, "%s: %w", name, err)
	try.FailIf(int64(content.Len()) > limit, "%s: it unpacks to more than the %d bytes that one value may take; tensors may take more, such as the arrays in a .npy file", name, limit)
	return content.Bytes(), nil
}

// read parses a whole file of arrays.
func read[T any](files *starlib.Files, ctx *tensor.Context, name string, parse func(ctx *tensor.Context, content []byte) (T, error)) (v T, err error) {
	defer try.Caught(&err)
	in, size, closer := try.To3(open(files, name))
	defer closer.Close()
	if v, err = parseAll(ctx, in, size, parse); err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// parseAll passes all bytes of a reader to parse; size is their number, or -1 if unknown. They are kept in tensor
// memory, under its limit, and freed afterwards.
func parseAll[T any](ctx *tensor.Context, in io.Reader, size int64, parse func(ctx *tensor.Context, content []byte) (T, error)) (v T, err error) {
	defer try.Caught(&err)
	const first = 1 << 20
	if size < 0 {
		size = first
	}
	n := 0
	var buffer *tensor.Tensor
	for {
		// One byte more than expected: the file may have grown.
		next := try.To(tensor.Empty(ctx, []int{int(min(size, math.MaxInt64-1)) + 1}, dtype.Uint8))
		if buffer != nil {
			copy(next.Bytes(), buffer.Bytes()[:n])
			tensor.Discard(buffer)
		}
		buffer = next
		space := buffer.Bytes()
		for n < len(space) && err == nil {
			var more int
			more, err = in.Read(space[n:])
			n += more
		}
		if err == io.EOF {
			defer tensor.Discard(buffer)
			return parse(ctx, space[:n:n])
		}
		if err != nil {
			return v, err
		}
		size = 2 * int64(n)
	}
}

func readText(files *starlib.Files, name string) (_ starlark.String, err error) {
	defer try.Caught(&err)
	content := try.To(readAll(files, name))
	try.FailIf(!utf8.Valid(content), "%s: not UTF-8 text; read it with data.bytes", name)
	return starlark.String(textOf(content)), nil
}

// bytesOf returns the memory of the numbers.
func bytesOf[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}

// textOf views bytes as a string; they must not change any more.
func textOf(content []byte) string { return unsafe.String(unsafe.SliceData(content), len(content)) }

// view returns raw as numbers, copied first if misaligned.
func view[T any](raw []byte) []T {
	size := int(unsafe.Sizeof(*new(T)))
	p := unsafe.Pointer(unsafe.SliceData(raw))
	if uintptr(p)%unsafe.Alignof(*new(T)) != 0 {
		p = unsafe.Pointer(unsafe.SliceData(bytes.Clone(raw)))
	}
	return unsafe.Slice((*T)(p), len(raw)/size)
}
