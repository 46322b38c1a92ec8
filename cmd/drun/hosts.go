package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"drun/engine/cluster"
	"drun/engine/launch"
	"drun/engine/rendezvous"
	"drun/engine/run"
	"drun/internal/try"
)

// onHosts starts this command on the hosts of --hosts: node 0 in this process, by lead, if its host is this machine, and
// the others by ssh. lead gets its number of ranks; 0: as many as -n says.
func (j *joinFlags) onHosts(cmd *cobra.Command, lead func(procs int, joining *cluster.Joining) error) (err error) {
	defer try.Caught(&err)
	f := cmd.Flags()
	hosts, err := launch.ParseHosts(j.hosts)
	if err != nil {
		return usage("for example --hosts a,b,c:4", "--hosts %s: %v", j.hosts, err)
	}
	for _, name := range []string{"node-rank", "rdzv-backend", "standalone", "rdzv-secret-file", "insecure"} {
		if f.Changed(name) {
			return usage("leave it out", "--%s is for nodes that are started by hand, and --hosts starts them", name)
		}
	}
	if len(hosts) == 1 && isHere(hosts[0]) {
		return usage("for example --hosts a,b,c:4", "--hosts %s: a run on this machine alone needs none", j.hosts)
	}
	if !f.Changed("nnodes") {
		j.nodes = strconv.Itoa(len(hosts))
	}
	least, most, err := rendezvous.ParseNodes(j.nodes)
	if err == nil && most != len(hosts) {
		return usage("leave --nnodes out, or give MIN:MAX for a run that survives the loss of a node", "--nnodes %s and --hosts with %d hosts contradict each other", j.nodes, len(hosts))
	}
	l := &launch.Launch{Hosts: hosts, SSH: strings.Fields(cmp.Or(os.Getenv("DRUN_SSH"), "ssh")), Secret: rand.Text(), Elastic: least > 0,
		Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
	if l.Dir, err = os.Getwd(); err == nil {
		l.Program, err = os.Executable()
	}
	try.Ok(err)
	for _, text := range os.Environ() {
		if strings.HasPrefix(text, "DRUN_") && !strings.HasPrefix(text, "DRUN_RDZV_SECRET=") && !strings.HasPrefix(text, "DRUN_SSH=") {
			l.Environ = append(l.Environ, text)
		}
	}
	here := isHere(hosts[0])
	added := []string{"--nnodes=" + j.nodes, "--launched"}
	if j.meet == "" && j.host == "" {
		j.host = l.Address(cmd.Context(), hosts[0])
		if here && loopback(j.host) && slices.ContainsFunc(hosts[1:], func(h launch.Host) bool { return !loopback(l.Address(cmd.Context(), h)) }) {
			return usage("name this machine as the others reach it, or give --rdzv", "--hosts %s: the other hosts cannot reach node 0 at %s", j.hosts, j.host)
		}
		if !f.Changed("master-port") {
			j.port = anyPort()
		}
		added = append(added, "--master-addr="+j.host, "--master-port="+strconv.Itoa(j.port))
	}
	if j.id == "" {
		j.id = rand.Text()
		added = append(added, "--rdzv-id="+j.id)
	}
	l.Args = func(node int) []string {
		args := slices.Concat(withoutHosts(os.Args[1:]), added, []string{"--node-rank=" + strconv.Itoa(node)})
		if n := hosts[node].Procs; n > 0 && f.Lookup("nproc") != nil {
			args = append(args, "--nproc="+strconv.Itoa(n))
		}
		return args
	}
	if !here {
		signals := make(chan os.Signal, 2)
		signal.Notify(signals, run.Signals...)
		defer signal.Stop(signals)
		l.Signals = signals
		return l.Run(cmd.Context(), nil)
	}
	j.given = l.Secret
	try.Ok(f.Set("node-rank", "0"))
	joining := try.To(j.byHand(f))
	return l.Run(cmd.Context(), func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) })()
		return lead(hosts[0].Procs, joining)
	})
}

// anyPort returns a port for node 0, at random, for two runs may have the same hosts; below those that systems give to
// outgoing connections.
func anyPort() int {
	n, err := rand.Int(rand.Reader, big.NewInt(10000))
	try.Ok(err)
	return 20000 + int(n.Int64())
}

func isHere(h launch.Host) bool {
	name, _ := os.Hostname()
	short, _, _ := strings.Cut(name, ".")
	addresses, _ := net.InterfaceAddrs()
	return h.Here([]string{name, short}, addresses)
}

func loopback(address string) bool {
	return address == "localhost" || net.ParseIP(address).IsLoopback()
}

// withoutHosts removes --hosts from a command line.
func withoutHosts(args []string) (out []string) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--hosts":
			i++
		case !strings.HasPrefix(args[i], "--hosts="):
			out = append(out, args[i])
		}
	}
	return out
}

// obeyLauncher reads what the drun that started this node sends it on standard input: the run's secret, then signals, a
// number a line. When that drun has ended, or the connection to it, the run here does too.
func obeyLauncher(from io.Reader, to io.Writer) (secret string, err error) {
	in := bufio.NewReader(from)
	secret, err = in.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("standard input ended before the secret: %w", err)
	}
	fmt.Fprintln(to, launch.Started)
	go func() {
		for {
			line, err := in.ReadString('\n')
			number, _ := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				number = int(syscall.SIGTERM)
			}
			if sig := syscall.Signal(number); slices.Contains(run.Signals, os.Signal(sig)) {
				_ = syscall.Kill(os.Getpid(), sig)
			}
			if err != nil {
				return
			}
		}
	}()
	return strings.TrimSpace(secret), nil
}
