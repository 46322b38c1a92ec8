package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// packOf is a pack of a run with a seed: of two ranks, with checkpoints of the steps 0, 6, 12 and 18.
func packOf(t testing.TB, seed int64) (file, home string) {
	t.Helper()
	trained.Lock()
	defer trained.Unlock()
	if trained.packs[seed] == "" {
		dir, err := os.MkdirTemp("", "proof-test-") // for all tests of this process
		ok(t, err)
		recipe := filepath.Join(dir, "train.star")
		ok(t, os.WriteFile(recipe, []byte(recipetest.Training), 0o600))
		home := filepath.Join(dir, "home")
		r, err := run.Run(run.Options{Recipe: recipe, Nproc: 2, Seed: seed, SeedGiven: true, Threads: 1, Timeout: time.Minute, History: record.History{Home: home, Name: "honest"}, Output: run.Output{Stdout: io.Discard, Stderr: io.Discard}})
		ok(t, err)
		if r.Code != exit.Done {
			t.Fatal(r.Failure.Err())
		}
		db, err := history.OpenReadOnly(home)
		ok(t, err)
		defer db.Close()
		file := filepath.Join(dir, "honest.zip")
		_, err = Write(home, db, r.ID, file, Packing{Weights: "all"})
		ok(t, err)
		trained.packs[seed], trained.homes[seed] = file, home
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
	db, err := history.OpenReadOnly(home)
	ok(t, err)
	defer db.Close()
	_, err = Write(home, db, 1, again, Packing{Weights: "all"})
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
