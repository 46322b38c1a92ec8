package replay

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"drun/engine"
	"drun/engine/record"
	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
)

// Replayed is what Replay has found.
type Replayed struct {
	Same      *bool       `json:"same"`     // nil: there was nothing to compare
	Compared  int         `json:"compared"` // points
	Updates   int         `json:"-"`        // after which the parameters were compared
	Artifacts int         `json:"-"`
	First     *Divergence `json:"first"`
}

// past is a run of the history, ready to be repeated.
type past struct {
	db     *history.DB
	detail *history.Detail
	replay *record.Replay
	place  *Place // nil: where it was
}

// newPast opens a run. secrets are values of secret parameters, which are not needed if look: the run is then only
// examined.
func newPast(db *history.DB, home string, id int64, secrets []engine.Param, look bool) (*past, error) {
	d, err := db.Get(id)
	if err != nil {
		return nil, err
	}
	if look {
		return &past{db: db, detail: d}, nil
	}
	r, err := record.NewReplay(db, home, d, secrets)
	return &past{db: db, detail: d, replay: r}, err
}

// changed returns the data files that differ from what the run read.
func (p *past) changed() []record.DataChange {
	return record.Changed(p.replay.Bundle, p.detail.DataDirs, p.detail.DataFiles)
}

// warn says what may keep the replay from giving the same result.
func (p *past) warn(say func(string)) {
	for _, c := range p.changed() {
		say(c.String())
	}
	if d := p.detail; len(d.Attempts) > 1 && d.Inputs == "" && !d.Params.HasSecret() {
		say(fmt.Sprintf("run %d %s was taken up again with another recipe, parameters or number of ranks (drun logs %s says more): the last ones are repeated", d.ID, d.Name, d.Name))
	}
}

// options returns the options of a replay in another home. o has the options that do not affect what is computed.
func (p *past) options(o run.Options, home string) run.Options {
	d := p.detail
	o.Recipe, o.Home, o.Name, o.Replay, o.Resume, o.Reuse = d.Recipe, home, "", p.replay, "", false
	o.Nproc, o.Backend, o.Seed, o.SeedGiven, o.DataDirs = d.WorldSize, d.Backend, d.Seed, true, d.DataDirs
	if o.Deterministic = d.Deterministic; o.Deterministic == nil {
		o.Deterministic = new(bool) // an older drun's default
	}
	o.MaxRestarts = max(0, len(d.Attempts)-1)
	if p.place != nil { // what the history names may be anything on this machine
		o.Backend, o.DataDirs = p.place.Backend, p.place.DataDirs
		return o
	}
	for _, plugin := range d.Plugins {
		o.Plugins = append(o.Plugins, filepath.Dir(plugin.Path))
	}
	return o
}

// run repeats the run. The caller judges how it ended, unless it was interrupted.
func (p *past) run(o run.Options, home string) (*run.Result, error) {
	if d := p.detail; d.Orphaned != nil && p.replay.From == "" {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "run %d %s cannot be repeated from where it began: it was resumed from step %d of a run that has been removed", d.ID, d.Name, *d.Orphaned),
			"what it recorded and saved itself is still there")
	}
	r, err := run.Run(p.options(o, home))
	if err != nil {
		return nil, fmt.Errorf("the replay of run %s: %w", p.detail.Name, err)
	}
	if r.Code == exit.Interrupted {
		return nil, exit.Errorf(exit.Interrupted, "the replay of run %s was interrupted", p.detail.Name)
	}
	return r, nil
}

// repeat is run, and opens what the replay has recorded: its history, its number there and its digests. whole: a
// failure of the replay is an error.
func (p *past) repeat(o run.Options, home string, whole bool) (again *history.DB, id int64, digests []map[int64][records.DigestSize]byte, err error) {
	defer try.Caught(&err)
	result := try.To(p.run(o, home))
	if whole && result.Failure != nil {
		return nil, 0, nil, p.failed(result)
	}
	again = try.To(history.OpenReadOnly(home))
	if digests, err = again.Digests(result.ID); err != nil {
		again.Close()
		return nil, 0, nil, err
	}
	return again, result.ID, digests, nil
}

// failed is the error of a replay that did not end as expected.
func (p *past) failed(r *run.Result) error {
	return exit.WithHint(exit.WithCode(fmt.Errorf("the replay of run %s failed: %w", p.detail.Name, r.Failure.Err()), r.Code), r.Failure.Hint)
}

// Replay runs the recipe that the history captured with a run again, with the same parameters, seed and ranks, in a
// temporary home, and compares all exact metrics, the digests of the parameters and the artifacts, bit for bit. o
// has the options that do not affect what is computed. Before anything starts, say is told what may make a
// difference: data files that differ from what the run read, and attempts that differed. If the run did not end
// well, what it recorded is compared.
func Replay(o run.Options, db *history.DB, home string, id int64, secrets []engine.Param, say func(string)) (_ *Replayed, err error) {
	defer try.Caught(&err)
	p := try.To(newPast(db, home, id, secrets, false))
	if !p.detail.Status.Ended() {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "run %d %s is still %s", id, p.detail.Name, p.detail.Status), "wait for its end")
	}
	p.warn(say)
	dir := try.To(scratch.Make("replay-"))
	defer dir.Remove()
	whole := p.detail.Status == history.Done
	again, repeated, theirDigests := try.To3(p.repeat(o, dir.Path, whole))
	defer again.Close()
	list := try.To(db.Points(id))
	digests := try.To(db.Digests(id))
	theirs := try.To(again.Points(repeated))
	want := newSeries(list)
	r := &Replayed{Compared: len(want.order), First: want.first(newSeries(theirs), whole)}
	for rank := range min(len(digests), len(theirDigests)) {
		r.Updates += len(digests[rank])
	}
	if r.First == nil {
		r.First = differentUpdate(digests, theirDigests, 0)
	}
	kept := try.To(db.Artifacts(id))
	keptNow := try.To(again.Artifacts(repeated))
	n, first := DifferentArtifact(kept, keptNow, whole)
	if r.Artifacts = n; r.First == nil {
		r.First = first
	}
	if same := r.First == nil; !same || r.Compared+r.Updates+r.Artifacts > 0 {
		r.Same = &same
	}
	return r, nil
}

