package sharedmem

import (
	"context"
	"sync/atomic"

	"drun/collective"
)

// A Gate lets processes sleep until something in shared memory has changed. Whoever changes it calls Open, which
// costs one load while nobody sleeps.
type Gate struct {
	turn     Word
	sleepers atomic.Uint32
}

// Open wakes all sleepers after a change that they may wait for.
func (g *Gate) Open() {
	if g.sleepers.Load() != 0 {
		g.turn.Add(1)
		Wake(&g.turn)
	}
}

// Wait sleeps until ready holds or ctx ends. A sleeper that is killed leaves its count behind, which only costs later
// calls of Open a system call.
func (g *Gate) Wait(ctx context.Context, ready func() bool) error {
	g.sleepers.Add(1)
	defer g.sleepers.Add(^uint32(0))
	sleep := collective.NewSleep(ctx)
	for {
		turn := g.turn.Load()
		if ready() {
			return nil
		}
		slice, err := sleep.Next()
		if err != nil {
			return err
		}
		Sleep(&g.turn, turn, slice)
	}
}
