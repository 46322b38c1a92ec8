package run

import (
	"drun/internal/exit"
	"drun/internal/try"
	"os"
	"time"

	"drun/collective/shm"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/engine/console"
	"drun/engine/node"
	"drun/engine/recipe"
	"drun/engine/rendezvous"
	"drun/plugins/host"
)

// MaxThreads is the most kernel threads a rank may have: each takes a stack, and no machine has so many cores.
const MaxThreads = 1024

// MaxRanks limits a world only so that a typo does not ask for more memory than there is; MaxHere limits the ranks
// that one process starts.
const (
	MaxRanks = board.MaxWorld
	MaxHere  = shm.MaxRanks
)

// About is a recipe's description of itself.
type About struct {
	Doc    string         `json:"doc"`
	Params []engine.Value `json:"params"`
}

const describeAtMost = 30 * time.Second

// Describe runs a recipe's top level in a worker, without main, and reports its docstring and parameters. Nothing is
// kept in the history.
func Describe(name string) (_ *About, err error) {
	defer try.Caught(&err)
	bundle := try.To(recipe.Read(name))
	try.Ok(bundle.Check())
	return &About{Doc: bundle.Doc, Params: append([]engine.Value{}, try.To(declare(bundle, nil)).Params...)}, nil
}

// declare runs a recipe's top level in a worker and returns the parameters that it declares.
func declare(bundle *recipe.Bundle, params []engine.Param) (*engine.Declared, error) {
	file, err := board.Create(1)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	start := &cluster.Start{World: 1, Backend: builtIn, Shared: paths(file), Jobs: []engine.Job{{
		Placement: rendezvous.Local(0, 1), Backend: builtIn, Recipe: bundle.Name, Main: bundle.Main, Params: params, Timeout: describeAtMost, Describe: true,
	}}}
	link, theirs := cluster.Pipe()
	inbox := cluster.Inbox(link)
	defer func() {
		link.Close()
		for range inbox { // frees its reader
			continue
		}
	}()
	go node.Run(node.Config{
		Bundle: bundle, Threads: 1, Timeout: describeAtMost, Console: console.New(os.Stderr, os.Stderr, false, false, nil, nil),
		Backend: func(string) (*host.Plugin, error) { return nil, nil },
	}, start, theirs, cluster.Inbox(theirs))
	declared := &engine.Declared{}
	timeout := time.After(describeAtMost)
	for {
		select {
		case <-timeout:
			link.Send(&cluster.ToNode{Kill: true})
			return nil, exit.Errorf(exit.Recipe, "%s: the top level did not end within %s", bundle.Name, describeAtMost)
		case m, open := <-inbox:
			switch {
			case !open:
				return nil, exit.Errorf(exit.RankLost, "%s: the worker was lost", bundle.Name)
			case m.Exit != nil && !m.Exit.Clean:
				return nil, exit.Errorf(exit.RankLost, "%s: the worker was lost: %s", bundle.Name, m.Exit.Text)
			case m.Exit != nil:
				return declared, nil
			case m.Msg == nil:
			case m.Msg.Declared != nil:
				declared = m.Msg.Declared
			case m.Msg.Failure != nil:
				f := m.Msg.Failure
				return nil, exit.WithHint(exit.Errorf(f.Code, "%s", f.Text(1)),
					f.Hint)
			}
		}
	}
}

// CheckParams reports whether a recipe takes parameters, those of a file and others, as its top level declares them.
func CheckParams(b *recipe.Bundle, filed []engine.Param, others []string) (err error) {
	defer try.Caught(&err)
	try.To(declare(b, try.To(parseParams(filed, others))))
	return nil
}
