package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/internal/exit"
)

// restartable reports whether another attempt may succeed after these failures, of which the first is the run's.
// Usage errors, disagreeing ranks, a full disk, a missed requirement or a backend that cannot run would recur.
func restartable(failures []*engine.Failure) bool {
	first := engine.First(failures)
	if first == nil || slices.ContainsFunc(failures, func(f *engine.Failure) bool {
		return f.Code == exit.Storage || f.Code == exit.Interrupted || f.Lasts && !f.Secondary
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

// backOff is how long to wait before the next attempt, after so many consecutive ones that saved nothing: what
// makes them fail may take a while to pass.
func backOff(idle int) time.Duration {
	const first, most = 100 * time.Millisecond, 30 * time.Second
	if idle == 0 {
		return 0
	}
	return min(first<<min(idle-1, 20), most)
}

// again ends an attempt that failed and prepares the next, if there is to be one. All ranks have ended.
func (c *coordinator) again() bool {
	if c.last || c.restarts-c.grown == c.MaxRestarts && !c.grows || c.stop.signal != nil || c.stuck(c.elastic()) || !restartable(c.failures) {
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
	if c.grows {
		c.idle, c.grown = 0, c.grown+1
	}
	wait, say := backOff(c.idle), fmt.Sprintf("drun: restart %d of %d", c.restarts+1, c.MaxRestarts+c.grown)
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
