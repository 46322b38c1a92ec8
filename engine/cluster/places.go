package cluster

import (
	"drun/internal/exit"
	"net"
	"slices"

	"drun/engine/rendezvous"
)

func (c *Cluster) assignRanks(own *Hello, maxRanks int) error {
	all := append([]*Member{{Hello: own}}, c.Members...)
	var machines []string
	var procs []int
	world := 0
	for _, m := range all {
		machines = append(machines, m.Machine)
		if m.Procs > maxRanks {
			return exit.Errorf(exit.Usage, "%s of %d, with %d ranks, is impossible", m.Who(), m.Count, m.Procs)
		}
		procs = append(procs, m.Procs)
		world += m.Procs
	}
	if e := c.joining.Elastic; e != nil && !e.Resize {
		world = c.joining.Count * own.Procs
	}
	if world > maxRanks {
		return exit.Errorf(exit.Usage, "%d ranks: a run has at most %d", world, maxRanks)
	}
	c.Placements = Spread(world, procs)
	for _, p := range c.Placements {
		all[p.NodeRank].Ranks = append(all[p.NodeRank].Ranks, p.Rank)
	}
	c.Own = all[0].Ranks
	if own.Placement != nil { // ranks that were started by themselves, one each
		for i, m := range all {
			c.Placements[i] = *m.Placement
		}
		if err := rendezvous.AssignRanks(c.Placements, machines); err != nil {
			return err
		}
	}
	for i := range c.Placements {
		c.Placements[i].WorldSize = world
	}
	c.OneMachine = own.Placement != nil && c.Placements[0].Nodes == 1 && len(slices.Compact(machines)) == 1
	return nil
}

// Spread assigns places in a world of that size to nodes that offer procs[i] ranks each, node after node: these
// ranks or, if the world has more or fewer, a proportional share, and at least one.
func Spread(world int, procs []int) []rendezvous.Placement {
	total := 0
	for _, n := range procs {
		total += n
	}
	var places []rendezvous.Placement
	for node, before := 0, 0; node < len(procs); node++ {
		before += procs[node]
		end := max(len(places)+1, min(world*before/total, world-(len(procs)-1-node)))
		size := end - len(places)
		for local := range size {
			places = append(places, rendezvous.Placement{Rank: len(places), WorldSize: world, LocalRank: local, LocalSize: size, NodeRank: node, Nodes: len(procs)})
		}
	}
	return places
}

// Reached is this machine's address as the other nodes reach it over these links; "" without links.
func Reached[In, Out any](links ...*Conn[In, Out]) (address string) {
	for _, l := range links {
		if address == "" || net.ParseIP(address).IsLoopback() {
			address = addressOf(l.Local())
		}
	}
	return address
}
