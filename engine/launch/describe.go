package launch

import (
	"io"
	"os"
	"runtime"
	"time"

	"drun/engine"
	"drun/engine/board"
	"drun/engine/recipe"
	"drun/engine/rendezvous"
)

// MaxThreads is how many kernel threads a rank has at most: each takes a stack, and
// no machine has so many cores.
const MaxThreads = 1024

// MaxRanks is how many ranks one machine can hold.
const MaxRanks = board.MaxWorld

// About is what a recipe says of itself.
type About struct {
	Doc    string  `json:"doc"`
	Params []Param `json:"params"`
}

// Param is a declared parameter; its default is written as Starlark does.
type Param struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Default string `json:"default"`
}

// describeAtMost bounds the time that a recipe's top level may take.
const describeAtMost = 30 * time.Second

// Describe runs a recipe's top level in a worker, without main, and reports its
// docstring and parameters. Nothing is kept in the history.
func Describe(name string) (*About, error) {
	bundle, err := recipe.Read(name)
	if err != nil {
		return nil, err
	}
	if err := bundle.Check(); err != nil {
		return nil, err
	}
	file, err := board.Create(1)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	job := &engine.Job{
		Place: rendezvous.Local(0, 1), Backend: "shm", Recipe: bundle.Name, Dir: bundle.Dir, Main: bundle.Main,
		Sources: bundle.Sources, Timeout: describeAtMost, Threads: 1, Describe: true,
	}
	runtime.LockOSThread() // see spawn
	defer runtime.UnlockOSThread()
	p, err := spawn("/proc/self/exe", job, []*os.File{file}, func(_ int, _ bool, text string) {
		_, _ = io.WriteString(os.Stderr, text+"\n")
	})
	if err != nil {
		return nil, err
	}
	defer p.channel.Close()
	events := make(chan event, 16)
	go p.serve(job, events, func() {})
	about := &About{Doc: bundle.Doc, Params: []Param{}}
	timeout := time.After(describeAtMost)
	for {
		select {
		case <-timeout:
			p.kill()
			return nil, engine.Errorf(engine.ExitRecipe, "%s: the top level did not end within %s", name, describeAtMost)
		case ev := <-events:
			switch {
			case ev.exit != nil:
				p.drain()
				if !ev.exit.Clean {
					return nil, engine.Errorf(engine.ExitRankLost, "%s: the worker was lost: %s", name, ev.exit.Text)
				}
				return about, nil
			case ev.msg.Declared != nil:
				for _, d := range ev.msg.Declared.Params {
					about.Params = append(about.Params, Param{Name: d.Name, Type: d.Kind, Default: d.Default})
				}
			case ev.msg.Failure != nil:
				f := ev.msg.Failure
				return nil, &engine.Error{Code: f.Code, Msg: Message(f, 1), Hint: f.Hint}
			}
		}
	}
}
