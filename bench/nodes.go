package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// nodesCommand measures collectives between nodes, which are network namespaces on one bridge: it takes root and the
// command ip. Nothing of this machine's own network is used.
const nodesCommand = "nodes"

// placements are how many nodes of how many ranks are measured.
var placements = [][2]int{{2, 2}, {4, 2}, {2, 4}}

// ways are how a run's collectives cross the nodes; the first is what the others are compared with.
var ways = []struct {
	name      string
	hierarchy string // DRUN_HIERARCHY
	more      []string
}{
	{"Gloo alone", "off", nil},
	{"Gloo alone, --deterministic", "off", []string{"--deterministic"}},
	{"hierarchy", "", nil},
	{"hierarchy, --deterministic", "", []string{"--deterministic"}},
}

// links are how fast the nodes' links are, as tc says it; "" is as fast as the cores. Those that are slow as real ones are
// measured with the first placements alone.
var links = []string{"", "10gbit", "1gbit"}

const shapedPlacements = 2

// largeBytes is the size of the large all_reduce.
const largeBytes = 16 << 20

// measureNodes prints, for each placement, speed of links and way, the time of an all_reduce of 16 MiB and of 4 bytes, and what the
// nodes sent for the large one, as a multiple of the least that is possible: each node its data and each result once.
func measureNodes(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(nodesCommand, flag.ContinueOnError)
	drun := flags.String("drun", "bin/drun", "the drun to measure")
	rounds := flags.Int("rounds", 3, "how many times to measure everything")
	speeds := flags.String("links", strings.Join(links, ","), "speeds of the links as tc says them; empty: as fast as the cores")
	if err := flags.Parse(args); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "drun-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	most := 0
	for _, p := range placements {
		most = max(most, p[0])
	}
	net, err := newNetwork(most)
	defer net.close()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\nMedians of %d rounds.\n\n| nodes × ranks | links | way | all_reduce of 16 MiB | beside Gloo alone | bytes sent beside the least | all_reduce of 4 B |\n|---|---|---|---:|---:|---:|---:|\n", machine(), *rounds)
	for _, speed := range strings.Split(*speeds, ",") {
		if err := net.shape(speed); err != nil {
			return err
		}
		for i, p := range placements {
			if speed != "" && i >= shapedPlacements {
				break
			}
			if err := net.compare(ctx, out, *drun, folder, p, speed, *rounds); err != nil {
				return fmt.Errorf("%d × %d, %w", p[0], p[1], err)
			}
		}
	}
	return nil
}

