package cluster

import (
	"context"
	"drun/internal/exit"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/rendezvous"
)

// Cluster is what the coordinator has when all processes of a run have joined.
type Cluster struct {
	Server  *rendezvous.Server // the key-value store, at the address where they joined
	Token   string             // of the store
	Address string             // of the store, for this machine's ranks
	Members []*Member
	Places  []rendezvous.Place // by rank; the first ranks are the coordinator's own
	// OneMachine: ranks that were started by themselves are all on this machine.
	OneMachine  bool
	NodeAddress string // of this machine, as the others reach it; "" on one machine
}

// Member is another process of the run, as the coordinator sees it.
type Member struct {
	*Hello
	Link  *Conn[ToCoordinator, ToNode]
	Ranks []int
	Inbox chan *ToCoordinator // what it says; closed when it is gone
	Err   error               // why, then
}

// left reports, before anybody reads the inbox, whether the process is gone.
func (m *Member) left() bool {
	select {
	case _, more := <-m.Inbox:
		return !more // nothing is said before the run starts
	default:
		return false
	}
}

// Read fills the inbox until the link ends.
func (m *Member) Read() {
	defer close(m.Inbox)
	for {
		msg, err := m.Link.Receive()
		if err != nil {
			m.Err = err
			return
		}
		select {
		case m.Inbox <- msg:
		case <-m.Link.Done():
			m.Err = io.EOF
			return
		}
	}
}

const (
	// lateFor is how long the coordinator stays to tell processes that join late why
	// there will be no run.
	lateFor = 300 * time.Millisecond
	// noteAfter is when a person who watches is told which processes are missing.
	noteAfter = 3 * time.Second
	// helloLimit is how long a process that has connected may take to say what it is.
	helloLimit = 10 * time.Second
)

// Waiting is how the coordinator waits for the others.
type Waiting struct {
	Timeout  time.Duration
	Signals  <-chan os.Signal
	Note     func(text string)
	MaxRanks int
}

// Form waits at the coordinator until all processes of the run have joined, and
// assigns the ranks' places. decide may refuse the run: that error, and errors of
// usage, end all its processes.
func Form(j *Joining, own *Hello, w Waiting, decide func(*Cluster) error) (*Cluster, error) {
	if err := resolvable(j.Address); err != nil {
		return nil, err
	}
	c := &Cluster{Token: rendezvous.NewToken()}
	server, err := rendezvous.Listen(listenAddress(j.Address), c.Token)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "%w", err)
	}
	c.Server, c.Address = server, reachable(server.Addr())
	l := &listener{joined: make(chan *Member), closed: make(chan struct{})}
	server.Agents(j.Secret, l.admit)
	c.Members, err = awaitMembers(j, own, w, l)
	if err == nil {
		err = c.assignPlaces(own, w.MaxRanks)
	}
	if err == nil {
		err = decide(c)
	}
	l.err = err
	close(l.closed)
	if err == nil {
		return c, nil
	}
	refusal := engine.NewFailure(-1, err, 0)
	if refusal.Code == exit.Usage && len(c.Members) < j.Count-1 {
		time.Sleep(lateFor)
	}
	for _, m := range c.Members {
		m.Link.Send(&ToNode{Refused: refusal})
	}
	for _, m := range c.Members {
		m.Link.Close()
	}
	server.Close()
	return nil, err
}

// resolvable reports an address that the others cannot find either.
func resolvable(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return nil // Listen says more
	}
	ctx, cancel := context.WithTimeout(context.Background(), helloLimit)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
		return exit.Errorf(exit.Usage, "the address %s, at which the others look for this process, is not known: %v", host, err)
	}
	return nil
}

// reachable is the address for this machine's ranks of a server that listens everywhere.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// listener hands processes that connect to the coordinator.
type listener struct {
	joined chan *Member
	closed chan struct{} // when nobody is waited for any more
	err    error         // then: why there will be no run
}

