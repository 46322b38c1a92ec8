package data_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/data"
	"drun/starlib/starlibtest"

	"go.starlark.net/starlark"
)

// rowsFile is a CSV file of n rows whose label is their number.
func rowsFile(from, n int) []byte {
	var b bytes.Buffer
	b.WriteString("a,b,n\n")
	for i := from; i < from+n; i++ {
		fmt.Fprintf(&b, "%d.5,%d,%d\n", i, -i, i)
	}
	return b.Bytes()
}

func pack(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	z.Close()
	return b.Bytes()
}

// streamed gives the labels of an epoch of a rank, batch by batch. At batch stop, if it is not negative, the loader's
// state goes into a new loader, which goes on.
func streamed(t *testing.T, dir string, rank starlib.Rank, stream, args string, epochs, stop int) (batches [][]int) {
	t.Helper()
	source := fmt.Sprintf("l = data.loader(data.stream(%s), %s)\n", stream, args)
	first := starlibtest.New(t, dir, rank, nil)
	globals, err := first.Exec("l.star", source)
	if err != nil {
		t.Fatal(err)
	}
	l := globals["l"].(starlark.Iterable)
	for e := 0; e < epochs; e++ {
		it := l.Iterate()
		var v starlark.Value
		for it.Next(&v) {
			x, y := v.(starlark.Tuple)[0], v.(starlark.Tuple)[1]
			var batch []int
			for k, n := range elements(y) {
				i, _ := starlark.AsInt32(must(t, n))
				batch = append(batch, i)
				row := elements(elements(x)[k])
				if a, _ := starlark.AsFloat(must(t, row[0])); a != float64(i)+0.5 {
					t.Fatalf("label %d has x %v", i, a)
				}
			}
			batches = append(batches, batch)
			if len(batches) == stop {
				state := l.(starlib.Stateful).State()
				again, err := starlibtest.New(t, dir, rank, nil).Exec("l.star", source)
				if err != nil {
					t.Fatal(err)
				}
				it.Done()
				l = again["l"].(starlark.Iterable)
				if err := l.(starlib.Stateful).SetState(state); err != nil {
					t.Fatal(err)
				}
				it = l.Iterate()
			}
		}
		it.Done()
	}
	return batches
}

func must(t *testing.T, v starlark.Value) starlark.Value {
	t.Helper()
	out, err := v.(starlib.Scalar).Item()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Ranks share the records of a stream: without shuffle each comes once and in order, with shuffle all have equally many
// batches, and what is left out is less than a sample for each rank.
func TestRanksShareAStream(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 30))
	write(t, dir, "b.csv.gz", pack(t, rowsFile(30, 17)))
	const stream = `["a.csv", "b.csv.gz"], label = "n", buffer = 7`
	for world := 1; world <= 4; world++ {
		for _, batch := range []int{1, 3, 5, 47, 100} {
			for _, shuffle := range []string{"False", "True"} {
				var all []int
				count := -1
				for rank := range world {
					got := streamed(t, dir, starlib.Rank{Rank: rank, WorldSize: world, Seed: 5}, stream, fmt.Sprintf("batch = %d, shuffle = %s", batch, shuffle), 1, -1)
					if shuffle == "True" && count >= 0 && len(got) != count {
						t.Errorf("world %d, batch %d: rank %d has %d batches, and rank 0 %d", world, batch, rank, len(got), count)
					}
					count = len(got)
					mine := slices.Concat(got...)
					if shuffle == "False" && !slices.IsSorted(mine) {
						t.Errorf("out of order: %v", mine)
					}
					if shuffle == "True" && world == 1 && batch == 5 && slices.IsSorted(mine) {
						t.Error("not shuffled")
					}
					all = append(all, mine...)
				}
				slices.Sort(all)
				lost := 47 - len(all)
				if len(slices.Compact(slices.Clone(all))) != len(all) || shuffle == "False" && lost != 0 || lost >= world || lost < 0 {
					t.Errorf("world %d, batch %d, shuffle %s: %v", world, batch, shuffle, all)
				}
			}
		}
	}
}

