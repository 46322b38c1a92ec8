package launch

import (
	"errors"

	"drun/engine"
	"drun/plugins/host"
)

// Backends lists what is built in for --backend.
func Backends() []string { return []string{builtIn} }

const builtIn = "shm"

// overNetworks are the backends that are taken by default where ranks are on
// several machines, the first that is found.
var overNetworks = []string{"gloo", "nccl"}

// chooseBackend settles what a run uses, and finds and verifies its plugin. For
// ranks that were started by themselves it stays open ("") until they have met,
// unless the user named one: see [agent.gather].
func chooseBackend(o Options) (Options, *host.Plugin, error) {
	several := o.Join != nil && o.Join.several()
	switch {
	case o.Backend == builtIn && several:
		return o, nil, &engine.Error{Code: engine.ExitBackend, Msg: "the backend shm reaches the ranks of one machine only, and this run has several nodes",
			Hint: "use --backend gloo, or leave the choice to drun"}
	case o.Backend == "" && several:
		return overNetwork(o)
	case o.Backend == "" && o.Join == nil:
		o.Backend = builtIn
	}
	p, err := findBackend(o)
	return o, p, err
}

// overNetwork takes the first backend that is found for several machines. What
// is just somewhere in $PATH is not taken unasked.
func overNetwork(o Options) (Options, *host.Plugin, error) {
	for _, name := range overNetworks {
		o.Backend = name
		p, err := host.Find(name, host.Dirs(o.Plugins...))
		if errors.As(err, new(*host.NotFoundError)) {
			continue
		}
		if err != nil {
			return o, nil, err
		}
		if trusted, err := host.Check(o.Home, p); err != nil {
			return o, nil, err
		} else if !trusted && !p.Named {
			return o, nil, &engine.Error{Code: engine.ExitBackend,
				Msg:  "ranks on several nodes need a backend for networks, and the plugin " + name + " was found only in $PATH (" + p.Path + "), from where none is taken unasked",
				Hint: "use --backend " + name + ", or once: drun backends trust " + name}
		}
		return o, p, host.Verify(o.Home, p)
	}
	return o, nil, &engine.Error{Code: engine.ExitBackend,
		Msg:  "ranks on several nodes need a backend for networks, and the plugin gloo was not found (nor nccl)",
		Hint: "make plugins builds it, where libgloo-dev is installed (Debian, Ubuntu: apt-get install libgloo-dev g++); drun backends lists what is found, and --plugin-dir adds a folder"}
}

// findBackend finds the plugin of a backend that is not built in, and verifies it.
func findBackend(o Options) (*host.Plugin, error) {
	if o.Backend == builtIn || o.Backend == "" {
		return nil, nil
	}
	p, err := host.Find(o.Backend, host.Dirs(o.Plugins...))
	if err != nil {
		return nil, err
	}
	return p, host.Verify(o.Home, p)
}
