package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"drun/engine/rendezvous"
	"drun/internal/exit"
)

// Joining makes this process one of several that run a recipe together: one per node, or one per rank, as
// torchrun's variables start them. The first process is the coordinator; it listens, and the others find it.
type Joining struct {
	Address string // host:port of the first process
	Secret  string // that all must know; "" is safe only if nobody else can reach the port
	ID      string // of the run; "" if it has none
	Index   int    // of this process, or Unnumbered
	Count   int    // of processes; in an elastic run, at most
	// Elastic lets nodes come and go; nil: there are Count throughout.
	Elastic *Elastic
	// Placement is the rank's place, if the process is a rank that was started by itself; nil: a node of several ranks.
	Placement *rendezvous.Placement

	listener *rendezvous.Listener // of the first, once it listens
	took     bool                 // the lead, although it had no number
}

// Unnumbered is the index of a node that gets its number from the first process, the one at the address where they
// meet.
const Unnumbered = -1

// Elastic describes a run whose nodes may come and go. In torchrun's terms: a node is lost when nothing has come
// from it for Heartbeat; the ranks start once all nodes are there, or LastCall after Min are; they start again
// without a node that was lost, and with nodes that have come since.
type Elastic struct {
	Min         int           // nodes without which no rank runs
	JoinTimeout time.Duration // for Min nodes to come
	LastCall    time.Duration // for more nodes to come
	Heartbeat   time.Duration
	Resize      bool // the world has as many ranks as the present nodes bring; otherwise it keeps its size
}

func (j *Joining) pace() Pace {
	if j.Elastic == nil {
		return Steady
	}
	return Pace{Beat: j.Elastic.Heartbeat / 4, Gone: j.Elastic.Heartbeat}
}

// Several reports whether the user has said that there are several nodes.
func (j *Joining) Several() bool {
	return j.Placement == nil || j.Placement.Nodes > 1 || j.Placement.LocalSize != rendezvous.Unknown && j.Placement.LocalSize < j.Count
}

// Name is what the process is called: "node 1", or "rank 1".
func (j *Joining) Name() string { return (&Hello{Index: j.Index, Placement: j.Placement}).Noun() }

// wait is how long the processes wait for each other.
func (j *Joining) wait(otherwise time.Duration) time.Duration {
	if j.Elastic == nil {
		return otherwise
	}
	return j.Elastic.JoinTimeout
}

// Nodes is how many nodes there may be, as the user writes it.
func (j *Joining) Nodes() string {
	if j.Elastic == nil {
		return strconv.Itoa(j.Count)
	}
	return fmt.Sprintf("%d:%d", j.Elastic.Min, j.Count)
}

