package proof

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/recipetest"
	"drun/engine/run"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

// forgery is a pack that is being changed by someone who makes everything else fit: all sums, the chain and the root.
type forgery struct {
	t       testing.TB
	dir     string
	members map[string][]byte
	states  map[int64]string // in place of those in the chain
	loose   bool             // members that are made from the history stay as they are
}

func forge(t testing.TB, file string) *forgery {
	t.Helper()
	p, err := Open(file)
	ok(t, err)
	defer p.Close()
	f := &forgery{t: t, dir: t.TempDir(), members: map[string][]byte{}, states: map[int64]string{}}
	for _, name := range slices.Sorted(maps.Keys(p.sums)) {
		content, err := p.read(name)
		ok(t, err)
		f.members[name], err = io.ReadAll(content)
		ok(t, err)
	}
	ok(t, os.WriteFile(f.path(), f.members[historyName], 0o600))
	// The digests of a rank in one row, so that they are easy to change.
	f.sql(`CREATE TEMP TABLE whole AS SELECT run, attempt, rank, 1 AS first, unhex(group_concat(hex(digests), '' ORDER BY first)) AS digests FROM updates GROUP BY rank;
		DELETE FROM updates; INSERT INTO updates SELECT * FROM whole; DROP TABLE whole`)
	return f
}

func (f *forgery) path() string { return filepath.Join(f.dir, historyName) }

// sql changes the history.
func (f *forgery) sql(statement string, args ...any) {
	f.t.Helper()
	db, err := sql.Open("sqlite3", f.path())
	ok(f.t, err)
	defer db.Close()
	_, err = db.Exec(statement, args...)
	ok(f.t, err)
}

// summarise makes the summaries fit the points.
func (f *forgery) summarise() {
	f.sql(`UPDATE run_metrics AS s SET (min, max, count) = (SELECT min(value), max(value), count(*) FROM metrics m WHERE m.name = (SELECT name FROM metric_names n WHERE n.id = s.metric));
		UPDATE run_metrics AS s SET last = (SELECT value FROM metrics m WHERE m.name = (SELECT name FROM metric_names n WHERE n.id = s.metric) ORDER BY rank, seq DESC LIMIT 1),
			first = (SELECT value FROM metrics m WHERE m.name = (SELECT name FROM metric_names n WHERE n.id = s.metric) ORDER BY rank, seq LIMIT 1)`)
}

// pack makes the forged pack.
func (f *forgery) pack() string {
	f.t.Helper()
	out := filepath.Join(f.t.TempDir(), "forged.zip")
	ok(f.t, f.write(out))
	return out
}

func (f *forgery) write(out string) (err error) {
	defer try.Caught(&err)
	if !f.loose {
		db, id := try.To2(history.OpenExtracted(f.dir))
		defer db.Close()
		m := try.To(madeBy(db, id))
		_, old := parseChain(string(f.members[chainName]))
		store := try.To(checkpoints.Open(filepath.Join(f.t.TempDir(), "store")))
		defer store.Close()
		c := &chain{}
		c.Links = try.To(m.links(func(step int64) (sum string, kept bool) {
			content, kept := f.members[checkpointName(step)]
			if kept {
				l, score, parts, err := readState(io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content))))
				try.Ok(err)
				try.To(store.SaveAfter(l.Points, "x", step, score, parts))
				sum = try.To(store.Sum("x", checkpoints.Step(step)))
			} else {
				sum = old[step]
			}
			return cmp.Or(f.states[step], sum), kept
		}))
		for name, write := range try.To(m.derived(c)) {
			var b bytes.Buffer
			try.Ok(write(&b))
			f.members[name] = b.Bytes()
		}
	}
	f.members[historyName] = try.To(os.ReadFile(f.path()))
	file := try.To(os.Create(out))
	defer file.Close()
	a := newArchive(file)
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		try.Ok(a.add(name, func(w io.Writer) error { _, err := w.Write(f.members[name]); return err }))
	}
	_, err = a.end(nil)
	return err
}

