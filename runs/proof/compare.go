package proof

import (
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
func (k *check) digests(s span, again *replay.Again) (first *Difference) {
	from, to := k.boundary(s.from).Updates, k.boundary(s.to).Updates
	k.verdict.Updates += to - from
	packed, failed := k.run.made.digests, k.run.made.detail.Status != history.Done
	if k.boundary(s.to).End {
		to = math.MaxInt64 // the pack may lack some that the run has made
		if failed {
			// When one rank fails, the others are stopped wherever they are.
			was, _ := reached(packed)
			is, furthest := reached(again.Digests)
			if to = was; furthest >= was {
				to = min(was, is)
			}
		}
	}
	for _, side := range [][]map[int64][records.DigestSize]byte{packed, again.Digests} {
		for rank, made := range side {
			last := int64(math.MaxInt64)
			if failed && rank < len(packed) { // it may have been stopped before it had told its latest digests, even of a save
				last, _ = reached(packed[rank : rank+1])
			}
			for n := range made {
				a, b := digestOf(packed, rank, n), digestOf(again.Digests, rank, n)
				if a == b || n <= from || n > to || n > last || first != nil && n >= first.update {
					continue
				}
				step, known := replay.StepAfter(k.run.made.marks, n)
				if !known {
					step = n
				}
				first = &Difference{Step: step, What: fmt.Sprintf("the parameters of rank %d after update %d", rank, n), Packed: a, Here: b, at: n, update: n, rank: rank}
			}
		}
	}
	return first
}

const none = "none"

func digestOf(all []map[int64][records.DigestSize]byte, rank int, update int64) string {
	if rank < len(all) {
		if sum, is := all[rank][update]; is {
			return hex.EncodeToString(sum[:])
		}
	}
	return none
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
	nth  int // among those with the same name, step and rank, from 1
}

type pointValue struct {
	bits  uint64
	exact bool
	order int
}

func keyed(list []numbered) map[pointKey]pointValue {
	all, nth := make(map[pointKey]pointValue, len(list)), map[pointKey]int{}
	for i, p := range list {
		key := pointKey{p.Name, p.Step, p.Rank, 0}
		nth[key]++
		key.nth = nth[key]
		all[key] = pointValue{math.Float64bits(p.Value), p.Exact, i}
	}
	return all
}

// points compares the metrics.
func (k *check) points(s span, again *replay.Again) (first *Difference, err error) {
	var list []numbered
	if err := again.DB.EachPoint(again.ID, func(seq int64, p *records.Point) { list = append(list, numbered{seq, *p}) }); err != nil {
		return nil, err
	}
	want, got := keyed(k.run.made.recorded(k.boundary(s.from), k.boundary(s.to))), keyed(list)
	k.verdict.Points += len(want)
	more := k.run.made.detail.Status == history.Done || !k.boundary(s.to).End // otherwise the replay may have come further
	text := func(v pointValue, is bool) string {
		if !is {
			return none
		}
		return records.Float(math.Float64frombits(v.bits)).String()
	}
	for _, side := range []map[pointKey]pointValue{want, got} {
		for key, v := range side {
			a, isA := want[key]
			b, isB := got[key]
			if isA && isB && a.exact == b.exact && (!a.exact || a.bits == b.bits) || !isA && !more {
				continue
			}
			d := &Difference{Step: key.step, Operation: "log", What: fmt.Sprintf("%s at step %d", key.name, key.step), Packed: text(a, isA), Here: text(b, isB), at: k.updatesAt(key), after: 1 + v.order}
			if key.rank > 0 {
				d.What += fmt.Sprintf(" of rank %d", key.rank)
			}
			if a.exact != b.exact && isA && isB {
				d.What += fmt.Sprintf(", which is exact: %t in the pack, %t here", a.exact, b.exact)
			}
			if first == nil || d.before(first) < 0 {
				d.Line = k.lineOf("log", key.name)
				first = d
			}
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
		here := none
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
	packed, here := try.To(k.run.db.Artifacts(k.run.made.id)), try.To(again.DB.Artifacts(again.ID))
	for _, a := range packed {
		try.To(k.run.db.Content(&a)) // compares its SHA-256
	}
	_, d := replay.DifferentArtifact(here, packed, s.from < 0 && k.target(s.to) == nil)
	if d == nil {
		return nil, nil
	}
	text := func(sum any) string {
		if sum == nil {
			return none
		}
		return fmt.Sprint(sum)
	}
	return &Difference{Step: max(d.Step, 0), Operation: d.Kind, What: "the artifact " + d.Artifact, Packed: text(d.B), Here: text(d.A), at: math.MaxInt64 / 2, after: math.MaxInt - 2}, nil
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
			return &Difference{Operation: "read", Line: f.Position, What: "the file " + filepath.Base(f.Path), Packed: none, Here: f.SHA256, at: -1}, nil
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
	try.To(io.CopyBuffer(io.MultiWriter(w, sum), struct{ io.Reader }{file}, make([]byte, 1<<20))) // without the file's own way, which reads little at a time
	return hex.EncodeToString(sum.Sum(nil)), nil
}
