package run

import (
	"testing"
	"time"

	"drun/engine"
	"drun/engine/cluster"
	"drun/engine/transfer"
)

// stalled is a disk that does not answer before it is closed.
type stalled chan struct{}

func (s stalled) ReadAt(p []byte, _ int64) (int, error) {
	<-s
	return len(p), nil
}

// While a piece of a checkpoint is read for a node, however long that takes, what the node says is heard, and so are the others. A
// node that asks for more and more is told so, and takes no memory for it.
func TestDiskThatDoesNotAnswer(t *testing.T) {
	c, theirs := coordinatorOf(t, 2)
	disk := make(stalled)
	c.record.Held.PutReader(7, disk, 1<<20)
	const asked = mostWants + 100
	go func() {
		for i := range asked {
			theirs[0].Send(&cluster.ToCoordinator{Want: &transfer.Want{ID: uint64(1 + i), State: 7, Ranges: []transfer.Range{{Bytes: 16}}}})
			theirs[0].Wait()
		}
		for i, link := range theirs {
			link.Send(&cluster.ToCoordinator{Rank: i + 1, Msg: &engine.ToAgent{Done: true}})
			link.Send(&cluster.ToCoordinator{Rank: i + 1, Exit: &cluster.Exit{Clean: true}})
		}
	}()
	refused, answered := make(chan int), make(chan int)
	go func() {
		counts := [2]int{}
		for m, err := theirs[0].Receive(); err == nil && counts[0]+counts[1] < asked; m, err = theirs[0].Receive() {
			if m.Got == nil {
				continue
			}
			if m.Got.Error == "" {
				counts[1]++
			} else if counts[0]++; counts[1] > 0 {
				t.Error("it is refused although the disk answers")
			}
			if counts[0]+counts[1] == asked {
				break
			}
		}
		refused <- counts[0]
		answered <- counts[1]
	}()
	began := time.Now()
	c.watch()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the ranks' end was heard after %v", took)
	}
	close(disk)
	if r, a := <-refused, <-answered; r < 50 || r > 100 || r+a != asked {
		t.Errorf("of %d questions %d were refused and %d answered", asked, r, a)
	}
	if _, err := c.finish(); err != nil {
		t.Error(err)
	}
}