// With drop_last all ranks have equally many batches, each full.
func TestRanksDropTheSameLastBatches(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 53))
	for world := 1; world <= 5; world++ {
		for _, batch := range []int{1, 2, 3, 9, 11, 60} {
			for _, shuffle := range []string{"False", "True"} {
				for rank := range world {
					got := streamed(t, dir, starlib.Rank{Rank: rank, WorldSize: world, Seed: 5}, `"a.csv", label = "n", buffer = 7`, fmt.Sprintf("batch = %d, drop_last = True, shuffle = %s", batch, shuffle), 1, -1)
					if want := 53 / world / batch; len(got) != want || len(slices.Concat(got...)) != want*batch {
						t.Errorf("world %d, batch %d, shuffle %s: rank %d has %d batches, want %d: %v", world, batch, shuffle, rank, len(got), want, got)
					}
				}
			}
		}
	}
}

// A loader that goes on from a checkpoint at any batch gives what it would have given.
func TestStreamsResume(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 1300))
	write(t, dir, "b.csv.gz", pack(t, rowsFile(1300, 900)))
	write(t, dir, "c.csv", rowsFile(2200, 40))
	const stream = `["a.csv", "b.csv.gz", "c.csv"], label = "n", buffer = 50`
	rank := starlib.Rank{Rank: 1, WorldSize: 2, Seed: 9}
	for _, args := range []string{"batch = 40, shuffle = True", "batch = 40", "batch = 7, shuffle = True, drop_last = True"} {
		want := streamed(t, dir, rank, stream, args, 2, -1)
		if args != "batch = 40" && slices.Equal(want[0], want[len(want)/2]) {
			t.Error("both epochs have one order")
		}
		for _, stop := range []int{1, 2, len(want)/2 - 1, len(want) / 2, len(want)/2 + 1, len(want) - 1} {
			if got := streamed(t, dir, rank, stream, args, 2, stop); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: resumed after batch %d:\ngot  %v\nwant %v", args, stop, got, want)
			}
		}
	}
	// Another number of ranks goes on after the same part of the epoch.
	left := func(rank, world int, args string) (batches, samples int) {
		t.Helper()
		globals, err := starlibtest.New(t, dir, starlib.Rank{Rank: rank, WorldSize: world, Seed: 9}, nil).Exec("l.star", fmt.Sprintf("l = data.loader(data.stream(%s), batch = 40%s)\n", stream, args))
		if err != nil {
			t.Fatal(err)
		}
		if err := globals["l"].(starlib.Stateful).SetState([]starlib.Entry{{Name: "epoch", Value: starlark.MakeInt(0)}, {Name: "batch", Value: starlark.MakeInt(2)}, {Name: "given", Value: starlark.MakeInt(160)}}); err != nil {
			t.Fatal(err)
		}
		for _, b := range elements(globals["l"]) {
			batches, samples = batches+1, samples+starlark.Len(b.(starlark.Tuple)[0])
		}
		return batches, samples
	}
	if n, _ := left(0, 1, ""); n != 52 { // 2080 of 2240
		t.Errorf("%d batches are left", n)
	}
	for rank := range 3 { // with shuffle all equally much
		if _, n := left(rank, 3, ", shuffle = True"); n != 693 { // 2080 less one
			t.Errorf("rank %d gets %d samples", rank, n)
		}
	}
}

// Parquet and Arrow are shared among ranks, and go on from a checkpoint, as CSV is.
func TestStreamsOfColumns(t *testing.T) {
	for _, end := range []string{"parquet", "feather"} {
		stream := fmt.Sprintf(`["a.%[1]s", "b.%[1]s", "c.%[1]s"], label = "n", buffer = 50`, end)
		var all []int
		for rank := range 3 {
			got := streamed(t, "testdata", starlib.Rank{Rank: rank, WorldSize: 3, Seed: 9}, stream, "batch = 40", 1, -1)
			mine := slices.Concat(got...)
			if !slices.IsSorted(mine) || mine[0] != rank {
				t.Errorf("%s: rank %d begins with %v", end, rank, mine[:9])
			}
			all = append(all, mine...)
		}
		if slices.Sort(all); len(slices.Compact(slices.Clone(all))) != 2240 || all[2239] != 2239 {
			t.Errorf("%s: %d samples", end, len(all))
		}
		rank := starlib.Rank{Rank: 1, WorldSize: 2, Seed: 9}
		for _, args := range []string{"batch = 40, shuffle = True", "batch = 40"} {
			want := streamed(t, "testdata", rank, stream, args, 2, -1)
			if csv := streamed(t, rowsFolder(t), rank, strings.ReplaceAll(stream, end, "csv"), args, 2, -1); fmt.Sprint(csv) != fmt.Sprint(want) {
				t.Errorf("%s, %s: not the order of CSV", end, args)
			}
			for _, stop := range []int{1, len(want)/2 + 5} {
				if got := streamed(t, "testdata", rank, stream, args, 2, stop); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s, %s: resumed after batch %d:\ngot  %v\nwant %v", end, args, stop, got, want)
				}
			}
		}
	}
}

