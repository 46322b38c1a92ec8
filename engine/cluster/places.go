package cluster

import (
	"drun/internal/exit"
	"net"
	"slices"

	"drun/engine/rendezvous"
)

// assignPlaces gives every process its ranks.
func (c *Cluster) assignPlaces(own *Hello, maxRanks int) error {
	all := append([]*Member{{Hello: own}}, c.Members...)
	var machines []string
	for _, m := range all {
		machines = append(machines, m.Machine)
		if m.Procs > maxRanks {
			return exit.Errorf(exit.Usage, "%s of %d, with %d ranks, cannot be", m.Who(), m.Count, m.Procs)
		}
		for local := range m.Procs {
			p := rendezvous.Place{Rank: len(c.Places), LocalRank: local, LocalSize: m.Procs, NodeRank: m.Index, Nodes: len(all)}
			m.Ranks = append(m.Ranks, p.Rank)
			c.Places = append(c.Places, p)
		}
	}
	world := len(c.Places)
	if world > maxRanks {
		return exit.Errorf(exit.Usage, "%d ranks: a run has at most %d", world, maxRanks)
	}
	if own.Place != nil { // ranks that were started by themselves, one each
		for i, m := range all {
			c.Places[i] = *m.Place
		}
		if err := rendezvous.AssignPlaces(c.Places, machines); err != nil {
			return err
		}
	}
	for i := range c.Places {
		c.Places[i].WorldSize = world
	}
	c.OneMachine = own.Place != nil && c.Places[0].Nodes == 1 && len(slices.Compact(machines)) == 1
	if c.OneMachine {
		return nil
	}
	for _, m := range c.Members {
		if c.NodeAddress == "" || net.ParseIP(c.NodeAddress).IsLoopback() {
			c.NodeAddress = addressOf(m.Link.Local())
		}
	}
	return nil
}
