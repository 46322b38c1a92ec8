// Package rendezvous lets processes that were started separately find each other: it determines a rank's place in
// the world, and provides the key-value store through which ranks exchange addresses. The agent gives each worker
// its place and serves the store ([Listen]); workers use the store ([Dial]) for recipes and backends. If a launcher
// started the ranks, the place comes from its variables.
package rendezvous

import "strconv"

// Place says which rank of how many a process is, and on which node. Read from the environment, all but the first
// two may be Unknown.
type Place struct {
	Rank, WorldSize      int
	LocalRank, LocalSize int // among the ranks of its node
	NodeRank, Nodes      int
}

// Unknown stands for what a rank's environment does not say.
const Unknown = -1

// Local is the place of a rank in a world that is one node.
func Local(rank, world int) Place {
	return Place{Rank: rank, WorldSize: world, LocalRank: rank, LocalSize: world, Nodes: 1}
}

// Environ writes the place as torchrun's variables: NAME=value.
func (p Place) Environ() []string {
	vars := []struct {
		name  string
		value int
	}{
		{"RANK", p.Rank},
		{"WORLD_SIZE", p.WorldSize},
		{"LOCAL_RANK", p.LocalRank},
		{"LOCAL_WORLD_SIZE", p.LocalSize},
		{"GROUP_RANK", p.NodeRank},
		{"GROUP_WORLD_SIZE", p.Nodes},
	}
	env := make([]string, len(vars))
	for i, v := range vars {
		env[i] = v.name + "=" + strconv.Itoa(v.value)
	}
	return env
}