// tensor changes one byte of a tensor in a checkpoint.
func (f *forgery) tensor(step int64, name string) {
	f.t.Helper()
	content := f.members[checkpointName(step)]
	n := binary.LittleEndian.Uint64(content)
	var header map[string]json.RawMessage
	ok(f.t, json.Unmarshal(content[8:8+n], &header))
	var s stored
	ok(f.t, json.Unmarshal(header[name], &s))
	content[8+int64(n)+s.Offsets[0]] ^= 1
}

// shift changes the value of the loss at a step by little.
func (f *forgery) shift(step int) {
	for slot := range 32 {
		f.sql(fmt.Sprintf(`UPDATE metric_blocks SET v%[1]d = v%[1]d * 1.0000001 WHERE superseded = 0 AND seq + %[1]d =
			(SELECT seq FROM metrics WHERE name = 'loss' AND step = ?)`, slot), step)
	}
	f.summarise()
}

// score changes the score of a checkpoint.
func (f *forgery) score(step int64, score string) {
	name := checkpointName(step)
	content := f.members[name]
	n := binary.LittleEndian.Uint64(content)
	var header map[string]json.RawMessage
	ok(f.t, json.Unmarshal(content[8:8+n], &header))
	var metadata map[string]string
	ok(f.t, json.Unmarshal(header["__metadata__"], &metadata))
	l := layout{}
	ok(f.t, json.Unmarshal([]byte(metadata["drun"]), &l))
	l.Score = &score
	f.header(name, header, l, content[8+n:])
}

// header replaces the header of a checkpoint.
func (f *forgery) header(name string, header map[string]json.RawMessage, l layout, data []byte) {
	description, err := json.Marshal(l)
	ok(f.t, err)
	header["__metadata__"], err = json.Marshal(map[string]string{"drun": string(description)})
	ok(f.t, err)
	text, err := json.Marshal(header)
	ok(f.t, err)
	text = append(text, strings.Repeat(" ", (8-len(text)%8)%8)...)
	f.members[name] = slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, data)
}

// text changes a member without its history.
func (f *forgery) text(name, old, text string) {
	f.loose = true
	if !bytes.Contains(f.members[name], []byte(old)) {
		f.t.Fatalf("%s does not contain %q:\n%s", name, old, f.members[name])
	}
	f.members[name] = bytes.Replace(f.members[name], []byte(old), []byte(text), 1)
}

// graft replaces all that was recorded from a step on by that of another run, and makes it fit.
func (f *forgery) graft(theirs *forgery, from int) {
	f.sql("ATTACH ? AS b; UPDATE updates SET digests = substr(digests, 1, 8 * ?) || (SELECT substr(digests, 8 * ? + 1) FROM b.updates u WHERE u.rank = updates.rank AND u.first = updates.first)", theirs.path(), from, from)
	for slot := range 32 {
		f.sql(fmt.Sprintf(`ATTACH ? AS b; UPDATE metric_blocks SET v%[1]d = (SELECT o.value FROM metrics m JOIN b.metrics o ON o.name = m.name AND o.step = m.step WHERE m.seq = metric_blocks.seq + %[1]d)
			WHERE superseded = 0 AND seq + %[1]d IN (SELECT seq FROM metrics WHERE step >= ? AND name = 'loss')`, slot), theirs.path(), from)
	}
	f.summarise()
	for name, state := range theirs.members {
		step := int64(0)
		if _, err := fmt.Sscanf(name, "checkpoints/%d.", &step); err == nil && step >= int64(from) {
			f.members[name] = state
			f.sql("ATTACH ? AS b; UPDATE checkpoints SET score = (SELECT score FROM b.checkpoints o WHERE o.step = checkpoints.step) WHERE step = ?", theirs.path(), step)
		}
	}
}

