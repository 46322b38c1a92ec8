package run

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"drun/collective"
	"drun/engine"
	"drun/engine/cluster"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/plugins/host"
)

// Backends lists what --backend can name without a plugin.
func Backends() []string { return []string{builtIn} }

const builtIn = "shm"

// chooseBackend decides which backend the run uses, and finds and verifies its plugin. For ranks that were started
// by themselves it stays open ("") until they have joined, unless the user named one: see [plan.decideBackend].
func (p *plan) chooseBackend() (err error) {
	several := p.Join != nil && p.Join.Several()
	switch {
	case p.Backend == builtIn && several:
		return exit.WithHint(exit.Errorf(exit.Backend, "the backend shm reaches the ranks of one machine only, and this run has several nodes"),
			"leave the choice to drun, or name a backend for networks: drun backends lists them")
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
					"leave the choice to drun, or name a backend for networks: drun backends lists them")
			}
		}
		return exit.WithHint(exit.Errorf(exit.Backend, "the backend shm reaches the ranks of one machine only, and LOCAL_WORLD_SIZE says that there are several"),
			"name a backend for networks: drun backends lists them")
	}
	return nil
}

// overNetwork chooses the backend for several nodes: the plugin that says it suits them best. A plugin that is only in
// $PATH is not started to be asked unless it was used or trusted before.
func (p *plan) overNetwork() error {
	var asked, unasked []*host.Plugin
	var answers []answer
	for _, found := range host.List(host.Dirs(p.Plugins...)) {
		if found.Hidden {
			continue
		}
		a := p.known(found)
		if !a.known || !found.Named {
			if trusted, err := host.Check(p.Home, found); err != nil {
				return err
			} else if !trusted && !found.Named {
				unasked = append(unasked, found)
				continue
			}
		}
		asked, answers = append(asked, found), append(answers, a)
	}
	if err := p.askAll(asked, answers); err != nil {
		return err
	}
	best, problems := 0, ""
	for i, a := range answers {
		if a.err != nil {
			problems += fmt.Sprintf("; %s: %v", asked[i].Name, a.err)
		} else if a.BetweenNodes > best {
			best, p.Backend, p.plugin, p.properties = a.BetweenNodes, asked[i].Name, asked[i], &a.Properties
		}
	}
	switch {
	case best > 0:
		if problems != "" { // one of them might have suited better
			p.note("drun: the backend is " + p.Backend + ", since these plugins do not say whether they suit runs over several nodes: " + problems[len("; "):])
		}
		return host.Verify(p.Home, p.plugin)
	case len(unasked) > 0:
		names, paths := "NAME", each.Of(unasked, func(u *host.Plugin) string { return u.Path })
		if len(unasked) == 1 {
			names = unasked[0].Name
		}
		return exit.WithHint(exit.Errorf(exit.Backend, "%s", "ranks on several nodes need a backend for networks, and plugins were found only in $PATH ("+strings.Join(paths, ", ")+"), from where drun takes a plugin only if it is named or trusted"+problems),
			"use --backend "+names+", or once: drun backends trust "+names)
	}
	return exit.WithHint(exit.Errorf(exit.Backend, "%s", "ranks on several nodes need a backend for networks, and no plugin for them was found"+problems), host.HowToGet)
}

// answer is what a plugin says about itself, or why it says nothing.
type answer struct {
	collective.Properties
	err   error
	known bool // from an earlier run
}

// known returns what a plugin said of itself in an earlier run, if it did.
func (p *plan) known(plugin *host.Plugin) (a answer) {
	program, err := p.pluginHost()
	a.known = err == nil && host.Known(p.Home, program, plugin, &a.Properties)
	return a
}

func (p *plan) pluginHost() (string, error) {
	if p.PluginHost == nil {
		return "", exit.Errorf(exit.Backend, "there is no %s to start plugins", host.Program)
	}
	return p.PluginHost()
}

// askAll asks those plugins whose answers are not known.
func (p *plan) askAll(plugins []*host.Plugin, answers []answer) error {
	if len(plugins) == 0 {
		return nil
	}
	program, err := p.pluginHost()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i, plugin := range plugins {
		if !answers[i].known {
			all.Go(func() {
				answers[i].err = host.Ask(context.Background(), program, "properties", plugin, &answers[i].Properties)
			})
		}
	}
	all.Wait()
	for i, plugin := range plugins {
		if !answers[i].known && answers[i].err == nil {
			_ = host.Remember(p.Home, program, plugin, answers[i].Properties) // otherwise it is asked again
		}
	}
	return nil
}

// ownOrder reports whether the run's plugin reduces in an order of its own. The replay of a run on several nodes, in which
// the hierarchy had reduced in rank order, does so on one, too.
func (p *plan) ownOrder() bool {
	switch {
	case p.plugin == nil || p.Replay != nil && p.Replay.Spread && !p.about().WholeWorld:
		return false
	case p.Deterministic != nil:
		return !*p.Deterministic
	}
	return p.about().OwnOrder
}

// about is what the run's plugin says about itself.
func (p *plan) about() *collective.Properties {
	if p.properties == nil {
		// A plugin that does not answer fails on the ranks, too, where the error says more.
		answers := []answer{p.known(p.plugin)}
		_ = p.askAll([]*host.Plugin{p.plugin}, answers)
		p.properties = &answers[0].Properties
	}
	return p.properties
}

// hierarchy says how collectives cross the nodes: shared memory within each node, if its ranks can share memory and
// some node has several ranks. nil: the backend alone. An elastic run reduces in the same order whatever nodes are
// left.
func (p *plan) hierarchy(n *nodes) *engine.Hierarchy {
	places := n.cluster.Placements
	nodes := places[0].Nodes
	elastic := p.elastic() != nil
	if p.Flat || p.plugin == nil || !elastic && (nodes < 2 || nodes == len(places)) || p.about().WholeWorld {
		return nil
	}
	h := &engine.Hierarchy{Links: p.Links}
	machines := map[int]string{}
	for rank, place := range places {
		machine := n.peerOf(rank).Machine
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
