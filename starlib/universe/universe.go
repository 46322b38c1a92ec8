// Package universe assembles what is predeclared in a recipe: the modules, and
// the names outside modules. engine/worker makes one for its rank; the agent uses
// the names to check a recipe before it starts, `drun doc` the reference.
package universe

import (
	"bytes"
	"context"
	"time"

	"drun/collective"
	"drun/starlib"
	"drun/starlib/checkpoint"
	"drun/starlib/data"
	"drun/starlib/distributed"
	"drun/starlib/lang"
	"drun/starlib/nn"
	"drun/starlib/optim"
	"drun/starlib/random"
	"drun/starlib/run"
	"drun/starlib/std"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/lib/json"
	"go.starlark.net/lib/math"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// Host is what a rank provides to its recipe.
type Host struct {
	Rank     *starlib.Rank
	Run      run.Info
	Params   map[string]string // -p values
	Recorder run.Recorder
	Comm     collective.Comm   // nil in a world of one
	KeyValue distributed.Store // nil where a recipe is only checked
	Backend  string
	// OpenGroup and LeaveGroup are distributed.Config's.
	OpenGroup  func(ctx context.Context, backend string, group collective.Group) (collective.Comm, error)
	LeaveGroup func(ctx context.Context, group uint32, ranks []int, last func() error) error
	Timeout    time.Duration
	Store      checkpoint.Store
	Context    context.Context // ends when the run is aborted
	Stop       func() bool     // whether a signal asked this rank's run to end
	Extra      []*starlib.Module
}

// Universe is a recipe's environment.
type Universe struct {
	Env     starlark.StringDict
	Params  *run.Params
	Run     *run.Run
	Tensors *tensor.Context    // what the rank's tensors share
	Dist    *distributed.World // the rank's access to the others
}

// New makes the environment of a rank.
func New(h Host) *Universe {
	tensors := tensor.NewContext()
	modules, state, world := modules(h, tensors)
	env := starlark.StringDict{
		"struct": starlark.NewBuiltin("struct", starlarkstruct.Make),
		"math":   math.Module,
		"json":   shallow(json.Module),
	}
	for _, m := range modules {
		env[m.Name] = m.Build(h.Rank)
	}
	env = lang.Environment(env)
	library := std.New(env)
	h.Rank.Library, tensors.Library = library, library
	return &Universe{Env: env, Params: state.Params, Run: state, Tensors: tensors, Dist: world}
}

// Reads prepares the rank's tensors for a file that is about to be executed: operations keep what gradients of gradients need
// only where a file speaks of them.
func (u *Universe) Reads(source []byte) {
	if bytes.Contains(source, []byte("create_graph")) || bytes.Contains(source, []byte("hessian")) {
		u.Tensors.CreateGraph = true
	}
}

// shallow protects a module's functions, which recurse, from values that are nested too deeply.
func shallow(m *starlarkstruct.Module) *starlarkstruct.Module {
	members := starlark.StringDict{}
	for name, v := range m.Members {
		members[name] = v
		if b, ok := v.(*starlark.Builtin); ok {
			members[name] = lang.Shallow(b)
		}
	}
	return &starlarkstruct.Module{Name: m.Name, Members: members}
}

// Names returns the environment of a recipe that is only checked: tensors have shapes but no elements.
func Names() starlark.StringDict {
	u := New(Host{Rank: &starlib.Rank{WorldSize: 1, Stage: starlib.Running}, Context: context.Background()})
	u.Tensors.Shapes = true
	u.Tensors.BeginNoGrad()
	return u.Env
}

// Modules lists the modules of a recipe for reference, in order.
func Modules() []*starlib.Module {
	list, _, _ := modules(Host{Rank: &starlib.Rank{WorldSize: 1}, Context: context.Background()}, tensor.NewContext())
	return list
}

func modules(h Host, tensors *tensor.Context) ([]*starlib.Module, *run.Run, *distributed.World) {
	streams := random.NewStreams(tensors, h.Rank.Seed, h.Rank.Rank)
	world, distModule := distributed.New(h.Context, distributed.Config{
		Rank: h.Rank, Comm: h.Comm, Store: h.KeyValue, Backend: h.Backend, OpenGroup: h.OpenGroup, LeaveGroup: h.LeaveGroup, Tensors: tensors, Streams: streams,
		Timeout: h.Timeout,
	})
	runState, runModule := run.New(h.Rank, h.Run, h.Recorder, h.Params, func(c *starlib.Call) (bool, error) {
		return world.Any(c, h.Stop())
	})
	runState.Tensors = tensors
	always := []checkpoint.Named{{Name: "random", Value: streams}, {Name: "run", Value: runState}, {Name: "dist", Value: &world.Divided}}
	list := []*starlib.Module{
		runModule,
		distModule,
		startensor.Module(tensors, streams.Shared.Stream),
		startensor.Linalg(),
		startensor.FFT(tensors),
		nn.Module(tensors, streams),
		optim.Module(h.Rank, tensors, world),
		data.Module(h.Rank, tensors),
		checkpoint.Module(h.Rank, tensors, h.Store, always, world.AgreeOnState),
		random.Module(tensors),
	}
	return append(list, h.Extra...), runState, world
}
