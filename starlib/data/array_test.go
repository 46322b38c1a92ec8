package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"drun/starlib"
	"drun/tensor"
)

func npy(header, body string) string {
	return "\x93NUMPY\x01\x00" + string([]byte{byte(len(header)), byte(len(header) >> 8)}) + header + body
}

func safetensors(header, body string) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + body
}

// readers are the parsers with what a whole file of each makes.
var readers = map[string]func([]byte) error{
	"npy": func(b []byte) error { return parsed(parseNPY(b)) },
	"idx": func(b []byte) error { return parsed(parseIDX(b)) },
	"safetensors": func(b []byte) error {
		arrays, err := parseSafetensors(b)
		for i := range arrays {
			if err == nil {
				err = parsed(&arrays[i].array, nil)
			}
		}
		return err
	},
}

func parsed(a *array, err error) error {
	if err != nil {
		return err
	}
	t, err := a.tensor(tensor.NewContext())
	if err == nil && !reflect.DeepEqual(append([]int{}, t.Shape()...), append([]int{}, a.shape...)) {
		err = fmt.Errorf("shape %v became %v", a.shape, t.Shape())
	}
	return err
}

var good = map[string]string{
	"npy":         npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n", "\x00\x00\x80\x3f\x00\x00\x00\x40"),
	"idx":         "\x00\x00\x08\x02\x00\x00\x00\x02\x00\x00\x00\x01\x05\x06",
	"safetensors": safetensors(`{"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}`, "\x00\x00\x80\x3f\x00\x00\x00\x40\x07"),
}

// A file that ends anywhere before its end, or goes on after it, is refused.
func TestTruncatedArrays(t *testing.T) {
	for kind, content := range good {
		if err := readers[kind]([]byte(content)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for n := range content {
			if readers[kind]([]byte(content[:n])) == nil {
				t.Errorf("%s: the first %d of %d bytes are taken for a whole file", kind, n, len(content))
			}
		}
		if err := readers[kind]([]byte(content + "x")); err == nil || !strings.Contains(err.Error(), "1 bytes too many") {
			t.Errorf("%s: a byte too many: %v", kind, err)
		}
	}
}

func TestGarbledArraysAreLocated(t *testing.T) {
	shape := func(s string) string { return npy("{'descr': '<f4', 'fortran_order': False, 'shape': "+s+"}", "") }
	entry := func(s string) string { return safetensors(`{"w":`+s+`}`, "") }
	for _, c := range []struct{ kind, content, want string }{
		{"npy", "\x93NUMPY\x09\x00\x00\x00\x00\x00", "byte 6: version 9 of the format is unknown"},
		{"npy", "\x93NUMPY\x02\x00\xff\xff\xff\xff", "byte 8: a header of 4294967295 bytes is longer than 10000"},
		{"npy", npy("{'descr'", ""), "byte 10: the header is corrupt"},
		{"npy", npy("[1]", ""), "byte 10: the header is not a dict"},
		{"npy", npy("{}", ""), "the header lacks the key"},
		{"npy", npy("{'descr': '<f4', 'descr': '<f4'}", ""), `unknown or repeated key "descr"`},
		{"npy", npy("{'descr': '|O'}", ""), "the header's descr is not that of an array of plain numbers"},
		{"npy", npy("{'descr': [('a', '<f4')]}", ""), "the header's descr is not"},
		{"npy", npy("{'fortran_order': 1}", ""), "the header's fortran_order is not"},
		{"npy", shape("(-1,)"), "the header's shape is not"},
		{"npy", shape("(3)"), "the header's shape is not"},
		{"npy", shape("(2, 3)"), "truncated: float32 of shape (2, 3) takes 24 bytes from byte"},
		{"npy", shape("(4611686018427387904, 4)"), "too many elements for any memory"},
		{"npy", shape("(99999999999999999999,)"), "the header's shape is not"},
		{"npy", shape("(" + strings.Repeat("1,", 33) + ")"), "33 dimensions, more than"},
		{"npy", npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", "\x01\x02"), "element 1 is 2, neither 0 nor 1"},
		{"npy", npy("{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", strings.Repeat("\xff", 8)), "element 0 is 18446744073709551615, which int64 cannot hold"},
		{"idx", "\x00\x00\x07\x01", "byte 2: unknown type 0x07"},
		{"idx", "\x00\x00\x08\x02\x00\x00", "truncated at byte 6, within the sizes of 2 dimensions"},
		{"idx", "\x00\x00\x0e\x03" + strings.Repeat("\xff", 12), "too many elements for any memory"},
		{"safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff", "byte 0: not a safetensors file"},
		{"safetensors", safetensors("{", ""), "byte 8: the header is corrupt"},
		{"safetensors", entry(`{"dtype":"F8"}`), `entry "w": unknown dtype "F8"`},
		{"safetensors", entry(`{"dtype":"F32","data_offsets":[0,4]}`), `entry "w": it has no shape`},
		{"safetensors", entry(`{"dtype":"F32","shape":[2],"data_offsets":[0,4]}`), `data_offsets [0 4] do not fit float32 of shape (2,), which takes 8 bytes`},
		{"safetensors", entry(`{"dtype":"F32","shape":[-2],"data_offsets":[0,4]}`), `a size of -2`},
		{"safetensors", entry(`{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}`), "too many elements"},
		{"safetensors", entry(`{"dtype":"F32","shape":[1],"data_offsets":[4,8]}`), `"w" begins at byte 4 of the data, but byte 0 comes next`},
		{"safetensors", entry(`{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`), `truncated: "w" ends at byte`},
	} {
		if err := readers[c.kind]([]byte(c.content)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q:\n got %v\nwant %s", c.kind, c.content, err, c.want)
		}
	}
}

func TestSafetensors(t *testing.T) {
	arrays, err := parseSafetensors([]byte(good["safetensors"]))
	if err != nil || len(arrays) != 2 || arrays[0].name != "w" || arrays[1].name != "b" {
		t.Fatalf("%v, %v", arrays, err)
	}
	w, err := arrays[0].tensor(tensor.NewContext())
	if err != nil {
		t.Fatal(err)
	}
	if got := view[float32](w.Bytes()); !reflect.DeepEqual(got, []float32{1, 2}) {
		t.Errorf("w = %v", got)
	}
}

// Gzip that is cut off or corrupt is said to be, whatever reads the file.
func TestBadGzip(t *testing.T) {
	dir := t.TempDir()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, strings.Repeat("1,2\n", 1000))
	z.Close()
	flipped := bytes.Clone(packed.Bytes())
	flipped[len(flipped)-6] ^= 1
	for name, content := range map[string][]byte{"cut": packed.Bytes()[:packed.Len()/2], "magic": packed.Bytes()[:2], "flipped": flipped} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := starlib.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"cut": "cut: truncated: the gzip data ends early", "magic": "magic: truncated: the gzip data ends early",
		"flipped": "flipped: the gzip data is corrupt: gzip: invalid checksum",
	} {
		if _, err := readAll(files, name); err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever the bytes, a reader returns; it does not panic, nor take what is not there.
func FuzzArrays(f *testing.F) {
	for kind, content := range good {
		f.Add(kind, []byte(content))
	}
	f.Fuzz(func(t *testing.T, kind string, content []byte) {
		if read := readers[kind]; read != nil {
			read(content)
		}
	})
}
