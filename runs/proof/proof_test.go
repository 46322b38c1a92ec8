package proof

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective/disttest"
	"drun/engine/recipetest"
	"drun/engine/record"
	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
)

func TestMain(m *testing.M) { recipetest.Main(m) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// trained are packs of the recipe by seed, made once.
var trained = struct {
	sync.Mutex
	packs map[int64]string
	homes map[int64]string
}{packs: map[int64]string{}, homes: map[int64]string{}}

// packed runs a recipe in a folder, and packs the run.
func packed(t testing.TB, dir, recipe string, change func(*run.Options)) (file, home string) {
	t.Helper()
	path := filepath.Join(dir, "train.star")
	ok(t, os.WriteFile(path, []byte(recipe), 0o600))
	home = filepath.Join(dir, "home")
	o := run.Options{Recipe: path, Nproc: 1, SeedGiven: true, Threads: 1, Timeout: time.Minute, History: record.History{Home: home, Name: "honest"}, Output: run.Output{Stdout: io.Discard, Stderr: io.Discard}}
	change(&o)
	r, err := run.Run(o)
	ok(t, err)
	if r.Code != exit.Done {
		t.Fatal(r.Failure.Err())
	}
	file = filepath.Join(dir, "honest.zip")
	_, err = write(t, home, file, Packing{Weights: "all"})
	ok(t, err)
	return file, home
}

// write packs the first run of a home.
func write(t testing.TB, home, file string, p Packing) (*Packed, error) {
	t.Helper()
	db, err := history.OpenReadOnly(home)
	ok(t, err)
	defer db.Close()
	return Write(home, db, 1, file, p)
}

// packOf is a pack of a run with a seed: of two ranks, with checkpoints of the steps 0, 6, 12 and 18.
func packOf(t testing.TB, seed int64) (file, home string) {
	t.Helper()
	trained.Lock()
	defer trained.Unlock()
	if trained.packs[seed] == "" {
		dir, err := os.MkdirTemp("", "proof-test-") // for all tests of this process
		ok(t, err)
		trained.packs[seed], trained.homes[seed] = packed(t, dir, recipetest.Training, func(o *run.Options) { o.Nproc, o.Seed = 2, seed })
	}
	return trained.packs[seed], trained.homes[seed]
}

// verified checks a pack.
func verified(t testing.TB, file string, c Checking) (*Verdict, error) {
	t.Helper()
	p, err := Open(file)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r, err := p.Run()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	backend, err := r.Backend()
	if err != nil {
		return nil, err
	}
	c.Say = func(string) {}
	return r.Verify(run.Options{Threads: 1, Timeout: time.Minute, Communication: run.Communication{Backend: backend}, Output: run.Output{Stdout: io.Discard, Stderr: io.Discard}}, c)
}

func TestHonest(t *testing.T) {
	file, home := packOf(t, 1)
	for _, c := range []Checking{{Full: true}, {Segments: 2}} {
		v, err := verified(t, file, c)
		ok(t, err)
		if !v.Equal || v.First != nil || v.Of != 5 || v.States == 0 || v.Points == 0 || v.Updates == 0 {
			t.Errorf("%+v: %+v", c, v)
		}
	}
	again := filepath.Join(t.TempDir(), "again.zip")
	_, err := write(t, home, again, Packing{Weights: "all"})
	ok(t, err)
	a, err := os.ReadFile(file)
	ok(t, err)
	b, err := os.ReadFile(again)
	ok(t, err)
	if !bytes.Equal(a, b) {
		t.Error("the same run packed twice gives two files")
	}
	v, err := verified(t, forge(t, file).pack(), Checking{Segments: 1})
	if err != nil || !v.Equal {
		t.Errorf("a pack that was only written again: %v %v", v, err)
	}
}

// Whichever byte of a pack changes, it is found.
func TestEveryByte(t *testing.T) {
	file, _ := packOf(t, 1)
	whole, err := os.ReadFile(file)
	ok(t, err)
	tries := 60
	if n, err := strconv.Atoi(os.Getenv("DRUN_PROOF_BYTES")); err == nil {
		tries = n
	}
	rng := rand.New(rand.NewPCG(disttest.Seed(t), 3))
	dir := t.TempDir()
	for n := range tries {
		at := rng.IntN(len(whole))
		if n%3 == 0 { // the archive's own structure, at its end
			at = len(whole) - 1 - rng.IntN(2000)
		}
		changed := slices.Clone(whole)
		changed[at] ^= byte(1 << rng.IntN(8))
		path := filepath.Join(dir, "changed.zip")
		ok(t, os.WriteFile(path, changed, 0o600))
		p, err := Open(path)
		if err == nil {
			p.Close()
			t.Errorf("byte %d of %d was changed, and nobody noticed", at, len(whole))
		} else if !errors.As(err, new(*Broken)) && at > 3 {
			t.Errorf("byte %d of %d: %v", at, len(whole), err)
		}
	}
	for _, other := range [][]byte{whole[:len(whole)-1], append(slices.Clone(whole), 0), append([]byte("PK\x03\x04"), whole...), whole[:100], {}} {
		path := filepath.Join(dir, "other.zip")
		ok(t, os.WriteFile(path, other, 0o600))
		if p, err := Open(path); err == nil {
			p.Close()
			t.Errorf("a pack of %d bytes, not %d, is taken for whole", len(other), len(whole))
		}
	}
}

// The manifest lists what is there, whether or not the root is that of what is there.
func TestManifest(t *testing.T) {
	file, _ := packOf(t, 1)
	f := forge(t, file)
	for _, lie := range []string{manifestName, rootName} {
		path := filepath.Join(t.TempDir(), "lying.zip")
		out, err := os.Create(path)
		ok(t, err)
		defer out.Close()
		a := newArchive(out)
		for _, name := range slices.Sorted(maps.Keys(f.members)) {
			ok(t, a.add(name, func(w io.Writer) error { _, err := w.Write(f.members[name]); return err }))
		}
		sum := rootOf(a.members)
		texts := map[string]string{rootName: hex.EncodeToString(sum[:]) + "\n"}
		for _, m := range a.members {
			texts[manifestName] += m.line()
		}
		texts[lie] = strings.Map(func(r rune) rune { // each digit becomes another
			if i := strings.IndexRune("0123456789abcdef", r); i >= 0 {
				return rune("123456789abcdef0"[i])
			}
			return r
		}, texts[lie][:64]) + texts[lie][64:]
		for _, name := range []string{manifestName, rootName} {
			ok(t, a.add(name, func(w io.Writer) error { _, err := io.WriteString(w, texts[name]); return err }))
		}
		ok(t, a.zip.Close())
		if p, err := Open(path); !errors.As(err, new(*Broken)) {
			p.Close()
			t.Errorf("a lying %s: %v", lie, err)
		}
	}
}

// The bytes of a pack are part of the format: a new version of the zip package must not change them.
func TestFormat(t *testing.T) {
	var out bytes.Buffer
	a := newArchive(&out)
	for _, name := range []string{"README.txt", "chain.txt", "history.db"} {
		ok(t, a.add(name, func(w io.Writer) error { _, err := io.WriteString(w, name); return err }))
	}
	root, err := a.end(nil)
	ok(t, err)
	sum := sha256.Sum256(out.Bytes())
	const wantRoot, want = "79f784b211a7154889c019837c1526cb9009c4cf73a4188f564b8e95d31d3fab", "247426bc4f384283aea4b1c78ba144f9a6a7ceea01dcd3e33fdce1270e3e438d"
	if got := hex.EncodeToString(sum[:]); root != wantRoot || got != want {
		t.Errorf("root %s, file %s", root, got)
	}
}

func TestChances(t *testing.T) {
	if got := fmt.Sprintf("%.2f %.2f %.2f", missed(1200, 24, 60), missed(1200, 24, 1), missed(5, 5, 1)); got != "0.29 0.98 0.00" {
		t.Error(got)
	}
	// Every segment is drawn equally often.
	counts := make([]int, 10)
	for i := range 4000 {
		for _, n := range draw("root", strconv.Itoa(i), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 3) {
			counts[n]++
		}
	}
	for i, n := range counts {
		if n < 1080 || n > 1320 { // 4 standard deviations about 1200
			t.Errorf("segment %d was drawn %d times of 1200", i, n)
		}
	}
	if a, b := draw("a", "1", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 5), draw("b", "1", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 5); slices.Equal(a, b) {
		t.Error("two packs have the same draw")
	}
}

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		drawn, starts []int
		want          string
	}{
		{[]int{0, 2, 4}, []int{-1, 0, 1, 2, 3}, "[{-1 0} {1 2} {3 4}]"},
		{[]int{1, 2}, []int{-1, 0, 1, 2, 3}, "[{0 2}]"},
		{[]int{1, 4}, []int{-1, -1, -1, -1, -1}, "[{-1 4}]"},
		{[]int{0, 4}, []int{-1, 0, 0, 0, 0}, "[{-1 4}]"},
		{[]int{4}, []int{-1, 0, 0, 0, 0}, "[{0 4}]"},
	} {
		if got := fmt.Sprint(spans(c.drawn, c.starts)); got != c.want {
			t.Errorf("%v from %v: %s, want %s", c.drawn, c.starts, got, c.want)
		}
	}
}

