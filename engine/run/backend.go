package run

import (
	"drun/internal/exit"
	"errors"
	"slices"

	"drun/engine"
	"drun/engine/cluster"
	"drun/plugins/host"
)

// Backends lists what --backend can name without a plugin.
func Backends() []string { return []string{builtIn} }

const builtIn = "shm"

// overNetworks are the default backends for ranks on several machines; the first that is found is used.
var overNetworks = []string{"gloo", "nccl"}

// chooseBackend decides which backend the run uses, and finds and verifies its plugin. For ranks that were started
// by themselves it stays open ("") until they have joined, unless the user named one: see [plan.decideBackend].
func (p *plan) chooseBackend() (err error) {
	several := p.Join != nil && p.Join.Several()
	switch {
	case p.Backend == builtIn && several:
		return exit.WithHint(exit.Errorf(exit.Backend, "the backend shm reaches the ranks of one machine only, and this run has several nodes"),
			"use --backend gloo, or leave the choice to drun")
	case p.Backend == "" && several:
		return p.overNetwork()
	case p.Backend == "" && p.Join == nil:
		p.Backend = builtIn
	}
	p.plugin, err = p.findBackend(p.Backend)
	return err
}

// decideBackend chooses a backend that is still open once all processes have joined: shm if ranks that were started
// by themselves turn out to be on one machine.
func (p *plan) decideBackend(c *cluster.Cluster) error {
	switch {
	case c.OneMachine && p.Backend == "":
		p.Backend = builtIn
	case c.OneMachine:
	case p.Backend == "":
		return p.overNetwork()
	case p.Backend == builtIn:
		for _, m := range c.Members {
			if m.Machine != cluster.Machine() {
				return exit.WithHint(exit.Errorf(exit.Backend, "the backend shm reaches the ranks of one machine only: %s and %s are on different ones, or cannot share memory", p.hello().Who(), m.Who()),
					"use --backend gloo, or leave the choice to drun")
			}
		}
		return exit.WithHint(exit.Errorf(exit.Backend, "the backend shm reaches the ranks of one machine only, and LOCAL_WORLD_SIZE says that there are several"),
			"use --backend gloo")
	}
	return nil
}

// overNetwork uses the first backend found for several machines. A plugin that merely lies in $PATH is not used
// unless the user names it.
func (p *plan) overNetwork() error {
	for _, name := range overNetworks {
		found, err := host.Find(name, host.Dirs(p.Plugins...))
		if errors.As(err, new(host.NotFoundError)) {
			continue
		}
		if err != nil {
			return err
		}
		if trusted, err := host.Check(p.Home, found); err != nil {
			return err
		} else if !trusted && !found.Named {
			return exit.WithHint(exit.Errorf(exit.Backend, "%s", "ranks on several nodes need a backend for networks, and the plugin "+name+" was found only in $PATH ("+found.Path+"), from where drun takes a plugin only if it is named or trusted"),
				"use --backend "+name+", or once: drun backends trust "+name)
		}
		p.Backend, p.plugin = name, found
		return host.Verify(p.Home, found)
	}
	return exit.WithHint(exit.Errorf(exit.Backend, "ranks on several nodes need a backend for networks, and the plugin gloo was not found (nor nccl)"),
		"make plugins builds it, where libgloo-dev is installed (Debian, Ubuntu: apt-get install libgloo-dev g++); drun backends lists what is found, and --plugin-dir adds a folder")
}

// hierarchy says how collectives cross the nodes: shared memory within each node, if its ranks can share memory and
// some node has several ranks. nil: the backend alone. An elastic run reduces in the same order whatever nodes are
// left.
func (c *coordinator) hierarchy() *engine.Hierarchy {
	places := c.cluster.Places
	nodes := places[0].Nodes
	elastic := c.Join != nil && c.Join.Elastic != nil
	if c.Flat || c.plugin == nil || slices.Contains(engine.WholeWorlds, c.Backend) || !elastic && (nodes < 2 || nodes == len(places)) {
		return nil
	}
	h := &engine.Hierarchy{Links: c.Links}
	machines := map[int]string{}
	for rank, place := range places {
		machine := c.peerOf(rank).Machine
		if known, ok := machines[place.NodeRank]; ok && known != machine {
			return nil // such as containers that count as one node
		}
		machines[place.NodeRank] = machine
		h.Nodes = append(h.Nodes, place.NodeRank)
	}
	return h
}

// findBackend finds and verifies the plugin of a backend that is not built in.
func (p *plan) findBackend(name string) (*host.Plugin, error) {
	if name == builtIn || name == "" {
		return nil, nil
	}
	found, err := host.Find(name, host.Dirs(p.Plugins...))
	if err != nil {
		return nil, err
	}
	return found, host.Verify(p.Home, found)
}
