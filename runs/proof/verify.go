package proof

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/recipe"
	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
	"drun/runs/replay"
)

// Checking says what of a pack is run again, and with what.
type Checking struct {
	Segments int    // how many are drawn, unless Full
	Full     bool   // all of them, in one run from the beginning
	Seed     string // of the draw; "": of the system's randomness
	Data     []string
	Secrets  []engine.Param
	Say      func(string)
}

// Verdict is what a check has found.
type Verdict struct {
	Equal    bool        `json:"equal"`
	Segments int         `json:"segments"` // that were drawn
	Of       int         `json:"of"`
	Miss5    float64     `json:"chance_to_miss_5_percent"` // for one who forged 5 % of the segments
	First    *Difference `json:"first"`

	MissOne    float64 `json:"chance_to_miss_one"` // for one who forged one segment
	Undrawable int     `json:"undrawable"`         // segments before which the pack has no state
	Updates    int64   `json:"updates"`            // that were repeated
	Points     int     `json:"points"`             // of metrics that were compared
	States     int     `json:"checkpoints"`        // that were compared
	Root       string  `json:"root"`
	Seed       *string `json:"seed"` // nil: nothing was drawn
	Signer     *string `json:"signer"`
}

// Difference is the first thing that differs from what a pack says.
type Difference struct {
	Step      int64  `json:"step"`
	Operation string `json:"operation"`
	Line      string `json:"line"`
	What      string `json:"what"`
	Packed    string `json:"packed"`
	Here      string `json:"here"`

	at     int64 // after how many updates
	after  int   // of differences after as many updates, the lowest comes first
	update int64 // whose parameters differ; 0: something else does
	rank   int
}

// missed is the chance that a draw of k of n segments has none of bad ones.
func missed(n, k, bad int) float64 {
	chance := 1.0
	for i := range bad {
		chance *= float64(max(0, n-k-i)) / float64(n-i)
	}
	return chance
}

// draw chooses k of the segments listed, by the pack's root and a seed.
func draw(root, seed string, list []int, k int) []int {
	rng := mathrand.New(mathrand.NewChaCha8(sha256.Sum256([]byte(root + "\n" + seed))))
	drawn := slices.Clone(list)
	rng.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	drawn = drawn[:min(k, len(drawn))]
	slices.Sort(drawn)
	return drawn
}

// span is a series of segments that one replay covers: those after the boundary from, -1 for the beginning, up to the
// boundary to.
type span struct{ from, to int }

// spans joins segments to spans that begin where there is a state. starts has for each segment the boundary from which
// it can be reached.
func spans(drawn []int, starts []int) (list []span) {
	for _, i := range drawn {
		if last := len(list) - 1; last >= 0 && starts[i] <= list[last].to {
			list[last].to = i
			continue
		}
		list = append(list, span{starts[i], i})
	}
	return list
}

// starts finds for each segment the nearest boundary before it from which a replay can begin; -2: there is none.
func (r *Run) starts(restores bool) []int {
	nearest := -1
	if d := r.made.detail; d.Parent != nil && (r.chain.Origin == nil || !r.chain.Origin.Kept) || d.Orphaned != nil {
		nearest = -2
	}
	var all []int
	for i, l := range r.chain.Links {
		all = append(all, nearest)
		if l.Kept && restores {
			nearest = i
		}
	}
	return all
}

