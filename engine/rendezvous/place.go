// Package rendezvous is where a rank's place in the world comes from, and how it
// is told to others. The agent gives each worker its place; tools that know
// torchrun's variables read it from the environment.
package rendezvous

import "strconv"

// Place says which rank of how many a process is, on which node.
type Place struct {
	Rank, WorldSize      int
	LocalRank, LocalSize int // among the ranks of its node
	NodeRank             int
}

// Local is the place of a rank in a world that is one node.
func Local(rank, world int) Place {
	return Place{Rank: rank, WorldSize: world, LocalRank: rank, LocalSize: world}
}

// Environ names the place as torchrun does: NAME=value.
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
	}
	env := make([]string, len(vars))
	for i, v := range vars {
		env[i] = v.name + "=" + strconv.Itoa(v.value)
	}
	return env
}