// Data that the pack does not list is a difference, and so is other data under a name that it lists.
func TestData(t *testing.T) {
	dir := t.TempDir()
	numbers := filepath.Join(dir, "numbers.csv")
	ok(t, os.WriteFile(numbers, []byte("1,2\n3,4\n"), 0o600))
	file, home := packed(t, dir, "def main():\n    t = data.csv(\"numbers.csv\")\n    run.log(sum = t.x.sum().item())\n", func(*run.Options) {})
	here := Checking{Full: true, Data: []string{dir}}
	if v, err := verified(t, file, here); err != nil || !v.Equal {
		t.Fatalf("%+v %v", v, err)
	}
	f := forge(t, file)
	f.sql("DELETE FROM data_files")
	v, err := verified(t, f.pack(), here)
	ok(t, err)
	if d := v.First; d == nil || d.Operation != "read" || d.What != "the file numbers.csv" || !strings.HasSuffix(d.Line, "train.star:2:17") {
		t.Errorf("a file that is not listed: %+v", d)
	}
	f = forge(t, file)
	f.sql("UPDATE data_files SET path = '../numbers.csv'")
	if _, err := verified(t, f.pack(), here); exit.CodeOf(err) != exit.Usage || !strings.Contains(fmt.Sprint(err), "lay neither in its folder nor in a --data folder") {
		t.Errorf("a path upwards: %v", err)
	}

	full := filepath.Join(dir, "full.zip")
	_, err = write(t, home, full, Packing{Weights: "all", Data: true})
	ok(t, err)
	f = forge(t, full)
	f.members["data/numbers.csv"] = []byte("1,2\n3,5\n")
	if _, err := verified(t, f.pack(), Checking{Full: true}); !errors.As(err, new(*Broken)) || !strings.Contains(err.Error(), "data/numbers.csv belongs to nothing") {
		t.Errorf("other data under the same name: %v", err)
	}

	// What keeps others from repeating the run is named when it is packed.
	other, err := sql.Open("sqlite3", filepath.Join(home, historyName))
	ok(t, err)
	_, err = other.Exec(`UPDATE runs SET deterministic = 0, world_size = 2, numerics = numerics - 1;
		INSERT INTO data_files (run, path, sha256, bytes, modified, position) SELECT run, path, 'aa', bytes, modified, position FROM data_files;
		INSERT INTO data_files (run, path, sha256, bytes, modified, position) SELECT run, '/etc/hostname', sha256, bytes, modified, position FROM data_files WHERE sha256 <> 'aa'`)
	ok(t, err)
	ok(t, other.Close())
	p, err := write(t, home, filepath.Join(dir, "noted.zip"), Packing{Weights: "all"})
	ok(t, err)
	for _, note := range []string{"numbers.csv, which is read at .*train.star:2:17, has another content than before", "the recipe read /etc/hostname at .*train.star:2:17, which lies neither", "did not reduce in rank order", "another arithmetic"} {
		if !slices.ContainsFunc(p.Notes, regexp.MustCompile(note).MatchString) {
			t.Errorf("%q is not among %q", note, p.Notes)
		}
	}
	if _, err := write(t, home, filepath.Join(dir, "data.zip"), Packing{Weights: "all", Data: true}); exit.CodeOf(err) != exit.Usage {
		t.Errorf("two contents of a file: %v", err)
	}
}

