// Package starlibtest executes recipes on one rank inside a test's own process, with the same modules as in a run.
// The tests of starlib's modules use it; worlds of several ranks are tested with real processes instead.
package starlibtest

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"drun/history/records"
	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/lang/chunk"
	"drun/starlib/run"
	startesting "drun/starlib/testing"
	"drun/starlib/universe"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// Recipe is one rank's instance of a recipe.
type Recipe struct {
	Rank    *starlib.Rank
	Thread  *starlark.Thread
	Printed []string
	Metrics map[string][]float64 // in the order they were logged
	Store   *Store
	Tensors *tensor.Context // what the rank's tensors share

	env   starlark.StringDict
	reads func(source []byte)
}

// New makes a rank that reads files in dir. The zero Rank means the only rank of a world of one.
func New(t testing.TB, dir string, rank starlib.Rank, params map[string]string) *Recipe {
	t.Helper()
	if _, timed := t.(*testing.B); !timed {
		tensor.Spoil()
	}
	files, err := starlib.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	rank.Files, rank.Outputs = files, starlib.NewOutputs(t.TempDir(), 1)
	rank.WorldSize, rank.LocalSize, rank.NumNodes = max(rank.WorldSize, 1), max(rank.LocalSize, 1), max(rank.NumNodes, 1)
	r := &Recipe{Rank: &rank, Metrics: make(map[string][]float64), Store: new(Store)}
	u := universe.New(universe.Host{
		Rank: r.Rank, Recorder: (*recorder)(r), Params: params, Store: (*store)(r),
		Context: t.Context(), Extra: []*starlib.Module{startesting.Module(dir)},
	})
	r.env, r.Tensors, r.reads = u.Env, u.Tensors, u.Reads
	r.Thread = &starlark.Thread{Name: t.Name(), Print: func(_ *starlark.Thread, s string) { r.Printed = append(r.Printed, s) }}
	lang.Watch(r.Thread)
	u.Tensors.Fail = func(err error) { lang.Cancel(r.Thread, err) }
	return r
}

// Exec executes statements, whose globals later ones can use. The recipe counts as running, so that tests need no main().
func (r *Recipe) Exec(name, source string) (starlark.StringDict, error) {
	r.Rank.Stage = starlib.Running
	globals, err := r.Load(name, source)
	maps.Copy(r.env, globals)
	return globals, err
}

// Load executes a file as the top level of a recipe, without freezing it.
func (r *Recipe) Load(name, source string) (_ starlark.StringDict, err error) {
	defer try.Caught(&err)
	r.reads([]byte(source))
	file := try.To(lang.Parse(name, []byte(source)))
	program := try.To(file.Compile(r.env))
	globals, err := program.Init(r.Thread, r.env)
	if err != nil {
		return globals, lang.Explain(r.Thread, err)
	}
	return globals, nil
}

// Main executes a recipe as drun does: its top level, then main().
func (r *Recipe) Main(name, source string) (err error) {
	defer try.Caught(&err)
	r.Rank.Stage = starlib.Loading
	globals := try.To(r.Load(name, source))
	globals.Freeze()
	r.Rank.Stage = starlib.Running
	main, ok := globals["main"]
	try.FailIf(!ok, "%s: there is no main()", name)
	if _, err := starlark.Call(r.Thread, main, nil, nil); err != nil {
		return lang.Explain(r.Thread, err)
	}
	return nil
}

// Chunks executes the chunks of the files that match (see package chunk), one subtest each.
func Chunks(t *testing.T, pattern string) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no files (%v)", pattern, err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		chunks, err := chunk.Read(path, content)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			t.Run(filepath.Base(path)+" "+c.Name, func(t *testing.T) {
				var faults []chunk.Fault
				if _, err := New(t, filepath.Dir(path), starlib.Rank{}, nil).Exec(path, string(c.Source)); err != nil {
					fault, ok := err.(*lang.Error)
					if !ok {
						t.Fatal(err)
					}
					faults = append(faults, chunk.Fault{Line: int(fault.Pos.Line), Msg: fault.Msg})
				}
				for _, wrong := range c.Check(faults) {
					t.Error(wrong)
				}
			})
		}
	}
}

// recorder keeps what a recipe logs.
type recorder Recipe

var _ run.Recorder = (*recorder)(nil)

func (r *recorder) Log(p records.Point)                  { r.Metrics[p.Name] = append(r.Metrics[p.Name], p.Value) }
func (r *recorder) Tag([]string)                         {}
func (r *recorder) Note(records.Note)                    {}
func (r *recorder) Artifact(records.Artifact)            {}
func (r *recorder) Progress(records.Progress)            {}
func (r *Recipe) Set(name string, v starlark.Value)      { r.env[name] = v }
func (r *Recipe) Predeclare(name string, d *starlib.Def) { r.env[name] = d.Builtin(r.Rank) }