// Verify runs parts of a pack again and compares. o has the options that do not affect what is computed, and the backend.
func (r *Run) Verify(o run.Options, c Checking) (_ *Verdict, err error) {
	defer try.Caught(&err)
	d := r.made.detail
	try.Ok(r.repeatable())
	r.store = try.To(checkpoints.Open(r.Home))
	try.To(r.restore(r.store))
	if origin := r.chain.Origin; origin != nil && origin.Kept && d.Parent != nil {
		parent := try.To(r.db.Get(d.Parent.ID))
		try.Ok(r.restoreOne(r.store, originName, parent.UID, *origin))
	}
	place := try.To(r.place(c))
	place.Backend = o.Backend
	n := len(r.chain.Links)
	v := &Verdict{Of: n, Root: r.pack.Root}
	if r.pack.Signer != "" {
		v.Signer = &r.pack.Signer
	}
	starts := r.starts(try.To(replay.Restores(r.db, r.Home, r.made.id, c.Secrets)))
	var todo []span
	if c.Full {
		if starts[0] == -2 {
			return nil, exit.Errorf(exit.Usage, "the run cannot be repeated from its beginning: the pack does not have the checkpoint that it was resumed from")
		}
		v.Segments, todo = n, []span{{-1, n - 1}}
	} else {
		var list []int
		for i, start := range starts {
			if start >= -1 {
				list = append(list, i)
			}
		}
		v.Undrawable = n - len(list)
		if len(list) == 0 {
			return nil, exit.Errorf(exit.Usage, "no segment can be drawn: the pack has no state from which one begins")
		}
		if c.Seed == "" {
			c.Seed = rand.Text()
		}
		v.Seed = &c.Seed
		drawn := draw(r.pack.Root, c.Seed, list, c.Segments)
		v.Segments, todo = len(drawn), spans(drawn, starts)
	}
	v.Miss5, v.MissOne = missed(n, v.Segments, int(math.Ceil(float64(n)*0.05))), missed(n, v.Segments, 1)
	k := &check{run: r, options: o, place: place, asked: c, verdict: v}
	for i, s := range todo {
		c.Say(fmt.Sprintf("running segments %d to %d of %d again (%d of %d parts)", s.from+2, s.to+1, n, i+1, len(todo)))
		if v.First = try.To(k.span(s)); v.First != nil {
			return v, nil
		}
	}
	v.Equal = true
	return v, nil
}

// repeatable refuses runs that this drun cannot repeat.
func (r *Run) repeatable() error {
	d := r.made.detail
	switch {
	case d.Numerics == nil:
		return exit.Errorf(exit.Usage, "the run was made by a drun that is too old: its bits cannot be compared")
	case *d.Numerics > engine.Numerics:
		return exit.WithHint(exit.Errorf(exit.Usage, "the run was made with version %d of drun's arithmetic, this drun has version %d: its bits cannot be compared", *d.Numerics, engine.Numerics),
			"use a newer drun; drun show shows what the pack says")
	case *d.Numerics < engine.Numerics:
		return exit.WithHint(exit.Errorf(exit.Usage, "the run was made with version %d of drun's arithmetic, this drun has version %d: its bits cannot be compared", *d.Numerics, engine.Numerics),
			fmt.Sprintf("use the drun that made it, %s; drun show shows what the pack says", d.Version))
	case d.WorldSize > run.MaxHere:
		return exit.Errorf(exit.Usage, "the run had %d ranks, and this machine can run %d", d.WorldSize, run.MaxHere)
	}
	return nil
}

// Backend is the backend to repeat the run with, if none is given.
func (r *Run) Backend() (string, error) {
	d := r.made.detail
	if d.Deterministic != nil && !*d.Deterministic && d.WorldSize > 1 && d.Backend != run.Backends()[0] {
		return "", exit.WithHint(exit.Errorf(exit.Usage, "the run reduced in the own order of the backend %s: only that repeats its bits", d.Backend),
			"--backend "+d.Backend+" uses the one that is installed here")
	}
	return run.Backends()[0], nil
}

