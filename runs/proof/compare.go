package proof

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/recipe"
	"drun/history"
	"drun/history/records"
	"drun/internal/scratch"
	"drun/internal/try"
	"drun/runs/replay"
)

// digests compares the parameters after each update.
func (k *check) digests(s span, again *replay.Again) *Difference {
	from, to := k.boundary(s.from).Updates, k.boundary(s.to).Updates
	k.verdict.Updates += to - from
	packed := k.run.made.digests
	if k.target(s.to) == nil {
		to = math.MaxInt64 // the pack may lack some that the run has made
		if k.run.made.detail.Status != history.Done {
			// When one rank fails, the others are stopped wherever they are.
			was, _ := reached(packed)
			is, furthest := reached(again.Digests)
			if to = was; furthest >= was {
				to = min(was, is)
			}
		}
	}
	text := func(sum [records.DigestSize]byte, is bool) string {
		if !is {
			return "none"
		}
		return hex.EncodeToString(sum[:])
	}
	var first *Difference
	for rank := range max(len(packed), len(again.Digests)) {
		var want, got map[int64][records.DigestSize]byte
		if rank < len(packed) {
			want = packed[rank]
		}
		if rank < len(again.Digests) {
			got = again.Digests[rank]
		}
		for _, side := range []map[int64][records.DigestSize]byte{want, got} {
			for n := range side {
				a, isA := want[n]
				b, isB := got[n]
				if n > from && n <= to && (a != b || isA != isB) && (first == nil || n < first.update) {
					step, known := replay.StepAfter(k.run.made.marks, n)
					if !known {
						step = n
					}
					first = &Difference{Step: step, What: fmt.Sprintf("the parameters of rank %d after update %d", rank, n), Packed: text(a, isA), Here: text(b, isB), at: n, update: n, rank: rank}
				}
			}
		}
	}
	return first
}

// reached is the last update of the rank that came least far, and of the one that came furthest.
func reached(digests []map[int64][records.DigestSize]byte) (all, some int64) {
	for rank, made := range digests {
		last := int64(0)
		for n := range made {
			last = max(last, n)
		}
		if some = max(some, last); rank == 0 || last < all {
			all = last
		}
	}
	return all, some
}

type pointKey struct {
	name string
	step int64
	rank int
	nth  int // among those with the same name, step and rank
}

type pointValue struct {
	bits  uint64
	exact bool
	order int
}

func (v pointValue) same(o pointValue) bool {
	return v.exact == o.exact && (!v.exact || v.bits == o.bits)
}

func keyed(list []numbered) map[pointKey]pointValue {
	all, nth := make(map[pointKey]pointValue, len(list)), map[pointKey]int{}
	for i, p := range list {
		key := pointKey{p.Name, p.Step, p.Rank, 0}
		n := nth[key]
		nth[key]++
		key.nth = n
		all[key] = pointValue{math.Float64bits(p.Value), p.Exact, i}
	}
	return all
}

// points compares the metrics.
func (k *check) points(s span, again *replay.Again) (*Difference, error) {
	packed := k.run.made.within(k.boundary(s.from).Points, k.boundary(s.to).Points)
	var here []numbered
	err := again.DB.EachPoint(again.ID, func(seq int64, p *records.Point) { here = append(here, numbered{seq, *p}) })
	if err != nil {
		return nil, err
	}
	want, got := keyed(packed), keyed(here)
	k.verdict.Points += len(want)
	more := k.run.made.detail.Status == history.Done || !k.boundary(s.to).End // otherwise the replay may have come further
	var first *Difference
	consider := func(key pointKey, at int) {
		a, isA := want[key]
		b, isB := got[key]
		if isA && isB && a.same(b) || !isA && !more {
			return
		}
		text := func(v pointValue, is bool) string {
			if !is {
				return "none"
			}
			return records.Float(math.Float64frombits(v.bits)).String()
		}
		d := &Difference{Step: key.step, Operation: "log", What: fmt.Sprintf("%s at step %d", key.name, key.step), Packed: text(a, isA), Here: text(b, isB), at: k.updatesAt(key), after: 1 + at}
		if key.rank > 0 {
			d.What += fmt.Sprintf(" of rank %d", key.rank)
		}
		if a.exact != b.exact && isA && isB {
			d.What += fmt.Sprintf(", which is exact: %t in the pack, %t here", a.exact, b.exact)
		}
		if first == nil || cmp.Or(cmp.Compare(d.at, first.at), cmp.Compare(d.after, first.after)) < 0 {
			d.Line = k.lineOf("log", key.name)
			first = d
		}
	}
	for key, v := range want {
		consider(key, v.order)
	}
	for key, v := range got {
		if _, is := want[key]; !is {
			consider(key, v.order)
		}
	}
	return first, nil
}

// updatesAt is after how many updates a point was recorded, as far as is known.
func (k *check) updatesAt(key pointKey) int64 {
	for _, m := range k.run.made.marks {
		if m.Name == key.name {
			if n, is := m.At(key.step); is {
				return n
			}
		}
	}
	return math.MaxInt64 / 2
}

