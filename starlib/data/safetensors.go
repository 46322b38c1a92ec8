package data

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	"go.starlark.net/starlark"

	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// safetensorsTypes are the names of the types in a header, as codes in elements.
var safetensorsTypes = map[string]string{
	"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "bf", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
	"U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "b1", "C64": "c8",
}

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
	const longest = 100 << 20 // as the format's own readers have it
	if len(content) < 8 {
		return nil, fmt.Errorf("truncated: %d bytes, not even the size of a header", len(content))
	}
	size := binary.LittleEndian.Uint64(content)
	if size > longest {
		return nil, fmt.Errorf("byte 0: not a safetensors file: a header of %d bytes", size)
	}
	body := 8 + int(size)
	if body > len(content) {
		return nil, fmt.Errorf("truncated at byte %d: the header ends at byte %d", len(content), body)
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(content[8:body], &header); err != nil {
		return nil, fmt.Errorf("byte 8: the header is garbled: %w", err)
	}
	delete(header, "__metadata__")
	arrays := make([]named, 0, len(header))
	for name, entry := range header {
		a, err := parseEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("the header's entry %q: %w", name, err)
		}
		a.name = name
		arrays = append(arrays, a)
	}
	sort.Slice(arrays, func(i, j int) bool {
		a, b := &arrays[i], &arrays[j]
		return a.from < b.from || a.from == b.from && (a.to < b.to || a.to == b.to && a.name < b.name)
	})
	end := 0
	for i := range arrays {
		a := &arrays[i]
		if a.from != end {
			return nil, fmt.Errorf("%q begins at byte %d of the data, but byte %d comes next", a.name, a.from, end)
		}
		if end = a.to; end > len(content)-body {
			return nil, fmt.Errorf("truncated: %q ends at byte %d, the file at byte %d", a.name, body+end, len(content))
		}
		a.data = content[body+a.from : body+a.to]
	}
	if rest := len(content) - body - end; rest > 0 {
		return nil, fmt.Errorf("%d bytes too many after byte %d", rest, body+end)
	}
	return arrays, nil
}

func parseEntry(text []byte) (named, error) {
	var entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets []int  `json:"data_offsets"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&entry); err != nil {
		return named{}, err
	}
	code, ok := safetensorsTypes[entry.DType]
	if !ok {
		return named{}, fmt.Errorf("unknown dtype %q", entry.DType)
	}
	if entry.Shape == nil {
		return named{}, errors.New("it has no shape")
	}
	a := named{array: array{kind: elements[code], shape: entry.Shape}}
	size, err := a.bytes()
	if err != nil {
		return named{}, err
	}
	if len(entry.Offsets) != 2 || entry.Offsets[0] < 0 || entry.Offsets[1]-entry.Offsets[0] != size {
		return named{}, fmt.Errorf("data_offsets %v do not fit %s, which takes %d bytes", entry.Offsets, &a.array, size)
	}
	a.from, a.to = entry.Offsets[0], entry.Offsets[1]
	return a, nil
}

// readSafetensors gives the tensors by name, in the order of the file.
func readSafetensors(files *starlib.Files, ctx *tensor.Context, name string) (*starlark.Dict, error) {
	tensors := new(starlark.Dict)
	err := readArrays(files, ctx, name, func(content []byte) error {
		arrays, err := parseSafetensors(content)
		if err != nil {
			return err
		}
		for i := range arrays {
			t, err := arrays[i].tensor(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", arrays[i].name, err)
			}
			if err := tensors.SetKey(starlark.String(arrays[i].name), (*startensor.Value)(t)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tensors, nil
}
