package data

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strings"

	"go.starlark.net/starlark"

	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// safetensorsTypes are the names of the types in a header, as codes in elements.
var safetensorsTypes = map[string]string{
	"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "bf", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
	"U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "b1", "C64": "c8",
}

// maxSafetensorsHeader is how long a header may be, as the format's own readers have it.
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

// parseHeader reads the entries one by one: what a header repeats must not replace what
// it said before.
func parseHeader(text []byte) (arrays []named, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	err = parseObject(d, func(name string) error {
		if name == metadata {
			return d.Decode(new(map[string]string))
		}
		a, err := parseEntry(d)
		if err != nil {
			return fmt.Errorf("entry %q: %w", shorten(name), err)
		}
		a.name = name
		arrays = append(arrays, a)
		return nil
	})
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("something follows the last entry")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the header is garbled: %w", inWords(err))
	}
	return arrays, nil
}

// inWords says what is wrong with JSON without naming types of Go.
func inWords(err error) error {
	var other *json.UnmarshalTypeError
	if errors.As(err, &other) {
		want := "a text"
		if other.Type.Kind() == reflect.Int {
			want = "a whole number"
		}
		before, _, _ := strings.Cut(err.Error(), "json: ")
		return fmt.Errorf("%sit has a %s where %s belongs", before, other.Value, want)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	return err
}

// parseObject calls member for each name in a JSON object, to read its value.
func parseObject(d *json.Decoder, member func(name string) error) error {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return cmp.Or(err, errors.New("it is not an object"))
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		if seen[name] {
			return fmt.Errorf("it has %q twice", shorten(name))
		}
		seen[name] = true
		if err := member(name); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// parseInts reads a JSON list of at most that many integers.
func parseInts(d *json.Decoder, most int) ([]int, error) {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, cmp.Or(err, errors.New("it is not a list"))
	}
	list := []int{}
	for d.More() {
		var n *int
		if err := d.Decode(&n); err != nil {
			return nil, err
		}
		if n == nil || len(list) == most {
			return nil, fmt.Errorf("it is not a list of at most %d integers", most)
		}
		list = append(list, *n)
	}
	_, err := d.Token()
	return list, err
}

func parseEntry(d *json.Decoder) (a named, err error) {
	var dtype string
	var offsets []int
	err = parseObject(d, func(name string) (err error) {
		switch name {
		case "dtype":
			err = d.Decode(&dtype)
		case "shape":
			a.shape, err = parseInts(d, tensor.MaxDims)
		case "data_offsets":
			offsets, err = parseInts(d, 2)
		default:
			return fmt.Errorf("unknown field %q", shorten(name))
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	})
	if err != nil {
		return a, err
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

// tensorsOfSafetensors gives the tensors by name, in the order of the file.
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
