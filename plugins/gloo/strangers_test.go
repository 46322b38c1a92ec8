//go:build gloo

package gloo

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
	"drun/kernel/dtype"

	"golang.org/x/sys/unix"
)

// listening gives the addresses at which this process listens.
func listening(t *testing.T) (addresses []string) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
			continue
		}
		if at, err := unix.Getsockname(fd); err == nil {
			if in, ok := at.(*unix.SockaddrInet4); ok {
				addresses = append(addresses, net.JoinHostPort(net.IP(in.Addr[:]).String(), strconv.Itoa(in.Port)))
			}
		}
	}
	return addresses
}

// Strangers who call while the ranks connect, and say nothing, or anything, do
// not take the place of a rank.
func TestStrangersWhileConnecting(t *testing.T) {
	store := rendezvous.Memory()
	comms, errs := make([]collective.Comm, 2), make(chan error, 2)
	open := func(rank int) {
		var err error
		comms[rank], err = New(Options{}).Open(collective.Within(t.Context(), 10*time.Second),
			collective.World{Rank: rank, Size: 2, LocalRank: rank, LocalSize: 2, Store: store})
		errs <- err
	}
	go open(0)
	var addresses []string
	for end := time.Now().Add(5 * time.Second); len(addresses) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		addresses = listening(t)
	}
	if len(addresses) == 0 {
		t.Fatal("nobody listens")
	}
	for _, address := range addresses {
		for i, words := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 4096), "x", "", ""} {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				continue // it was closed after the first, in the worst case
			}
			if _, err := conn.Write([]byte(words)); err != nil {
				t.Log(err)
			}
			if i%2 == 0 {
				defer conn.Close()
			} else {
				conn.Close()
			}
		}
	}
	start := time.Now()
	go open(1)
	for range 2 {
		select {
		case err := <-errs:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(15 * time.Second):
			t.Fatal("the ranks do not connect")
		}
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("strangers held up the ranks for %v", took)
	}
	disttest.Each(t, comms, func(rank int, comm collective.Comm) error {
		x := []float32{1}
		err := disttest.Do(comm, collective.NewAllReduce(collective.Of(x), dtype.Sum))
		if err == nil && x[0] != 2 {
			t.Errorf("1 + 1 gives %v", x[0])
		}
		return err
	})
	for _, comm := range comms {
		if err := comm.Close(); err != nil {
			t.Error(err)
		}
	}
}
