// Package codec turns plain Starlark values (None bool int float string bytes
// list tuple dict set struct, and tensors within them) into bytes and back, keeping
// type and value exactly. Collectives send such values, and checkpoints hold them.
//
// The bytes are CBOR (RFC 8949): types that CBOR lacks have a tag.
package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"unicode/utf8"
	"unsafe"

	"drun/internal/try"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"github.com/fxamacker/cbor/v2"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// Tags of drun's own, from CBOR's first-come-first-served range.
const (
	tagTuple     = 0x6472_0001 + iota // [items…]
	tagDict                           // [key, value, key, value…] in insertion order
	tagSet                            // [items…] in insertion order
	tagStruct                         // [name, value, …]
	tagText                           // a string that is not UTF-8
	tagTensor                         // [dtype, [sizes…], data]
	tagReference                      // [owner, number]
)

// maxDepth bounds nesting, and so values that contain themselves.
const maxDepth = 200

var encoder, decoder = modes()

func modes() (cbor.UserBufferEncMode, cbor.DecMode) {
	enc, err := cbor.EncOptions{
		NaNConvert: cbor.NaNConvertNone,
		InfConvert: cbor.InfConvertNone,
	}.UserBufferEncMode()
	if err != nil {
		panic(err)
	}
	dec, err := cbor.DecOptions{
		IntDec:           cbor.IntDecConvertSignedOrBigInt,
		BigIntDec:        cbor.BigIntDecodePointer,
		MaxNestedLevels:  2*maxDepth + 10,
		MaxArrayElements: 1<<31 - 1,
		UTF8:             cbor.UTF8DecodeInvalid, // the names of a struct's fields
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return enc, dec
}

// Encode returns the bytes of a value, or an error, which names the part, if it contains something that is not a
// plain value (a function, a module), itself, or more than 200 levels.
func Encode(v starlark.Value) ([]byte, error) {
	return encoding{most: math.MaxInt}.append(nil, v)
}

// A Reference stands for a value on another rank. Ranks send each other references; they cannot be saved, since their
// values end with the run.
type Reference interface {
	starlark.Value
	Refers() (owner, number int64)
}

// A TooLargeError says that a value takes more bytes than it may.
type TooLargeError struct{ Most int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the value takes more than %d MB, the most that fits in this rank's share of memory: split it, or pass numbers as a tensor", e.Most>>20)
}

// Append appends the bytes of a value for another rank, up to about most of them: a larger value is an error before anything is allocated.
func Append(data []byte, v starlark.Value, most int) ([]byte, error) {
	return encoding{most: most, refers: true}.append(data, v)
}

func (e encoding) append(data []byte, v starlark.Value) ([]byte, error) {
	w, err := e.wire(v, 0)
	switch {
	case errors.Is(err, errDepth):
		return nil, tooDeep(v)
	case errors.Is(err, errLarge):
		return nil, &TooLargeError{e.most}
	case err != nil:
		return nil, err
	}
	if cap(data)-len(data) < e.size { // grow once, since each growth copies the whole value
		data = append(make([]byte, 0, len(data)+e.size), data...)
	}
	out := bytes.NewBuffer(data)
	err = encoder.MarshalToBuffer(w, out)
	return out.Bytes(), err
}

// A Decoder makes values from bytes.
type Decoder struct {
	Tensors *tensor.Context // in which it makes tensors
	// Reference makes a reference; nil if the bytes hold none.
	Reference func(owner, number int64) starlark.Value
}

// Decode returns the value of bytes that Encode made.
func (d *Decoder) Decode(data []byte) (starlark.Value, error) {
	var w any
	if err := decoder.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("damaged value: %w", err)
	}
	return d.value(w)
}

var (
	errDepth = errors.New("nested too deeply")
	errLarge = errors.New("too large")
)

// encoding converts a value to the encoder's input, which shares the value's memory, and counts the bytes.
type encoding struct {
	size, most int
	refers     bool // references are allowed
}

// itemSize is the most that an item takes besides its text or bytes: a tag and a head.
const itemSize = 5 + 9

