package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"go.starlark.net/starlark"

	"drun/starlib/data/table"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// safetensorsTypes maps the type names in a header to codes in elements.
var safetensorsTypes = map[string]string{
	"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "bf", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
	"U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "b1", "C64": "c8",
}

// maxSafetensorsHeader is how long a header may be, as in the format's own readers.
const maxSafetensorsHeader = 100 << 20

// metadata is the entry of a header that describes no tensor.
const metadata = "__metadata__"

// named is an array of a file that holds several; it lies from byte from up to to.
type named struct {
	name     string
	from, to int
	array
}

// parseSafetensors reads Hugging Face's format: the size of the header, the header
// as JSON, the elements; the arrays' bytes lie end to end.
// https://huggingface.co/docs/safetensors (section "Format")
func parseSafetensors(content []byte) ([]named, error) {
	if len(content) < 8 {
		return nil, fmt.Errorf("truncated: %d bytes, not even the size of a header", len(content))
	}
	size := binary.LittleEndian.Uint64(content)
	if size > maxSafetensorsHeader {
		return nil, fmt.Errorf("byte 0: not a safetensors file: a header of %d bytes", size)
	}
	body := 8 + int(size)
	if body > len(content) {
		return nil, fmt.Errorf("truncated at byte %d: the header ends at byte %d", len(content), body)
	}
	arrays, err := parseHeader(content[8:body])
	if err != nil {
		return nil, fmt.Errorf("byte 8: %w", err)
	}
	sort.Slice(arrays, func(i, j int) bool {
		a, b := &arrays[i], &arrays[j]
		return a.from < b.from || a.from == b.from && (a.to < b.to || a.to == b.to && a.name < b.name)
	})
	end := 0
	for i := range arrays {
		a := &arrays[i]
		if a.from != end {
			return nil, fmt.Errorf("%q begins at byte %d of the data, but byte %d comes next", shorten(a.name), a.from, end)
		}
		if end = a.to; end > len(content)-body {
			return nil, fmt.Errorf("truncated: %q ends at byte %d, the file at byte %d", shorten(a.name), body+end, len(content))
		}
		a.data = content[body+a.from : body+a.to]
	}
	if rest := len(content) - body - end; rest > 0 {
		return nil, fmt.Errorf("%d bytes too many after byte %d", rest, body+end)
	}
	return arrays, nil
}

// parseHeader reads the entries of a header.
func parseHeader(text []byte) (arrays []named, err error) {
	v, err := table.ParseJSON(text)
	header, ok := v.(table.Object)
	if err == nil && !ok {
		err = errors.New("it is not an object")
	}
	for i := 0; i < len(header) && err == nil; i++ {
		m := header[i]
		if m.Name == metadata {
			err = texts(m.Value)
			continue
		}
		var a named
		if a, err = parseEntry(m.Value); err != nil {
			err = fmt.Errorf("entry %q: %w", shorten(m.Name), err)
		}
		a.name = m.Name
		arrays = append(arrays, a)
	}
	if err != nil {
		return nil, fmt.Errorf("the header is corrupt: %w", err)
	}
	return arrays, nil
}

// texts returns an error unless a value is an object of strings, or null.
func texts(v any) error {
	object, ok := v.(table.Object)
	ok = ok || v == nil
	for _, m := range object {
		_, text := m.Value.(string)
		ok = ok && (text || m.Value == nil)
	}
	if !ok {
		return errors.New(metadata + ": it is not an object of strings")
	}
	return nil
}

// intsOf returns the elements of a list of at most most integers.
func intsOf(v any, most int) ([]int, error) {
	list, ok := v.([]any)
	ints := make([]int, 0, min(len(list), most))
	for _, x := range list {
		n, whole := x.(int64)
		ok = ok && whole && len(ints) < most
		ints = append(ints, int(n))
	}
	if !ok {
		return nil, fmt.Errorf("it is not a list of at most %d integers", most)
	}
	return ints, nil
}

func parseEntry(v any) (a named, err error) {
	var dtype string
	var offsets []int
	fields, ok := v.(table.Object)
	if !ok {
		return a, errors.New("it is not an object")
	}
	for _, f := range fields {
		switch f.Name {
		case "dtype":
			if dtype, ok = f.Value.(string); !ok {
				err = errors.New("it is not a string")
			}
		case "shape":
			a.shape, err = intsOf(f.Value, tensor.MaxDims)
		case "data_offsets":
			offsets, err = intsOf(f.Value, 2)
		default:
			return a, fmt.Errorf("unknown field %q", shorten(f.Name))
		}
		if err != nil {
			return a, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	code, ok := safetensorsTypes[dtype]
	if !ok {
		return a, fmt.Errorf("unknown dtype %q", shorten(dtype))
	}
	if a.shape == nil {
		return a, errors.New("it has no shape")
	}
	a.kind = elements[code]
	size, err := a.bytes()
	if err != nil {
		return a, err
	}
	if len(offsets) != 2 || offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1]-offsets[0] != size {
		return a, fmt.Errorf("data_offsets %v do not fit %s, which takes %d bytes", offsets, &a.array, size)
	}
	a.from, a.to = offsets[0], offsets[1]
	return a, nil
}

// tensorsOfSafetensors returns the tensors by name, in the order of the file.
func tensorsOfSafetensors(ctx *tensor.Context, content []byte) (*starlark.Dict, error) {
	arrays, err := parseSafetensors(content)
	if err != nil {
		return nil, err
	}
	tensors := starlark.NewDict(len(arrays))
	for i := range arrays {
		t, err := arrays[i].tensor(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", oneLine(arrays[i].name), err)
		}
		if err := tensors.SetKey(starlark.String(arrays[i].name), (*startensor.Value)(t)); err != nil {
			return nil, err
		}
	}
	return tensors, nil
}
