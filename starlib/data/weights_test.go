package data

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"drun/kernel/dtype"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// ofEachType are tensors of every type that a format can hold, a number, an empty one, and
// one whose elements do not lie in order.
func ofEachType(t testing.TB, f *Format) []Named {
	t.Helper()
	ctx := tensor.NewContext()
	must := func(x *tensor.Tensor, err error) *tensor.Tensor {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	var all []Named
	for _, dt := range dtype.Types() {
		if f.types[dt] != "" {
			all = append(all, Named{"of." + dt.String(), must(tensor.FromFloats(ctx, []float64{0, 1, 1, 0, 1, 0}, []int{2, 3}, dt))})
		}
	}
	x := must(tensor.FromFloats(ctx, []float64{0, math.NaN(), math.Inf(-1), -0.5, math.Copysign(0, -1), 5}, []int{2, 3}, dtype.Float32))
	return append(all,
		Named{`a "name" with <é> and ☃/..`, must(tensor.Permute(x, []int{1, 0}))},
		Named{"number", must(tensor.FromFloats(ctx, []float64{7}, []int{}, dtype.Int64))},
		Named{"empty", must(tensor.Empty(ctx, []int{2, 0, 3}, dtype.Float64))},
	)
}

// same compares names, types, shapes and bytes, in any order of names.
func same(t testing.TB, got *starlark.Dict, want []Named) {
	t.Helper()
	if got.Len() != len(want) {
		t.Errorf("%d tensors, want %d", got.Len(), len(want))
	}
	for _, w := range want {
		v, _, _ := got.Get(starlark.String(w.Name))
		if v == nil {
			t.Errorf("%q is gone", w.Name)
			continue
		}
		g := v.(*startensor.Value).Tensor()
		rows, err := tensor.Contiguous(w.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		if g.DType() != rows.DType() || startensor.Shape(g) != startensor.Shape(rows) || !bytes.Equal(g.Bytes(), rows.Bytes()) {
			t.Errorf("%q became %s of shape %s: %x, was %s of shape %s: %x", w.Name, g.DType(), startensor.Shape(g), g.Bytes(), rows.DType(), startensor.Shape(rows), rows.Bytes())
		}
	}
}

func written(t testing.TB, f *Format, tensors []Named) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := f.Write(&b, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is written is read with the same bits, and written again with the same bytes.
func TestWrittenIsRead(t *testing.T) {
	for _, f := range formats {
		tensors := ofEachType(t, f)
		if want := map[string]int{".safetensors": 10, ".npz": 9}[f.suffix]; len(tensors) != want+3 {
			t.Errorf("%s holds %d types, want %d", f.suffix, len(tensors)-3, want)
		}
		content := written(t, f, tensors)
		got, err := f.parse(tensor.NewContext(), content)
		if err != nil {
			t.Fatalf("%s: %v", f.suffix, err)
		}
		same(t, got, tensors)
		if arrays, err := parseSafetensors(content); err == nil {
			for _, a := range arrays {
				if start := len(content) - arrays[len(arrays)-1].to + a.from; start%a.kind.size != 0 {
					t.Errorf("%s begins at byte %d, which is not aligned for its elements of %d bytes", a.name, start, a.kind.size)
				}
			}
		}
		if !bytes.Equal(written(t, f, tensors), content) {
			t.Errorf("%s: the same tensors gave other bytes", f.suffix)
		}
	}
}

func TestUnwritable(t *testing.T) {
	ctx := tensor.NewContext()
	x, err := tensor.Empty(ctx, []int{1}, dtype.BFloat16)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file    string
		tensors []Named
		want    string
	}{
		{"x.npz", []Named{{"head.weight", x}}, "head.weight: a .npz file cannot hold bfloat16"},
		{"x.safetensors", []Named{{"a", x}, {"a", x}}, "a: two tensors have this name"},
		{"x.safetensors", []Named{{metadata, x}}, `"__metadata__": a tensor in a .safetensors file cannot have this name`},
		{"x.safetensors", []Named{{"", x}}, "cannot have this name"},
		{"x.safetensors", []Named{{"\xff", x}}, "cannot have this name"},
		{"x.safetensors", []Named{{"a\x00b", x}}, "cannot have this name"},
		{"x.npz", []Named{{strings.Repeat("x", 70000), x}}, "cannot have this name"},
		{"x.pt", nil, "x.pt: a file of weights ends in .safetensors or .npz"},
	} {
		f, err := FormatOf(c.file)
		if err == nil {
			err = f.Write(io.Discard, c.tensors)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.file, err, c.want)
		}
	}
}

// member is one of a crafted archive: what its two headers say need not be so.
type member struct {
	name     string
	method   uint16
	stored   []byte
	packed   uint64 // 0: as stored
	unpacked uint64
	sum      uint32
}

func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: m.method, CompressedSize64: uint64(len(m.stored)), UncompressedSize64: m.unpacked, CRC32: m.sum}
		if m.packed > 0 {
			h.CompressedSize64 = m.packed
		}
		raw, err := w.CreateRaw(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := raw.Write(m.stored); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// plain is a member that is what it says.
func plainMember(name, content string) member {
	return member{name: name, stored: []byte(content), unpacked: uint64(len(content)), sum: crc32.ChecksumIEEE([]byte(content))}
}

// Files that lie about sizes, offsets and counts are errors, and take no memory for what
// is not there.
func TestLyingFiles(t *testing.T) {
	shape := func(s string) string {
		return npy("{'descr': '<f4', 'fortran_order': False, 'shape': "+s+"}", "\x00\x00\x00\x00")
	}
	one := shape("(1,)")
	tensorOf := func(s string) string {
		return safetensors(`{"w":{"dtype":"F32",`+s+`}}`, "\x00\x00\x80\x3f\x00\x00\x00\x40")
	}
	liar := func(change func(m *member)) string {
		m := plainMember("w.npy", one)
		change(&m)
		return string(archive(t, m))
	}
	large := npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000,)}", strings.Repeat("\x00", 4000))
	// Two entries of the directory, which is what comes last, for the same bytes.
	twice := archive(t, plainMember("a.npy", large))
	entry, end := bytes.LastIndex(twice, []byte("PK\x01\x02")), bytes.LastIndex(twice, []byte("PK\x05\x06"))
	tail := bytes.Clone(twice[end:])
	binary.LittleEndian.PutUint16(tail[8:], 2)
	binary.LittleEndian.PutUint16(tail[10:], 2)
	binary.LittleEndian.PutUint32(tail[12:], uint32(2*(end-entry)))
	twice = slices.Concat(twice[:end], bytes.ReplaceAll(twice[entry:end], []byte("a.npy"), []byte("b.npy")), tail)
	for _, c := range []struct{ name, suffix, content, want string }{
		{"a header of 1 TB", ".safetensors", string(binary.LittleEndian.AppendUint64(nil, 1<<40)) + "{}", "byte 0: not a safetensors file: a header of 1099511627776 bytes"},
		{"a header of 90 MB", ".safetensors", string(binary.LittleEndian.AppendUint64(nil, 90<<20)) + "{}", "truncated at byte 10: the header ends at byte 94371848"},
		{"2^63 elements", ".safetensors", tensorOf(`"shape":[9223372036854775808],"data_offsets":[0,8]`), `"9223372036854775808" does not fit into 64 bits`},
		{"2^62 elements", ".safetensors", tensorOf(`"shape":[4611686018427387904],"data_offsets":[0,8]`), "too many elements for any memory"},
		{"no elements of 2^62", ".safetensors", tensorOf(`"shape":[4611686018427387904,0],"data_offsets":[0,0]`), "8 bytes too many"},
		{"offsets beyond the end", ".safetensors", tensorOf(`"shape":[1000000000],"data_offsets":[0,4000000000]`), `truncated: "w" ends at byte`},
		{"offsets in reverse", ".safetensors", tensorOf(`"shape":[2],"data_offsets":[8,0]`), "data_offsets [8 0] do not fit"},
		{"offsets that wrap", ".safetensors", tensorOf(`"shape":[],"data_offsets":[9223372036854775807,-9223372036854775805]`), "do not fit"},
		{"offsets below 0", ".safetensors", tensorOf(`"shape":[2],"data_offsets":[-8,0]`), "data_offsets [-8 0] do not fit"},
		{"a third offset", ".safetensors", tensorOf(`"shape":[2],"data_offsets":[0,8,8]`), "data_offsets [0 8 8] do not fit"},
		{"a number as offsets", ".safetensors", tensorOf(`"shape":[2],"data_offsets":8`), "data_offsets: it has the wrong type"},
		{"no offsets", ".safetensors", tensorOf(`"shape":[2]`), "data_offsets [] do not fit"},
		{"a shape of floats", ".safetensors", tensorOf(`"shape":[2.0],"data_offsets":[0,8]`), "shape: it has the wrong type"},
		{"a shape of nothing", ".safetensors", tensorOf(`"shape":[null],"data_offsets":[0,8]`), "shape: it has the wrong type"},
		{"many dimensions", ".safetensors", tensorOf(`"shape":[` + strings.Repeat("1,", 1000) + `2],"data_offsets":[0,8]`), "1001 dimensions, more than"},
		{"two types", ".safetensors", tensorOf(`"dtype":"I32","shape":[2],"data_offsets":[0,8]`), `the object has "dtype" twice`},
		{"a type in capitals", ".safetensors", tensorOf(`"DType":"I32","shape":[2],"data_offsets":[0,8]`), `unknown field "DType"`},
		{"a gap", ".safetensors", tensorOf(`"shape":[1],"data_offsets":[4,8]`), "begins at byte 4 of the data, but byte 0 comes next"},
		{"an overlap", ".safetensors", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "\x00\x00\x80\x3f"), `"b" begins at byte 0 of the data, but byte 4 comes next`},
		{"a name twice", ".safetensors", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, "\x00\x00\x80\x3f\x00\x00\x00\x40"), `the object has "a" twice`},
		{"a name twice, empty", ".safetensors", safetensors(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[0,1],"data_offsets":[0,0]}}`, ""), `the object has "a" twice`},
		{"two headers", ".safetensors", safetensors(`{}{}`, ""), "unexpected data after the value"},
		{"a number as dtype", ".safetensors", safetensors(`{"a\n":{"dtype":7}}`, ""), `entry "a\n": dtype: it has the wrong type`},
		{"a line of its own", ".npz", liar(func(m *member) { m.name = "a\nb.npy"; m.sum ^= 1 }), `"a\nb.npy": `},
		{"a list", ".safetensors", safetensors(`[]`, ""), "the header is corrupt: it is not an object"},
		{"a deep header", ".safetensors", safetensors(strings.Repeat(`{"a":`, 100000), ""), "lists and objects are nested more than 100 deep"},
		{"a long name", ".safetensors", safetensors(`{"`+strings.Repeat("x", 1<<20)+`":1}`, ""), `xxx..."`},

		{"no zip", ".npz", "PK", "not a .npz file"},
		{"a member that is no array", ".npz", string(archive(t, plainMember("../../etc/passwd", "root"))), "../../etc/passwd: byte 0: not a .npy file"},
		{"a folder", ".npz", string(archive(t, plainMember("x/", ""))), "x/: byte 0: not a .npy file"},
		{"two of a name", ".npz", string(archive(t, plainMember("a.npy", one), plainMember("a", one))), `there are two arrays named "a"`},
		{"2^62 elements", ".npz", string(archive(t, plainMember("w.npy", shape("(4611686018427387904,)")))), "w.npy: float32 of shape (4611686018427387904,): too many elements for any memory"},
		{"more elements than there are", ".npz", string(archive(t, plainMember("w.npy", shape("(1000000000,)")))), "truncated: float32 of shape (1000000000,) takes 4000000000 bytes"},
		{"an impossible size", ".npz", liar(func(m *member) { m.unpacked = 1 << 40 }), "cannot unpack to 1099511627776"},
		{"a size beyond the end", ".npz", liar(func(m *member) { m.packed = 1 << 40 }), `"w.npy" overlaps another array, or goes beyond the end`},
		{"a smaller size", ".npz", liar(func(m *member) { m.unpacked -= 4 }), "w.npy: the zip data is corrupt"},
		{"a larger size", ".npz", liar(func(m *member) { m.unpacked += 4 }), "w.npy: "},
		{"another checksum", ".npz", liar(func(m *member) { m.sum ^= 1 }), "zip: checksum error"},
		{"another method", ".npz", liar(func(m *member) { m.method = 99 }), "zip: unsupported compression algorithm"},
		{"corrupt deflate", ".npz", liar(func(m *member) { m.method = zip.Deflate }), "w.npy: "},
		{"two members of the same bytes", ".npz", string(twice), `"b.npy" overlaps another array`},
	} {
		f, err := FormatOf("x" + c.suffix)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		mapped := tensor.Memory().InUse
		_, err = f.parse(tensor.NewContext(), []byte(c.content))
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
			t.Errorf("%s, %s:\n got %.500v\nwant %s", c.name, c.suffix, err, c.want)
		}
		if took := int(after.TotalAlloc-before.TotalAlloc) + tensor.Memory().InUse - mapped; took > 20*len(c.content)+1<<20 {
			t.Errorf("%s: %d bytes took %d", c.name, len(c.content), took)
		}
	}
}

