package data

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Named is a tensor with its name in a file.
type Named struct {
	Name   string
	Tensor *tensor.Tensor
}

// A Format is a file format for several named tensors.
type Format struct {
	suffix string
	types  map[dtype.Type]string // what the file calls the types that it can hold
	parse  func(ctx *tensor.Context, content []byte) (*starlark.Dict, error)
	write  func(f *Format, w io.Writer, tensors []Named) error
}

var formats = []*Format{
	{".safetensors", typeNames(safetensorsTypes), tensorsOfSafetensors, (*Format).writeSafetensors},
	{".npz", numpyNames(), parseNPZ, (*Format).writeNPZ},
}

// typeNames returns a file format's names of the types that tensors have; codes maps the format's names
// to codes in elements.
func typeNames(codes map[string]string) map[dtype.Type]string {
	names := map[dtype.Type]string{}
	for name, code := range codes {
		if kind := elements[code]; kind.as.String() == kind.name {
			names[kind.as] = name
		}
	}
	return names
}

// numpyNames are NumPy's codes of types, with the order of bytes; it has no bfloat16.
func numpyNames() map[dtype.Type]string {
	codes := map[string]string{}
	for code, kind := range elements {
		order := "<"
		if kind.size == 1 {
			order = "|"
		}
		codes[order+code] = code
	}
	delete(codes, "<bf")
	return typeNames(codes)
}

// FormatOf finds the format of a file by the ending of its name.
func FormatOf(name string) (*Format, error) {
	for _, f := range formats {
		if path.Ext(name) == f.suffix {
			return f, nil
		}
	}
	return nil, fmt.Errorf("%s: a file of weights ends in .safetensors or .npz", shorten(name))
}

// Read returns the tensors of a file by name, in the order of the file. While it reads, it also needs as much memory
// as the file has bytes.
func (f *Format) Read(ctx *tensor.Context, in *starlib.File) (*starlark.Dict, error) {
	return parseAll(ctx, in, in.Size(), f.parse)
}

// Check says which tensors the format cannot hold; names must be unique.
func (f *Format) Check(tensors []Named) (faults []string) {
	seen := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		switch {
		case seen[t.Name]:
			faults = append(faults, fmt.Sprintf("%s: two tensors have this name", t.Name))
		case t.Name == "" || t.Name == metadata || len(t.Name) > 60000 || !utf8.ValidString(t.Name) || strings.Contains(t.Name, "\x00"):
			faults = append(faults, fmt.Sprintf("%q: a tensor in a %s file cannot have this name", shorten(t.Name), f.suffix))
		case f.types[t.Tensor.DType()] == "":
			faults = append(faults, fmt.Sprintf("%s: a %s file cannot hold %s", t.Name, f.suffix, t.Tensor.DType()))
		}
		seen[t.Name] = true
	}
	return faults
}

// Write writes a file of tensors that the format can hold. The same tensors give the same bytes.
func (f *Format) Write(w io.Writer, tensors []Named) (err error) {
	defer try.Caught(&err)
	faults := f.Check(tensors)
	try.FailIf(faults != nil, "%s", strings.Join(faults, "; "))
	buffer := bufio.NewWriterSize(w, 1<<20)
	try.Ok(f.write(f, buffer, tensors))
	return buffer.Flush()
}

// writeSafetensors writes the tensors with the largest elements first, so that each is
// aligned: some readers use the file's bytes in place.
func (f *Format) writeSafetensors(w io.Writer, tensors []Named) (err error) {
	defer try.Caught(&err)
	tensors = append([]Named(nil), tensors...)
	sort.SliceStable(tensors, func(i, j int) bool {
		return tensors[i].Tensor.DType().Size() > tensors[j].Tensor.DType().Size()
	})
	var header bytes.Buffer
	end := 0
	for i, t := range tensors {
		name := try.To(json.Marshal(t.Name))
		entry := try.To(json.Marshal(struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{f.types[t.Tensor.DType()], append([]int{}, t.Tensor.Shape()...), [2]int{end, end + sizeOf(t.Tensor)}}))
		if i > 0 {
			header.WriteByte(',')
		}
		header.Write(name)
		header.WriteByte(':')
		header.Write(entry)
		end += sizeOf(t.Tensor)
	}
	text := "{" + header.String() + "}"
	text += strings.Repeat(" ", (8-len(text)%8)%8)
	try.FailIf(len(text) > maxSafetensorsHeader, "the names and shapes take %d bytes, and a .safetensors file has room for %d", len(text), maxSafetensorsHeader)
	try.To(w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))))
	try.To(io.WriteString(w, text))
	for _, t := range tensors {
		try.Ok(writeElements(w, t.Tensor))
	}
	return nil
}

func (f *Format) writeNPZ(w io.Writer, tensors []Named) (err error) {
	defer try.Caught(&err)
	archive := zip.NewWriter(w)
	for _, t := range tensors {
		// Without a time, so that equal arrays give equal files; not compressed, as by numpy.savez.
		member := try.To(archive.CreateHeader(&zip.FileHeader{Name: t.Name + ".npy", Method: zip.Store, Modified: time.Time{}}))
		header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", f.types[t.Tensor.DType()], startensor.Shape(t.Tensor))
		const before = 10                                                // bytes of magic, version and length
		header += strings.Repeat(" ", 63-(before+len(header))%64) + "\n" // the elements begin at a multiple of 64
		start := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
		try.To(member.Write(append(start, header...)))
		try.Ok(writeElements(member, t.Tensor))
	}
	return archive.Close()
}

func sizeOf(t *tensor.Tensor) int { return t.Len() * t.DType().Size() }

func writeElements(w io.Writer, t *tensor.Tensor) (err error) {
	defer try.Caught(&err)
	rows := try.To(tensor.Contiguous(t.Detach()))
	_, err = w.Write(rows.Bytes())
	if !tensor.SharesStorage(rows, t) {
		tensor.Discard(rows)
	}
	return err
}
