package data

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.starlark.net/starlark"

	"drun/starlib"
)

// Whatever a file holds, its records are numbered one after the other, and reading again from any of them gives the same
// rest; or there is an error that names the file.
func FuzzStreams(f *testing.F) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"a.cls", "a.txt", "b.cls", "b.json"} {
		_ = w.WriteHeader(&tar.Header{Name: name, Size: 1, Mode: 0o600})
		_, _ = w.Write([]byte("1"))
	}
	w.Close()
	gz := func(content string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(content))
		z.Close()
		return b.String()
	}
	zst := func(content string) string {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			f.Fatal(err)
		}
		return string(z.EncodeAll([]byte(content), nil))
	}
	for _, packed := range []func(string) string{gz, zst} {
		f.Add(byte(0), packed("a,b\n1,2\n3,4\n5,6\n"))
		f.Add(byte(1), packed("{\"a\":[1]}\n{}\n{\"a\":null}\n"))
		f.Add(byte(2), packed("one\ntwo\n\nthree")+packed("four\n")) // members that follow each other are one stream
		f.Add(byte(3), packed(archive.String()))
	}
	for format := range 4 {
		for _, content := range []string{"1,2\n3,4\n", "a,b\n\"1\",2\r\n\n3,4", "{\"a\":[1]}\n{}\n", archive.String(), "\ufeff1\n", "\x1f\x8b\x08"} {
			f.Add(byte(format), content)
		}
	}
	dir := f.TempDir()
	files, err := starlib.OpenFiles(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, format byte, content string) {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Stream{files: files, names: []string{"f"}, format: []string{"csv", "jsonl", "text", "tar"}[format%4], comma: ',', label: starlark.None}
		read := func(from mark) (marks []mark, err error) {
			r := s.read([]int{0}, from, 0, 1, 1)
			defer r.stop()
			for c, ok := r.take(); ok; c, ok = r.take() {
				if c.err != nil {
					return marks, c.err
				}
				for _, rec := range c.records {
					marks = append(marks, rec.mark)
				}
			}
			return marks, nil
		}
		all, err := read(mark{})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f: ") {
				t.Fatalf("%v", err)
			}
			return
		}
		for i, m := range all {
			if m.number != int64(i) || m.offset > int64(len(content)) && !strings.HasPrefix(content, "\x1f\x8b") && !strings.HasPrefix(content, "\x28\xb5") {
				t.Fatalf("record %d is %+v", i, m)
			}
		}
		if len(all) > 1 {
			again, err := read(all[len(all)/2])
			if err != nil || len(again) != len(all)-len(all)/2 || again[0] != all[len(all)/2] {
				t.Fatalf("from record %d: %v, %v; want %v", len(all)/2, again, err, all)
			}
		}
	})
}

// readingTar reads s.tar of a folder, until the test ends.
func readingTar(t *testing.T, dir string) *reading {
	t.Helper()
	files, err := starlib.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := (&Stream{files: files, names: []string{"s.tar"}, format: "tar"}).read([]int{0}, mark{}, 0, 1, 2)
	t.Cleanup(r.stop)
	return r
}

// takeAll takes what is left, which must be so many samples.
func takeAll(t *testing.T, r *reading, samples int) {
	t.Helper()
	n := 0
	for c, ok := r.take(); ok; c, ok = r.take() {
		if c.err != nil {
			t.Fatal(c.err)
		}
		n += len(c.records)
	}
	if n != samples {
		t.Errorf("%d samples of %d", n, samples)
	}
}

// hasRoom reports whether so many more bytes may wait in the queue.
func (r *reading) hasRoom(size int64) bool {
	ok := r.room.TryAcquire(size)
	if ok {
		r.room.Release(size)
	}
	return ok
}

// Large samples wait in their file, not all in memory: while nobody takes them, those of maxAhead bytes are read.
func TestLargeSamplesWaitInTheirFile(t *testing.T) {
	dir := t.TempDir()
	const samples, size = 12, 64 << 20
	file, err := os.Create(filepath.Join(dir, "s.tar"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(samples) { // with holes for the contents
		var header bytes.Buffer
		if err := tar.NewWriter(&header).WriteHeader(&tar.Header{Name: string(rune('a'+i)) + ".bin", Size: size, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(header.Bytes(), i*(512+size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Truncate(samples*(512+size) + 1024); err != nil {
		t.Fatal(err)
	}
	file.Close()
	r := readingTar(t, dir)
	for begin := time.Now(); r.hasRoom(size) && len(r.chunks) <= maxAhead/size; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("nothing is read ahead")
		}
	}
	if n := len(r.chunks); n > maxAhead/size {
		t.Fatalf("%d samples of %d bytes wait in memory", n, size)
	}
	takeAll(t, r, samples)
}

// Pictures count as large as they are once they are decoded.
func TestLargePicturesWaitInTheirFile(t *testing.T) {
	const samples, side = 30, 2000 // 12 MB each, of 12 KB in the file
	var packed, archive bytes.Buffer
	if err := png.Encode(&packed, image.NewGray(image.Rect(0, 0, side, side))); err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(&archive)
	for i := range samples {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d.png", i), Size: int64(packed.Len()), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(packed.Bytes())
	}
	w.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "s.tar"), archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r := readingTar(t, dir)
	const size = 3 * side * side // of one picture
	for begin := time.Now(); r.hasRoom(size) && len(r.chunks) <= maxAhead/size; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("%d pictures are read ahead", len(r.chunks))
		}
	}
	if n := len(r.chunks); n > maxAhead/size {
		t.Errorf("%d pictures of 12 MB wait in memory", n)
	}
	takeAll(t, r, samples)
}