// rowsFolder has the rows of testdata's a, b and c as CSV.
func rowsFolder(t *testing.T) string {
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 1300))
	write(t, dir, "b.csv", rowsFile(1300, 900))
	write(t, dir, "c.csv", rowsFile(2200, 40))
	return dir
}

// packed is a tar of files, each a name and its content.
func packed(t *testing.T, files ...[2]string) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f[0], Size: int64(len(f[1])), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(f[1]))
	}
	w.Close()
	return archive.Bytes()
}

// Samples of other formats, and errors that say where.
func TestStreamFormats(t *testing.T) {
	dir := t.TempDir()
	photo, _ := os.ReadFile("testdata/pets/cat/1.png")
	archive := packed(t, [2]string{"s/1.png", string(photo)}, [2]string{"s/1.cls", "3"}, [2]string{"s/2.cls", "4"}, [2]string{"s/2.png", string(photo)},
		[2]string{"s/2.json", `{"k": [1]}`}, [2]string{"s/3.cls", "5"}, [2]string{"s/3.PNG", string(photo)})
	write(t, dir, "s.tar", archive)
	write(t, dir, "s.tar.gz", pack(t, archive))
	write(t, dir, "cut.tar", archive[:1500])
	write(t, dir, "twice.tar", packed(t, [2]string{"a.cls", "1"}, [2]string{"a.CLS", "2"}))
	write(t, dir, "r.jsonl", []byte("{\"a\": 1}\n\n{\"a\": 2}\n"))
	write(t, dir, "other.jsonl", []byte("{\"a\":3}\n{\"b\":4}\n"))
	write(t, dir, "t.txt", []byte("one\n two \n\nthree"))
	write(t, dir, "bad.csv", []byte("1,2\n3,x\n"))
	write(t, dir, "wide.csv", []byte("1,2\n3,4,5\n"))
	write(t, dir, "half.csv", []byte("1,2\n3,4.5\n"))
	write(t, dir, "quoted.csv", []byte("\"1\",2\n3,\"4\"\n"))
	write(t, dir, "bad.jsonl", []byte("{\"a\": 1}\n{\"a\": \n"))
	write(t, dir, "one.csv", []byte("1\n2\n"))
	write(t, dir, "mark.csv", []byte("\ufeff1,2\n3,4\n"))
	write(t, dir, "marked.csv", []byte("\ufeffy,x\n1,2\n3,4\n"))
	write(t, dir, "empty.csv", nil)
	run := func(source string) error {
		_, err := starlibtest.New(t, dir, starlib.Rank{}, nil).Exec("k.star", source)
		return err
	}
	if err := run(`
for name in ["s.tar", "s.tar.gz"]:
    l = list(data.loader(data.stream(name), batch = 1))
    testing.eq([b["__key__"] for b in l], [["s/1"], ["s/2"], ["s/3"]])
    testing.eq((l[0]["png"].shape, [b["cls"].tolist() for b in l], l[1]["json"]["k"]), ((1, 3, 10, 13), [[3], [4], [5]], l[1]["json"]["k"]))
testing.eq([b["a"].tolist() for b in data.loader(data.stream("r.jsonl"), batch = 5)], [[1, 2]])
testing.eq(list(data.loader(data.stream("t.txt"), batch = 2)), [["one", "two"], ["three"]])
testing.eq([x.tolist() for x in data.loader(data.stream("quoted.csv"), batch = 2)], [[[1.0, 2.0], [3.0, 4.0]]])
testing.eq([y.tolist() for x, y in data.loader(data.stream("half.csv", label = -1, label_dtype = "float32"), batch = 2)], [[2.0, 4.5]])
testing.eq([y for x, y in data.loader(data.stream("half.csv", label = 0), batch = 2, collate = lambda s: (0, [y for x, y in s]))], [[1, 3]])
testing.eq([x.tolist() for x in data.loader(data.stream("mark.csv"), batch = 2)], [[[1.0, 2.0], [3.0, 4.0]]])
testing.eq([(x.tolist(), y.tolist()) for x, y in data.loader(data.stream("marked.csv", label = "y"), batch = 2)], [([[2.0], [4.0]], [1, 3])])
testing.eq(list(data.loader(data.stream("empty.csv"), batch = 2)), [])
`); err != nil {
		t.Error(err)
	}
	for source, want := range map[string]string{
		`data.stream("bad.csv")`:                     `bad.csv: byte 4 (record 1): column 2: "x" is not a number`,
		`data.stream("wide.csv")`:                    "wide.csv: byte 4 (record 1): the line has 3 columns, but the first has 2",
		`data.stream("half.csv", label = 1)`:         "half.csv: byte 4 (record 1): column 2: the label 4.5 is not a 64-bit integer",
		`data.stream("half.csv", label = 2)`:         "half.csv: label = 2, but there are 2 columns",
		`data.stream("bad.jsonl")`:                   "bad.jsonl: byte 9 (record 1): byte 5: the value ends early",
		`data.stream("cut.tar")`:                     "cut.tar: byte ",
		`data.stream("twice.tar")`:                   "a.CLS appears twice",
		`data.stream(["half.csv", "one.csv"])`:       "one.csv: byte 0 (record 2): 1 columns besides the label, and other files have 2",
		`data.stream(["r.jsonl", "other.jsonl"])`:    `other.jsonl: byte 8 (record 3): sample 3 of the batch has no item "a", and sample 0 has; sample 0 is r.jsonl: byte 0 (record 0)`,
		`data.stream("nowhere.csv")`:                 "nowhere.csv: no such file",
		`data.stream(["half.csv", "t.txt"])`:         "t.txt: a stream has files of one format",
		`data.stream("half.csv", buffer = 0)`:        "buffer = 0: want from 1",
		`data.stream([])`:                            "there are no files",
		`data.stream("half.csv", label_dtype = "x")`: `label_dtype = "x": want`,
		`data.stream("half.csv", format = "xml")`:    "unknown format of a stream",
	} {
		if err := run("for b in data.loader(" + source + ", batch = 10): pass\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", source, err, want)
		}
	}
	if err := run(`len(data.loader(data.stream("half.csv"), batch = 1))`); err == nil {
		t.Error("a stream has a length")
	}
}