// A packer who makes all sums fit is found by what is run again, in the segment that was forged; when that is not drawn,
// he is not.
func TestForged(t *testing.T) {
	file, _ := packOf(t, 1)
	other, _ := packOf(t, 2)
	const step, log, save = "train.star:14:17", "train.star:16:16", "train.star:21:28"
	for name, c := range map[string]struct {
		change    func(f *forgery)
		segment   int // that was forged, from 0
		step      int64
		operation string
		line      string
		what      string
	}{
		"a metric": {func(f *forgery) { f.shift(9) }, 2, 9, "log", log, "loss at step 9"},
		"a digest": {func(f *forgery) {
			f.sql("UPDATE updates SET digests = substr(digests, 1, 80) || x'00' || substr(digests, 82) WHERE rank = 1")
		}, 2, 10, "step", step, "rank 1 after update 11"},
		"no digest": {func(f *forgery) { f.sql("UPDATE updates SET digests = substr(digests, 1, 180)") }, 4, 22, "step", step, "after update 23"},
		"a state":   {func(f *forgery) { f.tensor(12, "model/0.weight") }, 2, 12, "save", save, "checkpoint of step 12"},
		"optimizer": {func(f *forgery) { f.tensor(18, "opt/exp_avg.0") }, 3, 18, "save", save, "checkpoint of step 18"},
		"a score":   {func(f *forgery) { f.score(12, "1") }, 2, 12, "save", save, "checkpoint of step 12"},
		"unkept":    {func(f *forgery) { delete(f.members, checkpointName(12)); f.states[12] = strings.Repeat("a", 64) }, 2, 12, "save", save, "checkpoint of step 12"},
		"a graft":   {func(f *forgery) { f.graft(forge(t, other), 13) }, 3, 13, "step", step, "after update 14"},
		"inexact": {func(f *forgery) {
			f.sql("UPDATE metric_blocks SET p0 = p0 - 1 WHERE seq = 1 AND p0 % 2 = 1")
			f.summarise()
		}, 0, 0, "log", log, "exact: false in the pack"},
		"the recipe": {func(f *forgery) {
			source := bytes.Replace(f.members["source/train.star"], []byte(".square()"), []byte(".abs()"), 1)
			sum := sha256.Sum256(source)
			f.sql("UPDATE sources SET content = ?, sha256 = ?", source, hex.EncodeToString(sum[:]))
			f.sql("UPDATE run_sources SET sha256 = ?", hex.EncodeToString(sum[:]))
		}, 0, 0, "step", step, "after update 1"},
		"the seed":    {func(f *forgery) { f.sql("UPDATE runs SET seed = 2") }, 0, 0, "step", step, "after update 1"},
		"a parameter": {func(f *forgery) { f.sql("UPDATE params SET value = '0.02' WHERE name = 'lr'") }, 0, 0, "step", step, "after update 1"},
		"artifact": {func(f *forgery) {
			sum := sha256.Sum256([]byte("better"))
			f.sql("INSERT INTO contents VALUES (?, x'626574746572')", hex.EncodeToString(sum[:]))
			f.sql("UPDATE artifacts SET sha256 = ?, bytes = 6 WHERE step = 6", hex.EncodeToString(sum[:]))
		}, 1, 6, "histogram", "", "artifact weights"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forge(t, file)
			c.change(f)
			forged := f.pack()
			seeds := map[bool]string{}
			for n := 0; len(seeds) < 2; n++ {
				p, err := Open(forged)
				ok(t, err)
				p.Close()
				seed := strconv.Itoa(n)
				drawn := draw(p.Root, seed, []int{0, 1, 2, 3, 4}, 1)[0]
				if hit := drawn == c.segment; hit || drawn < c.segment-1 || drawn > c.segment+1 || c.segment == 0 || c.segment == 4 {
					seeds[hit] = seed
				}
			}
			v, err := verified(t, forged, Checking{Segments: 1, Seed: seeds[true]})
			ok(t, err)
			if d := v.First; v.Equal || d == nil || d.Step != c.step || d.Operation != c.operation || !strings.HasSuffix(d.Line, c.line) || !strings.Contains(d.What, c.what) {
				t.Errorf("in the forged segment: %+v", d)
			}
			if name == "a graft" {
				if v, err := verified(t, forged, Checking{Segments: 1, Seed: seeds[false]}); err != nil || !v.Equal {
					t.Errorf("in another segment: %+v %v", v, err)
				}
				if v, err = verified(t, forged, Checking{Full: true}); err != nil || v.Equal || v.First.Step != c.step {
					t.Errorf("in all segments: %+v %v", v, err)
				}
			}
		})
	}
}

