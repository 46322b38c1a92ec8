package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"drun/internal/try"
)

// network is some nodes: network namespaces with the addresses 10.78.0.1, 10.78.0.2, … on a bridge in another. It takes
// root and the command ip.
type network struct {
	drun   string // the program that runs on the nodes
	folder string // the homes of their runs
	prefix string
	nodes  int
}

func (n *network) name(i int) string { return fmt.Sprintf("%s-%d", n.prefix, i) }

// newNetwork makes a network. It must be closed even after an error.
func newNetwork(drun string, nodes int) (n *network, err error) {
	defer try.Caught(&err)
	n = &network{drun: drun, prefix: fmt.Sprintf("drun-bench-%d", os.Getpid()), nodes: nodes}
	n.folder = try.To(os.MkdirTemp("", "drun-bench-"))
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
		try.Ok(system("ip", strings.Fields(step)...))
	}
	return n, nil
}

func (n *network) close() {
	for i := range n.nodes + 1 {
		_ = system("ip", "netns", "del", n.name(i))
	}
	if n.folder != "" {
		os.RemoveAll(n.folder)
	}
}

func system(name string, args ...string) error {
	if text, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return nil
}

// shape limits the rate at which each node sends, in tc's notation; "" removes the limit.
func (n *network) shape(rate string) error {
	for i := range n.nodes {
		_ = system("tc", "-n", n.name(i), "qdisc", "del", "dev", "eth0", "root") // there may be none
		if rate == "" {
			continue
		}
		if err := system("tc", "-n", n.name(i), "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "20ms"); err != nil {
			return fmt.Errorf("no link of %s: %w", rate, err)
		}
	}
	return nil
}

// counter returns a counter of a node's port on the bridge: rx_bytes counts what the node has sent, tx_bytes what it has received.
func (n *network) counter(node int, name string) (float64, error) {
	text, err := exec.Command("ip", "netns", "exec", n.name(n.nodes), "cat", fmt.Sprintf("/sys/class/net/port%d/statistics/%s", node, name)).Output()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
}

// run runs a recipe on nodes × ranks, and returns the seconds that it prints.
func (n *network) run(ctx context.Context, recipe string, placement [2]int, hierarchy string, more []string) (large, small float64, err error) {
	output, errs := make([][]byte, placement[0]), make([]error, placement[0])
	var all sync.WaitGroup
	for node := range placement[0] {
		args := append([]string{"netns", "exec", n.name(node), n.drun, "run", recipe, "-n", strconv.Itoa(placement[1]), "--nnodes", strconv.Itoa(placement[0]), "--node-rank", strconv.Itoa(node),
			"--rdzv", "10.78.0.1", "--threads", "1", "--timeout", "60s", "--home", filepath.Join(n.folder, n.name(node))}, more...)
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

// meetCommand measures how long many ranks on several nodes, which are network namespaces, take from start to exit: it takes
// root and the command ip.
const meetCommand = "meet"

// measureMeeting prints the seconds and the processor time of each round. The latter depends little on what else the machine does.
func measureMeeting(ctx context.Context, args []string, out io.Writer) (err error) {
	defer try.Caught(&err)
	flags := flag.NewFlagSet(meetCommand, flag.ContinueOnError)
	drun := flags.String("drun", "bin/drun", "the drun to measure")
	rounds := flags.Int("rounds", 3, "how many times to measure")
	nodes := flags.Int("nodes", 8, "how many nodes")
	ranks := flags.Int("ranks", 8, "ranks of each")
	try.Ok(flags.Parse(args))
	net, err := newNetwork(*drun, *nodes)
	defer net.close()
	try.Ok(err)
	fmt.Fprintf(out, "%s\n\n%d nodes × %d ranks\n", machine(), *nodes, *ranks)
	for range *rounds {
		began, used := time.Now(), childrenTime()
		try.To2(net.run(ctx, "bench/meet.star", [2]int{*nodes, *ranks}, "", nil))
		fmt.Fprintf(out, "%.2f s from start to exit, %.2f s of processor time\n", time.Since(began).Seconds(), childrenTime()-used)
	}
	return nil
}

// childrenTime returns the processor time, in seconds, of all child processes that have ended.
func childrenTime() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u) != nil {
		return 0
	}
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
}