func (e *encoding) wire(v starlark.Value, depth int) (_ any, err error) {
	defer try.Caught(&err)
	if depth > maxDepth {
		return nil, errDepth
	}
	try.Ok(e.add(itemSize))
	switch v := v.(type) {
	case starlark.NoneType:
		return nil, nil
	case starlark.Bool:
		return bool(v), nil
	case starlark.Int:
		if n, ok := v.Int64(); ok {
			return n, nil
		}
		return v.BigInt(), e.add(v.BigInt().BitLen()/8 + 1)
	case starlark.Float:
		return float64(v), nil
	case starlark.String:
		if s := string(v); utf8.ValidString(s) {
			return s, e.add(len(s))
		}
		return cbor.Tag{Number: tagText, Content: raw(string(v))}, e.add(len(v))
	case starlark.Bytes:
		return raw(string(v)), e.add(len(v))
	case *starlark.List:
		return e.items(v, depth)
	case starlark.Tuple:
		return e.tagged(tagTuple, v, depth)
	case *starlark.Set:
		return e.tagged(tagSet, v, depth)
	case *starlark.Dict:
		pairs := make([]any, 0, 2*v.Len())
		for _, kv := range v.Items() {
			for _, x := range kv {
				w, err := e.wire(x, depth+1)
				if err != nil {
					return nil, within(index(kv[0]), err)
				}
				pairs = append(pairs, w)
			}
		}
		return cbor.Tag{Number: tagDict, Content: pairs}, nil
	case *starlarkstruct.Struct:
		fields := []any{}
		for _, name := range v.AttrNames() {
			x := try.To(v.Attr(name))
			w, err := e.wire(x, depth+1)
			if err != nil {
				return nil, within("."+name, err)
			}
			try.Ok(e.add(itemSize + len(name)))
			fields = append(fields, name, w)
		}
		return cbor.Tag{Number: tagStruct, Content: fields}, nil
	case *startensor.Value:
		return e.tensor(v)
	case Reference:
		if e.refers {
			owner, number := v.Refers()
			return cbor.Tag{Number: tagReference, Content: []any{owner, number}}, nil
		}
	}
	try.FailIf(v.Type() == "Plateau", "a Plateau is saved with the optimizer whose lr it is: leave it out")
	return nil, fmt.Errorf("a %s cannot be sent or saved: only None, bool, int, float, string, bytes, list, tuple, dict, set, struct and tensors can", v.Type())
}

// add counts bytes; an error if they are too many.
func (e *encoding) add(bytes int) error {
	if e.size += bytes; e.size > e.most {
		return errLarge
	}
	return nil
}

// raw is the memory of a string, which must not be written to.
func raw(s string) []byte {
	if s == "" {
		return []byte{} // nil would be None
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

func (e *encoding) tagged(tag uint64, v starlark.Iterable, depth int) (any, error) {
	content, err := e.items(v, depth)
	return cbor.Tag{Number: tag, Content: content}, err
}

func (e *encoding) items(v starlark.Iterable, depth int) ([]any, error) {
	out := []any{}
	for x := range starlark.Elements(v) {
		w, err := e.wire(x, depth+1)
		if err != nil {
			return nil, within(fmt.Sprintf("[%d]", len(out)), err)
		}
		out = append(out, w)
	}
	return out, nil
}

func (d *Decoder) value(w any) (starlark.Value, error) {
	switch w := w.(type) {
	case nil:
		return starlark.None, nil
	case bool:
		return starlark.Bool(w), nil
	case int64:
		return starlark.MakeInt64(w), nil
	case *big.Int:
		return starlark.MakeBigInt(w), nil
	case float64:
		return starlark.Float(w), nil
	case string:
		return starlark.String(w), nil
	case []byte: // made only for this value
		return starlark.Bytes(unsafe.String(unsafe.SliceData(w), len(w))), nil
	case []any:
		values, err := d.items(w)
		return starlark.NewList(values), err
	case cbor.Tag:
		return d.tagged(w)
	}
	return nil, fmt.Errorf("damaged value: unexpected %T", w)
}

func (d *Decoder) tagged(t cbor.Tag) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	if raw, ok := t.Content.([]byte); ok && t.Number == tagText {
		return starlark.String(unsafe.String(unsafe.SliceData(raw), len(raw))), nil
	}
	content, ok := t.Content.([]any)
	try.FailIf(!ok, "damaged value: tag %#x", t.Number)
	if t.Number == tagTensor {
		return d.tensor(content)
	}
	if t.Number == tagReference && d.Reference != nil && len(content) == 2 {
		owner, ok := content[0].(int64)
		number, too := content[1].(int64)
		if ok && too {
			return d.Reference(owner, number), nil
		}
	}
	values := try.To(d.items(content))
	switch {
	case t.Number == tagTuple:
		return starlark.Tuple(values), nil
	case t.Number == tagSet:
		set := starlark.NewSet(len(values))
		for _, v := range values {
			try.Ok(set.Insert(v))
		}
		return set, nil
	case t.Number == tagDict && len(values)%2 == 0:
		dict := starlark.NewDict(len(values) / 2)
		for i := 0; i < len(values); i += 2 {
			try.Ok(dict.SetKey(values[i], values[i+1]))
		}
		return dict, nil
	case t.Number == tagStruct && len(values)%2 == 0:
		fields := make([]starlark.Tuple, 0, len(values)/2)
		for kv := range slices.Chunk(values, 2) {
			if _, ok := kv[0].(starlark.String); !ok {
				return nil, fmt.Errorf("damaged value: a struct's field name is a %s", kv[0].Type())
			}
			fields = append(fields, kv)
		}
		return starlarkstruct.FromKeywords(starlarkstruct.Default, fields), nil
	}
	return nil, fmt.Errorf("damaged value: tag %#x", t.Number)
}

func (d *Decoder) items(w []any) ([]starlark.Value, error) {
	values := make([]starlark.Value, len(w))
	for i, x := range w {
		var err error
		if values[i], err = d.value(x); err != nil {
			return nil, err
		}
	}
	return values, nil
}
