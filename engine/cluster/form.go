package cluster

import (
	"cmp"
	"context"
	"drun/internal/exit"
	"errors"
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

// Cluster is what the coordinator has once all processes of a run have joined.
type Cluster struct {
	Listener   *rendezvous.Listener // where the processes joined; nil: there is one process
	Address    string               // at which this machine reaches it
	Members    []*Member
	Placements []rendezvous.Placement // by rank; the first ranks are the coordinator's own
	// OneMachine: ranks that were started by themselves are all on this machine.
	OneMachine bool
	Own        []int // this process's ranks
	// Joins delivers processes that come later, about which Admit decides; nil: the run is not elastic.
	Joins <-chan *Member

	joining *Joining
	own     *Hello
}

// Member is another process of the run, as the coordinator sees it.
type Member struct {
	*Hello
	Link  *Conn[ToCoordinator, ToNode]
	Ranks []int
	Inbox chan *ToCoordinator // its messages; closed when it is gone
	Err   error               // why it is gone, once Inbox is closed
}

// Left reports, before anybody reads the inbox, whether the process is gone.
func (m *Member) Left() bool {
	select {
	case _, more := <-m.Inbox:
		return !more // a process says nothing before the run starts
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
	// lateFor is how long the coordinator stays to tell processes that join late why there will be no run.
	lateFor = 300 * time.Millisecond
	// noteAfter is how long the user waits to be told which processes are missing.
	noteAfter = 3 * time.Second
	// leaderLimit is how long a process that should lead, but finds its port in use, asks who is there.
	leaderLimit = 2 * time.Second
	// helloLimit is how long a process that has connected may take to identify itself.
	helloLimit = 10 * time.Second
)

// Waiting is how the coordinator waits for the others.
type Waiting struct {
	Timeout  time.Duration
	Note     func(text string)
	MaxRanks int
}

// Form waits at the coordinator until all processes of the run have joined, or ctx ends, and assigns the ranks' places.
// decide may refuse the run: its error, like a usage error, ends all processes.
func Form(ctx context.Context, j *Joining, own *Hello, w Waiting, decide func(*Cluster) error) (*Cluster, error) {
	if err := resolvable(ctx, j.Address); err != nil {
		return nil, err
	}
	if err := j.listen(); err != nil {
		if errors.As(err, new(*rendezvous.InUseError)) {
			within, stop := context.WithTimeout(ctx, leaderLimit)
			defer stop()
			if refused := j.refusedBy(within, own); refused != nil {
				return nil, refused
			}
		}
		return nil, exit.Errorf(exit.Usage, "%w", err)
	}
	c := &Cluster{Listener: j.listener, Address: reachable(j.listener.Addr().String()), joining: j, own: own}
	l := &listener{pace: j.pace(), joined: make(chan *Member), closed: make(chan struct{})}
	j.listener.Serve(j.Secret, l.admit)
	var err error
	c.Members, err = awaitMembers(ctx, j, own, w, l)
	if err == nil {
		err = c.assignRanks(own, w.MaxRanks)
	}
	if err == nil {
		err = decide(c)
	}
	if err == nil && j.Elastic != nil {
		c.Joins = l.joined
		return c, nil
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
	j.listener.Close()
	return nil, err
}

// podNames is how long a Kubernetes pod's name may be unknown: it becomes known only after the pod has started.
const podNames = 30 * time.Second

// resolvable reports an address that the other processes cannot resolve either.
func resolvable(ctx context.Context, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return nil // Listen gives a better error
	}
	wait := helloLimit
	pod := os.Getenv("KUBERNETES_SERVICE_HOST") != ""
	if pod {
		wait = podNames
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		_, err := net.DefaultResolver.LookupHost(within, host)
		if err == nil {
			return nil
		}
		if pod {
			select {
			case <-time.After(200 * time.Millisecond):
				continue
			case <-within.Done():
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return exit.Errorf(exit.Usage, "the address %s, at which the others look for this process, cannot be resolved: %v", host, err)
	}
}

// reachable is the address at which this machine's ranks reach a server that listens everywhere.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// listener passes processes that connect to the coordinator.
type listener struct {
	pace   Pace
	joined chan *Member
	closed chan struct{} // when no further process is awaited
	err    error         // then: why there will be no run
}

// admit takes a connection, and holds it until the link is closed.
func (l *listener) admit(conn net.Conn) {
	m := &Member{Link: NewConn[ToCoordinator, ToNode](conn, l.pace), Inbox: make(chan *ToCoordinator)}
	defer m.Link.Close()
	late := time.AfterFunc(helloLimit, func() { conn.Close() })
	first, err := m.Link.Receive()
	if !late.Stop() || err != nil || first.Hello == nil {
		return
	}
	m.Hello = first.Hello
	select {
	case l.joined <- m:
	case <-m.Link.Done():
		return
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

// refuse is the message to a process that is too late or does not belong.
func refuse(format string, args ...any) *ToNode {
	return &ToNode{Refused: engine.NewFailure(-1, exit.Errorf(exit.Usage, format, args...), 0)}
}

// awaitMembers admits the other processes, one for each place.
func awaitMembers(ctx context.Context, j *Joining, own *Hello, w Waiting, l *listener) (joined []*Member, err error) {
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
		if e := j.Elastic; e != nil && len(at) < e.Min {
			return fmt.Sprintf("%d of at least %d nodes", e.Min-len(at), e.Min)
		} else if e != nil {
			return fmt.Sprintf("up to %d more nodes", j.Count-len(at))
		}
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
	limit := j.wait(w.Timeout)
	if limit > 0 {
		deadline = time.After(limit)
	}
	note := time.After(noteAfter)
	var lastCall <-chan time.Time // when to stop waiting for more
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	another := j.otherHead(ctx, own)
	for len(at) < j.Count {
		if j.Elastic != nil && (lastCall == nil) == (len(at) >= j.Elastic.Min) {
			if lastCall = nil; len(at) >= j.Elastic.Min {
				lastCall = time.After(j.Elastic.LastCall)
			}
		}
		select {
		case m := <-l.joined:
			ok, err := j.admit(m, own, func(index int) *Hello {
				if other := at[index]; other != nil {
					return other.Hello
				}
				return nil
			})
			if err != nil {
				return others(), err
			}
			if ok {
				at[m.Index] = m
			}
		case <-lastCall:
			return others(), nil
		case err := <-another:
			return others(), err
		case <-look.C:
			for i, m := range at {
				if i != 0 && m.Left() { // it may come again
					delete(at, i)
					go m.Link.Close()
				}
			}
		case <-ctx.Done():
			return others(), context.Cause(ctx)
		case <-note:
			w.Note(fmt.Sprintf("drun: waiting at %s for %s", j.Address, missing()))
		case <-deadline:
			hint := cmp.Or(j.listener.Refused(), "see what these processes say; the firewall must let them reach that port")
			return others(), exit.WithHint(exit.Errorf(exit.Timeout, "%s did not come to %s within %v", missing(), j.Address, limit), hint)
		}
	}
	return others(), nil
}

// admit admits a process or tells it why not; a node without a number gets one. The error is one in how the process
// was started.
func (j *Joining) admit(m *Member, own *Hello, taken func(index int) *Hello) (ok bool, err error) {
	refused := refuse("the processes at this address have --rdzv-id %q, %s has %q", own.ID, m.Who(), m.ID)
	if m.ID == own.ID {
		if m.Index == Unnumbered || j.Elastic != nil && m.Index > 0 && taken(m.Index) != nil {
			for m.Index = 1; taken(m.Index) != nil; m.Index++ {
			}
		}
		m.Spare = j.Elastic != nil && m.Index >= j.Count
		if other := taken(m.Index); m.PID == own.PID && m.Machine == own.Machine {
			refused = nil // it looked for another leader first, and found itself
		} else if m.Index == 0 || other != nil {
			refused = refuse("there are two of %s: %s came first", m.Noun(), cmp.Or(other, own).Who())
			if m.Index == 0 && j.took {
				refused = refuse("%s, which was started without --node-rank on the machine of the address, came first and leads the run: give every node of the run a number, or none", own.Who())
			}
		} else if err := own.accepts(m.Hello); err != nil {
			m.Link.Send(&ToNode{Refused: engine.NewFailure(-1, err, 0)})
			go m.Link.Close()
			return false, err
		} else {
			if m.Link.trustNode(); m.Placement != nil {
				m.Link.Trust()
			}
			return true, nil
		}
	}
	if refused != nil {
		m.Link.Send(refused)
	}
	go m.Link.Close()
	return false, nil
}

// Admit admits a process that has come while the run goes on, or tells it why not. At most as many may wait as the
// run may have nodes.
func (c *Cluster) Admit(m *Member, taken func(index int) *Hello, waiting int) (bool, error) {
	if waiting >= c.joining.Count {
		m.Link.Send(refuse("%d nodes already wait for a place in this run", waiting))
		go m.Link.Close()
		return false, nil
	}
	return c.joining.admit(m, c.own, taken)
}

// accepts returns why the run cannot include the other process, or nil.
func (h *Hello) accepts(other *Hello) error {
	if (h.Placement == nil) != (other.Placement == nil) {
		byHand, placed := h, other
		if h.Placement != nil {
			byHand, placed = other, h
		}
		return exit.Errorf(exit.Usage, "%s was started by --nnodes, %s by RANK: all must be started alike", byHand.Who(), placed.Who())
	}
	if err := Differ(h, other); err != nil {
		return err
	}
	if other.Index < 1 || other.Index >= other.Count && !other.Spare || other.Procs < 1 {
		return exit.Errorf(exit.Usage, "%s of %d, with %d ranks, is impossible", other.Who(), other.Count, other.Procs)
	}
	return nil
}
