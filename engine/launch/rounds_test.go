package launch

import (
	"sync/atomic"
	"testing"
	"time"

	"drun/engine"
	"drun/engine/nodes"
)

// answering lets a member answer the head's rounds, each after a while, and counts
// them.
func answering(link *nodes.Link, words *nodes.ToHead, after time.Duration) *atomic.Int64 {
	shows := new(atomic.Int64)
	go func() {
		for {
			var m nodes.ToMember
			if link.Receive(&m) != nil {
				return
			}
			if m.Show == nil {
				continue
			}
			time.Sleep(after)
			shows.Add(1)
			link.Send(&nodes.ToHead{Mirror: &nodes.Mirror{Words: words.Mirror.Words, Round: m.Show.Round}})
		}
	}()
	return shows
}

// However often members say that their ranks wait, there are some ten rounds a
// second, and one question to each of them at a time.
func TestRoundsAreFew(t *testing.T) {
	const members = 4
	a, theirs := headOf(t, members)
	a.lookAround = time.Tick(lookEvery / 2)
	var shows []*atomic.Int64
	for i, link := range theirs {
		shows = append(shows, answering(link, wordsOf(t, a.world, i+1), 0))
		go func() {
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				link.Send(&nodes.ToHead{Look: &nodes.Look{}})
			}
			link.Send(&nodes.ToHead{Rank: i + 1, Msg: &engine.ToAgent{Done: true}})
			link.Send(&nodes.ToHead{Rank: i + 1, Exit: &nodes.Exit{Clean: true}})
		}()
	}
	a.watch()
	for i, n := range shows {
		if got := n.Load(); got < 2 || got > 25 {
			t.Errorf("node %d was asked %d times in a second", i+1, got)
		}
	}
	if _, err := a.finish(); err != nil {
		t.Error(err)
	}
}

// What a report shows is asked for before it is made; a node that does not answer is
// not waited for long.
func TestReportsAreFresh(t *testing.T) {
	for _, silent := range []bool{false, true} {
		a, theirs := headOf(t, 2)
		a.lookAround = time.Tick(lookEvery / 2)
		shows := answering(theirs[0], wordsOf(t, a.world, 1), 100*time.Millisecond)
		if !silent {
			answering(theirs[1], wordsOf(t, a.world, 2), 0)
		}
		told := make(chan int64, 1)
		start := time.Now()
		a.fresh(func() { told <- shows.Load() })
		for len(told) == 0 && time.Since(start) < 5*time.Second {
			select {
			case ev := <-a.events:
				if ev.said != nil {
					a.said(ev.from, ev.said)
				}
			case <-a.lookAround:
				a.look()
			}
		}
		if n, took := <-told, time.Since(start); n != 1 || silent && took > 3*roundAtMost {
			t.Errorf("after %v, with the words of %d", took, n)
		}
		a.settled()
		close(a.over)
	}
}