// Lead decides whether this process is the first, which listens. A process without a number is first if the address
// where the processes meet is this machine's and no other process listens there.
func (j *Joining) Lead(ctx context.Context, timeout time.Duration) (bool, error) {
	if j.Index != Unnumbered {
		return j.Index == 0, nil
	}
	host, _, err := net.SplitHostPort(j.Address)
	if err != nil {
		return false, exit.Errorf(exit.Usage, "%w", err)
	}
	for end := time.Now().Add(j.wait(timeout)); ; {
		own, err := isOwn(ctx, host)
		if own {
			break
		}
		if err == nil || time.Now().After(end) {
			return false, nil // dialling gives a better error
		}
		select { // a name may become known once its machine is up
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
	err = j.listen()
	if errors.As(err, new(*rendezvous.InUseError)) {
		return false, nil
	}
	if err != nil {
		return false, exit.Errorf(exit.Usage, "%w", err)
	}
	j.Index, j.took = 0, true
	return true, nil
}

// isOwn reports whether a host name or IP address is one of this machine's.
func isOwn(ctx context.Context, host string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, helloLimit)
	defer cancel()
	list, err := net.DefaultResolver.LookupHost(ctx, host)
	return slices.ContainsFunc(list, func(ip string) bool { return OwnAddress(ip) }), err
}

func (j *Joining) listen() (err error) {
	if j.listener == nil {
		j.listener, err = rendezvous.Listen(listenAddress(j.Address))
	}
	return err
}

// otherHead looks for another process that leads the run, at an address that is not this machine's, until ctx ends.
func (j *Joining) otherHead(ctx context.Context, own *Hello) (found <-chan error) {
	to := make(chan error, 1)
	go func() {
		host, _, err := net.SplitHostPort(j.Address)
		if err != nil {
			return
		}
		if here, err := isOwn(ctx, host); here || err != nil {
			return
		}
		if err := j.refusedBy(ctx, own); err != nil {
			to <- err
		}
	}()
	return to
}

// refusedBy is why a process that already leads the run refuses this one; nil: there is none, or it admits this one.
func (j *Joining) refusedBy(ctx context.Context, own *Hello) error {
	conn, err := rendezvous.Dial(ctx, j.Address, j.Secret)
	if err != nil {
		return nil
	}
	link := NewConn[ToNode, ToCoordinator](conn, j.pace())
	defer link.Close()
	end := context.AfterFunc(ctx, func() { link.Close() })
	defer end()
	link.Send(&ToCoordinator{Hello: own})
	if m, err := link.Receive(); err == nil && m.Refused != nil {
		return m.Refused.Err()
	}
	return nil
}

// listenAddress is where the coordinator listens. A machine's own name often resolves to an address that others cannot
// reach, so only IP addresses are used as they are.
func listenAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" || net.ParseIP(host) != nil && OwnAddress(host) {
		return address
	}
	return net.JoinHostPort("", port)
}

// OwnAddress reports whether the address belongs to one of this machine's interfaces; that of a service in front of it
// does not.
func OwnAddress(host string) bool {
	ip := net.ParseIP(host)
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

func addressOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}

// Joined is a node's place in a run that has started.
type Joined struct {
	Start *Start
	End   *End // the run is over; there is no Start
	Link  Link[ToNode, ToCoordinator]
	Inbox <-chan *ToNode // closed when the coordinator is gone
	// Address is this machine's address on its connection to the coordinator.
	Address string
}

// Join finds the coordinator and waits until it starts the run, or ctx ends. note reports a search that takes long.
func Join(ctx context.Context, j *Joining, own *Hello, timeout time.Duration, note func(text string)) (*Joined, error) {
	link, err := dial(ctx, j, j.wait(timeout), note)
	if err != nil {
		return nil, err
	}
	link.Trust()
	link.Send(&ToCoordinator{Hello: own})
	inbox := Inbox(link)
	start, end, err := awaitStart(ctx, j, inbox)
	if err != nil {
		go func() {
			for range inbox { // frees its reader
				continue
			}
		}()
		link.Close()
		return nil, err
	}
	if start != nil {
		j.Index = start.Index
	}
	return &Joined{start, end, link, inbox, addressOf(link.Local())}, nil
}

// Inbox receives a link's messages. It must be read until it is closed.
func Inbox[In, Out any](link Link[In, Out]) <-chan *In {
	inbox := make(chan *In)
	go func() {
		defer close(inbox)
		for {
			msg, err := link.Receive()
			if err != nil {
				return
			}
			inbox <- msg
		}
	}()
	return inbox
}

