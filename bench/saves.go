package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"drun/internal/try"
)

// savesCommand measures checkpoints of several nodes, which are network namespaces: it takes root and the command ip.
const savesCommand = "saves"

// measureSaves prints, for states that are the same on all ranks and for states that differ, how many bytes node 0 receives
// for a save and sends for a restore, and the peak memory of the agents.
func measureSaves(ctx context.Context, args []string, out io.Writer) (err error) {
	defer try.Caught(&err)
	flags := flag.NewFlagSet(savesCommand, flag.ContinueOnError)
	drun := flags.String("drun", "bin/drun", "the drun to measure")
	sizes := flags.String("sizes", "1,16,64", "MiB of each rank's state")
	nodes := flags.String("nodes", "2,4", "how many nodes, of two ranks each")
	memory := flags.Bool("memory", false, "keep the checkpoints in memory")
	try.Ok(flags.Parse(args))
	net, err := newNetwork(*drun, 4)
	defer net.close()
	try.Ok(err)
	fmt.Fprintf(out, "%s\n\n| nodes × ranks | state of a rank | states | to node 0 for each save | memory: node 0 | another | from node 0 for a restore | memory: node 0 | another | seconds for each save |\n|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n", machine())
	for count := range strings.SplitSeq(*nodes, ",") {
		for size := range strings.SplitSeq(*sizes, ",") {
			for _, own := range []bool{false, true} {
				if err := net.save(ctx, out, count, size, own, *memory); err != nil {
					return fmt.Errorf("%s nodes, %s MiB: %w", count, size, err)
				}
			}
		}
	}
	return nil
}

// save runs the recipe without a save, with some, and with a restore alone of the last of them: the differences are what these take.
func (n *network) save(ctx context.Context, out io.Writer, nodes, mib string, own, memory bool) (err error) {
	defer try.Caught(&err)
	const saves = 3
	count := try.To(strconv.Atoi(nodes))
	size := try.To(strconv.Atoi(mib))
	states, peaks := "equal", [3][]float64{}
	if own {
		states = "each its own"
	}
	var to, from [3]float64
	var seconds float64
	defer os.RemoveAll(n.folder)
	for i, params := range [][]string{{"saves=0"}, {fmt.Sprintf("saves=%d", saves)}, {"saves=0", "restore=true"}} {
		more := []string{"-p", fmt.Sprintf("size=%d", size<<20), "-p", fmt.Sprintf("own=%v", own), "-p", fmt.Sprintf("memory=%v", memory)}
		for _, p := range params {
			more = append(more, "-p", p)
		}
		switch i {
		case 1:
			more = append(more, "--name", "saved")
		case 2:
			more = append(more, "--resume", "saved")
		}
		before := try.To(n.head())
		peaks[i] = make([]float64, count)
		stop, watched := make(chan struct{}), sync.WaitGroup{}
		watched.Go(func() { n.watchAgents(peaks[i], stop) })
		took, _, err := n.run(ctx, "bench/saves.star", [2]int{count, 2}, "", more)
		close(stop)
		watched.Wait()
		if err != nil {
			return err
		}
		if i == 1 {
			seconds = took
		}
		after := try.To(n.head())
		from[i], to[i] = after[0]-before[0], after[1]-before[1]
	}
	_, err = fmt.Fprintf(out, "| %s × 2 | %s MiB | %s | %.1f MiB | %.0f MiB | %.0f MiB | %.1f MiB | %.0f MiB | %.0f MiB | %.2f |\n", nodes, mib, states,
		(to[1]-to[0])/saves/(1<<20), peaks[1][0], slices.Max(peaks[1][1:]), (from[2]-from[0])/(1<<20), peaks[2][0], slices.Max(peaks[2][1:]), seconds)
	return err
}

// head returns how many bytes node 0 has sent and received so far.
func (n *network) head() (bytes [2]float64, err error) {
	defer try.Caught(&err)
	return [2]float64{try.To(n.counter(0, "rx_bytes")), try.To(n.counter(0, "tx_bytes"))}, nil
}

// watchAgents raises the peaks to the most memory, in MiB, that the agent of each node has had.
func (n *network) watchAgents(peaks []float64, stop <-chan struct{}) {
	agents := map[int]int{} // by process, the node
	for tick := 0; ; tick++ {
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		for node := range peaks {
			if tick%20 != 0 {
				break
			}
			text, err := exec.Command("ip", "netns", "pids", n.name(node)).Output()
			if err != nil {
				continue
			}
			for _, field := range strings.Fields(string(text)) {
				pid, _ := strconv.Atoi(field)
				if strings.Contains(commandLine(pid), "\x00run\x00") {
					agents[pid] = node
				}
			}
		}
		for pid, node := range agents {
			peaks[node] = max(peaks[node], ownSize(pid))
		}
	}
}