// compare measures the ways in turn, and prints medians, also of the ratios: what else this machine does slows down all
// ways of a round.
func (n *network) compare(ctx context.Context, out io.Writer, drun, folder string, placement [2]int, speed string, rounds int) error {
	all := make([][4][]float64, len(ways)) // large, small, sent, large beside the first way's
	for range rounds {
		for i, w := range ways {
			figures, err := n.measure(ctx, drun, folder, placement, w.hierarchy, w.more)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			for k, f := range figures {
				all[i][k] = append(all[i][k], f)
			}
			first := all[0][0]
			all[i][3] = append(all[i][3], figures[0]/first[len(first)-1])
		}
	}
	if speed == "" {
		speed = "as fast as the cores"
	}
	for i, w := range ways {
		fmt.Fprintf(out, "| %d × %d | %s | %s | %.1f ms | %.2f | %.3f | %.0f µs |\n", placement[0], placement[1], speed, w.name,
			middle(all[i][0])*1e3, middle(all[i][3]), middle(all[i][2]), middle(all[i][1])*1e6)
	}
	return nil
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// network is some namespaces with the addresses 10.78.0.1, 10.78.0.2, … on a bridge in another.
type network struct {
	prefix string
	nodes  int
}

func (n *network) name(i int) string { return fmt.Sprintf("%s-%d", n.prefix, i) }

func newNetwork(nodes int) (*network, error) {
	n := &network{prefix: fmt.Sprintf("drun-bench-%d", os.Getpid()), nodes: nodes}
	middle := n.name(nodes)
	var steps []string
	for i := range nodes + 1 {
		steps = append(steps, "netns add "+n.name(i), "-n "+n.name(i)+" link set lo up")
	}
	steps = append(steps, "-n "+middle+" link add bridge type bridge", "-n "+middle+" link set bridge up")
	for i := range nodes {
		steps = append(steps,
			fmt.Sprintf("-n %s link add eth0 type veth peer name port%d netns %s", n.name(i), i, middle),
			fmt.Sprintf("-n %s link set port%d master bridge up", middle, i),
			fmt.Sprintf("-n %s addr add 10.78.0.%d/24 dev eth0", n.name(i), i+1),
			fmt.Sprintf("-n %s link set eth0 up", n.name(i)))
	}
	for _, step := range steps {
		if text, err := exec.Command("ip", strings.Fields(step)...).CombinedOutput(); err != nil {
			return n, fmt.Errorf("ip %s: %w: %s", step, err, text)
		}
	}
	return n, nil
}

// shape bounds what each node sends; "" is without a bound.
func (n *network) shape(speed string) error {
	for i := range n.nodes {
		_ = exec.Command("tc", "-n", n.name(i), "qdisc", "del", "dev", "eth0", "root").Run() // there may be none
		if speed == "" {
			continue
		}
		text, err := exec.Command("tc", "-n", n.name(i), "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", speed, "burst", "256kb", "latency", "20ms").CombinedOutput()
		if err != nil {
			return fmt.Errorf("tc cannot make a link of %s: %w: %s", speed, err, text)
		}
	}
	return nil
}

func (n *network) close() {
	for i := range n.nodes + 1 {
		_ = exec.Command("ip", "netns", "del", n.name(i)).Run()
	}
}

// sent is how many bytes the nodes have sent so far.
func (n *network) sent() (total float64, err error) {
	for i := range n.nodes {
		text, err := exec.Command("ip", "netns", "exec", n.name(n.nodes), "cat", fmt.Sprintf("/sys/class/net/port%d/statistics/rx_bytes", i)).Output()
		if err != nil {
			return 0, err
		}
		bytes, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil {
			return 0, err
		}
		total += bytes
	}
	return total, nil
}

// measure runs the recipe on some nodes: seconds of a large and of a small call, and the bytes of a large one beside
// the least. What a run sends besides is that of a run with fewer calls.
func (n *network) measure(ctx context.Context, drun, folder string, placement [2]int, hierarchy string, more []string) (figures [3]float64, err error) {
	const few, many = 2, 22
	var bytes [2]float64
	for i, calls := range []int{few, many} {
		before, err := n.sent()
		if err != nil {
			return figures, err
		}
		if figures[0], figures[1], err = n.run(ctx, drun, folder, "bench/nodes.star", placement, hierarchy, append(more, fmt.Sprintf("-p=calls=%d", calls), fmt.Sprintf("-p=size=%d", largeBytes))); err != nil {
			return figures, err
		}
		after, err := n.sent()
		if err != nil {
			return figures, err
		}
		bytes[i] = after - before
	}
	least := 2 * float64(placement[0]-1) * largeBytes
	figures[2] = (bytes[1] - bytes[0]) / (many - few) / least
	return figures, nil
}

// run gives the seconds that the recipe prints.
func (n *network) run(ctx context.Context, drun, folder, recipe string, placement [2]int, hierarchy string, more []string) (large, small float64, err error) {
	output, errs := make([][]byte, placement[0]), make([]error, placement[0])
	var all sync.WaitGroup
	for node := range placement[0] {
		args := append([]string{"netns", "exec", n.name(node), drun, "run", recipe, "-n", strconv.Itoa(placement[1]), "--nnodes", strconv.Itoa(placement[0]), "--node-rank", strconv.Itoa(node),
			"--rdzv", "10.78.0.1", "--threads", "1", "--timeout", "60s", "--home", filepath.Join(folder, n.name(node))}, more...)
		cmd := exec.CommandContext(ctx, "ip", args...)
		cmd.Env = append(os.Environ(), "DRUN_HIERARCHY="+hierarchy, "DRUN_BACKEND=gloo")
		all.Go(func() { output[node], errs[node] = cmd.CombinedOutput() })
	}
	all.Wait()
	for node, err := range errs {
		if err != nil {
			return 0, 0, fmt.Errorf("node %d: %w: %s", node, err, output[node])
		}
	}
	for line := range strings.Lines(string(output[0])) {
		if _, rest, ok := strings.Cut(line, "seconds: "); ok {
			_, err := fmt.Sscan(rest, &large, &small)
			return large, small, err
		}
	}
	return 0, 0, fmt.Errorf("no figures in %s", output[0])
}