// place prepares the folder of the recipe and finds the data, which must be what the run read.
func (r *Run) place(c Checking) (_ *replay.Place, err error) {
	defer try.Caught(&err)
	p := &replay.Place{Home: r.Home, Dir: filepath.Join(r.dir.Path, "recipe")}
	try.Ok(os.Mkdir(p.Dir, 0o700))
	for _, dir := range c.Data {
		p.DataDirs = append(p.DataDirs, try.To(filepath.Abs(dir)))
	}
	var faults []string
	for _, f := range r.made.detail.DataFiles {
		name, is := dataName(r.made.detail, &f)
		if !is {
			faults = append(faults, fmt.Sprintf("%s, which the recipe read at %s, lay neither in its folder nor in a --data folder", f.Path, f.Position))
			continue
		}
		if r.pack.sums["data/"+name] != "" {
			if _, err := os.Lstat(filepath.Join(p.Dir, name)); err != nil {
				try.Ok(r.pack.extract("data/"+name, filepath.Join(p.Dir, name)))
			}
			continue
		}
		found := false
		for _, dir := range p.DataDirs {
			sum, err := copySummed(io.Discard, filepath.Join(dir, name))
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				faults = append(faults, fmt.Sprintf("%s: %v", filepath.Join(dir, name), cause(err)))
			case sum != f.SHA256:
				faults = append(faults, fmt.Sprintf("%s is not what the run read: its SHA-256 is %s, not %s", filepath.Join(dir, name), sum, f.SHA256))
			}
			found = true
			break
		}
		if !found {
			faults = append(faults, fmt.Sprintf("%s (%d bytes, SHA-256 %s), which the recipe read at %s, is missing", name, f.Bytes, f.SHA256, f.Position))
		}
	}
	if len(faults) > 0 {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "the data of the run is not here: %s", strings.Join(faults, "; ")), "--data DIR names the folder that contains it")
	}
	return p, nil
}

// check is a check under way.
type check struct {
	run     *Run
	options run.Options
	place   *replay.Place
	asked   Checking
	verdict *Verdict
}

// boundary is the boundary with that index; -1 is the beginning.
func (k *check) boundary(i int) link {
	if i < 0 {
		return link{Updates: k.begun()}
	}
	return k.run.chain.Links[i]
}

// begun is how many updates had been made when the run began: a resumed run goes on counting.
func (k *check) begun() int64 {
	first := int64(math.MaxInt64)
	for _, digests := range k.run.made.digests {
		for n := range digests {
			first = min(first, n)
		}
	}
	if k.run.chain.Origin == nil || first == math.MaxInt64 {
		return 0
	}
	return first - 1
}

// target is where a replay up to a boundary ends; nil: at the recipe's end.
func (k *check) target(i int) *engine.Target {
	l := k.boundary(i)
	switch {
	case !l.End:
		return &engine.Target{Updates: l.Updates, Save: &l.Step}
	case k.run.made.detail.Status != history.Done:
		return &engine.Target{Updates: l.Updates, Quit: true}
	}
	return nil
}

func (k *check) repeat(s span, target *engine.Target, trace string, do func(*replay.Again) error) (err error) {
	defer try.Caught(&err)
	dir := try.To(scratch.Make("verify-"))
	defer dir.Remove()
	part := replay.Span{To: target}
	if s.from >= 0 {
		step := k.boundary(s.from).Step
		part.From = &step
	}
	again := try.To(replay.Repeat(k.options, k.run.db, k.place, k.run.made.id, k.asked.Secrets, part, dir.Path, trace))
	defer again.Close()
	return do(again)
}

// span repeats a span and returns the first difference, or nil.
func (k *check) span(s span) (first *Difference, err error) {
	err = k.repeat(s, k.target(s.to), "", func(again *replay.Again) (err error) {
		defer try.Caught(&err)
		if f := again.Result.Failure; f != nil && (again.Result.Code == exit.Usage || again.Result.Code == exit.Backend || again.Result.Code == exit.Storage || again.Result.Code == exit.Timeout) {
			return exit.WithHint(exit.WithCode(fmt.Errorf("the run cannot be repeated here: %w", f.Err()), exit.Usage), f.Hint)
		}
		var all []*Difference
		all = append(all, k.digests(s, again), try.To(k.points(s, again)))
		all = append(all, try.To(k.states(s, again))...)
		all = append(all, try.To(k.kept(s, again)), try.To(k.files(again)), k.ended(s, again))
		all = slices.DeleteFunc(all, func(d *Difference) bool { return d == nil })
		if len(all) > 0 {
			first = slices.MinFunc(all, func(a, b *Difference) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.after, b.after)) })
		}
		return nil
	})
	if err == nil && first != nil {
		err = k.locate(s, first)
	}
	return first, err
}

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
