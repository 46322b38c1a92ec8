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
	oneMachine := own.Place != nil
	for _, n := range all {
		oneMachine = oneMachine && n.Place.Nodes == 1 && n.Machine == own.Machine
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
	if own.Place != nil {
		placeAlone(all, a.places)
	}
	for i := range a.places {
		a.places[i].WorldSize = a.world
	}
	a.oneBoard = oneMachine
	for _, n := range members {
		if ip := ipOf(n.link.Local()); a.address == "" || net.ParseIP(a.address).IsLoopback() {
			a.address = ip
		}
	}
	if oneMachine {
		a.address = ""
	} else {
		a.lookAround = time.Tick(lookEvery)
	}
	return a.settleBackend(own, members)
}

// placeAlone places ranks that were started by themselves: as they were told,
// or, where that cannot be since they are on several machines, by machine.
func placeAlone(all []*node, places []rendezvous.Place) {
	var machines []string
	members := map[string][]int{}
	told := true
	for i, n := range all {
		places[i] = *n.Place
		if !slices.Contains(machines, n.Machine) {
			machines = append(machines, n.Machine)
		}
		members[n.Machine] = append(members[n.Machine], i)
		told = told && n.Place.Nodes > 1
	}
	if told || len(machines) == 1 {
		return
	}
	for node, machine := range machines {
		for local, rank := range members[machine] {
			places[rank].LocalRank, places[rank].LocalSize = local, len(members[machine])
			places[rank].NodeRank, places[rank].Nodes = node, len(machines)
		}
	}
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
