// Package rendezvous lets processes that were started separately find each other: it determines a rank's place in the
// world, connects the processes of a run ([Listen], [Dial]), and provides the key-value store through which ranks
// exchange addresses. The coordinator keeps the store ([Table]); workers reach it over their control channels
// ([Remote]). If a launcher started the ranks, their places come from its variables.
package rendezvous

import (
	"fmt"
	"slices"

	"drun/collective"
)

// AssignRanks fills in the unknown parts of the places of all ranks, in rank order. machines names the machine of
// each rank. A rank's node is its GROUP_RANK; if that is not set, the ranks of one machine form a node. If that
// contradicts the other variables (several nodes on one machine, or containers), a node is LOCAL_WORLD_SIZE
// consecutive ranks. The error says which variables contradict each other, or are missing.
func AssignRanks(places []Placement, machines []string) error {
	told := func(p Placement) bool { return p.NodeRank != Unknown }
	if slices.ContainsFunc(places, told) {
		node := make([]int, len(places))
		for r, p := range places {
			if !told(p) {
				return &EnvironError{"GROUP_RANK", fmt.Sprintf("is set for rank %d, but not for rank %d", slices.IndexFunc(places, told), r)}
			}
			node[r] = p.NodeRank
		}
		return assign(places, node)
	}
	// A guess that contradicts the variables leaves the places unchanged.
	err := assign(places, byMachine(machines))
	if err == nil {
		return nil
	}
	if assign(places, byNeighbours(places)) == nil {
		return nil
	}
	return &EnvironError{"GROUP_RANK", fmt.Sprintf("is not set, and which ranks share a node does not follow from the rest: %v", err)}
}

// byMachine numbers the machines in the order of their first ranks.
func byMachine(machines []string) []int {
	number, node := map[string]int{}, make([]int, len(machines))
	for r, m := range machines {
		if _, known := number[m]; !known {
			number[m] = len(number)
		}
		node[r] = number[m]
	}
	return node
}

// byNeighbours makes nodes of consecutive ranks, as many as the LOCAL_WORLD_SIZE of the node's first rank.
func byNeighbours(places []Placement) []int {
	node := make([]int, len(places))
	for from, number := 0, 0; from < len(places); number++ {
		to := min(from+max(places[from].LocalSize, 1), len(places))
		for r := from; r < to; r++ {
			node[r] = number
		}
		from = to
	}
	return node
}

// assign places the ranks on these nodes, unless a rank's variables contradict that.
func assign(places []Placement, node []int) error {
	count := slices.Max(node) + 1
	ranks := make([][]int, count)
	for r, n := range node {
		ranks[n] = append(ranks[n], r)
	}
	settled := slices.Clone(places)
	for n, here := range ranks {
		if len(here) == 0 {
			return &EnvironError{"GROUP_RANK", fmt.Sprintf("goes up to %d, but no rank has %d", count-1, n)}
		}
		taken := map[int]int{} // from LOCAL_RANK to rank
		for _, r := range here {
			p := places[r]
			if p.Nodes != Unknown && p.Nodes != count {
				return &EnvironError{"GROUP_WORLD_SIZE", fmt.Sprintf("is %d for rank %d, but the ranks are on %d nodes", p.Nodes, r, count)}
			}
			if p.LocalSize != Unknown && p.LocalSize != len(here) {
				return &EnvironError{"LOCAL_WORLD_SIZE", fmt.Sprintf("is %d for rank %d, but its node has %d: %s", p.LocalSize, r, len(here), collective.RankList(here))}
			}
			if p.LocalRank == Unknown {
				continue
			}
			if p.LocalRank >= len(here) {
				return &EnvironError{"LOCAL_RANK", fmt.Sprintf("is %d for rank %d, but its node has %d: %s", p.LocalRank, r, len(here), collective.RankList(here))}
			}
			if other, is := taken[p.LocalRank]; is {
				return &EnvironError{"LOCAL_RANK", fmt.Sprintf("is %d for ranks %d and %d, which are on one node", p.LocalRank, other, r)}
			}
			taken[p.LocalRank] = r
		}
		free := 0
		for _, r := range here {
			p := &settled[r]
			p.LocalSize, p.NodeRank, p.Nodes = len(here), n, count
			if p.LocalRank != Unknown {
				continue
			}
			for {
				if _, is := taken[free]; !is {
					break
				}
				free++
			}
			p.LocalRank = free
			free++
		}
	}
	copy(places, settled)
	return nil
}

// Peers lists the ranks of a rank's node in the order of their local ranks.
func Peers(places []Placement, rank int) []int {
	peers := make([]int, places[rank].LocalSize)
	for r, p := range places {
		if p.NodeRank == places[rank].NodeRank {
			peers[p.LocalRank] = r
		}
	}
	return peers
}

// Placement says which rank of how many a process is, and on which node. Read from the environment, all but the first
// two may be Unknown.
type Placement struct {
	Rank, WorldSize      int
	LocalRank, LocalSize int // among the ranks of its node
	NodeRank, Nodes      int
}

// Unknown stands for what a rank's environment does not say.
const Unknown = -1

// Local is the place of a rank in a world that is one node.
func Local(rank, world int) Placement {
	return Placement{Rank: rank, WorldSize: world, LocalRank: rank, LocalSize: world, Nodes: 1}
}

// Environ writes the place as torchrun's variables: NAME=value.
func (p Placement) Environ() []string {
	return []string{
		fmt.Sprint("RANK=", p.Rank), fmt.Sprint("WORLD_SIZE=", p.WorldSize),
		fmt.Sprint("LOCAL_RANK=", p.LocalRank), fmt.Sprint("LOCAL_WORLD_SIZE=", p.LocalSize),
		fmt.Sprint("GROUP_RANK=", p.NodeRank), fmt.Sprint("GROUP_WORLD_SIZE=", p.Nodes),
	}
}
