package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"drun/internal/freeport"
)

// command is a program to run: once, or once per rank with the environment that torchrun sets (env://).
type command struct {
	args  []string
	ranks int // 0: once, without that environment
}

// timeLimit bounds a measurement: a peer that hangs must not hang the benchmark.
const timeLimit = 5 * time.Minute

// run returns what the program printed, and the seconds from its start to the exit of the last rank.
func (c command) run(ctx context.Context) (output string, seconds float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	environment := append(os.Environ(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "PYTHONWARNINGS=ignore",
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	if c.ranks > 0 {
		port, err := freeport.Find()
		if err != nil {
			return "", 0, err
		}
		environment = append(environment, "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(port), "WORLD_SIZE="+strconv.Itoa(c.ranks))
	}
	processes := make([]*exec.Cmd, max(1, c.ranks))
	outputs := make([]bytes.Buffer, len(processes))
	started := time.Now()
	for rank := range processes {
		p := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
		p.Env = environment
		if c.ranks > 0 {
			p.Env = append(environment[:len(environment):len(environment)], fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank))
		}
		p.Stdout, p.Stderr = &outputs[rank], &outputs[rank]
		if startError := p.Start(); startError != nil {
			err = startError
			cancel() // ends the other ranks
			break
		}
		processes[rank] = p
	}
	for rank, p := range processes {
		if p == nil {
			continue
		}
		if waitError := p.Wait(); waitError != nil && err == nil {
			err = fmt.Errorf("%s: %w: %s", strings.Join(c.args, " "), waitError, strings.TrimSpace(outputs[rank].String()))
			cancel()
		}
	}
	seconds = time.Since(started).Seconds()
	for i := range outputs {
		output += outputs[i].String()
	}
	return output, seconds, err
}
