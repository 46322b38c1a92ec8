// Package launch starts the nodes of a run on other machines by OpenSSH's client, and sees that they end with the run.
package launch

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Launch says what is started on which hosts. Node i runs on Hosts[i].
type Launch struct {
	Hosts   []Host
	SSH     []string // the command that takes a host and what to run there: ssh, or what stands for it
	Program string   // drun, where the other machines have it at the same path; otherwise the one in their PATH is used
	Dir     string   // the working folder, on every machine
	Args    func(node int) []string
	Environ []string // NAME=value
	Secret  string   // the first line on each node's standard input
	Elastic bool     // the run goes on without a node that fails
	Stdout  io.Writer
	Stderr  io.Writer
	Signals <-chan os.Signal // for node 0, if it is on another machine

	output sync.Mutex // held while a line is written
}

const (
	startWithin = 40 * time.Second // until drun has begun on a host
	tellWithin  = 3 * time.Second  // for node 0 to say why a node has ended
	endWithin   = 10 * time.Second // for a node after node 0, and once more after it was told
)

// SSHOptions have ssh fail where it would ask, and notice a host that is gone.
var SSHOptions = []string{"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4", "-o", "LogLevel=ERROR"}

// Address returns the name or address at which other machines reach a host, for which ssh may have an alias.
func (l *Launch) Address(ctx context.Context, h Host) string {
	out, _ := exec.CommandContext(ctx, l.SSH[0], slices.Concat(l.SSH[1:], []string{"-G", "--", h.Name})...).Output()
	for line := range strings.Lines(string(out)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == "hostname" {
			return value
		}
	}
	return h.Name[strings.LastIndex(h.Name, "@")+1:]
}

// Run starts the nodes and waits until the run has ended. Node 0 is lead; if lead is nil, it runs on Hosts[0]. lead's
// context ends when a node has failed without which the run cannot go on. The error is node 0's, or that node's.
func (l *Launch) Run(ctx context.Context, lead func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{}) // closed once node 0 has ended
	first := 0
	if lead != nil {
		first = 1
	}
	nodes := make([]*node, 0, len(l.Hosts))
	for i := first; i < len(l.Hosts); i++ {
		nodes = append(nodes, l.start(i))
	}
	if lead == nil {
		lead = func(ctx context.Context) error { return nodes[0].obey(ctx, l) }
	}
	for _, n := range nodes {
		go func() {
			<-n.done
			fault := n.fault(l.Program, l.Dir)
			if fault == nil || n.index == 0 || n.is(&n.joined) || n.is(&n.told) { // what happens in the run, node 0 tells
				return
			}
			if n.is(&n.started) { // node 0 may have ended it, and says why
				select {
				case <-over:
					return
				case <-time.After(tellWithin):
				}
			}
			if l.Elastic {
				l.say(fault)
			} else {
				cancel(fault)
			}
		}()
	}
	err := lead(ctx)
	close(over)
	fault := context.Cause(ctx)
	patience := endWithin
	if err != nil || fault != nil { // nodes that have not met node 0 would look for it
		patience = time.Second
	}
	end(nodes, patience)
	return cmp.Or(fault, err)
}

func (l *Launch) say(err error) {
	l.output.Lock()
	defer l.output.Unlock()
	fmt.Fprintf(l.Stderr, "drun: %v\n", err)
}

// end waits for the nodes, which node 0 has told to end; those that did not hear it are ended.
func end(nodes []*node, patience time.Duration) {
	wait := func(d time.Duration) {
		limit := time.After(d)
		for _, n := range nodes {
			select {
			case <-n.done:
			case <-limit:
				return
			}
		}
	}
	wait(patience)
	for _, n := range nodes {
		if n.control != nil {
			n.willEnd()
			n.control.Close()
		}
	}
	wait(endWithin)
	for _, n := range nodes {
		n.kill()
	}
}

// Host is a machine on which a node of the run starts.
type Host struct {
	Name  string // as ssh takes it: a name, an address or an alias, perhaps as user@name
	Procs int    // ranks there; 0: as many as on the other hosts
}

// ParseHosts parses host names that are separated by commas. HOST:N starts N ranks there; an IPv6 address with a number
// of ranks stands in brackets.
func ParseHosts(text string) (hosts []Host, err error) {
	for name := range strings.SplitSeq(text, ",") {
		h := Host{Name: name}
		if host, procs, err := net.SplitHostPort(name); err == nil {
			if h.Procs, err = strconv.Atoi(procs); err != nil || h.Procs < 1 {
				return nil, fmt.Errorf("%s: want HOST or HOST:RANKS, with a number of ranks from 1", name)
			}
			h.Name = host
		}
		// ssh would take -x for an option.
		if h.Name == "" || h.Name[0] == '-' || strings.ContainsFunc(h.Name, func(r rune) bool { return r <= ' ' || r > '~' || r == '[' || r == ']' }) {
			return nil, fmt.Errorf("%q is no name of a host", h.Name)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}