// lineOf is where the recipe calls a function, if it is one place.
func (k *check) lineOf(function, argument string) string {
	b := &recipe.Bundle{Name: k.run.made.detail.Recipe}
	b.Sources, _ = k.run.db.Sources(k.run.made.id) // they were read before
	return strings.Join(b.Calls(function, argument), ", ")
}

// states compares the checkpoints.
func (k *check) states(s span, again *replay.Again) (list []*Difference, err error) {
	defer try.Caught(&err)
	for i := s.from + 1; i <= s.to; i++ {
		l := k.boundary(i)
		if l.End {
			continue
		}
		step := l.Step
		if i == s.to {
			step = replay.Saved
		}
		here := "none"
		if info, err := again.Store.Find(again.UID, checkpoints.Step(step)); err == nil {
			here = try.To(again.Store.Sum(again.UID, info.Ref()))
		}
		k.verdict.States++
		if here != l.State {
			list = append(list, &Difference{Step: l.Step, Operation: "save", Line: k.lineOf("save", ""), What: fmt.Sprintf("the checkpoint of step %d", l.Step), Packed: l.State, Here: here, at: l.Updates, after: math.MaxInt - 3})
		}
	}
	return list, nil
}

// kept compares what the recipe kept (drun artifacts): what the span keeps must be in the pack, and if it is the whole
// run, nothing else.
func (k *check) kept(s span, again *replay.Again) (_ *Difference, err error) {
	defer try.Caught(&err)
	type key struct {
		step       int64
		name, kind string
	}
	index := func(db *history.DB, id int64) map[key]string {
		all := map[key]string{}
		for _, a := range try.To(db.Artifacts(id)) {
			step := int64(-1)
			if a.Step != nil {
				step = *a.Step
			}
			all[key{step, a.Name, a.Kind}] = a.SHA256
		}
		return all
	}
	packed, here := index(k.run.db, k.run.made.id), index(again.DB, again.ID)
	for _, a := range try.To(k.run.db.Artifacts(k.run.made.id)) {
		try.To(k.run.db.Content(&a)) // compares its SHA-256
	}
	whole := s.from < 0 && k.target(s.to) == nil
	var first *Difference
	for _, side := range []map[key]string{packed, here} {
		for at := range side {
			a, isA := packed[at]
			b, isB := here[at]
			if a == b || !whole && (!isB || at.step < 0) || isA && isB && a == b {
				continue
			}
			d := &Difference{Step: max(at.step, 0), Operation: at.kind, What: fmt.Sprintf("the artifact %s", at.name), Packed: cmp.Or(a, "none"), Here: cmp.Or(b, "none"), at: math.MaxInt64 / 2, after: math.MaxInt - 2}
			if first == nil || at.step < first.Step {
				first = d
			}
		}
	}
	return first, nil
}

// files compares the files that were read: only those of the run may be.
func (k *check) files(again *replay.Again) (_ *Difference, err error) {
	defer try.Caught(&err)
	sums := map[string]bool{}
	for _, f := range k.run.made.detail.DataFiles {
		sums[f.SHA256] = true
	}
	for _, f := range try.To(again.DB.Get(again.ID)).DataFiles {
		if !sums[f.SHA256] {
			return &Difference{Operation: "read", Line: f.Position, What: "the file " + filepath.Base(f.Path), Packed: "none", Here: f.SHA256, at: -1}, nil
		}
	}
	return nil, nil
}

// ended reports a replay that did not come to its end.
func (k *check) ended(s span, again *replay.Again) *Difference {
	f := again.Result.Failure
	if f == nil || k.run.made.detail.Status != history.Done && k.boundary(s.to).End {
		return nil
	}
	message, _, _ := strings.Cut(f.Message, "\n")
	return &Difference{Step: k.boundary(s.to).Step, Operation: "run", Line: "", What: "the end of the segment", Packed: "reached", Here: message, at: math.MaxInt64 - 1, after: math.MaxInt - 1}
}

// locate finds the operation and the line for a difference in the parameters: the update whose result differs, by
// repeating the span once more up to it.
func (k *check) locate(s span, d *Difference) error {
	if d.update == 0 {
		return nil
	}
	d.Operation, d.Line = "step", ""
	dir, err := scratch.Make("trace-")
	if err != nil {
		return err
	}
	defer dir.Remove()
	return k.repeat(s, &engine.Target{Updates: d.update - 1, Quit: true}, dir.Path, func(*replay.Again) error {
		op, line, err := replay.LastOf(dir.Path, d.rank)
		if d.Line = line; op != d.Operation {
			d.Operation, d.Line = "log", k.lineOf("log", "") // in a recipe without an optimizer, which updates where it logs
		}
		return err
	})
}

// copySummed copies a file, and returns the SHA-256 of what was copied.
func copySummed(w io.Writer, path string) (_ string, err error) {
	defer try.Caught(&err)
	info := try.To(os.Stat(path))
	if !info.Mode().IsRegular() {
		return "", &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a file")}
	}
	file := try.To(os.Open(path))
	defer file.Close()
	sum := sha256.New()
	try.To(io.Copy(io.MultiWriter(w, sum), file))
	return hex.EncodeToString(sum.Sum(nil)), nil
}
