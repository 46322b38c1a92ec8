package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"go.starlark.net/starlark"

	"drun/internal/try"
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

// named is one of several arrays in a file; it takes the bytes from from up to to.
type named struct {
	name     string
	from, to int
	array
}

// parseSafetensors reads Hugging Face's format: the size of the header, the header as JSON, the elements; the arrays'
// bytes are end to end. https://huggingface.co/docs/safetensors (section "Format")
func parseSafetensors(content []byte) (_ []named, err error) {
	defer try.Caught(&err)
	try.FailIf(len(content) < 8, "truncated: %d bytes, not even the size of a header", len(content))
	size := binary.LittleEndian.Uint64(content)
	try.FailIf(size > maxSafetensorsHeader, "byte 0: not a safetensors file: a header of %d bytes", size)
	body := 8 + int(size)
	try.FailIf(body > len(content), "truncated at byte %d: the header ends at byte %d", len(content), body)
	arrays, err := parseHeader(content[8:body])
	try.FailIf(err != nil, "byte 8: %w", err)
	sort.Slice(arrays, func(i, j int) bool {
		a, b := &arrays[i], &arrays[j]
		return a.from < b.from || a.from == b.from && (a.to < b.to || a.to == b.to && a.name < b.name)
	})
	end := 0
	for i := range arrays {
		a := &arrays[i]
		try.FailIf(a.from != end, "%q begins at byte %d of the data, but byte %d comes next", shorten(a.name), a.from, end)
		end = a.to
		try.FailIf(end > len(content)-body, "truncated: %q ends at byte %d, the file at byte %d", shorten(a.name), body+end, len(content))
		a.data = content[body+a.from : body+a.to]
	}
	rest := len(content) - body - end
	try.FailIf(rest > 0, "%d bytes too many after byte %d", rest, body+end)
	return arrays, nil
}

// parseHeader reads the entries of a header. ParseJSON refuses a name that comes twice.
func parseHeader(text []byte) (arrays []named, err error) {
	v, err := table.ParseJSON(text)
	header, ok := v.(table.Object)
	if err == nil && !ok {
		err = errors.New("it is not an object")
	}
	for i := 0; i < len(header) && err == nil; i++ {
		if m := header[i]; m.Name != metadata {
			a := named{name: m.Name}
			if err = a.parseEntry(m.Value); err != nil {
				err = fmt.Errorf("entry %q: %w", shorten(m.Name), err)
			}
			arrays = append(arrays, a)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the header is corrupt: %w", err)
	}
	return arrays, nil
}

// intsOf returns the elements of a list of integers.
func intsOf(v any) (ints []int, ok bool) {
	list, ok := v.([]any)
	ints = make([]int, len(list))
	for i, x := range list {
		n, whole := x.(int64)
		ints[i], ok = int(n), ok && whole
	}
	return ints, ok
}

func (a *named) parseEntry(v any) (err error) {
	defer try.Caught(&err)
	var dtype string
	var offsets []int
	fields, ok := v.(table.Object)
	try.FailIf(!ok, "it is not an object")
	for _, f := range fields {
		switch f.Name {
		case "dtype":
			dtype, ok = f.Value.(string)
		case "shape":
			a.shape, ok = intsOf(f.Value)
		case "data_offsets":
			offsets, ok = intsOf(f.Value)
		default:
			return fmt.Errorf("unknown field %q", shorten(f.Name))
		}
		try.FailIf(!ok, "%s: it has the wrong type", f.Name)
	}
	code, ok := safetensorsTypes[dtype]
	try.FailIf(!ok, "unknown dtype %q", shorten(dtype))
	try.FailIf(a.shape == nil, "it has no shape")
	a.kind = elements[code]
	size := try.To(a.bytes())
	try.FailIf(len(offsets) != 2 || offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1]-offsets[0] != size, "data_offsets %s do not fit %s, which takes %d bytes", shorten(fmt.Sprint(offsets)), &a.array, size)
	a.from, a.to = offsets[0], offsets[1]
	return nil
}

// tensorsOfSafetensors returns the tensors by name, in the order of the file.
func tensorsOfSafetensors(ctx *tensor.Context, content []byte) (_ *starlark.Dict, err error) {
	defer try.Caught(&err)
	arrays := try.To(parseSafetensors(content))
	tensors := starlark.NewDict(len(arrays))
	for i := range arrays {
		t, err := arrays[i].tensor(ctx)
		try.FailIf(err != nil, "%s: %w", oneLine(arrays[i].name), err)
		try.Ok(tensors.SetKey(starlark.String(arrays[i].name), (*startensor.Value)(t)))
	}
	return tensors, nil
}
