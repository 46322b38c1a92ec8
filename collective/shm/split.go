package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"drun/collective"
)

// Split makes a group with an area of its own in the same region. The first of
// its ranks reserves the area; all ranks of c tell each other in an all_gather
// where their groups are.
func (c *Comm) Split(ctx context.Context, group collective.Group) (collective.Comm, error) {
	rank := slices.Index(group.Ranks, c.rank)
	if err := collective.CheckRanks(group.Ranks, c.size); err != nil {
		return nil, err
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	var mine, all = make([]byte, 8), make([]byte, 8*c.size)
	if rank == 0 {
		total := uint64(newLayout(len(group.Ranks)).total)
		binary.NativeEndian.PutUint64(mine, c.region.head.next.Add(total)-total)
	}
	call := collective.NewAllGather(collective.Of(mine), collective.Of(all))
	call.Fingerprint = (&collective.Call{Kind: collective.NewGroup, Tag: int(group.ID)}).Hash()
	w, err := c.Start(&call)
	if err != nil {
		return nil, err
	}
	if err := w.Wait(ctx); err != nil || rank < 0 {
		return nil, err
	}
	offset := binary.NativeEndian.Uint64(all[8*group.Ranks[0]:])
	if offset > arenasAt-uint64(newLayout(len(group.Ranks)).total) {
		return nil, errors.New("shm: there is no room for another group")
	}
	world := make([]int, len(group.Ranks))
	for i, r := range group.Ranks {
		world[i] = c.world[r]
	}
	sub, err := newComm(c.region, int64(offset), rank, world)
	if err != nil {
		return nil, err
	}
	return sub, nil
}
