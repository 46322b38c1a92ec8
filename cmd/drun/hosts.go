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
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drun/engine/cluster"
	"drun/engine/launch"
	"drun/engine/rendezvous"
	"drun/engine/run"
	"drun/internal/try"
)

// onHosts starts the command that args are on the hosts of --hosts: node 0 in this process, by lead, if its host is this
// machine, and the others by ssh; what they print goes to out and errs. f has the flags of joinFlags. lead gets its number
// of ranks; 0: as many as -n says. Its context ends when a host has failed without which the run cannot go on.
func (j *joinFlags) onHosts(cmd *cobra.Command, f *pflag.FlagSet, args []string, out, errs io.Writer, lead func(ctx context.Context, procs int, joining *cluster.Joining) error) (err error) {
	defer try.Caught(&err)
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
		Stdout: out, Stderr: errs}
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
	added := []string{"--nnodes=" + j.nodes, "--launched"} // there, --hosts does not count
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
		args := slices.Concat(args, added, []string{"--node-rank=" + strconv.Itoa(node)})
		if n := hosts[node].Procs; n > 0 && args[0] == "run" {
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
	return l.Run(cmd.Context(), func(ctx context.Context) error { return lead(ctx, hosts[0].Procs, joining) })
}

// onItsHosts is onHosts for this process's own command line.
func (j *joinFlags) onItsHosts(cmd *cobra.Command, lead func(procs int, joining *cluster.Joining) error) error {
	return j.onHosts(cmd, cmd.Flags(), os.Args[1:], cmd.OutOrStdout(), cmd.ErrOrStderr(), func(ctx context.Context, procs int, joining *cluster.Joining) error {
		defer context.AfterFunc(ctx, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) })()
		return lead(procs, joining)
	})
}

// worldOn returns the number of ranks on the hosts of a sweep, the first of which keeps the history and so is this machine.
func worldOn(text string, each int) (world int, err error) {
	hosts, err := launch.ParseHosts(text)
	switch {
	case err != nil:
		return 0, usage("for example --hosts localhost,b,c:4", "--hosts %s: %v", text, err)
	case !isHere(hosts[0]):
		return 0, usage("for example --hosts localhost,"+text, "--hosts %s: a sweep's first host is this machine, which keeps the history", text)
	}
	for _, h := range hosts {
		world += cmp.Or(h.Procs, each)
	}
	return world, nil
}

// runCellOnHosts runs a cell of a sweep, whose command is in o, with each ranks on hosts that say no number, and so many
// threads; 0: as many as there are cores for.
func runCellOnHosts(cmd *cobra.Command, hosts string, each, threads int, o run.Options) (result *run.Result, err error) {
	var j joinFlags
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	j.add(f)
	j.hosts = hosts
	args := slices.Concat(o.Command[1:], []string{"--timeout", o.Timeout.String(), "--max-restarts", strconv.Itoa(o.MaxRestarts)})
	if o.Keep > 0 {
		args = append(args, "--keep", strconv.Itoa(o.Keep))
	}
	if threads > 0 {
		args = append(args, "--threads", strconv.Itoa(threads))
	}
	for _, dir := range o.Plugins {
		args = append(args, "--plugin-dir", dir)
	}
	err = j.onHosts(cmd, f, args, io.Discard, io.Discard, func(ctx context.Context, procs int, joining *cluster.Joining) error {
		signals, over := make(chan os.Signal, 2), make(chan struct{})
		defer close(over)
		go func(given <-chan os.Signal) {
			failed := ctx.Done()
			for {
				sig := os.Signal(syscall.SIGTERM)
				select {
				case sig = <-given:
				case <-failed:
					failed = nil
				case <-over:
					return
				}
				select {
				case signals <- sig:
				case <-over:
					return
				}
			}
		}(o.Signals)
		o.Nproc, o.Threads, o.Join, o.Signals = cmp.Or(procs, each), threads, joining, signals
		result, err = run.Run(o)
		return err
	})
	return result, err
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
	return h.Name == name || h.Name == short || h.Name == "localhost" || net.ParseIP(h.Name) != nil && cluster.OwnAddress(h.Name)
}

func loopback(address string) bool {
	return address == "localhost" || net.ParseIP(address).IsLoopback()
}

// announce tells the drun that started this node when its ranks start.
func announce(o *run.Options, to io.Writer) {
	var once sync.Once
	spawned := o.OnSpawn
	o.OnSpawn = func(rank, pid int) {
		once.Do(func() { fmt.Fprintln(to, launch.Joined) })
		if spawned != nil {
			spawned(rank, pid)
		}
	}
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
