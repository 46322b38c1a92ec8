package run

import (
	"fmt"
	"slices"

	"drun/engine"
	"drun/engine/board"
	"drun/history/records"
	"drun/internal/exit"
)

// contents are what the nodes have read of each data file: SHA-256 and size.
type contents map[string][][]records.DataFile // by path and node

// add takes what a rank has read, and returns how it differs from what the same file holds on another node. If a
// file changes during the run, the nodes still have one content in common.
func (c *contents) add(node, nodes int, m *engine.ToAgent) (here, there *records.DataFile) {
	if *c == nil {
		*c = contents{}
	}
	for _, f := range m.Records.DataFiles {
		if slices.Contains(m.PerRank, f.Path) {
			continue
		}
		all := (*c)[f.Path]
		if all == nil {
			all = make([][]records.DataFile, nodes)
			(*c)[f.Path] = all
		}
		same := func(other records.DataFile) bool { return other.SHA256 == f.SHA256 }
		if !slices.ContainsFunc(all[node], same) {
			all[node] = append(all[node], f)
		}
		for other, read := range all {
			if other != node && len(read) > 0 && !slices.ContainsFunc(read, func(r records.DataFile) bool {
				return slices.ContainsFunc(all[node], func(f records.DataFile) bool { return f.SHA256 == r.SHA256 })
			}) {
				read[0].Node = &other
				return &f, &read[0]
			}
		}
	}
	return nil, nil
}

// compareFiles fails the run if nodes have different data files of one name.
func (c *coordinator) compareFiles(rank int, m *engine.ToAgent) {
	place := c.cluster.Placements[rank]
	here, there := c.contents.add(place.NodeRank, place.Nodes, m)
	if here == nil || !c.ended.IsZero() {
		return
	}
	said := func(node int, f *records.DataFile) string {
		return fmt.Sprintf("on node %d it has %d bytes (SHA-256 %.8s…)", node, f.Bytes, f.SHA256)
	}
	first, second := said(place.NodeRank, here), said(*there.Node, there)
	if *there.Node < place.NodeRank {
		first, second = second, first
	}
	f := &engine.Failure{Rank: board.Observer, Code: exit.Mismatch, When: board.Now(), Permanent: true,
		Message: fmt.Sprintf("%s differs between nodes: %s, %s", here.Path, first, second),
		Hint:    "copy the same file to every node; if each is to read a part of its own, give the reader per_rank = True, or put the rank into the name"}
	c.fail(f)
}