// The files of a stream are told of with their sums, once they were read to the end.
func TestStreamsAreTold(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 3000))
	write(t, dir, "b.csv.gz", pack(t, rowsFile(3000, 50)))
	r := starlibtest.New(t, dir, starlib.Rank{}, nil)
	var told []string
	r.Rank.Files.OnRead = func(f starlib.FileRead) { told = append(told, fmt.Sprint(f.Path, len(f.SHA256), f.Bytes)) }
	if _, err := r.Exec("l.star", "for b in data.loader(data.stream([\"a.csv\", \"b.csv.gz\"], label = 2), batch = 64): pass\n"); err != nil {
		t.Fatal(err)
	}
	packed, _ := os.Stat(dir + "/b.csv.gz")
	if want := []string{fmt.Sprint("a.csv", 64, len(rowsFile(0, 3000))), fmt.Sprint("b.csv.gz", 64, packed.Size())}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
}

// What is read ahead keeps to the rank's threads, and to its share of the machine's where the run says nothing.
func TestReadingAheadKeepsToTheThreads(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 40))
	for threads, want := range map[int]int{3: 3, 1: 1, 0: max(1, runtime.NumCPU()/2)} {
		r := starlibtest.New(t, dir, starlib.Rank{WorldSize: 1, LocalSize: 2, Threads: threads}, nil)
		globals, err := r.Exec("l.star", "l = data.loader(data.stream(\"a.csv\", label = \"n\"), batch = 4)\n")
		if err != nil {
			t.Fatal(err)
		}
		l := globals["l"].(*data.Loader)
		it := l.Iterate()
		var v starlark.Value
		if !it.Next(&v) || data.Parsing(l) != want {
			t.Errorf("%d threads: %d parse, want %d", threads, data.Parsing(l), want)
		}
		it.Done()
		if got := data.Decoding(l); got != want {
			t.Errorf("%d threads: %d decode, want %d", threads, got, want)
		}
	}
}