// admit takes a connection, and holds it until the link is closed.
func (l *listener) admit(conn net.Conn) {
	m := &Member{Link: NewConn[ToCoordinator, ToNode](conn), Inbox: make(chan *ToCoordinator)}
	defer m.Link.Close()
	late := time.AfterFunc(helloLimit, func() { conn.Close() })
	first, err := m.Link.Receive()
	if !late.Stop() || err != nil || first.Hello == nil {
		return
	}
	m.Hello = first.Hello
	select {
	case l.joined <- m:
	case <-l.closed:
		if l.err != nil {
			m.Link.Send(&ToNode{Refused: engine.NewFailure(-1, l.err, 0)})
			return
		}
		m.Link.Send(refuse("the run at this address has all its processes"))
		return
	}
	m.Read()
}

// refuse is what a process is told that is too late or does not belong.
func refuse(format string, args ...any) *ToNode {
	return &ToNode{Refused: engine.NewFailure(-1, exit.Errorf(exit.Usage, format, args...), 0)}
}

// awaitMembers lets the other processes in, one for each place.
func awaitMembers(j *Joining, own *Hello, w Waiting, l *listener) (joined []*Member, err error) {
	at := map[int]*Member{0: {Hello: own}}
	others := func() (list []*Member) {
		for i, m := range at {
			if i != 0 {
				list = append(list, m)
			}
		}
		slices.SortFunc(list, func(x, y *Member) int { return x.Index - y.Index })
		return list
	}
	missing := func() string {
		var list []int
		for i := range j.Count {
			if at[i] == nil {
				list = append(list, i)
			}
		}
		const most = 8
		names := collective.NumberList(own.kind(), list[:min(len(list), most)])
		if more := len(list) - most; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		return fmt.Sprintf("%s of %d", names, j.Count)
	}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	var deadline <-chan time.Time
	if w.Timeout > 0 {
		deadline = time.After(w.Timeout)
	}
	note := time.After(noteAfter)
	for len(at) < j.Count {
		select {
		case m := <-l.joined:
			if err := own.accepts(m.Hello); err != nil {
				m.Link.Send(&ToNode{Refused: engine.NewFailure(-1, err, 0)})
				return others(), err
			}
			if other := at[m.Index]; other != nil {
				m.Link.Send(refuse("there are two of %s: %s has come before", m.Noun(), other.Who()))
				go m.Link.Close()
				continue
			}
			m.Link.Trust()
			at[m.Index] = m
		case <-look.C:
			for i, m := range at {
				if i != 0 && m.left() { // it may come again
					delete(at, i)
					go m.Link.Close()
				}
			}
		case sig, ok := <-w.Signals:
			if ok {
				return others(), interrupted(sig)
			}
			w.Signals = nil
		case <-note:
			w.Note(fmt.Sprintf("drun: waiting at %s for %s", j.Address, missing()))
		case <-deadline:
			return others(), exit.WithHint(exit.Errorf(exit.Timeout, "%s did not come to %s within %v", missing(), j.Address, w.Timeout),
				"see what these processes say; the firewall must let them reach that port")
		}
	}
	return others(), nil
}

// accepts reports why the run cannot be with that process.
func (h *Hello) accepts(other *Hello) error {
	if (h.Place == nil) != (other.Place == nil) {
		byHand, placed := h, other
		if h.Place != nil {
			byHand, placed = other, h
		}
		return exit.Errorf(exit.Usage, "%s was started by --nnodes, %s by RANK: all must be started alike", byHand.Who(), placed.Who())
	}
	if err := Differ(h, other); err != nil {
		return err
	}
	if other.Index < 1 || other.Index >= other.Count || other.Procs < 1 {
		return exit.Errorf(exit.Usage, "%s of %d, with %d ranks, cannot be", other.Who(), other.Count, other.Procs)
	}
	return nil
}

func interrupted(sig os.Signal) error {
	return exit.Errorf(exit.Interrupted, "interrupted by %s while waiting for the other processes of the run", engine.SignalName(sig))
}
