package launch

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"drun/engine"
	"drun/engine/nodes"
	"drun/engine/rendezvous"
	"drun/internal/exit"
)

// node is another agent of the run, as the head sees it.
type node struct {
	*nodes.Hello
	link  *nodes.Link
	ranks []int
	shift atomic.Int64 // from its clock to ours

	lost          bool           // it is gone
	wanted, shown uint64         // the latest round that it was asked in, and has answered
	ask           uint32         // of reports on its board, see board.Board.Asks
	asked, told   uint32         // of them before this round; those answered
	knows         map[int]uint64 // marks of ranks that it was told of

	inbox chan *nodes.ToHead // what it says; closed when it is gone
	err   error              // why, then
}

// left reports, before anybody reads the inbox, whether it is gone.
func (n *node) left() bool {
	select {
	case _, more := <-n.inbox:
		return !more // nothing is said before the run starts
	default:
		return false
	}
}

// read fills the inbox until the link ends.
func (n *node) read() {
	defer close(n.inbox)
	for {
		msg := new(nodes.ToHead)
		if n.err = n.link.Receive(msg); n.err != nil {
			return
		}
		select {
		case n.inbox <- msg:
		case <-n.link.Done():
			n.err = io.EOF
			return
		}
	}
}

// latecomers are told for so long why a run will not be.
const latecomers = 300 * time.Millisecond

// noteAfter is when somebody who watches is told who is waited for.
const noteAfter = 3 * time.Second

// helloLimit is how long one who has connected may take to say who it is.
const helloLimit = 10 * time.Second

// resolvable reports an address that the others cannot find either.
func resolvable(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return nil // Listen says more
	}
	ctx, cancel := context.WithTimeout(context.Background(), helloLimit)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
		return engine.Errorf(engine.ExitUsage, "the address %s, at which the others look for this process, is not known: %v", host, err)
	}
	return nil
}

// gather waits, on the head, until all processes of the run have come, and
// settles the ranks' places and the backend. Errors of usage end all of them.
func (a *agent) gather() error {
	j := a.o.Join
	if err := resolvable(j.Address); err != nil {
		return err
	}
	a.meeting.Token = rendezvous.NewToken()
	server, err := rendezvous.Listen(listenAddress(j.Address), a.meeting.Token)
	if err != nil {
		return &engine.Error{Code: engine.ExitUsage, Msg: err.Error(), Err: err}
	}
	a.server = server
	a.meeting.Address = reachable(server.Addr())
	door := &door{came: make(chan *node), shut: make(chan struct{})}
	server.Agents(j.Secret, door.admit)
	own := &node{Hello: hello(a.o, a.bundle)}
	came, err := a.await(door, own)
	if err == nil {
		err = a.settle(own, came)
	}
	door.err = err
	close(door.shut)
	if err != nil {
		if exit.CodeOf(err) == engine.ExitUsage && len(came) < j.Count-1 {
			time.Sleep(latecomers)
		}
		for _, n := range came {
			n.link.Send(&nodes.ToMember{Refused: refusal(err)})
		}
		for _, n := range came {
			n.link.Close()
		}
		server.Close()
	}
	return err
}

// reachable is the address for our own ranks of a server that listens everywhere.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// door is where processes come in.
type door struct {
	came chan *node
	shut chan struct{} // closed when nobody is waited for any more
	err  error         // then: why the run will not be
}

// admit takes a connection, and holds it until the link is closed.
func (d *door) admit(conn net.Conn) {
	n := &node{link: nodes.NewLink(conn), inbox: make(chan *nodes.ToHead)}
	defer n.link.Close()
	late := time.AfterFunc(helloLimit, func() { conn.Close() })
	var first nodes.ToHead
	err := n.link.Receive(&first)
	if !late.Stop() || err != nil || first.Hello == nil {
		return
	}
	n.Hello = first.Hello
	select {
	case d.came <- n:
	case <-d.shut:
		if d.err != nil {
			n.link.Send(&nodes.ToMember{Refused: refusal(d.err)})
			return
		}
		n.link.Send(refuse("the run at this address has all its processes"))
		return
	}
	n.read()
}

// await lets the others in, one for each place.
func (a *agent) await(d *door, own *node) (came []*node, err error) {
	j := a.o.Join
	at := map[int]*node{0: own}
	watch := time.NewTicker(50 * time.Millisecond)
	defer watch.Stop()
	deadline, patience := after(a.o.Timeout), time.After(noteAfter)
	for len(at) < j.Count {
		select {
		case n := <-d.came:
			if err := own.accepts(n.Hello); err != nil {
				n.link.Send(&nodes.ToMember{Refused: refusal(err)})
				return others(at), err
			}
			if other := at[n.Index]; other != nil {
				n.link.Send(refuse("there are two of %s: %s has come before", n.Noun(), other.Who()))
				go n.link.Close()
				continue
			}
			n.link.Trust()
			at[n.Index] = n
		case <-watch.C:
			for i, n := range at {
				if n != own && n.left() { // it may come again
					delete(at, i)
					go n.link.Close()
				}
			}
		case sig, ok := <-a.o.Signals:
			if ok {
				return others(at), interrupted(sig)
			}
		case <-patience:
			a.console.note(fmt.Sprintf("drun: waiting at %s for %s of %d", j.Address, listed(own.kind(), missing(at, j.Count)), j.Count))
		case <-deadline:
			return others(at), &engine.Error{Code: engine.ExitTimeout,
				Msg:  fmt.Sprintf("%s of %d did not come to %s within %v", listed(own.kind(), missing(at, j.Count)), j.Count, j.Address, a.o.Timeout),
				Hint: "see what these processes say; the firewall must let them reach that port"}
		}
	}
	return others(at), nil
}

// missing lists those who have not come.
func missing(at map[int]*node, count int) (list []int) {
	for i := range count {
		if at[i] == nil {
			list = append(list, i)
		}
	}
	return list
}

// accepts reports why the run cannot be with that process.
func (n *node) accepts(h *nodes.Hello) error {
	if (n.Place == nil) != (h.Place == nil) {
		return &engine.Error{Code: engine.ExitUsage, Msg: fmt.Sprintf("%s was started by --nnodes, %s by RANK: all must be started alike", byHand(n.Hello, h).Who(), byHand(h, n.Hello).Who())}
	}
	if err := nodes.Differ(n.Hello, h); err != nil {
		return err
	}
	if h.Index < 1 || h.Index >= h.Count || h.Procs < 1 || h.Procs > MaxRanks {
		return engine.Errorf(engine.ExitUsage, "%s of %d, with %d ranks, cannot be", h.Who(), h.Count, h.Procs)
	}
	return nil
}

// byHand picks the one without a place, else the second.
func byHand(a, b *nodes.Hello) *nodes.Hello {
	if a.Place == nil {
		return a
	}
	return b
}

func (n *node) kind() string {
	if n.Place != nil {
		return "rank"
	}
	return "node"
}

// others lists all but the head.
func others(at map[int]*node) (list []*node) {
	for i, n := range at {
		if i != 0 {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(x, y *node) int { return x.Index - y.Index })
	return list
}

func interrupted(sig os.Signal) error {
	return engine.Errorf(engine.ExitInterrupted, "interrupted by %s while waiting for the other processes of the run", signalName(sig))
}
