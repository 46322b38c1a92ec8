package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"drun/history/historytest"
	"drun/internal/try"
)

// queries times commands over a large history, which the first of them makes.
func queries(drun, folder string, shape historytest.Shape) func(context.Context) ([]figure, error) {
	home, long := filepath.Join(folder, "large"), filepath.Join(folder, "long")
	made := sync.OnceValue(func() error {
		err := historytest.Fill(long, historytest.Shape{Runs: 1, Params: 1, Metrics: 1, Points: 100 * shape.Runs})
		return errors.Join(err, historytest.Fill(home, shape))
	})
	middle := strconv.Itoa(shape.Runs / 2)
	return func(ctx context.Context) (_ []figure, err error) {
		defer try.Caught(&err)
		try.Ok(made())
		all := []string{"compare"}
		for i := range 100 {
			all = append(all, strconv.Itoa(1+i*shape.Runs/100))
		}
		var figures []figure
		for _, q := range []struct {
			name string
			home string
			args []string
		}{
			{"runs", home, []string{"runs"}},
			{"runs --where --sort", home, []string{"runs", "--where", "params.lr < 0.01 and metrics.acc.last > 0.9", "--sort", "-metrics.acc.last"}},
			{"show", home, []string{"show", middle}},
			{"metrics of a run", home, []string{"metrics", middle}},
			{"compare of 100 runs", home, all},
			{"plot of a million points", long, []string{"plot", "1", "loss"}},
		} {
			measured := try.To(timed("large history, "+q.name, 3, append(append([]string{drun}, q.args...), "--home", q.home), 0)(ctx))
			figures = append(figures, measured...)
		}
		return figures, nil
	}
}

// logging has runs log at once into one history for some time, and counts the rows that are there in the end.
func logging(drun, folder string, runs int, lasting time.Duration) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) (_ []figure, err error) {
		defer try.Caught(&err)
		home := filepath.Join(folder, fmt.Sprint("logging-", runs, "-", time.Now().UnixNano()))
		said, faults := make([]string, runs), make([]error, runs)
		var all sync.WaitGroup
		start := time.Now()
		for i := range runs {
			all.Go(func() {
				line := []string{drun, "run", "bench/log.star", "--home", home, "-p", fmt.Sprintf("seconds=%.1f", lasting.Seconds())}
				said[i], _, faults[i] = command{line, 0}.run(ctx)
			})
		}
		all.Wait()
		took := time.Since(start)
		logged := int64(0)
		for i := range runs {
			if faults[i] != nil {
				return nil, faults[i]
			}
			if strings.Contains(said[i], "database is locked") {
				return nil, fmt.Errorf("%d runs: %s", runs, said[i])
			}
			for line := range strings.Lines(said[i]) {
				if text, ok := strings.CutPrefix(strings.TrimSpace(line), "values: "); ok {
					n := try.To(strconv.ParseInt(text, 10, 64))
					logged += n
				}
			}
		}
		output := try.To(exec.CommandContext(ctx, drun, "sql", "select count(*) n from metrics", "--json", "--home", home).Output())
		var kept []struct{ N int64 }
		try.Ok(json.Unmarshal(output, &kept))
		of := fmt.Sprintf("%d runs at once", runs)
		return []figure{
			{of + ", rows", float64(kept[0].N) / took.Seconds(), perSecond},
			{of + ", rows lost", float64(logged - kept[0].N), ""},
		}, nil
	}
}