// dial connects to the coordinator, however late it starts listening.
func dial(ctx context.Context, j *Joining, timeout time.Duration, note func(text string)) (*Conn[ToNode, ToCoordinator], error) {
	within, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	long := time.AfterFunc(noteAfter, func() {
		note(fmt.Sprintf("drun: looking for %s at %s, for up to %v", j.first(), j.Address, timeout))
	})
	defer long.Stop()
	conn, err := rendezvous.Dial(within, j.Address, j.Secret)
	switch {
	case err == nil:
		return NewConn[ToNode, ToCoordinator](conn, j.pace()), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, notJoined(j, timeout, err)
}

// SecretHint says how to give the processes of a run the same secret.
const SecretHint = "give all processes the same one: DRUN_RDZV_SECRET, --rdzv-secret-file FILE, or the same drun/secret in the user's configuration folder (~/.config); on a closed network --insecure does without"

// first names the coordinator's process.
func (j *Joining) first() string {
	if j.Placement != nil {
		return "rank 0"
	}
	return "node 0"
}

func notJoined(j *Joining, timeout time.Duration, err error) error {
	first := j.first()
	if refused := (*rendezvous.RefusedError)(nil); errors.As(err, &refused) {
		return exit.WithHint(exit.Errorf(exit.Usage, "%w", refused),
			"is it "+first+" of the same run that listens there?")
	}
	if errors.As(err, new(*rendezvous.SecretError)) {
		return exit.WithHint(exit.Errorf(exit.Usage, "%w", err),
			SecretHint)
	}
	return exit.WithHint(exit.Errorf(exit.Timeout, "%s was not found at %s within %v: %v", first, j.Address, timeout, err),
		"it must have been started, and its port must be reachable from here")
}

func awaitStart(ctx context.Context, j *Joining, inbox <-chan *ToNode) (*Start, *End, error) {
	for {
		select {
		case msg, more := <-inbox:
			switch {
			case !more:
				return nil, nil, exit.Errorf(exit.RankLost, "the process at %s ended before the run began", j.Address)
			case msg.Refused != nil:
				return nil, nil, msg.Refused.Err()
			case msg.End != nil && msg.End.Failure != nil:
				return nil, nil, msg.End.Failure.Err()
			case msg.End != nil:
				return nil, msg.End, nil
			case msg.Start != nil:
				return msg.Start, nil, nil
			}
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func (c *Cluster) assignRanks(own *Hello, maxRanks int) error {
	all := append([]*Member{{Hello: own}}, c.Members...)
	var machines []string
	var procs []int
	world := 0
	for _, m := range all {
		machines = append(machines, m.Machine)
		if m.Procs > maxRanks {
			return exit.Errorf(exit.Usage, "%s of %d, with %d ranks, is impossible", m.Who(), m.Count, m.Procs)
		}
		procs = append(procs, m.Procs)
		world += m.Procs
	}
	if e := c.joining.Elastic; e != nil && !e.Resize {
		world = c.joining.Count * own.Procs
	}
	if world > maxRanks {
		return exit.Errorf(exit.Usage, "%d ranks: a run has at most %d", world, maxRanks)
	}
	c.Placements = Spread(world, procs)
	for _, p := range c.Placements {
		all[p.NodeRank].Ranks = append(all[p.NodeRank].Ranks, p.Rank)
	}
	c.Own = all[0].Ranks
	if own.Placement != nil { // ranks that were started by themselves, one each
		for i, m := range all {
			c.Placements[i] = *m.Placement
		}
		if err := rendezvous.AssignRanks(c.Placements, machines); err != nil {
			return err
		}
	}
	for i := range c.Placements {
		c.Placements[i].WorldSize = world
	}
	c.OneMachine = own.Placement != nil && c.Placements[0].Nodes == 1 && len(slices.Compact(machines)) == 1
	return nil
}

// Spread assigns places in a world of that size to nodes that offer procs[i] ranks each, node after node: these
// ranks or, if the world has more or fewer, a proportional share, and at least one.
func Spread(world int, procs []int) []rendezvous.Placement {
	total := 0
	for _, n := range procs {
		total += n
	}
	var places []rendezvous.Placement
	for node, before := 0, 0; node < len(procs); node++ {
		before += procs[node]
		end := max(len(places)+1, min(world*before/total, world-(len(procs)-1-node)))
		size := end - len(places)
		for local := range size {
			places = append(places, rendezvous.Placement{Rank: len(places), WorldSize: world, LocalRank: local, LocalSize: size, NodeRank: node, Nodes: len(procs)})
		}
	}
	return places
}

// Reached is this machine's address as the other nodes reach it over these links; "" without links.
func Reached[In, Out any](links ...*Conn[In, Out]) (address string) {
	for _, l := range links {
		if address == "" || net.ParseIP(address).IsLoopback() {
			address = addressOf(l.Local())
		}
	}
	return address
}