// tarOf has samples of one file each, of so many bytes.
func tarOf(t *testing.T, dir, name string, samples, size int) {
	t.Helper()
	files := make([][2]string, samples)
	for i := range files {
		files[i] = [2]string{fmt.Sprintf("%03d.bin", i), strings.Repeat(string(rune(i)), size)}
	}
	write(t, dir, name, packed(t, files...))
}

// keys gives the names of the samples of an epoch, one a batch; at stop the state goes into a new loader.
func keys(t *testing.T, dir, source string, largest, stop int) (list []string, err error) {
	t.Helper()
	begin := func() starlark.Iterable {
		r := starlibtest.New(t, dir, starlib.Rank{Seed: 4}, nil)
		r.Rank.Files.Largest = largest
		globals, e := r.Exec("l.star", "l = "+source+"\n")
		if e != nil {
			t.Fatal(e)
		}
		return globals["l"].(starlark.Iterable)
	}
	r := starlibtest.New(t, dir, starlib.Rank{Seed: 4}, nil)
	r.Rank.Files.Largest = largest
	if stop < 0 {
		globals, err := r.Exec("l.star", "l = [b[\"__key__\"][0] for b in "+source+"]\n")
		if err != nil {
			return nil, err
		}
		for _, v := range elements(globals["l"]) {
			s, _ := starlark.AsString(v)
			list = append(list, s)
		}
		return list, nil
	}
	l := begin()
	it := l.Iterate()
	var v starlark.Value
	for it.Next(&v) {
		key, _, _ := v.(*starlark.Dict).Get(starlark.String("__key__"))
		s, _ := starlark.AsString(elements(key)[0])
		if list = append(list, s); len(list) == stop {
			state := l.(starlib.Stateful).State()
			it.Done()
			l = begin()
			if err := l.(starlib.Stateful).SetState(state); err != nil {
				return nil, err
			}
			it = l.Iterate()
		}
	}
	it.Done()
	return list, nil
}

// A buffer of large samples is an error, not the end of the memory; one that fits goes through files of any size, and on
// from a checkpoint.
func TestBuffersOfLargeSamples(t *testing.T) {
	dir := t.TempDir()
	const size, limit = 1 << 20, 10 << 20
	tarOf(t, dir, "s.tar", 48, size)
	of := func(args, batch string) string {
		return fmt.Sprintf("data.loader(data.stream(\"s.tar\", %s), batch = %s, shuffle = True)", args, batch)
	}
	for source, want := range map[string]string{
		of("buffer = 100", "1"):                           "s.tar: byte 9441792 (record 9): the 10 samples up to here, among which the shuffle picks, take more than the 10485760 bytes that one value may take: data.stream(…, buffer = 8) picks among fewer",
		"data.loader(data.stream(\"s.tar\"), batch = 20)": "s.tar: byte 9441792 (record 9): with this sample the batch takes more than the 10485760 bytes",
	} {
		if _, err := keys(t, dir, source, limit, -1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", source, err, want)
		}
	}
	want, err := keys(t, dir, of("buffer = 8", "1"), limit, -1)
	if err != nil {
		t.Fatal(err)
	}
	if sorted := slices.Sorted(slices.Values(want)); slices.IsSorted(want) || len(slices.Compact(sorted)) != 48 {
		t.Errorf("%d samples: %v", len(want), want)
	}
	for _, stop := range []int{1, 20, 41, 47} {
		if got, err := keys(t, dir, of("buffer = 8", "1"), limit, stop); err != nil || !slices.Equal(got, want) {
			t.Errorf("resumed after %d: %v %v\nwant %v", stop, got, err, want)
		}
	}
}
