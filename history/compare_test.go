package history

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"drun/history/records"
)

func TestCompare(t *testing.T) {
	db := open(t, t.TempDir())
	for i := range 3 {
		r := begin(t, db, RunInfo{Name: fmt.Sprint("run-", i), Seed: int64(i / 2), Recipe: fmt.Sprintf("dir%d/a.star", i), Threads: 1 + i})
		ok(t, r.AddSources([]records.Source{records.NewSource(fmt.Sprintf("dir%d/a.star", i), "recipe", []byte("x")), records.NewSource("b.star", "load", fmt.Append(nil, i/2))}))
		b := &Batch{
			Params: []Param{{"lr", []any{0.5, 0.5, "0.5"}[i]}, {"same", 1}},
			Batch: records.Batch{Points: []records.Point{{Name: "nan", Value: math.NaN()}, {Name: "zero", Value: math.Copysign(0, float64(1-i))}},
				DataFiles: []records.DataFile{{Path: "a.csv", SHA256: fmt.Sprint(i % 2), Bytes: 3}},
				Ranks:     []records.RankPlace{{Rank: 0, Host: "a", Kernels: "avx2"}, {Rank: 1, Host: "b", Kernels: []string{"avx2", "avx512", "avx2"}[i]}},
				Plugins:   []records.Plugin{{Name: "gloo", Version: "1", SHA256: fmt.Sprint(i)}},
			},
		}
		if i == 0 {
			b.Params = append(b.Params, Param{"only", nil})
		}
		ok(t, r.Write(b))
		ok(t, finish(r, Done, 0, ""))
	}
	c, err := db.Compare([]int64{1, 2, 3})
	ok(t, err)
	got := []string{}
	for _, d := range c.Differences {
		texts := []string{}
		for _, v := range d.Values {
			texts = append(texts, canonical(v))
		}
		got = append(got, fmt.Sprint(d.Kind, " ", d.Name, " ", strings.Join(texts, "|")))
	}
	sums := []string{`"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"`, `"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"`}
	want := []string{`parameter lr 0.5|0.5|"0.5"`, `parameter only null||`, `run seed "0"|"0"|"1"`,
		`recipe b.star ` + sums[0] + "|" + sums[0] + "|" + sums[1], `recipe path "dir0/a.star"|"dir1/a.star"|"dir2/a.star"`,
		`data a.csv "0 (3 bytes)"|"1 (3 bytes)"|"0 (3 bytes)"`, `backend plugin gloo "1 0"|"1 1"|"1 2"`,
		`machine kernels "avx2"|"avx2, avx512"|"avx2"`, `machine threads a rank "1"|"2"|"3"`}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	same := fmt.Sprint(c.Same)
	for _, name := range []string{"{parameter same", "{metric nan.last", "{recipe recipe", "{machine host", "{run status"} {
		if !strings.Contains(same, name) {
			t.Errorf("%s is not the same: %s", name, same)
		}
	}
}

// Values that look alike are told apart.
func TestCompareLookalikes(t *testing.T) {
	db := open(t, t.TempDir())
	for i, value := range []any{math.NaN(), "NaN"} {
		r := begin(t, db, RunInfo{})
		ok(t, r.Write(&Batch{Params: []Param{{"x", value}, {"same", math.Inf(1)}}, Batch: records.Batch{Tags: [][]string{{"a,b"}, {"a", "b"}}[i]}}))
		ok(t, finish(r, Done, 0, ""))
	}
	c, err := db.Compare([]int64{1, 2})
	ok(t, err)
	if got := fmt.Sprint(c.Differences); got != `[{parameter x [NaN [34 78 97 78 34]]} {run tags ["a,b" a,b]}]` {
		t.Error(got)
	}
}

// What was kept under a name is one row, whatever the number of steps; kinds have rows of their own.
func TestCompareKept(t *testing.T) {
	db := open(t, t.TempDir())
	for i := range 2 {
		r := begin(t, db, RunInfo{})
		b := &Batch{Batch: records.Batch{Artifacts: []records.Artifact{{Name: "note", Kind: []string{"text", "bytes"}[i], Data: []byte{byte(i)}}, {Name: "last", Step: new(int64), Kind: "image", Data: []byte{byte(i)}}}}}
		for step := range int64(30) {
			data := fmt.Append(nil, step, step == 12 && i == 1)
			b.Artifacts = append(b.Artifacts, records.Artifact{Name: "w", Step: &step, Kind: "histogram", Data: data}, records.Artifact{Name: "w", Step: &step, Kind: "image", Data: []byte("x")})
			later := step + int64(i) // what is the same at other steps is not the same
			b.Artifacts = append(b.Artifacts, records.Artifact{Name: "shift", Step: &later, Kind: "image", Data: []byte("x")})
		}
		ok(t, r.Write(b))
		ok(t, finish(r, Done, 0, ""))
	}
	c, err := db.Compare([]int64{1, 2})
	ok(t, err)
	const zero, one = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d", "4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a"
	for i, want := range []Difference{{"artifact", "last, image", []any{"step 0: " + zero[:12], "step 0: " + one[:12]}}, {"artifact", "note", []any{zero, one}}} {
		if got := c.Differences[i]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if len(c.Differences) != 4 {
		t.Fatalf("%d differences: %v", len(c.Differences), c.Differences)
	}
	if moved := c.Differences[2]; moved.Name != "shift, image" || moved.Values[0] == moved.Values[1] {
		t.Errorf("%v", moved)
	}
	if w := c.Differences[3]; w.Name != "w, histogram" || w.Values[0] == w.Values[1] || !strings.HasPrefix(w.Values[1].(string), "30 steps: ") || len(w.Values[1].(string)) != 22 {
		t.Errorf("%v", w)
	}
	if same := fmt.Sprint(c.Same); !strings.Contains(same, "{artifact w, image [30 steps: ") {
		t.Errorf("the images are not the same: %s", same)
	}
}

// A history of the time when a name and a step had one kind keeps what it has.
func TestKindsFromBefore(t *testing.T) {
	home := t.TempDir()
	old := oldHistory(t, home, 14)
	_, err := old.Exec(`INSERT INTO runs (id, uid, name, recipe, status, world_size, backend, seed, threads, started, version, host, pid, dir, command)
		VALUES (1, 'u', 'kept', 'a.star', 'failed', 1, 'shm', 0, 1, '2026-01-02T03:04:05.000000Z', 'v1', 'h', 1, '/', '[]');
		INSERT INTO contents VALUES ('2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881', 'x');
		INSERT INTO artifacts VALUES (1, 'w', -1, 0, 'image', 1, '2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881', '2026-01-02T03:04:05.000000Z')`)
	ok(t, err)
	ok(t, old.Close())
	db := open(t, home)
	r, _, err := db.Reopen(1, RunInfo{})
	ok(t, err)
	ok(t, r.Write(&Batch{Batch: records.Batch{Artifacts: []records.Artifact{{Name: "w", Kind: "table", Data: []byte("y")}}}}))
	list, err := db.Artifacts(1)
	ok(t, err)
	if len(list) != 2 || list[0].Kind != "image" || list[1].Kind != "table" {
		t.Fatalf("%v", list)
	}
	if data, err := db.Content(&list[0]); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
}