// A run that goes on from step 300 as one of another seed, with its metrics, digests and checkpoints, is refused with the step named.
func TestGraft(t *testing.T) {
	recipe := strings.NewReplacer("24)", "360)", "% 6 ", "% 60 ").Replace(recipetest.Training)
	var runs [2]*forgery
	for i := range runs {
		file, _ := packed(t, t.TempDir(), recipe, func(o *run.Options) { o.Nproc, o.Seed = 2, int64(i) })
		runs[i] = forge(t, file)
	}
	runs[0].graft(runs[1], 300)
	v, err := verified(t, runs[0].pack(), Checking{Full: true})
	ok(t, err)
	if d := v.First; v.Equal || d.Step != 300 || d.Operation != "step" || !strings.HasSuffix(d.Line, "train.star:14:17") || v.Of != 7 {
		t.Errorf("%+v", v.First)
	}
}

// What a check cannot run again must not be there, or must not say anything.
func TestRefused(t *testing.T) {
	file, _ := packOf(t, 1)
	for name, c := range map[string]struct {
		change func(f *forgery)
		want   string
	}{
		"another metrics.csv": {func(f *forgery) { f.text(metricsName, "loss,9,0,", "loss,9,0,0") }, "metrics.csv is not what history.db says"},
		"another log":         {func(f *forgery) { f.loose = true; f.members[logsName] = []byte("accuracy 1.0\n") }, "logs.txt is not what history.db says"},
		"another summary":     {func(f *forgery) { f.text(runName, `"seed": 1`, `"seed": 2`) }, "run.json is not what history.db says"},
		"another README":      {func(f *forgery) { f.text("README.txt", "sqlite3", "sh") }, "README.txt is not what history.db says"},
		"another link":        {func(f *forgery) { f.text(chainName, " link ", " link 0") }, "chain.txt is not what history.db says"},
		"another source":      {func(f *forgery) { f.text("source/train.star", "0.01", "0.02") }, "source/train.star is not what history.db says"},
		"a lying source":      {func(f *forgery) { f.loose = true; f.sql("UPDATE sources SET content = x'00'") }, "has another content"},
		"a lying best value":  {func(f *forgery) { f.sql("UPDATE run_metrics SET min = 0") }, "the summaries of the metrics"},
		"a member more":       {func(f *forgery) { f.members["source/more.star"] = []byte("x") }, "source/more.star belongs to nothing"},
		"a checkpoint more":   {func(f *forgery) { f.members[checkpointName(7)] = f.members[checkpointName(6)] }, "belongs to nothing"},
		"data of its own":     {func(f *forgery) { f.members["data/x.csv"] = []byte("1,2\n") }, "belongs to nothing"},
		"no history":          {func(f *forgery) { f.loose = true; ok(t, os.WriteFile(f.path(), []byte("nothing"), 0o600)) }, "history.db is not a SQLite database"},
		"a trigger":           {func(f *forgery) { f.loose = true; f.sql("CREATE TRIGGER x AFTER INSERT ON runs BEGIN SELECT 1; END") }, "does not have the tables of drun's history"},
		"a view":              {func(f *forgery) { f.loose = true; f.sql("CREATE VIEW x AS SELECT 1") }, "does not have the tables of drun's history"},
		"two runs": {func(f *forgery) {
			f.loose = true
			f.sql("INSERT INTO runs (uid, name, recipe, status, world_size, backend, seed, threads, started, version, host, pid, dir, command) SELECT 'x', 'x', recipe, status, world_size, backend, seed, threads, started, version, host, pid, dir, command FROM runs")
		}, "should contain one run"},
		"a hostile name":       {func(f *forgery) { f.sql("UPDATE runs SET name = '../x'") }, "../x"},
		"many marks":           {func(f *forgery) { f.loose = true; f.sql("UPDATE step_marks SET count = 900000000") }, "numbers that no run of drun has"},
		"many ranks":           {func(f *forgery) { f.loose = true; f.sql("UPDATE runs SET world_size = 2000000000") }, "numbers that no run of drun has"},
		"a name upwards":       {func(f *forgery) { f.members["source/../../x"] = nil }, `it has a member "source/../../x"`},
		"a name from the root": {func(f *forgery) { f.members["/etc/passwd"] = nil }, `it has a member "/etc/passwd"`},
		"a control character":  {func(f *forgery) { f.members["data/\x1b[31m"] = nil }, "it has a member"},
		"an archive":           {func(f *forgery) { f.members["more.zip"] = f.members[historyName] }, `it has a member "more.zip"`},
		"no chain":             {func(f *forgery) { f.loose = true; delete(f.members, chainName) }, "chain.txt is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			f := forge(t, file)
			c.change(f)
			p, err := Open(f.pack())
			if err == nil {
				defer p.Close()
				var r *Run
				if r, err = p.Run(); err == nil {
					r.Close()
				}
			}
			if !errors.As(err, new(*Broken)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A checkpoint whose file means one thing to drun and another to who reads its names is refused, and so is one that is
// not a checkpoint.
func TestForgedStates(t *testing.T) {
	file, _ := packOf(t, 1)
	name := checkpointName(12)
	for what, change := range map[string]func(f *forgery, header map[string]json.RawMessage, l *layout, data []byte) []byte{
		"names swapped": func(_ *forgery, header map[string]json.RawMessage, l *layout, data []byte) []byte {
			header["model/0.weight"], header["opt/exp_avg.0"] = header["opt/exp_avg.0"], header["model/0.weight"]
			for _, pieces := range l.Ranks {
				for i := range pieces {
					switch pieces[i].Tensor {
					case "model/0.weight":
						pieces[i].Tensor = "opt/exp_avg.0"
					case "opt/exp_avg.0":
						pieces[i].Tensor = "model/0.weight"
					}
				}
			}
			return data
		},
		"another weight": func(_ *forgery, _ map[string]json.RawMessage, _ *layout, data []byte) []byte {
			data = slices.Clone(data)
			data[1] ^= 1
			return data
		},
		"a tensor more": func(_ *forgery, header map[string]json.RawMessage, _ *layout, data []byte) []byte {
			header["model/9.weight"] = json.RawMessage(fmt.Sprintf(`{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, len(data), len(data)+1))
			return append(slices.Clone(data), 1)
		},
		"outside": func(_ *forgery, header map[string]json.RawMessage, _ *layout, data []byte) []byte {
			header["model/0.weight"] = json.RawMessage(`{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999]}`)
			return data
		},
		"no rank": func(_ *forgery, _ map[string]json.RawMessage, l *layout, data []byte) []byte {
			l.Ranks = nil
			return data
		},
		"another step": func(_ *forgery, _ map[string]json.RawMessage, l *layout, data []byte) []byte {
			l.Step = 13
			return data
		},
		"twice": func(_ *forgery, _ map[string]json.RawMessage, l *layout, data []byte) []byte {
			l.Ranks[0] = append(l.Ranks[0], l.Ranks[0][0])
			return data
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := forge(t, file)
			content := f.members[name]
			n := binary.LittleEndian.Uint64(content)
			var header map[string]json.RawMessage
			ok(t, json.Unmarshal(content[8:8+n], &header))
			var metadata map[string]string
			ok(t, json.Unmarshal(header["__metadata__"], &metadata))
			l := layout{}
			ok(t, json.Unmarshal([]byte(metadata["drun"]), &l))
			f.loose = true // the sum in the chain is that of the true checkpoint
			data := change(f, header, &l, content[8+n:])
			f.header(name, header, l, data)
			if _, err := verified(t, f.pack(), Checking{Segments: 1}); !errors.As(err, new(*Broken)) {
				t.Error(err)
			}
		})
	}
}

// What drun does not write is refused, whatever its sums.
func TestHostile(t *testing.T) {
	file, _ := packOf(t, 1)
	f := forge(t, file)
	var names []string
	var members []member
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		names, members = append(names, name), append(members, member{name, sha256.Sum256(f.members[name])})
		f.members[manifestName] = append(f.members[manifestName], members[len(members)-1].line()...)
	}
	root := rootOf(members)
	f.members[rootName] = []byte(hex.EncodeToString(root[:]) + "\n")
	names = append(names, manifestName, rootName)
	for what, c := range map[string]struct {
		change func(z *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader
		want   string
	}{
		"as it should be": {func(_ *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader { return list }, ""},
		"compressed": {func(_ *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader {
			list[0].Method = zip.Deflate
			return list
		}, `member "README.txt" has an impossible size`},
		"a large signature": {func(_ *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader {
			f.members[signatureName] = make([]byte, 2<<20)
			return append(list, &zip.FileHeader{Name: signatureName, Modified: epoch})
		}, `member "root.txt.sig" has an impossible size`},
		"twice": {func(_ *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader {
			return slices.Insert(list, 1, list[0])
		}, `member "README.txt" is not in order`},
		"another order": {func(_ *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader {
			list[0], list[1] = list[1], list[0]
			return list
		}, "is not in order"},
		"no root": {func(_ *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader {
			return list[:len(list)-1]
		}, "should be manifest.txt"},
		"a link": {func(_ *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader {
			list[0].SetMode(fs.ModeSymlink | 0o777)
			return list
		}, "was changed"},
		"another time": {func(_ *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader {
			list[2].Modified = epoch.AddDate(1, 0, 0)
			return list
		}, "was changed"},
		"a comment": {func(z *zip.Writer, list []*zip.FileHeader) []*zip.FileHeader {
			_ = z.SetComment("honest")
			return list
		}, "the archive's directory was changed"},
	} {
		var list []*zip.FileHeader
		for _, name := range names {
			list = append(list, &zip.FileHeader{Name: name, Modified: epoch})
		}
		path := filepath.Join(t.TempDir(), "hostile.zip")
		out, err := os.Create(path)
		ok(t, err)
		defer out.Close()
		z := zip.NewWriter(out)
		for _, h := range c.change(z, list) {
			w, err := z.CreateHeader(&zip.FileHeader{Name: h.Name, Method: h.Method, Modified: h.Modified, ExternalAttrs: h.ExternalAttrs, CreatorVersion: h.CreatorVersion})
			ok(t, err)
			_, err = w.Write(f.members[h.Name])
			ok(t, err)
		}
		ok(t, z.Close())
		p, err := Open(path)
		if err == nil {
			p.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, new(*Broken)) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Sizes that are not there.
	whole, err := os.ReadFile(file)
	ok(t, err)
	at := bytes.LastIndex(whole, []byte("PK\x01\x02")) + 20 // in the directory: root.txt's two sizes
	for _, n := range []int{4, 8} {
		changed := slices.Clone(whole)
		for i := range n {
			changed[at+i] = 0x7f
		}
		path := filepath.Join(t.TempDir(), "sizes.zip")
		ok(t, os.WriteFile(path, changed, 0o600))
		if p, err := Open(path); !errors.As(err, new(*Broken)) || !strings.Contains(err.Error(), "impossible size") {
			p.Close()
			t.Errorf("an impossible size: %v", err)
		}
	}
}

// What another drun has made is shown, but not compared.
func TestAnotherArithmetic(t *testing.T) {
	file, _ := packOf(t, 1)
	for change, want := range map[string][2]string{
		"numerics = numerics + 1":            {fmt.Sprintf("version %d of", engine.Numerics+1), "use a newer drun"},
		"numerics = numerics - 1":            {fmt.Sprintf("version %d of", engine.Numerics-1), "use the drun that made it, "},
		"numerics = NULL":                    {"too old", ""},
		"world_size = 60000":                 {"the run had 60000 ranks", ""},
		"backend = 'mpi', deterministic = 0": {"only that repeats its bits", "--backend mpi"},
	} {
		f := forge(t, file)
		f.sql("UPDATE runs SET " + change)
		_, err := verified(t, f.pack(), Checking{Segments: 1})
		if exit.CodeOf(err) != exit.Usage || !strings.Contains(fmt.Sprint(err), want[0]) || !strings.Contains(exit.HintOf(err), want[1]) {
			t.Errorf("%s: %v, hint %s", change, err, exit.HintOf(err))
		}
	}
	f := forge(t, file)
	f.sql("PRAGMA user_version = 9000")
	f.loose = true
	if _, err := verified(t, f.pack(), Checking{Segments: 1}); errors.As(err, new(*Broken)) || !strings.Contains(fmt.Sprint(err), "newer drun") {
		t.Errorf("tables of a newer drun: %v", err)
	}
}
