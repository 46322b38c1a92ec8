package main

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/plugins/internal/enginetest"
)

func TestConformance(t *testing.T) {
	disttest.Conformance(t, enginetest.InProcess(false, func(int) collective.Backend { return backend{} }))
}

// Somebody else on this machine who calls is not taken for a rank.
func TestStrangersAreNotLetIn(t *testing.T) {
	store := enginetest.FileStore(t.TempDir())
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	opened := make(chan error, 1)
	var first collective.Comm
	go func() {
		var err error
		first, err = backend{}.Open(ctx, collective.World{Rank: 0, Size: 2, LocalSize: 2, Store: store})
		opened <- err
	}()
	address, err := store.Get(ctx, key(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("x", 28)} {
		conn, err := net.Dial("tcp", string(address))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(words)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	second, err := backend{}.Open(ctx, collective.World{Rank: 1, Size: 2, LocalSize: 2, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	got := make([]byte, 3)
	received := make(chan error, 1)
	go func() { received <- disttest.Do(second, collective.NewRecv(collective.Of(got), 0, 7)) }()
	if err := disttest.Do(first, collective.NewSend(collective.Of([]byte("abc")), 1, 7)); err != nil {
		t.Error(err)
	}
	if err := <-received; err != nil || !bytes.Equal(got, []byte("abc")) {
		t.Errorf("%q %v", got, err)
	}
}

// A rank that never comes ends the wait for it, with its number.
func TestRankThatNeverComes(t *testing.T) {
	store := enginetest.FileStore(t.TempDir())
	ctx, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer stop()
	if err := store.Set(ctx, "example/secret", []byte("s")); err != nil {
		t.Fatal(err)
	}
	_, err := backend{}.Open(ctx, collective.World{Rank: 1, Size: 2, LocalSize: 2, Store: store})
	if err == nil || !strings.Contains(err.Error(), "cannot reach rank 0") {
		t.Error(err)
	}
}

func TestCloseAtAnyTime(t *testing.T) {
	disttest.Disorder(t, enginetest.InProcess(false, func(int) collective.Backend { return backend{} }))
}
