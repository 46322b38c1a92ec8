package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/engine/node"
	"drun/engine/rendezvous"
	"drun/engine/transfer"
	"drun/internal/each"
	"drun/internal/exit"
)

// giveUpAfter is how long a node may take to end ranks that were killed.
const giveUpAfter = 5 * time.Second

// mostWants is how many pieces of states a node may have asked for at a time: some for each of its ranks.
const mostWants = 1 << 14

// peer is a node of the run, as the coordinator sees it.
type peer struct {
	*cluster.Hello
	Link  cluster.Link[cluster.ToCoordinator, cluster.ToNode]
	Ranks []int
	inbox <-chan *cluster.ToCoordinator // closed when the node is gone
	err   func() error                  // why it is gone, once inbox is closed
	shift atomic.Int64                  // from its clock to the coordinator's

	conn   *cluster.Conn[cluster.ToCoordinator, cluster.ToNode] // Link to another machine
	states *transfer.Source                                     // what its ranks have handed over; nil: they do so in this process
	own    atomic.Pointer[[]int]                                // Ranks, for the goroutine that hears it
	lost   bool                                                 // it is gone
	cut    bool                                                 // it was cut off because its ranks did not end, see giveUp
	mirrored
}

// mirrored is the state of comparing the coordinator's board with a node's.
type mirrored struct {
	wanted, shown uint64         // the latest round in which it was asked, and the latest it has answered
	ask           uint32         // the latest request for a report on its board, see board.Board.Asks
	asked, told   uint32         // requests before this round, and those answered
	knows         map[int]uint64 // for the ranks it was told of: what Awaits gave
}

// keys is the key-value store of the ranks of one attempt.
type keys struct {
	attempt int
	*rendezvous.Table
}

type nodes struct {
	cluster  *cluster.Cluster
	keys     atomic.Pointer[keys]
	peers    []*peer           // this machine's first
	at       []*peer           // by rank
	waiting  []*cluster.Member // that have come since the attempt began, see regroup
	local    sync.WaitGroup    // this machine's node
	lookTick <-chan time.Time  // when to check which ranks wait; nil: all are on this process's board
}

func (n *nodes) world() int { return len(n.cluster.Placements) }

// opens reports whether a rank can open this process's files.
func (n *nodes) opens(rank int) bool {
	return n.peerOf(rank) == n.peers[0] || n.cluster.OneMachine
}

// addPeers makes this machine's node, and the processes that have joined, peers. It returns this node's end of its
// link.
func (c *coordinator) addPeers() cluster.Link[cluster.ToNode, cluster.ToCoordinator] {
	ours, theirs := cluster.Pipe()
	own := &peer{Hello: &cluster.Hello{PID: os.Getpid(), Machine: cluster.Machine(), Procs: c.Nproc}, Link: ours, inbox: cluster.Inbox(ours), err: func() error { return nil }}
	own.take(c.cluster.Own)
	c.peers = append(c.peers, own)
	for _, m := range c.cluster.Members {
		c.addPeer(m).take(m.Ranks)
	}
	c.settle()
	if (len(c.peers) > 1 || c.elastic() != nil) && !c.cluster.OneMachine {
		c.lookTick = time.Tick(node.LookEvery / 2)
	}
	return theirs
}

func (n *nodes) addPeer(m *cluster.Member) *peer {
	p := &peer{Hello: m.Hello, Link: m.Link, conn: m.Link, inbox: m.Inbox, err: func() error { return m.Err }}
	p.states = transfer.NewSource(p.Who(), func(w *transfer.Want) { p.Link.Send(&cluster.ToNode{Want: w}) })
	n.peers = append(n.peers, p)
	return p
}

func (p *peer) take(ranks []int) {
	p.Ranks = ranks
	p.own.Store(&ranks)
}

func (n *nodes) peerOf(rank int) *peer { return n.at[rank] }

func (n *nodes) settle() {
	n.at = make([]*peer, n.world())
	for _, p := range n.peers {
		for _, rank := range p.Ranks {
			n.at[rank] = p
		}
	}
}

