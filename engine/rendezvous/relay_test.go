package rendezvous

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective"
)

// Many ranks of a node use one connection to the store: a request that waits holds up no other.
func TestRelay(t *testing.T) {
	server, err := Listen("127.0.0.1:0", "token")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	relay, err := NewRelay(server.Addr(), "token")
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()

	const ranks = 40
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			store := Dial(relay.Addr(), "")
			defer store.Close()
			if rank == ranks-1 { // all others wait when the last key comes
				time.Sleep(100 * time.Millisecond)
			}
			if err := store.Set(ctx, fmt.Sprint(rank), fmt.Appendf(nil, "value %d", rank)); err != nil {
				t.Error(err)
			}
			for other := range ranks {
				if got, err := store.Get(ctx, fmt.Sprint(other)); err != nil || string(got) != fmt.Sprintf("value %d", other) {
					t.Errorf("rank %d got %q of %d: %v", rank, got, other, err)
				}
			}
		})
	}
	all.Wait()
	server.mu.Lock()
	conns := len(server.conns)
	server.mu.Unlock()
	if conns != 1 {
		t.Errorf("%d connections to the store", conns)
	}

	store := Dial(relay.Addr(), "")
	defer store.Close()
	if _, err := store.Get(collective.Within(ctx, 50*time.Millisecond), "missing"); err == nil || !strings.Contains(err.Error(), `"missing" was not set`) {
		t.Errorf("a key that nobody sets: %v", err)
	}

	// What waits when the store goes ends soon, and says which store.
	ended := make(chan error, 1)
	go func() {
		_, err := store.Get(ctx, "never")
		ended <- err
	}()
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	server.Close()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the key-value store at "+server.Addr()) {
		t.Errorf("a wait while the store is closed: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// After a restart of the ranks, those of before reach nothing.
func TestRelayOfAnEarlierStart(t *testing.T) {
	server, err := Listen("127.0.0.1:0", "first")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	relay, err := NewRelay(server.Addr(), "first")
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	store := Dial(relay.Addr(), "")
	defer store.Close()
	if err := store.Set(ctx, "key", []byte("old")); err != nil {
		t.Fatal(err)
	}
	server.Renew("second")
	again, err := NewRelay(server.Addr(), "second")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	fresh := Dial(again.Addr(), "")
	defer fresh.Close()
	if there, err := fresh.Check(ctx, []string{"key"}); err != nil || there {
		t.Errorf("the key of the earlier start is there: %v, %v", there, err)
	}
	within, end := context.WithTimeout(ctx, 2*time.Second)
	defer end()
	if err := store.Set(within, "key", []byte("late")); err == nil {
		if there, err := fresh.Check(ctx, []string{"key"}); err != nil || there {
			t.Errorf("what an earlier start says is heard: %v, %v", there, err)
		}
	}
}
