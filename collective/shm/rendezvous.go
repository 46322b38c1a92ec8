package shm

import (
	"context"
	"fmt"
	"os"

	"drun/collective"
)

// Rendezvous returns the shared memory of size ranks of one machine that did not inherit it
// from a common parent: the first of them makes it, and says in the store where the
// others can open it. They must be processes of the same user, in the same process
// namespace. The file must not be closed before all have opened it.
func Rendezvous(ctx context.Context, store collective.Store, key string, rank, size int) (*os.File, error) {
	if rank == 0 {
		f, err := Create(size)
		if err != nil {
			return nil, err
		}
		if err := store.Set(ctx, key, fmt.Appendf(nil, "/proc/%d/fd/%d", os.Getpid(), f.Fd())); err != nil {
			f.Close()
			return nil, fmt.Errorf("cannot say where the memory of this machine's ranks is: %w", err)
		}
		return f, nil
	}
	path, err := store.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("the first rank of this machine has not come: %w", err)
	}
	f, err := os.OpenFile(string(path), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open the memory of this machine's first rank: %w", err)
	}
	return f, nil
}
