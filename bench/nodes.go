package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"drun/internal/each"
	"drun/internal/try"
)

// nodesCommand measures collectives between nodes, which are network namespaces on one bridge: it takes root and the
// command ip. Nothing of this machine's own network is used.
const nodesCommand = "nodes"

// placements are the numbers of nodes, and of ranks on each, that are measured.
var placements = [][2]int{{2, 2}, {4, 2}, {2, 4}}

// ways are how a run's collectives cross the nodes; the first is what the others are compared with.
var ways = []struct {
	name      string
	hierarchy string // DRUN_HIERARCHY
	more      []string
}{
	{"Gloo alone in its own order", "off", []string{"--deterministic=false"}},
	{"Gloo alone", "off", nil},
	{"hierarchy", "", nil},
}

// links are the speeds of the nodes' links, in tc's notation; "" is as fast as the cores allow. Speeds of real networks
// are measured only with the first placements.
var links = []string{"", "10gbit", "1gbit"}

const shapedPlacements = 2

const largeBytes = 16 << 20

// measureNodes prints, for each placement, speed of links and way, the time of an all_reduce of 16 MiB and of 4 bytes, and what the
// nodes sent for the large one, as a multiple of the least that is possible: each node its data and each result once.
func measureNodes(ctx context.Context, args []string, out io.Writer) (err error) {
	defer try.Caught(&err)
	flags := flag.NewFlagSet(nodesCommand, flag.ContinueOnError)
	drun := flags.String("drun", "bin/drun", "the drun to measure")
	rounds := flags.Int("rounds", 3, "how many times to measure everything")
	speeds := flags.String("links", strings.Join(links, ","), "speeds of the links as tc says them; empty: as fast as the cores")
	try.Ok(flags.Parse(args))
	net, err := newNetwork(*drun, slices.Max(each.Of(placements, func(p [2]int) int { return p[0] })))
	defer net.close()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\nMedians of %d rounds.\n\n| nodes × ranks | links | way | all_reduce of 16 MiB | beside Gloo alone in its own order | bytes sent beside the least | all_reduce of 4 B |\n|---|---|---|---:|---:|---:|---:|\n", machine(), *rounds)
	for _, speed := range strings.Split(*speeds, ",") {
		try.Ok(net.shape(speed))
		for i, p := range placements {
			if speed != "" && i >= shapedPlacements {
				break
			}
			if err := net.compare(ctx, out, p, speed, *rounds); err != nil {
				return fmt.Errorf("%d × %d, %w", p[0], p[1], err)
			}
		}
	}
	return nil
}

// compare measures the ways in turn, and prints medians, also of the ratios: what else this machine does slows down all
// ways of a round.
func (n *network) compare(ctx context.Context, out io.Writer, placement [2]int, speed string, rounds int) error {
	all := make([][4][]float64, len(ways)) // large, small, sent, large beside the first way's
	for range rounds {
		for i, w := range ways {
			figures, err := n.measure(ctx, placement, w.hierarchy, w.more)
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

// measure runs the recipe on some nodes: seconds of a large and of a small call, and the bytes of a large one beside
// the least. What a run sends besides is that of a run with fewer calls.
func (n *network) measure(ctx context.Context, placement [2]int, hierarchy string, more []string) (figures [3]float64, err error) {
	defer try.Caught(&err)
	const few, many = 2, 22
	var bytes [2]float64
	for i, calls := range []int{few, many} {
		before := try.To(n.sent())
		figures[0], figures[1] = try.To2(n.run(ctx, "bench/nodes.star", placement, hierarchy, append(more, fmt.Sprintf("-p=calls=%d", calls), fmt.Sprintf("-p=size=%d", largeBytes))))
		after := try.To(n.sent())
		bytes[i] = after - before
	}
	least := 2 * float64(placement[0]-1) * largeBytes
	figures[2] = (bytes[1] - bytes[0]) / (many - few) / least
	return figures, nil
}

// sent returns how many bytes the nodes have sent so far.
func (n *network) sent() (total float64, err error) {
	defer try.Caught(&err)
	for i := range n.nodes {
		total += try.To(n.counter(i, "rx_bytes"))
	}
	return total, nil
}