// DifferentArtifact compares what two runs have kept, and returns how many artifacts it compared and the first that
// differs. Unless the first run is whole, the other may have gone on: it may have kept more, and replaced those
// without a step.
func DifferentArtifact(a, b []records.Artifact, whole bool) (compared int, first *Divergence) {
	type key struct {
		step       int64
		name, kind string
	}
	kept := map[key]*[2]string{} // the SHA-256 of both
	for i, list := range [][]records.Artifact{a, b} {
		for _, x := range list {
			k := key{-1, x.Name, x.Kind}
			if x.Step != nil {
				k.step = *x.Step
			} else if !whole {
				continue
			}
			if kept[k] == nil {
				kept[k] = &[2]string{}
			}
			kept[k][i] = x.SHA256
		}
	}
	value := func(sum string) any {
		if sum == "" {
			return nil
		}
		return sum
	}
	keys := slices.SortedFunc(maps.Keys(kept), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})
	for _, k := range keys {
		want, got := kept[k][0], kept[k][1]
		if want != "" {
			compared++
		}
		if first == nil && want != got && (whole || want != "") {
			first = &Divergence{Step: k.step, Metric: Artifact, A: value(want), B: value(got), Artifact: k.name, Kind: k.kind}
		}
	}
	return compared, first
}

// differentUpdate returns the first update after a number at which the digests of two runs, where both have one,
// differ.
func differentUpdate(a, b []map[int64][records.DigestSize]byte, after int64) (first *Divergence) {
	for rank := range min(len(a), len(b)) {
		for n, want := range a[rank] {
			got, is := b[rank][n]
			if n > after && is && got != want && (first == nil || n < first.Step) {
				first = &Divergence{Step: n, Metric: Parameters, Rank: rank, A: hex.EncodeToString(want[:]), B: hex.EncodeToString(got[:])}
			}
		}
	}
	return first
}

// missingUpdate returns a rank and an update up to a number for which one of two runs has no digest.
func missingUpdate(digests []map[int64][records.DigestSize]byte, ranks int, after, until int64) (rank int, update int64, missing bool) {
	for rank := range ranks {
		for n := until; n > after; n-- {
			if len(digests) <= rank {
				return rank, n, true
			}
			if _, is := digests[rank][n]; !is {
				return rank, n, true
			}
		}
	}
	return 0, 0, false
}

// savedSteps lists the saved steps of marks in step order, by the latest mark of each.
func savedSteps(marks []records.Mark) []saved {
	byStep := map[int64]saved{}
	for _, m := range marks {
		for i := range m.Count {
			if s := m.Step + i*m.StepBy; m.Name == "" {
				byStep[s] = saved{s, m.Updates + i*m.UpdatesBy}
			}
		}
	}
	return slices.SortedFunc(maps.Values(byStep), func(a, b saved) int { return cmp.Compare(a.step, b.step) })
}

type saved struct{ step, updates int64 }

// Divergence is the first point at which two runs differ. For parameters, Step is the number of the update.
type Divergence struct {
	Step   int64  `json:"step"`
	Metric string `json:"metric"` // or Parameters, or Artifact
	Rank   int    `json:"rank"`
	A      any    `json:"a"` // nil: not recorded; a records.Float, or a digest
	B      any    `json:"b"`
	// Artifact and Kind are the name and kind of an artifact whose SHA-256 differs. Step is -1 if it has none.
	Artifact string `json:"artifact,omitempty"`
	Kind     string `json:"kind,omitempty"`
}

// Parameters replaces a metric's name if the digests of the parameters differ.
const Parameters = "(parameters)"

// Artifact replaces a metric's name if something that the recipe kept differs.
const Artifact = "(artifact)"

// series holds the exact points of a run.
type series struct {
	points map[point]float64
	order  []point // in order of recording
}

type point struct {
	name string
	step int64
	rank int
	nth  int // among the points with the same name, step and rank
}

func newSeries(list []records.Point) *series {
	s := &series{points: map[point]float64{}}
	again := map[point]int{}
	for _, p := range list {
		if !p.Exact {
			continue
		}
		key := point{p.Name, p.Step, p.Rank, 0}
		nth := again[key]
		again[key]++
		key.nth = nth
		s.points[key] = p.Value
		s.order = append(s.order, key)
	}
	return s
}

// first returns the first point that other lacks with the same bits or, if whole, that only other has.
func (s *series) first(other *series, whole bool) *Divergence {
	for _, p := range s.order {
		got, is := other.points[p]
		want := s.points[p]
		switch {
		case !is:
			return &Divergence{Step: p.step, Metric: p.name, Rank: p.rank, A: records.Float(want)}
		case math.Float64bits(want) != math.Float64bits(got):
			return &Divergence{Step: p.step, Metric: p.name, Rank: p.rank, A: records.Float(want), B: records.Float(got)}
		}
	}
	for _, p := range other.order {
		if _, is := s.points[p]; whole && !is {
			return &Divergence{Step: p.step, Metric: p.name, Rank: p.rank, B: records.Float(other.points[p])}
		}
	}
	return nil
}
