package launch

import (
	"fmt"
	"net"
	"slices"
	"time"

	"drun/engine"
	"drun/engine/rendezvous"
)

// What follows from who has come: the ranks' places, and the backend.

// settle gives everyone its ranks, and chooses the backend.
func (a *agent) settle(own *node, members []*node) error {
	all := append([]*node{own}, members...)
	a.nodes, a.places = members, nil
	var machines []string
	for _, n := range all {
		machines = append(machines, n.Machine)
		for local := range n.Procs {
			p := rendezvous.Place{Rank: len(a.places), LocalRank: local, LocalSize: n.Procs, NodeRank: n.Index, Nodes: len(all)}
			n.ranks = append(n.ranks, p.Rank)
			a.places = append(a.places, p)
		}
	}
	a.world = len(a.places)
	if a.world > MaxRanks {
		return engine.Errorf(engine.ExitUsage, "%d ranks: a run has at most %d", a.world, MaxRanks)
	}
	if own.Place != nil { // ranks that were started by themselves, one each
		for i, n := range all {
			a.places[i] = *n.Place
		}
		if err := rendezvous.Settle(a.places, machines); err != nil {
			return err
		}
	}
	for i := range a.places {
		a.places[i].WorldSize = a.world
	}
	machines = slices.Compact(machines)
	oneMachine := own.Place != nil && a.places[0].Nodes == 1 && len(machines) == 1
	a.oneBoard = oneMachine
	for _, n := range members {
		if ip := ipOf(n.link.Local()); a.address == "" || net.ParseIP(a.address).IsLoopback() {
			a.address = ip
		}
	}
	if oneMachine {
		a.address = ""
	} else {
		a.lookAround = time.Tick(lookEvery / 2)
	}
	return a.settleBackend(own, members)
}

// settleBackend chooses what is still open: shm where ranks that were started
// by themselves turn out to be on one machine.
func (a *agent) settleBackend(own *node, members []*node) (err error) {
	switch {
	case a.oneBoard && a.o.Backend == "":
		a.o.Backend = builtIn
	case a.oneBoard:
	case a.o.Backend == "":
		a.o, a.plugin, err = overNetwork(a.o)
	case a.o.Backend == builtIn:
		for _, n := range members {
			if n.Machine != own.Machine {
				return &engine.Error{Code: engine.ExitBackend, Msg: fmt.Sprintf("the backend shm reaches the ranks of one machine only: %s and %s are on different ones, or cannot share memory", own.Who(), n.Who()),
					Hint: "use --backend gloo, or leave the choice to drun"}
			}
		}
		return &engine.Error{Code: engine.ExitBackend, Msg: "the backend shm reaches the ranks of one machine only, and LOCAL_WORLD_SIZE says that there are several", Hint: "use --backend gloo"}
	}
	return err
}
