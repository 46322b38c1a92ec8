package cluster

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"drun/engine"
	"drun/engine/rendezvous"
)

// Many nodes meet, each of eight ranks: every agent and rank is a goroutine, and speaks the real protocol over TCP and
// TLS, the ranks over their node's relay, which is in this process too. Each rank puts its address into the store, ranks that lead their node get those of all others that do, in one
// round, and the others that of their leader. DRUN_TEST_NODES=1000 is the size for measurements.
func TestManyNodes(t *testing.T) {
	const procs = 8
	nodes := 50
	if text := os.Getenv("DRUN_TEST_NODES"); text != "" {
		var err error
		if nodes, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	world := nodes * procs
	// Both ends of each node's two connections are here.
	need := uint64(5*nodes + 100)
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < need {
		t.Skipf("%d nodes take more open files than a process may have here: ulimit -n %d", nodes, need)
	}
	begin := time.Now()
	listener, err := rendezvous.Listen("127.0.0.1:0", "token")
	if err != nil {
		t.Fatal(err)
	}
	joining := func(index int) *Joining {
		j := &Joining{Address: listener.Addr(), Secret: "swordfish", ID: "many", Index: index, Count: nodes}
		if index > 0 {
			j.Index = Unnumbered
		}
		return j
	}
	hello := func(index int) *Hello {
		return &Hello{Index: index, ID: "many", Count: nodes, Procs: procs, PID: 1000 + index, Host: "there", Machine: strconv.Itoa(index), Settings: []Setting{{"--nnodes", strconv.Itoa(nodes)}}}
	}
	const limit = 90 * time.Second
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()

	var all sync.WaitGroup
	meet := func(job *engine.Job, relay *rendezvous.Relay) error {
		store := relay.Store()
		rank := job.Place.Rank
		if err := store.Set(ctx, strconv.Itoa(rank), fmt.Appendf(nil, "10.0.%d.%d:%d", rank/256, rank%256, 10000+rank)); err != nil {
			return err
		}
		var keys []string
		if job.Place.LocalRank == 0 {
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
	start := func(s *Start) {
		relay, err := rendezvous.NewRelay(listener.Addr(), s.Jobs[0].Store.Token)
		if err != nil {
			t.Error(err)
			return
		}
		defer relay.Close()
		var ranks sync.WaitGroup
		defer ranks.Wait()
		for i := range s.Jobs {
			ranks.Go(func() {
				if err := meet(&s.Jobs[i], relay); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for index := 1; index < nodes; index++ {
		all.Go(func() {
			joined, err := Join(joining(index), hello(index), limit, make(chan os.Signal), func(string) {})
			if err != nil {
				t.Error(err)
				return
			}
			defer joined.Link.Close()
			start(joined.Start)
			for m := range joined.Inbox {
				if m.End != nil {
					return
				}
			}
			t.Error("the run ended without a word")
		})
	}
	j := joining(0)
	j.server, j.token = listener, "token"
	c, err := Form(j, hello(0), Waiting{Timeout: limit, MaxRanks: world, Signals: make(chan os.Signal), Note: func(string) {}}, func(*Cluster) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	formed := time.Since(begin)
	of := func(index int, ranks []int) *Start {
		s := &Start{World: world, Index: index}
		for _, rank := range ranks {
			s.Jobs = append(s.Jobs, engine.Job{Place: c.Places[rank], Peers: ranks, Store: engine.Meeting{Token: c.Token}})
		}
		return s
	}
	seen := map[int]bool{}
	for _, m := range c.Members {
		seen[m.Index] = true
		m.Link.Send(&ToNode{Start: of(m.Index, m.Ranks)})
	}
	if len(seen) != nodes-1 || len(c.Places) != world || c.Places[world-1].NodeRank != nodes-1 || c.Places[world-1].LocalRank != procs-1 {
		t.Errorf("%d nodes, %d places, the last %+v", 1+len(seen), len(c.Places), c.Places[world-1])
	}
	start(of(0, c.Own))
	for _, m := range c.Members {
		m.Link.Send(&ToNode{End: &End{}})
	}
	all.Wait()
	took := time.Since(begin)
	for _, m := range c.Members {
		go m.Link.Close()
	}
	c.Server.Close()
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