// The chain is part of the format: each link covers the one before it, the digests of all ranks, the points and the state.
func TestChain(t *testing.T) {
	sample := func() (*made, *chain) {
		m := &made{digests: []map[int64][records.DigestSize]byte{{1: {1}, 2: {2}, 3: {3}}, {1: {4}, 3: {5}}}, updated: [][]int64{{1, 2, 3}, {1, 3}}}
		for i := range int64(4) {
			m.points = append(m.points, numbered{i + 1, records.Point{Name: "loss", Step: i, Value: 1 / float64(i+1), Exact: true}})
		}
		return m, &chain{Origin: &link{Step: 9, State: "o", Kept: true}, Links: []link{{Step: 0, Updates: 1, Points: 1, State: "a", Kept: true}, {Step: 1, Updates: 2, Points: 3, State: "b"}, {Updates: 3, Points: 4, End: true}}}
	}
	m, c := sample()
	text := string(c.text(m))
	sum := sha256.Sum256([]byte(text))
	if got := hex.EncodeToString(sum[:]); got != "23d491097b31ea5702ca5a4cc61b9c2d5d94ee440ef7089371a6859e0423ebea" {
		t.Errorf("%s\n%s", got, text)
	}
	for what, change := range map[string]func(m *made, c *chain){
		"a digest":                  func(m *made, _ *chain) { m.digests[0][1] = [records.DigestSize]byte{9} },
		"another rank's":            func(m *made, _ *chain) { m.digests[1][1] = [records.DigestSize]byte{9} },
		"a value":                   func(m *made, _ *chain) { m.points[0].Value = 2 },
		"a mark":                    func(m *made, _ *chain) { m.points[0].Exact = false },
		"a state":                   func(_ *made, c *chain) { c.Links[0].State = "c" },
		"where the run came from":   func(_ *made, c *chain) { c.Origin.State = "p" },
		"that it came from another": func(_ *made, c *chain) { c.Origin = nil },
	} {
		m, c := sample()
		change(m, c)
		last := func(text string) string { return text[strings.LastIndex(text, " link "):] }
		if last(string(c.text(m))) == last(text) {
			t.Errorf("%s is not in the last link", what)
		}
	}
}

