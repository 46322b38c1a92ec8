package data

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/try"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// maxHeader bounds the header of a .npy file, as NumPy does: that of an array of numbers has about a hundred bytes.
const maxHeader = 10000

// parseNPY reads NumPy's format for one array, versions 1 to 3:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
func parseNPY(content []byte) (_ *array, err error) {
	defer try.Caught(&err)
	const magic = "\x93NUMPY"
	try.FailIf(len(content) < 10 || string(content[:6]) != magic, "byte 0: not a .npy file, which begins with %q", magic)
	at, size := 10, uint64(binary.LittleEndian.Uint16(content[8:]))
	switch major := content[6]; major {
	case 1:
	case 2, 3:
		try.FailIf(len(content) < 12, "truncated at byte %d, within the header", len(content))
		at, size = 12, uint64(binary.LittleEndian.Uint32(content[8:]))
	default:
		return nil, fmt.Errorf("byte 6: version %d of the format is unknown", major)
	}
	try.FailIf(size > maxHeader, "byte 8: a header of %d bytes is longer than %d", size, maxHeader)
	end := at + int(size)
	try.FailIf(end > len(content), "truncated at byte %d: the header ends at byte %d", len(content), end)
	a, err := parseNPYHeader(string(content[at:end]))
	try.FailIf(err != nil, "byte %d: %w", at, err)
	return a, a.fill(content, end)
}

// parseNPYHeader reads a Python literal, which is also a Starlark literal: {'descr': '<f4', 'fortran_order': False,
// 'shape': (2, 3), }
func parseNPYHeader(text string) (_ *array, err error) {
	defer try.Caught(&err)
	expr, err := new(syntax.FileOptions).ParseExpr("header", strings.TrimSpace(text), 0)
	try.FailIf(err != nil, "the header is corrupt: %q", shorten(text))
	dict, _ := expr.(*syntax.DictExpr)
	try.FailIf(dict == nil, "the header is not a dict: %q", shorten(text))
	a := new(array)
	missing := []string{"descr", "fortran_order", "shape"}
	for _, e := range dict.List {
		entry := e.(*syntax.DictEntry)
		name, _ := literal(entry.Key).(string)
		i := slices.Index(missing, name)
		try.FailIf(i < 0, "the header has an unknown or repeated key %q", shorten(name))
		missing = slices.Delete(missing, i, i+1)
		ok := false
		switch name {
		case "descr": // such as <f4: byte order, kind, bytes
			if code, _ := literal(entry.Value).(string); len(code) == 3 && strings.Contains("<>|=", code[:1]) && code[1:] != "bf" {
				a.kind, ok = elements[code[1:]]
				a.swapped = code[0] == '>'
			}
		case "fortran_order":
			ident, _ := entry.Value.(*syntax.Ident)
			ok = ident != nil && (ident.Name == "True" || ident.Name == "False")
			a.columns = ok && ident.Name == "True"
		case "shape":
			a.shape, ok = shapeOf(entry.Value)
		}
		try.FailIf(!ok, "the header's %s is not that of an array of plain numbers: %q", name, shorten(text))
	}
	if len(missing) > 0 {
		try.Fail("the header lacks the key %q", missing[0])
	}
	return a, nil
}

// shapeOf reads a tuple of integers.
func shapeOf(e syntax.Expr) (shape []int, ok bool) {
	if p, ok := e.(*syntax.ParenExpr); ok {
		e = p.X
	}
	tuple, ok := e.(*syntax.TupleExpr)
	for i := 0; ok && i < len(tuple.List); i++ {
		var n int64
		n, ok = literal(tuple.List[i]).(int64)
		shape = append(shape, int(n))
	}
	return shape, ok
}

func literal(e syntax.Expr) any {
	if l, ok := e.(*syntax.Literal); ok {
		return l.Value
	}
	return nil
}

// parseNPZ reads NumPy's format for several arrays: a zip archive of .npy files. Their names are only names: nothing
// is unpacked into files.
func parseNPZ(ctx *tensor.Context, content []byte) (_ *starlark.Dict, err error) {
	defer try.Caught(&err)
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	try.FailIf(err != nil, "not a .npz file, or a truncated one")
	// Members that overlap could unpack to any size.
	rest := uint64(len(content))
	for _, f := range archive.File {
		try.FailIf(f.CompressedSize64 > rest, "%q overlaps another array, or goes beyond the end of the file", shorten(f.Name))
		rest -= f.CompressedSize64
	}
	arrays := new(starlark.Dict)
	for _, f := range archive.File {
		name := starlark.String(strings.TrimSuffix(f.Name, ".npy"))
		_, found, _ := arrays.Get(name)
		try.FailIf(found, "there are two arrays named %q", shorten(string(name)))
		t, err := readMember(ctx, f)
		try.FailIf(err != nil, "%s: %w", oneLine(f.Name), err)
		try.Ok(arrays.SetKey(name, (*startensor.Value)(t)))
	}
	return arrays, nil
}

// maxDeflate is above the most bytes that one byte of deflate can unpack to.
const maxDeflate = 1040

// readMember reads an array of an archive. Its size, as the archive's directory states it, must be possible.
func readMember(ctx *tensor.Context, f *zip.File) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(f.UncompressedSize64/maxDeflate > f.CompressedSize64, "%d bytes cannot unpack to %d", f.CompressedSize64, f.UncompressedSize64)
	in := try.To(f.Open())
	defer in.Close()
	return parseAll(ctx, packedReader{in, "zip"}, int64(f.UncompressedSize64), one(parseNPY))
}
