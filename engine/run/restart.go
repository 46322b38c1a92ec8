package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/internal/each"
	"drun/internal/exit"
)

// restartable reports whether another attempt may succeed after these failures, of which the first is the run's.
// Usage errors, disagreeing ranks, a full disk, a missed requirement or a backend that cannot run would recur.
func restartable(failures []*engine.Failure) bool {
	first := engine.First(failures)
	if first == nil || slices.ContainsFunc(failures, func(f *engine.Failure) bool {
		return f.Code == exit.Storage || f.Code == exit.Interrupted || f.Permanent && !f.Secondary
	}) {
		return false
	}
	switch first.Code {
	case exit.Recipe, exit.RankLost, exit.Timeout, exit.Backend:
		return true
	}
	return false
}

// idleAfter counts consecutive attempts that saved nothing, given the count before the latest attempt and the run's
// number of saves before and after it.
func idleAfter(idle, before, after int) int {
	if after > before {
		return 0
	}
	return idle + 1
}

// backOff is how long to wait before the next attempt, after this many consecutive ones that saved nothing: the cause of
// their failures may take a while to pass.
func backOff(idle int) time.Duration {
	const first, most = 100 * time.Millisecond, 30 * time.Second
	if idle == 0 {
		return 0
	}
	return min(first<<min(idle-1, 20), most)
}

// again ends an attempt that failed and prepares the next, if there is to be one. All ranks have ended.
func (c *coordinator) again() bool {
	doubt := c.doubted()
	if c.last || c.restarts-c.grown-c.doubts == c.MaxRestarts && !c.grows && !doubt || doubt && (c.AuditAbort || c.doubts == mostDoubts) || c.stop.signal != nil || c.stuck(c.elastic()) || !restartable(c.failures) {
		return false
	}
	f := engine.First(c.failures)
	text := strings.TrimRight(f.Text(c.world()), "\n")
	c.attempt.close(c.record)
	c.record.Abandon()
	saves := c.record.Saves()
	c.idle, c.saved = idleAfter(c.idle, c.saved, saves), saves
	for line := range strings.Lines("drun: " + text) {
		c.console.Note(strings.TrimRight(line, "\n"))
	}
	switch {
	case c.grows:
		c.idle, c.grown = 0, c.grown+1
	case doubt:
		c.idle, c.doubts = 0, c.doubts+1
	}
	wait, say := backOff(c.idle), fmt.Sprintf("drun: restart %d of %d", c.restarts+1, c.MaxRestarts+c.grown+c.doubts)
	if wait > 0 {
		say += fmt.Sprintf(", in %v", wait)
	}
	c.record.Say(say)
	c.restarts++ // later messages of the previous attempt are ignored
	c.attempt = attempt{nodes: &c.nodes}
	ready := make(chan error, 2)
	go func() { ready <- c.record.EndAttempt(f.Code, text) }()
	if err := c.handleUntil(ready); err != nil {
		c.fail(storageFailure(err))
	}
	time.AfterFunc(wait, func() { ready <- nil })
	if err := c.handleUntil(ready); err != nil {
		c.fail(storageFailure(err))
	}
	if err := c.regroup(); err != nil {
		c.fail(engine.NewFailure(board.Observer, err, board.Now()))
	}
	if i := slices.IndexFunc(c.peers, func(p *peer) bool { return p.lost }); i >= 0 {
		p := c.peers[i]
		c.fail(&engine.Failure{Rank: p.Ranks[0], Code: exit.RankLost, Message: p.gone(), When: board.Now()})
	}
	if len(c.failures) > 0 {
		return false
	}
	c.record.BeginAttempt()
	c.begun++
	return true
}

// mostDoubts is how often a run goes back to a checkpoint because a processor computed wrongly.
const mostDoubts = 3

// doubted reports whether the attempt failed because a processor computed wrongly, and notes its cores.
func (c *coordinator) doubted() bool {
	f := engine.First(c.failures)
	if f == nil || f.Doubt == nil {
		return false
	}
	if f.Rank >= 0 && len(f.Doubt.Cores) > 0 {
		if c.avoid == nil {
			c.avoid = map[string][]int{}
		}
		host := c.ranks[f.Rank].peer.Host
		c.avoid[host] = append(c.avoid[host], f.Doubt.Cores...)
	}
	return true
}

// stuck reports whether a node that the run needs is lost.
func (n *nodes) stuck(elastic *cluster.Elastic) bool {
	return elastic == nil && slices.ContainsFunc(n.peers, func(p *peer) bool { return p.lost })
}

// handleUntil handles events between two attempts.
func (c *coordinator) handleUntil(ready <-chan error) error {
	for len(c.failures) == 0 && !c.stuck(c.elastic()) { // a signal ends the run
		select {
		case err := <-ready:
			return err
		case ev := <-c.queue:
			c.handle(ev)
		case m := <-c.cluster.Joins:
			c.join(m)
		case err := <-c.record.Faults():
			return err
		case sig, ok := <-c.Signals:
			if !ok {
				c.Signals = nil
				continue
			}
			c.signal(sig, nil)
		}
	}
	return nil
}

