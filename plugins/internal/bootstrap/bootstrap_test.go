package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/engine/rendezvous"
)

func ranks(t *testing.T, store collective.Store, n int) [][]Peer {
	t.Helper()
	all, errs := make([][]Peer, n), make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() {
			all[rank], errs[rank] = Connect(collective.Within(context.Background(), 10*time.Second), store, "g", "127.0.0.1", rank, n)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, peers := range all {
			for _, p := range peers {
				if p.Conn != nil {
					p.Conn.Close()
				}
			}
		}
	})
	return all
}

// Each connection leads to the rank that it is said to.
func TestRanks(t *testing.T) {
	all := ranks(t, rendezvous.Memory(), 5)
	for rank, peers := range all {
		for other, p := range peers {
			if (p.Conn == nil) != (rank == other) {
				t.Fatalf("rank %d has %v for rank %d", rank, p.Conn, other)
			}
			if p.Conn != nil {
				if _, err := fmt.Fprintf(p.Conn, "%d>%d", rank, other); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for rank, peers := range all {
		for other, p := range peers {
			if p.Conn == nil {
				continue
			}
			words := make([]byte, 3)
			if _, err := io.ReadFull(p.Conn, words); err != nil || string(words) != fmt.Sprintf("%d>%d", other, rank) {
				t.Errorf("rank %d hears %q from rank %d: %v", rank, words, other, err)
			}
		}
	}
}

// Strangers, also many silent ones, hold up nobody; what a rank once said opens
// no second door.
func TestStrangers(t *testing.T) {
	store := rendezvous.Memory()
	peers := make(chan []Peer, 1)
	go func() {
		p, err := Connect(collective.Within(context.Background(), 10*time.Second), store, "g", "127.0.0.1", 0, 2)
		if err != nil {
			t.Error(err)
		}
		peers <- p
	}()
	address, err := store.Get(t.Context(), "g/rank/0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		conn, err := net.Dial("tcp", string(address))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		switch i % 3 {
		case 1:
			_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		case 2:
			_, _ = conn.Write([]byte(strings.Repeat("\x00\x00\x00\x01", 100))) // names rank 1
		}
	}
	start := time.Now()
	mine, err := Connect(collective.Within(context.Background(), 10*time.Second), store, "g", "127.0.0.1", 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	theirs := <-peers
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	if mine[0].Conn.LocalAddr().String() != theirs[1].Conn.RemoteAddr().String() {
		t.Error("the connection is not to the rank")
	}
	mine[0].Conn.Close()
	theirs[1].Conn.Close()
}

// Somebody else at the address of a rank is not taken for it.
func TestSomebodyElseAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // an echo: also what a connection with itself looks like
				_, _ = conn.Write(make([]byte, challengeBytes))
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	store := rendezvous.Memory()
	for key, value := range map[string]string{"g/secret": "s", "g/rank/0": listener.Addr().String()} {
		if err := store.Set(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = Connect(collective.Within(t.Context(), 5*time.Second), store, "g", "127.0.0.1", 1, 2)
	if err == nil || !strings.Contains(err.Error(), "cannot connect to rank 0 at "+listener.Addr().String()+": whoever answers is not that rank: it does not know the group's secret") {
		t.Error(err)
	}
}

func TestRoute(t *testing.T) {
	t.Setenv("MASTER_ADDR", "127.0.0.1")
	if got, err := Route(); err != nil || got != "127.0.0.1" {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("MASTER_ADDR", "no such name")
	if _, err := Route(); err == nil || !strings.Contains(err.Error(), "no such name") {
		t.Errorf("a name that cannot be: %v", err)
	}
}

// A rank that does not come is named, within the limit.
func TestRankThatDoesNotCome(t *testing.T) {
	store := rendezvous.Memory()
	if err := store.Set(t.Context(), "g/rank/1", []byte("10.0.0.7:1")); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err := Connect(collective.Within(t.Context(), 100*time.Millisecond), store, "g", "127.0.0.1", 0, 2)
	if !errors.Is(err, collective.ErrTimeout) || !strings.Contains(err.Error(), "rank 1 at 10.0.0.7:1 did not connect") || time.Since(start) > time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// A machine without a network, here a network namespace, has loopback for the ranks on it.
func TestRouteWithoutNetwork(t *testing.T) {
	if os.Getenv("DRUN_TEST_ROUTE") != "" {
		fmt.Println(Route())
		return
	}
	if exec.Command("unshare", "--net", "true").Run() != nil {
		t.Skip("mounts and namespaces take root (in a container, CAP_SYS_ADMIN)")
	}
	for address, want := range map[string]string{"": "127.0.0.1 <nil>", "192.0.2.7": "no network interface leads to 192.0.2.7"} {
		cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run=^TestRouteWithoutNetwork$")
		cmd.Env = append(os.Environ(), "DRUN_TEST_ROUTE=1", "MASTER_ADDR="+address)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("to %q: %v %s", address, err, out)
		}
	}
}