// An archive that unpacks to a thousand times its size is read into its tensors, with
// little memory besides.
func TestPackedArchive(t *testing.T) {
	const n = 8 << 20
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	m, err := w.Create("zeros.npy")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(m, npy(fmt.Sprintf("{'descr': '<i2', 'fortran_order': False, 'shape': (%d,)}", n), ""))
	if _, err := m.Write(make([]byte, 2*n)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	before := tensor.Memory().InUse
	var heap, after runtime.MemStats
	runtime.ReadMemStats(&heap)
	tensors, err := parseNPZ(tensor.NewContext(), b.Bytes())
	if err != nil || tensors.Len() != 1 {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := tensor.Memory().InUse - before; took > 4*n+1<<20 {
		t.Errorf("%d bytes of tensors took %d", 4*n, took)
	}
	if took := after.TotalAlloc - heap.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes besides the tensors", took)
	}
	runtime.KeepAlive(tensors)
}

// Whatever the bytes, a reader returns: an error, or tensors that are written and read
// with the same bits, and are no larger than the bytes allow.
func FuzzWeights(f *testing.F) {
	for i, format := range formats {
		f.Add(i == 1, written(f, format, ofEachType(f, format)))
	}
	for _, header := range []string{`{"w":{"dtype":"I16","shape":[1,2],"data_offsets":[0,4]}}`, `{"a":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]},"__metadata__":{"format":"pt"}}   `,
		`{"a":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]},"a":{}}`} {
		f.Add(false, []byte(safetensors(header, "\x00\x01\x01\x00")))
	}
	packed, err := os.ReadFile("testdata/packed.npz")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(true, packed)
	f.Add(true, archive(f, plainMember("a.npy", npy("{'descr': '>u2', 'fortran_order': True, 'shape': (1, 2)}", "\x00\x01\x02\x03")), plainMember("../b", "")))
	f.Fuzz(func(t *testing.T, npz bool, content []byte) {
		format := formats[0]
		if npz {
			format = formats[1]
		}
		tensors, err := format.parse(tensor.NewContext(), content)
		if err != nil {
			return
		}
		var all []Named
		bytes := 0
		for _, kv := range tensors.Items() {
			x := Named{string(kv[0].(starlark.String)), kv[1].(*startensor.Value).Tensor()}
			all, bytes = append(all, x), bytes+sizeOf(x.Tensor)
		}
		limit := 2 * len(content)
		if npz {
			limit *= maxDeflate
		}
		if bytes > limit {
			t.Errorf("%d bytes gave %d", len(content), bytes)
		}
		if format.Check(all) != nil {
			return
		}
		again, err := format.parse(tensor.NewContext(), written(t, format, all))
		if err != nil {
			t.Fatal(err)
		}
		same(t, again, all)
	})
}