// A signature is one of the root, and written as ssh-keygen writes it.
func TestSigned(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip(err)
	}
	_, home := packOf(t, 1)
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "signed.zip")
	ok(t, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).Run())
	_, err := write(t, home, file, Packing{Weights: "none", Sign: key})
	ok(t, err)
	f := forge(t, file)
	other, err := signWith(key)("another root")
	ok(t, err)
	wide := func(signature []byte) []byte { // the same in lines of 72
		lines := strings.Split(string(signature), "\n")
		code := strings.Join(lines[1:len(lines)-2], "")
		return []byte(lines[0] + "\n" + code[:72] + "\n" + code[72:] + "\n" + lines[len(lines)-2] + "\n")
	}
	for what, c := range map[string]struct {
		sign func(root string) ([]byte, error)
		want string
	}{
		"right":           {signWith(key), ""},
		"of another root": {func(string) ([]byte, error) { return other, nil }, "not one of its root"},
		"in other lines":  {func(root string) ([]byte, error) { s, err := signWith(key)(root); return wide(s), err }, "not a signature, or was changed"},
		"nothing":         {func(string) ([]byte, error) { return []byte("signed\n"), nil }, "not a signature, or was changed"},
	} {
		path := filepath.Join(t.TempDir(), "signed.zip")
		out, err := os.Create(path)
		ok(t, err)
		defer out.Close()
		a := newArchive(out)
		for _, name := range slices.Sorted(maps.Keys(f.members)) {
			ok(t, a.add(name, whole(f.members[name])))
		}
		_, err = a.end(c.sign)
		ok(t, err)
		p, err := Open(path)
		if err == nil {
			p.Close()
		}
		if c.want == "" && (err != nil || p.Signer == "") || c.want != "" && (!errors.As(err, new(*Broken)) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
