package doctor

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/golden"
)

// Burnt is what Burn found.
type Burnt struct {
	Cores    int      `json:"cores"`
	Paths    []string `json:"kernel_paths"`
	Results  int64    `json:"results"` // that were compared
	Seconds  float64  `json:"seconds"`
	Wrong    []Wrong  `json:"wrong"`
	Problems []string `json:"problems"`
}

// Wrong are results of a core that do not have the bits that every processor gives.
type Wrong struct {
	Core  int    `json:"core"`
	Path  string `json:"kernel_path"`
	Case  string `json:"case"`
	Times int64  `json:"times"`
	Of    int64  `json:"of"`
}

// Burn has every core that this process may use compute cases on every kernel path for a while, all cores at a time, and
// compares the results with those that were computed once. It changes the kernels' path and number of threads.
func Burn(ctx context.Context, d time.Duration, cases []golden.Case) (b *Burnt, err error) {
	defer try.Caught(&err)
	var allowed unix.CPUSet
	try.Ok(unix.SchedGetaffinity(0, &allowed))
	b = &Burnt{Cores: allowed.Count(), Paths: kernel.Paths(), Wrong: []Wrong{}, Problems: []string{}}
	kernel.SetThreads(1)
	start := time.Now()
	for i, path := range b.Paths {
		try.Ok(kernel.SetPath(path))
		until := start.Add(d * time.Duration(i+1) / time.Duration(len(b.Paths)))
		var cores sync.WaitGroup
		var mu sync.Mutex
		for core := range 64 * len(allowed) {
			if !allowed.IsSet(core) {
				continue
			}
			cores.Go(func() {
				wrong, compared, err := burn(ctx, core, until, cases)
				mu.Lock()
				defer mu.Unlock()
				b.Results += compared
				for j, c := range cases {
					if wrong[j] > 0 {
						b.Wrong = append(b.Wrong, Wrong{core, path, c.Name, wrong[j], compared / int64(len(cases))})
					}
				}
				if err != nil {
					b.Problems = append(b.Problems, fmt.Sprintf("core %d was left out: %v", core, err))
				}
			})
		}
		cores.Wait()
	}
	for _, w := range b.Wrong {
		b.Problems = append(b.Problems, fmt.Sprintf("core %d computes wrongly: %d of %d results of %s on the path %s", w.Core, w.Times, w.Of, w.Case, w.Path))
	}
	b.Seconds = time.Since(start).Seconds()
	return b, ctx.Err()
}

// burn has a core compute all cases again and again, at least once.
func burn(ctx context.Context, core int, until time.Time, cases []golden.Case) (wrong []int64, compared int64, err error) {
	runtime.LockOSThread() // and the thread ends with the goroutine, since it keeps to the core
	wrong = make([]int64, len(cases))
	var only unix.CPUSet
	only.Set(core)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return wrong, 0, err
	}
	for again := true; again && ctx.Err() == nil; again = time.Now().Before(until) {
		for i, c := range cases {
			if !c.Right(c.Run()) {
				wrong[i]++
			}
			compared++
		}
	}
	return wrong, compared, nil
}