// In an elastic run, each attempt runs on the nodes that are there when it begins: without those that are lost, and
// with those that have come since. The world keeps its size, so that the ranks go on with the same bits wherever
// they are, unless the user wants torchrun's behaviour (cluster.Elastic.Resize).

// elastic says how nodes may come and go; nil: they must stay.
func (p *plan) elastic() *cluster.Elastic {
	if p.Join == nil {
		return nil
	}
	return p.Join.Elastic
}

// join decides about a node that has come while the run goes on.
func (c *coordinator) join(m *cluster.Member) {
	ok, err := c.cluster.Admit(m, c.named, len(c.waiting))
	if err != nil {
		c.record.Say("drun: a node that has joined cannot take part: " + err.Error())
	}
	if !ok {
		return
	}
	c.waiting = append(c.waiting, m)
	c.record.Say(fmt.Sprintf("drun: %s has joined; the ranks use it when they start again", m.Who()))
	there := 0
	for _, p := range c.peers {
		if !p.lost {
			there++
		}
	}
	if c.elastic().Resize && there < c.Join.Count && c.board != nil && c.ended.IsZero() {
		c.grows = true
		c.fail(&engine.Failure{Rank: board.Observer, Code: exit.RankLost, When: board.Now(), Message: fmt.Sprintf("%s has joined: all ranks start again, including its own", m.Who())})
	}
}

// named is the node with that number, or nil.
func (n *nodes) named(index int) *cluster.Hello {
	for _, p := range n.peers {
		if !p.lost && p.Index == index {
			return p.Hello
		}
	}
	for _, m := range n.waiting {
		if !m.Left() && m.Index == index {
			return m.Hello
		}
	}
	return nil
}

// regroup assigns ranks to the present nodes for the next attempt. While there are too few nodes, it waits for more.
func (c *coordinator) regroup() error {
	e := c.elastic()
	if e == nil {
		return nil
	}
	before := len(c.peers)
	end, changed, said := time.Now().Add(e.JoinTimeout), false, false
	for {
		c.peers = slices.DeleteFunc(c.peers, func(p *peer) bool { return p.lost })
		c.waiting = slices.DeleteFunc(c.waiting, func(m *cluster.Member) bool {
			if !m.Left() {
				return false
			}
			go m.Link.Close()
			return true
		})
		for len(c.peers) < c.Join.Count && len(c.waiting) > 0 {
			p := c.addPeer(c.waiting[0])
			p.take(nil)
			go c.hear(p)
			c.waiting, changed = c.waiting[1:], true
		}
		changed = changed || len(c.peers) != before
		if len(c.failures) > 0 || len(c.peers) >= e.Min {
			break
		}
		if !said {
			c.record.Say(fmt.Sprintf("drun: the ranks wait for nodes: --nnodes %s needs %d, and there is %s", c.Join.Nodes(), e.Min, c.placed()))
			said = true
		}
		if time.Now().After(end) {
			return exit.WithHint(exit.Errorf(exit.RankLost, "--nnodes %s needs %d nodes, and within %v none joined besides %s", c.Join.Nodes(), e.Min, e.JoinTimeout, c.placed()),
				fmt.Sprintf("the run can go on from its newest checkpoint: start it again on all nodes with --resume auto --name %s", c.record.Name()))
		}
		look := make(chan error, 1)
		time.AfterFunc(50*time.Millisecond, func() { look <- nil })
		if err := c.handleUntil(look); err != nil {
			return exit.WithCode(err, exit.Storage)
		}
	}
	if !changed || len(c.failures) > 0 {
		return nil
	}
	var procs []int
	brought := 0
	for _, p := range c.peers {
		procs = append(procs, p.Procs)
		brought += p.Procs
	}
	world := c.world()
	if e.Resize {
		world = brought
	}
	c.cluster.Placements = cluster.Spread(world, procs)
	ranks := make([][]int, len(c.peers))
	for _, at := range c.cluster.Placements {
		ranks[at.NodeRank] = append(ranks[at.NodeRank], at.Rank)
	}
	for node, p := range c.peers {
		p.take(ranks[node])
	}
	c.settle()
	if err := c.record.Move(c.cluster.Placements); err != nil {
		return exit.WithCode(err, exit.Storage)
	}
	c.record.Say("drun: the ranks go on: " + c.placed())
	return nil
}

func (n *nodes) placed() string {
	return strings.Join(each.Of(n.peers, func(p *peer) string {
		if len(p.Ranks) == 0 {
			return p.Noun()
		}
		return fmt.Sprintf("%s with %s", p.Noun(), collective.RankList(p.Ranks))
	}), ", ")
}
