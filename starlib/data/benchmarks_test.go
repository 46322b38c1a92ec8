package data_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"
)

func write(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The files of MNIST and CIFAR are read as their authors describe them; a file that is not one says so.
func TestKnownImages(t *testing.T) {
	dir := t.TempDir()
	idx := func(code byte, sizes []byte, elements ...byte) []byte {
		out := []byte{0, 0, code, byte(len(sizes))}
		for _, n := range sizes {
			out = append(out, 0, 0, 0, n)
		}
		return append(out, elements...)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(idx(8, []byte{2, 2, 2}, 1, 2, 3, 4, 5, 6, 7, 8))
	z.Close()
	write(t, dir, "m/train-images-idx3-ubyte.gz", packed.Bytes())
	write(t, dir, "m/train-labels-idx1-ubyte", idx(8, []byte{2}, 7, 9))
	write(t, dir, "m/t10k-images-idx3-ubyte", idx(8, []byte{1, 1, 1}, 1))
	write(t, dir, "m/t10k-labels-idx1-ubyte", idx(8, []byte{2}, 1, 2))
	record := func(labels ...byte) []byte { return append(labels, bytes.Repeat([]byte{labels[0], 100, 200}, 1024)...) }
	for i := range 5 {
		write(t, dir, "c/data_batch_"+string(rune('1'+i))+".bin", append(record(byte(i)), record(9)...))
	}
	write(t, dir, "c/test_batch.bin", record(1)[:3000])
	write(t, dir, "c/train.bin", record(3, 77))
	write(t, dir, "c/test.bin", record(20, 5))
	run := func(source string) error {
		_, err := starlibtest.New(t, dir, starlib.Rank{}, nil).Exec("k.star", source)
		return err
	}
	if err := run(`
m = data.mnist("m")
testing.eq((m.x.shape, m.x.dtype, m.x[1].tolist(), m.y.tolist(), m.y.dtype), ((2, 1, 2, 2), "uint8", [[[5, 6], [7, 8]]], [7, 9], "int64"))
c = data.cifar10("c")
testing.eq((c.x.shape, c.y.tolist(), [c.x[2, 0, 0, k].item() for k in range(3)]), ((10, 3, 32, 32), [0, 9, 1, 9, 2, 9, 3, 9, 4, 9], [1, 100, 200]))
testing.eq((data.cifar100("c").y.tolist(), data.cifar100("c", labels = "coarse").y.tolist()), ([77], [3]))
`); err != nil {
		t.Error(err)
	}
	for source, want := range map[string]string{
		`data.mnist("m", train = False)`:                       "m/t10k-images-idx3-ubyte has 1 images, and m/t10k-labels-idx1-ubyte 2 labels",
		`data.mnist("c")`:                                      "c/train-images-idx3-ubyte: no such file",
		`data.cifar10("c", train = False)`:                     "c/test_batch.bin: 3000 bytes do not divide into records of 3073 bytes",
		`data.cifar100("c", train = False, labels = "coarse")`: "c/test.bin: byte 0: label 20 of record 0 is not below 20",
		`data.cifar100("c", labels = "all")`:                   `labels: want "fine" or "coarse"`,
	} {
		if err := run(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", source, err, want)
		}
	}
}

// Each picture that is decoded ahead is told of, on the recipe's thread.
func TestPicturesAreTold(t *testing.T) {
	r := starlibtest.New(t, "testdata", starlib.Rank{}, nil)
	told := map[string]bool{}
	inside := false
	r.Rank.Files.OnRead = func(f starlib.FileRead) {
		path, sha256, bytes := f.Path, f.SHA256, f.Bytes
		if !inside || len(sha256) != 64 || bytes == 0 {
			t.Errorf("%s is told outside the loop, or without its sum", path)
		}
		told[path] = true
	}
	r.Rank.OnBatch = func() error { inside = !inside; return nil } // called before each batch: the first is inside
	if _, err := r.Exec("l.star", "for x, y in data.loader(data.image_folder(\"pets\", transform = data.resize((2, 2))), batch = 6, prefetch = 5): pass\n"); err != nil {
		t.Fatal(err)
	}
	if len(told) != 6 || !told["pets/dog/2.png"] {
		t.Errorf("told of %v", told)
	}
}
