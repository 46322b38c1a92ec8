package run

import (
	"sync/atomic"
	"testing"
	"time"

	"drun/engine"
	"drun/engine/cluster"
	"drun/engine/node"
)

// answering lets a node answer the coordinator's rounds, each after a while, and counts
// them.
func answering(link cluster.Link[cluster.ToNode, cluster.ToCoordinator], words *cluster.ToCoordinator, after time.Duration) *atomic.Int64 {
	shows := new(atomic.Int64)
	go func() {
		for {
			m, err := link.Receive()
			if err != nil {
				return
			}
			if m.Show == nil {
				continue
			}
			time.Sleep(after)
			shows.Add(1)
			link.Send(&cluster.ToCoordinator{Mirror: &cluster.Mirror{Words: words.Mirror.Words, Round: m.Show.Round}})
		}
	}()
	return shows
}

// However often members say that their ranks wait, there are some ten rounds a
// second, and one question to each of them at a time.
func TestRoundsAreFew(t *testing.T) {
	const members = 4
	c, theirs := coordinatorOf(t, members)
	c.lookTick = time.Tick(node.LookEvery / 2)
	var shows []*atomic.Int64
	for i, link := range theirs {
		shows = append(shows, answering(link, wordsOf(t, c.world(), i+1), 0))
		go func() {
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				link.Send(&cluster.ToCoordinator{Look: &cluster.Look{}})
			}
			link.Send(&cluster.ToCoordinator{Rank: i + 1, Msg: &engine.ToAgent{Done: true}})
			link.Send(&cluster.ToCoordinator{Rank: i + 1, Exit: &cluster.Exit{Clean: true}})
		}()
	}
	c.watch()
	for i, n := range shows {
		if got := n.Load(); got < 2 || got > 25 {
			t.Errorf("node %d was asked %d times in a second", i+1, got)
		}
	}
	if _, err := c.finish(); err != nil {
		t.Error(err)
	}
}

// What a report shows is asked for before it is made; a node that does not answer is
// not waited for long.
func TestReportsAreFresh(t *testing.T) {
	for _, silent := range []bool{false, true} {
		c, theirs := coordinatorOf(t, 2)
		c.lookTick = time.Tick(node.LookEvery / 2)
		shows := answering(theirs[0], wordsOf(t, c.world(), 1), 100*time.Millisecond)
		if !silent {
			answering(theirs[1], wordsOf(t, c.world(), 2), 0)
		}
		told := make(chan int64, 1)
		start := time.Now()
		c.fresh(func() { told <- shows.Load() })
		for len(told) == 0 && time.Since(start) < 5*time.Second {
			select {
			case ev := <-c.queue:
				c.handle(ev)
			case <-c.lookTick:
				c.look()
			}
		}
		if n, took := <-told, time.Since(start); n != 1 || silent && took > 3*roundAtMost {
			t.Errorf("after %v, with the words of %d", took, n)
		}
		c.endRounds()
		close(c.over)
	}
}
