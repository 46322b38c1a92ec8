// Package run is the recipe's view of its own run: parameters, metrics, progress.
// What it records goes to a Recorder, which engine/worker provides.
package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"drun/history/records"
	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// Recorder takes what a rank wants recorded or shown, and adds ranks and times. Records are sent in batches while
// the recipe continues, so its methods return at once, unless records come faster than they can be stored.
type Recorder interface {
	Log(p records.Point)
	Tag(names []string)
	Note(n records.Note)
	Artifact(a records.Artifact)
	// Progress moves the bar; Total is -1 when unknown.
	Progress(p records.Progress)
}

// Info is what a recipe can learn about its run.
type Info struct {
	ID           int64
	Name         string
	RestartCount int
}

// Run is the module's state for one rank.
type Run struct {
	Params *Params
	// Tensors is the context of the rank's tensors, for watch_nan; nil: there are none.
	Tensors *tensor.Context

	rank     *starlib.Rank
	recorder Recorder
	started  time.Time
	steps    map[string]int64 // the next step of a metric that is logged without one
	last     map[string]*logged
	required []requirement
	kept     int64               // bytes of artifacts
	taken    map[place]taken     // artifacts that have been kept for a step
	loops    []*progressIterator // those in progress, outermost first
}

// New makes the state of the run module; given are the -p values. stop reports, the same on all ranks, whether the
// run was asked to end.
func New(rank *starlib.Rank, info Info, recorder Recorder, given map[string]string, stop func(*starlib.Call) (bool, error)) (*Run, *starlib.Module) {
	r := &Run{Params: NewParams(given), rank: rank, recorder: recorder, started: time.Now(), steps: map[string]int64{}, last: map[string]*logged{}, taken: map[place]taken{}}
	m := &starlib.Module{
		Name: "run",
		Doc:  "The run itself: parameters, metrics, progress.",
		Values: starlark.StringDict{
			"id":            starlark.MakeInt64(info.ID),
			"name":          starlark.String(info.Name),
			"seed":          starlark.MakeUint64(rank.Seed),
			"restart_count": starlark.MakeInt(info.RestartCount),
		},
		Defs: []*starlib.Def{
			{Sig: `params(**defaults) -> struct`, Fn: r.params,
				Doc: "Declares the recipe's parameters with their defaults and returns their values as a struct.\n" +
					"`-p name=value` on the command line overrides a default and is parsed as the default's type\n" +
					"(int, float, bool, string, list; None takes anything), `--params FILE` does so for values in a JSON or\n" +
					"TOML file. A list (`-p 'widths=[64, 64]'`) holds numbers, bools, strings, None and lists of these; its\n" +
					"elements must have the type of the default's, if these have one type; the recipe cannot change it. run.choice and\n" +
					"run.param give a default its choices and a help text. Parameters are declared at the top level;\n" +
					"a name has at most 200 bytes. One whose name contains the word key, token, password or secret is\n" +
					"redacted in the history and in what is shown, unless `drun run --keep-secrets`.",
				TopLevel: true},
			{Sig: `log(metrics: dict = None, step: int = None, all_ranks: bool = False, exact: bool = True, **named)`, Fn: r.log,
				Doc: "Records metrics: numbers or one-element tensors, NaN and infinities included.\n" +
					"step defaults to a counter for each name. Only rank 0 records, unless all_ranks.\n" +
					"A name has at most 200 bytes.\n" +
					"exact = False marks values that will differ when the run is repeated, such as timings."},
			{Sig: `require(metric: string, op: string, value: number, abort: bool = False)`, Fn: r.require,
				Doc: "Requires that a metric's last recorded value, when the recipe ends, satisfies a comparison with a number:\n" +
					"op is one of < <= > >= == !=. If it does not, or is NaN, or was never recorded, the run fails with\n" +
					"exit code 8; its results are kept. abort = True requires it of the metric's current value and of\n" +
					"each one logged from now on, and ends the run at the first that fails."},
			{Sig: `watch_nan(abort: bool = True)`, Fn: r.watchNaN,
				Doc: "From now on, looks for NaN in the results of operations that record gradients, of the steps of their\n" +
					"backward passes and of optimizers, and for infinities computed from finite values. The first one ends\n" +
					"the run with exit code 8, and the error names it and its line in the recipe; abort = False adds a note instead.\n" +
					"Operations without gradients are not checked: those in place (add_, mul_, …), those in\n" +
					"tensor.no_grad, and those on tensors that need none; run.require fails if a metric is NaN.\n" +
					"It costs about as much as reading each result once more; without the call it costs nothing."},
			{Sig: `tag(*names)`, Fn: r.tag,
				Doc: "Labels the run; `drun runs` shows the labels. A label has at most 200 bytes."},
			{Sig: `note(text: string)`,
				Doc: "Adds a note of at most 1 MiB to the run.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					if n := len(c.String("text")); n > maxNote {
						return nil, fmt.Errorf("the note has %d bytes: at most %d are allowed", n, maxNote)
					}
					if rank.Rank == 0 {
						recorder.Note(records.Note{Text: c.String("text")})
					}
					return nil, nil
				}},
			{Sig: `progress(items: iterable, label: string = "") -> iterable`, Fn: r.progress,
				Doc: "The same items. While a loop iterates over them, rank 0's progress is shown as a bar on a terminal,\n" +
					"and by drun show and drun logs --follow elsewhere."},
			{Sig: `should_stop() -> bool`,
				Doc: "Whether a signal has asked the run to stop. It is a collective, with the same answer on all ranks. A recipe\n" +
					"that calls it gets the time of --grace to end by itself; any other is ended at once.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					asked, err := stop(c)
					return starlark.Bool(asked), err
				}},
			{Sig: `device() -> string`,
				Doc: "Where this rank's tensors are computed: \"cpu\", or \"opencl:0\" and the like (`drun run --device`).",
				Fn: func(*starlib.Call) (starlark.Value, error) {
					if r.Tensors == nil || r.Tensors.Device() == nil {
						return starlark.String("cpu"), nil
					}
					return starlark.String(r.Tensors.Device().Device), nil
				}},
			{Sig: `elapsed() -> float`,
				Doc:      "Seconds since this rank started, for display and benchmarks: different in every run.",
				TopLevel: true,
				Fn: func(*starlib.Call) (starlark.Value, error) {
					return starlark.Float(time.Since(r.started).Seconds()), nil
				}},
		},
	}
	m.Defs = append(append(m.Defs, specifications()...), r.artifacts()...)
	return r, m
}

