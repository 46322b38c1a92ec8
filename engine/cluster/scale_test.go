package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"drun/engine"
	"drun/engine/rendezvous"
)

// Many nodes meet, each of eight ranks: every agent and rank is a goroutine, and speaks the real protocol over TCP and
// TLS, the ranks through their node's link. Each rank puts its address into the store, ranks that lead their node get those
// of all others that do, in one round, and the others that of their leader. DRUN_TEST_NODES=1000 is the size for measurements, with
// DRUN_TEST_PROCS ranks on each; with DRUN_TEST_APART=1 all nodes but the first are in another process, so that what node 0
// takes is seen.
func TestManyNodes(t *testing.T) {
	number := func(variable string, otherwise int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(variable), strconv.Itoa(otherwise)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	nodes, procs := number("DRUN_TEST_NODES", 50), number("DRUN_TEST_PROCS", 8)
	world := nodes * procs
	// Both ends of each node's connection are here.
	need := uint64(3*nodes + 100)
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < need {
		t.Skipf("%d nodes take more open files than a process may have here: ulimit -n %d", nodes, need)
	}
	begin := time.Now()
	head, apart := os.Getenv("DRUN_TEST_HEAD"), os.Getenv("DRUN_TEST_APART") != ""
	var listener *rendezvous.Listener
	if head == "" {
		var err error
		if listener, err = rendezvous.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	address := head
	if head == "" {
		address = listener.Addr().String()
	}
	joining := func(index int) *Joining {
		j := &Joining{Address: address, Secret: "swordfish", ID: "many", Index: index, Count: nodes}
		if index > 0 {
			j.Index = Unnumbered
		}
		return j
	}
	hello := func(index int) *Hello {
		return &Hello{Index: index, ID: "many", Count: nodes, Procs: procs, PID: 1000 + index, Host: "there", Machine: strconv.Itoa(index), Settings: []Setting{{Name: "--nnodes", Value: strconv.Itoa(nodes)}}}
	}
	const limit = 90 * time.Second
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()

	var all, met sync.WaitGroup
	met.Add(world)
	meet := func(job *engine.Job, store *rendezvous.Store) error {
		rank := job.Placement.Rank
		if err := store.Set(ctx, strconv.Itoa(rank), fmt.Appendf(nil, "10.0.%d.%d:%d", rank/256, rank%256, 10000+rank)); err != nil {
			return err
		}
		var keys []string
		if job.Placement.LocalRank == 0 {
			for other := 0; other < world; other += procs {
				keys = append(keys, strconv.Itoa(other))
			}
		} else {
			keys = []string{strconv.Itoa(job.Peers[0])}
		}
		got, err := store.MultiGet(ctx, keys)
		if err == nil && string(got[len(got)-1]) == "" {
			err = fmt.Errorf("rank %d got %q", rank, got)
		}
		return err
	}
	table := rendezvous.NewTable()
	start := func(s *Start, send func(*ToCoordinator), inbox <-chan *ToNode) {
		remotes := map[int]*rendezvous.Remote{}
		for i := range s.Jobs {
			rank := s.Jobs[i].Placement.Rank
			remote := rendezvous.NewRemote(0, func(q *rendezvous.Request) error {
				send(&ToCoordinator{Rank: rank, Msg: &engine.ToAgent{Store: q}})
				return nil
			})
			remotes[rank] = remote
			go func() {
				defer met.Done()
				if err := meet(&s.Jobs[i], remote.Store()); err != nil {
					t.Error(err)
				}
			}()
		}
		for m := range inbox {
			if m.End != nil {
				return
			}
			remotes[m.Rank].Deliver(m.Msg.Store)
		}
		t.Error("the run ended without a word")
	}
	others := nodes
	if apart && head == "" {
		others = 0
		met.Add(-(nodes - 1) * procs)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestManyNodes$")
		cmd.Env = append(os.Environ(), "DRUN_TEST_HEAD="+listener.Addr().String())
		all.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("the other nodes: %v\n%s", err, out)
			}
		})
	}
	for index := 1; index < others; index++ {
		all.Go(func() {
			joined, err := Join(ctx, joining(index), hello(index), limit, func(string) {})
			if err != nil {
				t.Error(err)
				met.Add(-procs)
				return
			}
			defer joined.Link.Close()
			start(joined.Start, joined.Link.Send, joined.Inbox)
		})
	}
	if head != "" {
		all.Wait()
		return
	}
	j := joining(0)
	j.listener = listener
	c, err := Form(ctx, j, hello(0), Waiting{Timeout: limit, MaxRanks: world, Note: func(string) {}}, func(*Cluster) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	formed := time.Since(begin)
	of := func(index int, ranks []int) *Start {
		s := &Start{World: world, Index: index}
		for _, rank := range ranks {
			s.Jobs = append(s.Jobs, engine.Job{Placement: c.Placements[rank], Peers: ranks})
		}
		return s
	}
	var answered atomic.Int64
	answeredAll := make(chan struct{})
	answer := func(m *ToCoordinator, send func(*ToNode)) {
		go func() {
			send(&ToNode{Rank: m.Rank, Msg: &engine.ToWorker{Store: table.Do(m.Msg.Store, nil)}})
			if answered.Add(1) == int64(2*world) { // each rank sets its address and asks for others'
				close(answeredAll)
			}
		}()
	}
	seen := map[int]bool{}
	for _, m := range c.Members {
		seen[m.Index] = true
		m.Link.Send(&ToNode{Start: of(m.Index, m.Ranks)})
		go func() {
			for asked := range m.Inbox {
				answer(asked, m.Link.Send)
			}
		}()
	}
	if len(seen) != nodes-1 || len(c.Placements) != world || c.Placements[world-1].NodeRank != nodes-1 || c.Placements[world-1].LocalRank != procs-1 {
		t.Errorf("%d nodes, %d places, the last %+v", 1+len(seen), len(c.Placements), c.Placements[world-1])
	}
	ours, theirs := Pipe()
	go func() {
		for asked := range Inbox(ours) {
			answer(asked, ours.Send)
		}
	}()
	all.Go(func() { start(of(0, c.Own), theirs.Send, Inbox(theirs)) })
	met.Wait()
	select { // if the others are apart, met does not tell
	case <-answeredAll:
	case <-ctx.Done():
		t.Fatalf("%d answers of %d", answered.Load(), 2*world)
	}
	ours.Send(&ToNode{End: &End{}})
	for _, m := range c.Members {
		m.Link.Send(&ToNode{End: &End{}})
	}
	all.Wait()
	ours.Close()
	took := time.Since(begin)
	for _, m := range c.Members {
		go m.Link.Close()
	}
	c.Listener.Close()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes, %d ranks: joined in %v, met in %v, %d MiB at most, %.1f s of CPU, on %d cores", nodes, world, formed.Round(time.Millisecond), took.Round(time.Millisecond),
		usage.Maxrss>>10, time.Duration(usage.Utime.Nano()+usage.Stime.Nano()).Seconds(), runtime.NumCPU())
	if usage.Maxrss>>10 > 2048 {
		t.Errorf("it took %d MiB", usage.Maxrss>>10)
	}
}
