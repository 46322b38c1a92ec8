package launch

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"drun/engine"
	"drun/engine/nodes"
	"drun/engine/rendezvous"
)

// node is another agent of the run, as the head sees it.
type node struct {
	*nodes.Hello
	link  *nodes.Link
	ranks []int
	shift int64 // from its clock to ours

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

// helloLimit is how long one who has connected may take to say who it is.
const helloLimit = 10 * time.Second

// gather waits, on the head, until all processes of the run have come, and
// settles the ranks' places and the backend. Errors of usage end all of them.
func (a *agent) gather() error {
	j := a.o.Join
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
		if codeOf(err) == engine.ExitUsage && len(came) < j.Count-1 {
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
	deadline := after(a.o.Timeout)
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
		case <-deadline:
			var missing []int
			for i := range j.Count {
				if at[i] == nil {
					missing = append(missing, i)
				}
			}
			return others(at), &engine.Error{Code: engine.ExitTimeout,
				Msg:  fmt.Sprintf("%s of %d did not come to %s within %v", listed(own.kind(), missing), j.Count, j.Address, a.o.Timeout),
				Hint: "see what these processes say; the firewall must let them reach that port"}
		}
	}
	return others(at), nil
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

// settle gives everyone its ranks, and chooses the backend.
func (a *agent) settle(own *node, members []*node) error {
	all := append([]*node{own}, members...)
	a.nodes, a.places = members, nil
	oneMachine := own.Place != nil
	for _, n := range all {
		oneMachine = oneMachine && n.Place.Nodes == 1 && n.Machine == own.Machine
		for local := range n.Procs {
			p := rendezvous.Place{Rank: len(a.places), LocalRank: local, LocalSize: n.Procs, NodeRank: n.Index, Nodes: len(all)}
			n.ranks = append(n.ranks, p.Rank)
			a.places = append(a.places, p)
		}
	}
	a.world = len(a.places)
	if a.world > MaxRanks {
		return engine.Errorf(engine.ExitUsage, "%d ranks: a run has at most %d", a.world, MaxRanks)
	}
	if own.Place != nil {
		placeAlone(all, a.places)
	}
	for i := range a.places {
		a.places[i].WorldSize = a.world
	}
	a.oneBoard = oneMachine
	for _, n := range members {
		if ip := ipOf(n.link.Local()); a.address == "" || net.ParseIP(a.address).IsLoopback() {
			a.address = ip
		}
	}
	if oneMachine {
		a.address = ""
	} else {
		a.lookAround = time.Tick(lookEvery)
	}
	return a.settleBackend(own, members)
}

// placeAlone places ranks that were started by themselves: as they were told,
// or, where that cannot be since they are on several machines, by machine.
func placeAlone(all []*node, places []rendezvous.Place) {
	var machines []string
	members := map[string][]int{}
	told := true
	for i, n := range all {
		places[i] = *n.Place
		if !slices.Contains(machines, n.Machine) {
			machines = append(machines, n.Machine)
		}
		members[n.Machine] = append(members[n.Machine], i)
		told = told && n.Place.Nodes > 1
	}
	if told || len(machines) == 1 {
		return
	}
	for node, machine := range machines {
		for local, rank := range members[machine] {
			places[rank].LocalRank, places[rank].LocalSize = local, len(members[machine])
			places[rank].NodeRank, places[rank].Nodes = node, len(machines)
		}
	}
}

// settleBackend chooses what is still open: shm where ranks that were started
// by themselves turn out to be on one machine.
func (a *agent) settleBackend(own *node, members []*node) (err error) {
	switch {
	case a.oneBoard && a.o.Backend == "":
		a.o.Backend = builtIn
	case a.oneBoard:
	case a.o.Backend == "":
		a.o, a.plugin, err = overNetwork(a.o)
	case a.o.Backend == builtIn:
		for _, n := range members {
			if n.Machine != own.Machine {
				return &engine.Error{Code: engine.ExitBackend, Msg: fmt.Sprintf("the backend shm reaches the ranks of one machine only: %s and %s are on different ones, or cannot share memory", own.Who(), n.Who()),
					Hint: "use --backend gloo, or leave the choice to drun"}
			}
		}
		return &engine.Error{Code: engine.ExitBackend, Msg: "the backend shm reaches the ranks of one machine only, and LOCAL_WORLD_SIZE says that there are several", Hint: "use --backend gloo"}
	}
	return err
}

func interrupted(sig os.Signal) error {
	return engine.Errorf(engine.ExitInterrupted, "interrupted by %s while waiting for the other processes of the run", signalName(sig))
}
