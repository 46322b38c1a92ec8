package run

import (
	"drun/internal/exit"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/engine/console"
	"drun/engine/recipe"
	"drun/engine/record"
	"drun/engine/rendezvous"
)

// coordinatorOf makes a coordinator of nodes that are links, without ranks of its own
// but rank 0, which has ended, and starts to hear them.
func coordinatorOf(t *testing.T, members int) (c *coordinator, theirs []*cluster.Conn[cluster.ToNode, cluster.ToCoordinator]) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "r.star")
	if err := os.WriteFile(file, []byte("def main(): pass\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bundle, err := recipe.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	c = newCoordinator(&plan{Options: Options{History: record.History{Home: filepath.Join(dir, "home"), DiskTimeout: record.DiskTimeout}, Nproc: 1, Communication: Communication{Backend: "gloo"}}, bundle: bundle,
		console: console.New(io.Discard, io.Discard, true, false, nil, nil)}, &cluster.Cluster{Own: []int{0}})
	c.cluster.Placements = make([]rendezvous.Placement, 1+members)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for i := 1; i <= members; i++ {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		other, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		m := &cluster.Member{Hello: &cluster.Hello{Index: i, Host: "there", Machine: "another"}, Link: cluster.NewConn[cluster.ToCoordinator, cluster.ToNode](other, cluster.Steady), Ranks: []int{i}, Inbox: make(chan *cluster.ToCoordinator)}
		m.Link.Trust()
		go m.Read()
		link := cluster.NewConn[cluster.ToNode, cluster.ToCoordinator](conn, cluster.Steady)
		link.Trust()
		theirs = append(theirs, link)
		t.Cleanup(func() { m.Link.Close(); link.Close() })
		c.cluster.Members = append(c.cluster.Members, m)
		c.cluster.Placements[i].Rank = i
	}
	c.addPeers()
	c.lookTick = nil
	for rank := range c.world() {
		c.ranks = append(c.ranks, rankState{peer: c.peerOf(rank), reported: rank == 0, exited: rank == 0})
	}
	if _, err := c.enter(); err != nil {
		t.Fatal(err)
	}
	f, err := board.Create(c.world())
	if err != nil {
		t.Fatal(err)
	}
	if c.board, err = board.Open(f, board.Observer); err != nil {
		t.Fatal(err)
	}
	c.board.Near(0, 1)
	for _, p := range c.peers {
		go c.hear(p)
	}
	return c, theirs
}

// wordsOf is what a node's agent says of a rank.
func wordsOf(t *testing.T, world, rank int) *cluster.ToCoordinator {
	t.Helper()
	f, err := board.Create(world)
	if err != nil {
		t.Fatal(err)
	}
	b, err := board.Open(f, board.Observer)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.Near(rank, rank+1)
	return &cluster.ToCoordinator{Mirror: &cluster.Mirror{Words: b.Show(nil, true)}}
}

// The end of a run takes the board away while members go on speaking, or leave,
// before and after: nothing reads it then.
func TestCloseWhileMembersSpeak(t *testing.T) {
	const members = 3
	for name, last := range map[string]func(link cluster.Link[cluster.ToNode, cluster.ToCoordinator], i int){
		"they speak on": func(cluster.Link[cluster.ToNode, cluster.ToCoordinator], int) {},
		"they leave":    func(link cluster.Link[cluster.ToNode, cluster.ToCoordinator], _ int) { link.Close() },
		"they fail": func(link cluster.Link[cluster.ToNode, cluster.ToCoordinator], i int) {
			link.Send(&cluster.ToCoordinator{Rank: i, Msg: &engine.ToAgent{Failure: &engine.Failure{Rank: i, Code: exit.Recipe, Message: "late"}}})
			link.Send(&cluster.ToCoordinator{Abort: &cluster.Abort{By: i, Cause: []byte(`{"Text":"late"}`)}})
			link.Send(&cluster.ToCoordinator{Rank: i, Exit: &cluster.Exit{Text: "exited", Clean: true}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, theirs := coordinatorOf(t, members)
			over := make(chan struct{})
			ended := make(chan struct{}, members)
			for i, link := range theirs {
				words := wordsOf(t, c.world(), i+1)
				go func() {
					defer func() { ended <- struct{}{} }()
					link.Send(&cluster.ToCoordinator{Rank: i + 1, Msg: &engine.ToAgent{Done: true}})
					link.Send(&cluster.ToCoordinator{Rank: i + 1, Exit: &cluster.Exit{Text: "exited", Clean: true}})
					for first := true; ; first = false {
						select {
						case <-over:
							return
						case <-link.Done():
							return
						default:
						}
						link.Send(words)
						link.Wait()
						if !first {
							last(link, i+1)
						}
					}
				}()
			}
			c.watch()
			r, err := c.finish()
			close(over)
			for range members {
				<-ended
			}
			if err != nil || r.Code != 0 && !strings.Contains(r.Failure.Message, "late") {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}

// The process may end as soon as the run has: what the debugger is told of the end is on its way by then.
func TestTheDebuggerHearsOfTheEnd(t *testing.T) {
	c, _ := coordinatorOf(t, 0)
	theirs, ours := net.Pipe()
	c.lead(cluster.Debugger(ours))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		if _, err := c.finish(); err != nil {
			t.Error(err)
		}
	}()
	<-c.over
	select {
	case <-finished:
		t.Error("the run has finished, and nobody has read of its end")
	case <-time.After(500 * time.Millisecond):
	}
	for d := cluster.Debugger(theirs); ; {
		m, err := d.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if m.Over != nil {
			break
		}
	}
	<-finished
}
