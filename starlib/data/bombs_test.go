package data_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"drun/internal/memory"
	"drun/starlib"
	"drun/starlib/starlibtest"
)

// zeros is a stream of n zero bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// zst packs a stream.
func zst(t testing.TB, content io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(z, content); err != nil {
		t.Fatal(err)
	}
	z.Close()
	return b.Bytes()
}

// tarred is a tar file of so many files of n zero bytes, in a row.
func tarred(t testing.TB, files int, n int64) io.Reader {
	in, out := io.Pipe()
	go func() {
		w := tar.NewWriter(out)
		for i := range files {
			_ = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%03d.bin", i), Size: n, Mode: 0o600})
			_, _ = io.Copy(w, zeros(n))
		}
		out.CloseWithError(w.Close())
	}()
	return in
}

// sizes is the header of an idx file of bytes.
func sizes(sizes ...uint32) []byte {
	out := []byte{0, 0, 8, byte(len(sizes))}
	for _, n := range sizes {
		out = binary.BigEndian.AppendUint32(out, n)
	}
	return out
}

// peak gives what fn takes at most of the heap, above what there was.
func peak(fn func()) uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, uint64(0)
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	for {
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
		select {
		case <-done:
			return most - min(most, before)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A small file that stands for very much is an error of whatever reads it, with the file and the place, from little
// memory and soon.
func TestBombs(t *testing.T) {
	dir := t.TempDir()
	const many = 2 << 30
	bomb := zst(t, zeros(many))
	if len(bomb) > 1<<20 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	huge := uint32(1<<32 - 1)
	npy := "{'descr': '<f4', 'fortran_order': False, 'shape': (1048576, 1048576, 1024)}"
	member := new(bytes.Buffer) // says that it has a petabyte
	w := tar.NewWriter(member)
	if err := w.WriteHeader(&tar.Header{Name: "x.bin", Size: 1 << 50, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"bomb.csv.zst": bomb, "bomb.txt.zst": bomb, "bomb.jsonl.zst": bomb, "bomb.npy.zst": bomb, "bomb.safetensors.zst": bomb, "bomb.parquet": bomb,
		// a frame that asks for a window of 2 GiB, and one whose content has a petabyte, in one piece
		"window.txt.zst": []byte("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00"), "single.txt.zst": append([]byte("\x28\xb5\x2f\xfd\xe0"), binary.LittleEndian.AppendUint64(nil, 1<<50)...),
		"large.tar": member.Bytes(), "large.tar.gz": pack(t, member.Bytes()), "members.tar.zst": zst(t, tarred(t, 1, 300<<20)),
		"huge.npy":                  []byte("\x93NUMPY\x01\x00" + string([]byte{byte(len(npy)), 0}) + npy + "data"),
		"a/train-images-idx3-ubyte": append(sizes(1<<20, 1<<20, 1<<10), 1), "a/train-labels-idx1-ubyte": sizes(0),
		"b/train-images-idx3-ubyte":    sizes(huge, huge, huge),
		"c/train-images-idx3-ubyte.gz": pack(t, append(sizes(1<<20, 1<<20, 1<<10), 1)),
		"d/train-images-idx3-ubyte.gz": bomb, // zstd is as good as gzip
		"e/train-images-idx3-ubyte.gz": pack(t, sizes(1, 1, 1))[:12],
		"f/train-images-idx3-ubyte":    []byte("corrupt"), "f/train-images-idx3-ubyte.gz": pack(t, append(sizes(1, 1, 1), 1)), "f/train-labels-idx1-ubyte": append(sizes(1), 1),
		"g/train-images-idx3-ubyte": append(sizes(1, 1, 1), 1), "g/train-labels-idx1-ubyte": append(sizes(huge), 1),
		"h/train.bin": make([]byte, 2*3074-1), "i/train.bin": bomb, "j/train.bin": nil,
	} {
		write(t, dir, name, content)
	}
	memory.Share(max(1, memory.Limit()>>26), 0) // 64 MB
	defer memory.Share(1, 0)
	const cannot = "cannot allocate"
	for source, want := range map[string]string{
		`data.text("bomb.txt.zst")`:                "bomb.txt.zst: it unpacks to more than the 1048576 bytes that one value may take",
		`data.bytes("bomb.npy.zst")`:               "bomb.npy.zst: it unpacks to more than the 1048576 bytes that one value may take",
		`data.tokenizer("bomb.jsonl.zst")`:         "bomb.jsonl.zst: it unpacks to more than the 1048576 bytes that one value may take",
		`data.csv("bomb.csv.zst")`:                 "bomb.csv.zst: after line 0: a line of more than 67108864 bytes",
		`data.table("bomb.csv.zst")`:               "bomb.csv.zst: ",
		`data.jsonl("bomb.jsonl.zst")`:             "bomb.jsonl.zst: ",
		`data.npy("bomb.npy.zst")`:                 "bomb.npy.zst: empty: " + cannot,
		`data.safetensors("bomb.safetensors.zst")`: "bomb.safetensors.zst: empty: " + cannot,
		`data.table("bomb.parquet")`:               "bomb.parquet: ",
		`data.text("window.txt.zst")`:              "window.txt.zst: the zstd data is corrupt: window size",
		`data.text("single.txt.zst")`:              "single.txt.zst: the zstd data is corrupt: decompressed size exceeds",
		`stream("bomb.csv.zst")`:                   "bomb.csv.zst: byte 0: a line of more than 67108864 bytes",
		`stream("bomb.txt.zst")`:                   "bomb.txt.zst: byte 0: a line of more than 67108864 bytes",
		`stream("bomb.jsonl.zst")`:                 "bomb.jsonl.zst: byte 0: a line of more than 67108864 bytes",
		`stream("window.txt.zst")`:                 "window.txt.zst: byte 0: the zstd data is corrupt: window size",
		`stream("large.tar")`:                      "large.tar: byte 0: x.bin: 1125899906842624 bytes: a sample may have at most 268435456",
		`stream("large.tar.gz")`:                   "large.tar.gz: byte 0: x.bin: 1125899906842624 bytes: a sample may have at most 268435456",
		`stream("members.tar.zst")`:                "members.tar.zst: byte 0: 000.bin: 314572800 bytes: a sample may have at most 268435456",
		`data.npy("huge.npy")`:                     "huge.npy: truncated: float32 of shape (1048576, 1048576, 1024) takes 4503599627370496 bytes from byte 85 on, there are 4",
		`data.mnist("a")`:                          "a/train-images-idx3-ubyte: truncated: uint8 of shape (1048576, 1048576, 1024) takes 1125899906842624 bytes from byte 16 on, there are 1",
		`data.mnist("b")`:                          "b/train-images-idx3-ubyte: uint8 of shape (4294967295, 4294967295, 4294967295): too many elements for any memory",
		`data.mnist("c")`:                          "c/train-images-idx3-ubyte.gz: truncated: uint8 of shape (1048576, 1048576, 1024) takes 1125899906842624 bytes from byte 16 on, there are 1",
		`data.mnist("d")`:                          "d/train-images-idx3-ubyte.gz: empty: " + cannot,
		`data.mnist("e")`:                          "e/train-images-idx3-ubyte.gz: truncated: the gzip data ends early",
		`data.mnist("f")`:                          "f/train-images-idx3-ubyte: byte 0: not an idx file",
		`data.mnist("g")`:                          "g/train-labels-idx1-ubyte: truncated: uint8 of shape (4294967295,) takes 4294967295 bytes from byte 8 on, there are 1",
		`data.cifar100("h")`:                       "h/train.bin: 6147 bytes do not divide into records of 3074 bytes: truncated",
		`data.cifar100("i")`:                       "i/train.bin: empty: " + cannot,
		`data.cifar100("j")`:                       "j/train.bin: 0 bytes do not divide into records of 3074 bytes",
		`data.cifar10("j")`:                        "j/data_batch_1.bin: no such file",
	} {
		if inner, ok := strings.CutPrefix(source, "stream"); ok {
			source = "for b in data.loader(data.stream" + inner + ", batch = 1): pass\n"
		}
		r := starlibtest.New(t, dir, starlib.Rank{}, nil)
		r.Rank.Files.Largest = 1 << 20
		var err error
		start := time.Now()
		took := peak(func() { _, err = r.Exec("k.star", source) })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", source, err, want)
		}
		if took > 768<<20 || time.Since(start) > 20*time.Second {
			t.Errorf("%s took %d MiB and %s", source, took>>20, time.Since(start))
		}
	}
}

// Whatever the files of a set of images hold, they make as many images as labels, or there is an error that names one.
func FuzzKnownImages(f *testing.F) {
	record := func(labels ...byte) []byte { return append(labels, bytes.Repeat([]byte{1, 2, 3}, 1024)...) }
	one := append(sizes(2, 1, 2), 1, 2, 3, 4)
	f.Add(byte(0), one, append(sizes(2), 7, 9))
	f.Add(byte(0), one, append(sizes(1), 7))
	f.Add(byte(0), append(sizes(1<<20, 1<<20, 1<<10), 1), sizes(0))
	f.Add(byte(0), zst(f, bytes.NewReader(one)), append(sizes(2), 7, 9))
	f.Add(byte(1), pack(f, one), pack(f, append(sizes(2), 7, 9)))
	f.Add(byte(1), pack(f, one)[:20], pack(f, append(sizes(2), 7, 9)))
	f.Add(byte(2), append(record(3), record(9)...), []byte(nil))
	f.Add(byte(2), record(10), []byte(nil))
	f.Add(byte(3), record(19, 99), []byte(nil))
	f.Add(byte(3), pack(f, record(20, 5)), []byte(nil))
	f.Fuzz(func(t *testing.T, kind byte, images, labels []byte) {
		dir := t.TempDir()
		source, names := "", []string{}
		switch kind % 4 {
		case 0, 1:
			source, names = "d = data.mnist(\".\")\n", []string{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}
			if kind%4 == 1 {
				names[0], names[1] = names[0]+".gz", names[1]+".gz"
			}
		case 2:
			source, names = "d = data.cifar10(\".\", train = False)\n", []string{"test_batch.bin"}
		case 3:
			source, names = "d = data.cifar100(\".\")\n", []string{"train.bin"}
		}
		for i, content := range [][]byte{images, labels}[:len(names)] {
			if err := os.WriteFile(filepath.Join(dir, names[i]), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := starlibtest.New(t, dir, starlib.Rank{}, nil).Exec("k.star", source+"testing.eq((len(d.x), d.x.dtype, d.y.dtype), (len(d.y), \"uint8\", \"int64\"))\n")
		if err != nil && !strings.Contains(err.Error(), names[0]) && !strings.Contains(err.Error(), names[len(names)-1]) {
			t.Error(err)
		}
	})
}
