package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"drun/collective"
	"drun/kernel/dtype"
)

// warmUpLimit is long for a few bytes, whatever the network.
const warmUpLimit = 30 * time.Second

// warmUp proves with a small all_reduce that the backend reaches every rank and adds correctly, before the recipe
// relies on it.
func warmUp(ctx context.Context, comm collective.Comm) error {
	// Each rank adds elements of its own, so that an error can name the rank.
	given := make([]int64, comm.Size())
	given[comm.Rank()] = int64(comm.Rank()) + 1
	call := collective.NewAllReduce(collective.Of(given), dtype.Sum)
	limit := collective.Within(ctx, warmUpLimit)
	if p, ok := ctx.(*collective.WaitLimit); ok {
		limit.Check = p.Check
	}
	work, err := comm.Start(&call)
	if err == nil {
		err = work.Wait(limit)
	}
	if errors.Is(err, collective.ErrTimeout) {
		return fmt.Errorf("the first all_reduce, of %d bytes, did not end within %v: not every rank can be reached", 8*len(given), warmUpLimit)
	}
	if err != nil {
		return fmt.Errorf("the first all_reduce failed: %w", err)
	}
	for rank, got := range given {
		if want := int64(rank) + 1; got != want {
			return fmt.Errorf("the first all_reduce gave a wrong sum: rank %d gave %d, and %d came to rank %d", rank, want, got, comm.Rank())
		}
	}
	return nil
}
