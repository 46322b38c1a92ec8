package proof

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
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
	"drun/engine/run"
	"drun/history"
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

// before orders differences by when they arose.
func (d *Difference) before(o *Difference) int {
	return cmp.Or(cmp.Compare(d.at, o.at), cmp.Compare(d.after, o.after))
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
	try.Ok(r.restore(r.store))
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
	var list []int
	for i, start := range starts {
		if start >= -1 {
			list = append(list, i)
		}
	}
	v.Undrawable = n - len(list)
	switch {
	case c.Full && v.Undrawable > 0:
		return nil, exit.Errorf(exit.Usage, "the run cannot be repeated from its beginning: the pack does not have the checkpoint that it was resumed from")
	case len(list) == 0:
		return nil, exit.Errorf(exit.Usage, "no segment can be drawn: the pack has no state from which one begins")
	case !c.Full:
		v.Seed = new(cmp.Or(c.Seed, rand.Text()))
		list = draw(r.pack.Root, *v.Seed, list, c.Segments)
	}
	todo := spans(list, starts)
	v.Segments = len(list)
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
	case *d.Numerics != engine.Numerics:
		hint := "use a newer drun"
		if *d.Numerics < engine.Numerics {
			hint = "use the drun that made it, " + d.Version
		}
		return exit.WithHint(exit.Errorf(exit.Usage, "the run was made with version %d of drun's arithmetic, this drun has version %d: its bits cannot be compared", *d.Numerics, engine.Numerics), hint+"; drun show shows what the pack says")
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
		fault := fmt.Sprintf("%s (%d bytes, SHA-256 %s), which the recipe read at %s, is missing", name, f.Bytes, f.SHA256, f.Position)
		for _, dir := range p.DataDirs {
			path := filepath.Join(dir, name)
			sum, err := copySummed(io.Discard, path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if fault = ""; err != nil {
				fault = fmt.Sprintf("%s: %v", path, cause(err))
			} else if sum != f.SHA256 {
				fault = fmt.Sprintf("%s is not what the run read: its SHA-256 is %s, not %s", path, sum, f.SHA256)
			}
			break
		}
		if fault != "" {
			faults = append(faults, fault)
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
	for _, updated := range k.run.made.updated {
		if len(updated) > 0 {
			first = min(first, updated[0])
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
		part.From = new(k.boundary(s.from).Step)
	}
	again := try.To(replay.Repeat(k.options, k.run.db, k.place, k.run.made.id, k.asked.Secrets, part, dir.Path, trace))
	defer again.Close()
	return do(again)
}

// span repeats a span and returns the first difference, or nil.
func (k *check) span(s span) (first *Difference, err error) {
	err = k.repeat(s, k.target(s.to), "", func(again *replay.Again) (err error) {
		defer try.Caught(&err)
		if f := again.Result.Failure; f != nil && slices.Contains([]exit.Code{exit.Usage, exit.Backend, exit.Storage, exit.Timeout}, again.Result.Code) {
			return exit.WithHint(exit.WithCode(fmt.Errorf("the run cannot be repeated here: %w", f.Err()), exit.Usage), f.Hint)
		}
		all := append(try.To(k.states(s, again)), k.digests(s, again), try.To(k.points(s, again)), try.To(k.kept(s, again)), try.To(k.files(again)), k.ended(s, again))
		for _, d := range all {
			if d != nil && (first == nil || d.before(first) < 0) {
				first = d
			}
		}
		return nil
	})
	if err == nil && first != nil {
		err = k.locate(s, first)
	}
	return first, err
}
