package launch

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/engine"
	"drun/engine/board"
	"drun/engine/nodes"
	"drun/engine/recipe"
	"drun/engine/rendezvous"
)

// headOf makes a head whose members are links, without ranks of its own but
// rank 0, which has ended, and starts to hear them.
func headOf(t *testing.T, members int) (a *agent, theirs []*nodes.Link) {
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
	a = &agent{o: Options{Home: filepath.Join(dir, "home"), Nproc: 1, Patience: patience, Backend: "gloo"}, bundle: bundle,
		started: time.Now(), events: make(chan event, 64), over: make(chan struct{}), world: 1 + members}
	a.console.out, a.console.err = io.Discard, io.Discard
	a.procs = append(a.procs, &process{rank: 0, reported: true, node: &node{}})
	a.places = append(a.places, rendezvous.Place{})
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
		n := &node{Hello: &nodes.Hello{Index: i, Host: "there", Machine: "another"}, link: nodes.NewLink(other), ranks: []int{i}, inbox: make(chan *nodes.ToHead)}
		n.link.Trust()
		go n.read()
		link := nodes.NewLink(conn)
		link.Trust()
		theirs = append(theirs, link)
		t.Cleanup(func() { n.link.Close(); link.Close() })
		a.nodes = append(a.nodes, n)
		a.procs = append(a.procs, &process{rank: i, node: n})
		a.places = append(a.places, rendezvous.Place{Rank: i})
	}
	if err := a.begin(); err != nil {
		t.Fatal(err)
	}
	f, err := board.Create(a.world)
	if err != nil {
		t.Fatal(err)
	}
	if a.board, err = board.Open(f, board.Observer); err != nil {
		t.Fatal(err)
	}
	a.board.Near(0, 1)
	a.events <- event{rank: 0, exit: &nodes.Exit{Clean: true}}
	for _, n := range a.nodes {
		go a.hear(n)
	}
	return a, theirs
}

// wordsOf is what a node's agent says of a rank.
func wordsOf(t *testing.T, world, rank int) *nodes.ToHead {
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
	return &nodes.ToHead{Mirror: &nodes.Mirror{Words: b.Show(nil, true)}}
}

// The end of a run takes the board away while members go on speaking, or leave,
// before and after: nothing reads it then.
func TestCloseWhileMembersSpeak(t *testing.T) {
	const members = 3
	for name, last := range map[string]func(link *nodes.Link, i int){
		"they speak on": func(*nodes.Link, int) {},
		"they leave":    func(link *nodes.Link, _ int) { link.Close() },
		"they fail": func(link *nodes.Link, i int) {
			link.Send(&nodes.ToHead{Rank: i, Msg: &engine.ToAgent{Failure: &engine.Failure{Rank: i, Code: engine.ExitRecipe, Message: "late"}}})
			link.Send(&nodes.ToHead{Abort: &nodes.Abort{By: i, Cause: []byte(`{"Text":"late"}`)}})
			link.Send(&nodes.ToHead{Rank: i, Exit: &nodes.Exit{Text: "exited", Clean: true}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, theirs := headOf(t, members)
			over := make(chan struct{})
			ended := make(chan struct{}, members)
			for i, link := range theirs {
				words := wordsOf(t, a.world, i+1)
				go func() {
					defer func() { ended <- struct{}{} }()
					link.Send(&nodes.ToHead{Rank: i + 1, Msg: &engine.ToAgent{Done: true}})
					link.Send(&nodes.ToHead{Rank: i + 1, Exit: &nodes.Exit{Text: "exited", Clean: true}})
					for first := true; ; first = false {
						select {
						case <-over:
							return
						case <-link.Done():
							return
						default:
						}
						link.Send(words)
						link.Await()
						if !first {
							last(link, i+1)
						}
					}
				}()
			}
			a.watch()
			r, err := a.finish()
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