// left lists a node's ranks that have not ended.
func (a *attempt) left(p *peer) (ranks []int) {
	for _, rank := range p.Ranks {
		if rank < len(a.ranks) && !a.ranks[rank].exited {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// near returns the range of ranks that share a board with this one; both 0: all.
func (n *nodes) near(rank int) [2]int {
	if len(n.peers) == 1 || n.cluster.OneMachine {
		return [2]int{}
	}
	p := n.peerOf(rank)
	return [2]int{p.Ranks[0], p.Ranks[0] + len(p.Ranks)}
}

// startOf makes the message that tells a node to start its ranks, with the coordinator's memory files if it can
// open them.
func (c *coordinator) startOf(p *peer) *cluster.Start {
	s := &cluster.Start{Attempt: c.restarts, Index: p.Index, World: c.world(), Backend: c.Backend, Now: board.Now()}
	if p == c.peers[0] || c.cluster.OneMachine {
		s.Shared = paths(c.shared...)
	}
	if p == c.peers[0] && !c.cluster.OneMachine {
		s.Address = cluster.Reached(each.Of(c.peers[1:], func(other *peer) *cluster.Conn[cluster.ToCoordinator, cluster.ToNode] { return other.conn })...)
	}
	s.Jobs = each.Of(p.Ranks, c.job)
	return s
}

// paths are where another process of this machine can open the files.
func paths(files ...*os.File) []string {
	return each.Of(files, func(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) })
}

// hear passes on a node's messages, until the node or the run ends. It leaves the board to the coordinator's own
// goroutine, which alone knows whether the board is open.
func (c *coordinator) hear(p *peer) {
	over := false
	wants := make(chan *transfer.Want, mostWants)
	defer close(wants)
	go func() { // separate, since a disk may not answer
		for w := range wants {
			p.Link.Send(&cluster.ToNode{Got: c.record.Held.Answer(w)})
			p.Link.Wait()
		}
	}()
	for m := range p.inbox {
		switch {
		case m.Got != nil: // also after the run, while a save is under way
			p.states.Deliver(m.Got)
			continue
		case m.Want != nil:
			select {
			case wants <- m.Want:
			default:
				p.Link.Send(&cluster.ToNode{Got: &transfer.Got{ID: m.Want.ID, Error: fmt.Sprintf("more than %d pieces of states were asked for at a time", mostWants)}})
				p.Link.Wait()
			}
			continue
		case over:
			continue // it only frees the node's reader
		}
		if (m.Msg != nil || m.Line != nil || m.Usage != nil || m.Exit != nil) && !slices.Contains(*p.own.Load(), m.Rank) {
			continue // the rank is not its own, so it is not believed
		}
		if m.Msg != nil && m.Msg.Store != nil {
			// What ranks of an earlier attempt still ask for is ignored.
			if k := c.keys.Load(); k != nil && k.attempt == m.Attempt {
				go func() {
					p.Link.Send(&cluster.ToNode{Rank: m.Rank, Msg: &engine.ToWorker{Store: k.Do(m.Msg.Store, c.over)}})
				}()
			}
			continue
		}
		if m.Line != nil {
			c.record.Line(m.Rank, m.Line.Stderr, m.Line.Text)
			c.record.Wait()
			continue
		}
		if m.Msg != nil && m.Msg.Failure != nil {
			m.Msg.Failure.When += p.shift.Load()
		}
		over = !c.put(event{from: p, msg: m})
		if m.Msg != nil && !over {
			c.record.Wait()
		}
	}
	if p.states != nil {
		p.states.End(errors.New(p.silence()))
	}
	c.put(event{from: p})
}

// put passes an event to the coordinator's goroutine; false: the run is over.
func (e events) put(ev event) bool {
	select {
	case e.queue <- ev:
		return true
	case <-e.over:
		return false
	}
}

// said handles what another node says about its board.
func (c *coordinator) said(p *peer, m *cluster.ToCoordinator) {
	switch {
	case m.Abort != nil:
		if c.board.AbortAs(m.Abort.By, m.Abort.Cause) {
			c.passOn(p)
		}
	case m.Look != nil:
		c.rounds.stuck = true
		p.ask = max(p.ask, m.Look.Ask)
		c.look()
	case m.Mirror != nil && m.Mirror.Words != nil:
		if p.Machine != cluster.Machine() {
			p.shift.Store(board.Now() - m.Mirror.Words.Now)
		}
		c.board.Adopt(m.Mirror.Words)
		if m.Mirror.Round != 0 {
			p.shown = m.Mirror.Round
			c.look()
		}
	}
}

// lost ends the remaining ranks of a node that is gone.
func (c *coordinator) lost(p *peer) {
	p.lost = true
	left, how := c.left(p), p.gone()
	for i, rank := range left {
		if i > 0 { // before the first one's exit is handled
			c.board.SetRankState(rank, collective.Gone)
		}
	}
	for _, rank := range left {
		c.exited(rank, &cluster.Exit{Text: how, Ours: p.cut})
	}
	if c.elastic() != nil { // it may only have been stopped, and must not go on with ranks that others have
		p.Link.Send(&cluster.ToNode{End: &cluster.End{ID: c.record.ID(), Name: c.record.Name(), Code: exit.RankLost, Failure: &engine.Failure{Rank: board.Observer, Code: exit.RankLost,
			Message: fmt.Sprintf("the run goes on without this node (%s): its ranks were killed, and start on others", p.silence())}}})
		go p.Link.Close()
	}
}

func (p *peer) gone() string {
	return fmt.Sprintf("its drun (process %d on %s) is gone: %s", p.PID, p.Host, p.silence())
}

// silence tells how the connection to the node ended.
func (p *peer) silence() string {
	if err := p.err(); err != nil && err != io.EOF {
		return err.Error()
	}
	return "the connection ended"
}

// passOn tells the nodes with boards of their own why the run ends, except the one that reported it.
func (a *attempt) passOn(from *peer) {
	by, cause, ok := a.board.Cause()
	if !ok {
		return
	}
	for _, p := range a.peers[1:] {
		if p != from {
			p.Link.Send(&cluster.ToNode{Abort: &cluster.Abort{By: by, Cause: cause}})
		}
	}
}

// giveUp cuts the connections of nodes whose ranks do not end.
func (a *attempt) giveUp() {
	if time.Since(a.ended) < giveUpAfter {
		return
	}
	for _, p := range a.peers[1:] {
		if len(a.left(p)) > 0 {
			p.cut = true
			go p.Link.Close()
		}
	}
}

func (n *nodes) dismiss(r *Result) {
	end := &cluster.End{ID: r.ID, Name: r.Name, Code: r.Code, Failure: r.Failure, Seconds: r.Seconds}
	for _, p := range n.peers {
		p.Link.Send(&cluster.ToNode{End: end})
	}
	for _, m := range n.waiting {
		m.Link.Send(&cluster.ToNode{End: end})
		go m.Link.Close()
	}
	n.local.Wait()
	for _, p := range n.peers {
		p.Link.Close()
	}
	if n.cluster.Listener != nil {
		n.cluster.Listener.Close()
	}
}

func storageFailure(err error) *engine.Failure {
	f := engine.NewFailure(board.Observer, err, board.Now())
	f.Code = exit.Storage
	return f
}