func (r *Run) params(c *starlib.Call) (starlark.Value, error) {
	try.FailIf(r.rank.Stage == starlib.Running, "parameters belong to the top level of the recipe, where --help and -p find them: P = run.params(...) outside any function")
	return r.Params.declare(c.Named)
}

// A run's names are shown in tables, and its notes are read whole.
const (
	maxName = 200     // bytes
	maxNote = 1 << 20 // bytes
)

func checkName(what, name string) error {
	if len(name) > maxName {
		return fmt.Errorf("%s has %d bytes: at most %d; it begins with %q", what, len(name), maxName, strings.ToValidUTF8(name[:40], "\ufffd"))
	}
	return nil
}

func (r *Run) log(c *starlib.Call) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	record := r.rank.Rank == 0 || c.Bool("all_ranks")
	step, hasStep, exact := int64(0), !c.IsNone("step"), c.Bool("exact")
	if hasStep {
		step = int64(c.Int("step"))
	}
	one := func(name, v starlark.Value) (err error) {
		defer try.Caught(&err)
		key, ok := starlark.AsString(name)
		try.FailIf(!ok, "a metric's name must be a string, not %s", name.Type())
		try.FailIf(key == "", "a metric's name is empty")
		try.Ok(checkName("a metric's name", key))
		x, err := starlib.AsNumber(v)
		try.FailIf(err != nil, "metric %s: %w", key, err)
		at := step
		if !hasStep {
			at = r.steps[key]
			r.steps[key] = at + 1
		}
		if record {
			r.recorder.Log(records.Point{Name: key, Step: at, Value: x, Exact: exact})
			return r.logged(key, at, x)
		}
		return nil
	}
	metrics := c.Named
	if !c.IsNone("metrics") {
		metrics = append(c.Arg("metrics").(*starlark.Dict).Items(), metrics...)
	}
	if r.rank.OnLog != nil && len(metrics) > 0 {
		first := step
		if name, ok := starlark.AsString(metrics[0][0]); ok && !hasStep {
			first = r.steps[name]
		}
		try.Ok(r.rank.OnLog(c.Thread, first))
	}
	for _, kv := range metrics {
		try.Ok(one(kv[0], kv[1]))
	}
	return nil, nil
}

func (r *Run) tag(c *starlib.Call) (starlark.Value, error) {
	names := make([]string, len(c.Rest))
	for i, v := range c.Rest {
		s, ok := starlark.AsString(v)
		try.FailIf(!ok || s == "", "a tag must be a non-empty string, not %s", v)
		try.Ok(checkName("a tag", s))
		names[i] = s
	}
	if r.rank.Rank == 0 {
		r.recorder.Tag(names)
	}
	return nil, nil
}

// updates is the name, impossible for a metric, under which a checkpoint holds the number of updates.
const updates = ""

// State makes the counters of run.log, and that of updates, part of a checkpoint, so that a resumed run continues counting.
func (r *Run) State() []starlib.Entry {
	steps := starlark.NewDict(len(r.steps))
	for _, name := range slices.Sorted(maps.Keys(r.steps)) {
		_ = steps.SetKey(starlark.String(name), starlark.MakeInt64(r.steps[name])) // a new dict takes any string
	}
	if r.rank.Updates > 0 {
		_ = steps.SetKey(starlark.String(updates), starlark.MakeInt64(r.rank.Updates))
	}
	entries := []starlib.Entry{{Name: "steps", Value: steps}}
	if last := r.lastState(); last != nil {
		entries = append(entries, starlib.Entry{Name: "last", Value: last})
	}
	return entries
}

// SetState restores the counters. Artifacts of later steps may then be kept again.
func (r *Run) SetState(entries []starlib.Entry) (err error) {
	defer try.Caught(&err)
	clear(r.taken)
	for _, e := range entries {
		saved, ok := e.Value.(*starlark.Dict)
		if ok && e.Name == "last" && r.setLast(saved) {
			continue
		}
		try.FailIf(!ok || e.Name != "steps", "run: damaged state of %s", e.Name)
		steps := make(map[string]int64, saved.Len())
		for _, kv := range saved.Items() {
			name, isName := starlark.AsString(kv[0])
			n, isInt := kv[1].(starlark.Int)
			step, fits := n.Int64()
			try.FailIf(!isName || !isInt || !fits, "run: damaged state of %s", e.Name)
			steps[name] = step
		}
		r.rank.Updates = steps[updates]
		delete(steps, updates)
		clear(r.steps)
		maps.Copy(r.steps, steps)
	}
	return nil
}

// Resize takes rank 0's counters, whose metrics are the ones recorded by default.
func (r *Run) Resize(saved []starlib.Entry, _ starlib.Resized) ([]starlib.Entry, bool) {
	return saved, false
}
