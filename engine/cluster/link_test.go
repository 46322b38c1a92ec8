package cluster

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"drun/engine"
)

// pair connects two agents over TCP.
func pair(t *testing.T) (a *Conn[ToNode, ToCoordinator], b *Conn[ToCoordinator, ToNode], raw net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	raw, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	a, b = NewConn[ToNode, ToCoordinator](raw, Steady), NewConn[ToCoordinator, ToNode](other, Steady)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b, raw
}

func TestMessagesComeInOrder(t *testing.T) {
	a, b, _ := pair(t)
	b.Trust()
	const n = 3 * queued
	go func() {
		for i := range n {
			a.Send(&ToCoordinator{Rank: i, Line: &Line{Text: strings.Repeat("x", i%100)}})
			a.Wait()
		}
		a.Send(&ToCoordinator{Rank: n, Msg: &engine.ToAgent{Save: &engine.Part{Entries: []engine.Entry{{Name: "w", Data: make([]byte, 5<<20)}}}}})
		a.Close() // sends what is queued
	}()
	for i := range n {
		m, err := b.Receive()
		if err != nil || m.Rank != i || len(m.Line.Text) != i%100 {
			t.Fatalf("message %d: %v %v", i, m, err)
		}
	}
	last, err := b.Receive()
	if err != nil || len(last.Msg.Save.Entries[0].Data) != 5<<20 {
		t.Fatal(err)
	}
	if _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// One who has not been let in can neither fill our memory nor say what is no message.
func TestMessagesOfStrangers(t *testing.T) {
	for want, words := range map[string][]byte{
		"a message of": binary.LittleEndian.AppendUint64(nil, greeting+1),
		"cbor":         append(binary.LittleEndian.AppendUint64(nil, 4), 0xff, 0xff, 0xff, 0xff),
	} {
		_, b, raw := pair(t)
		if _, err := raw.Write(words); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Receive(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, b, raw := pair(t)
	if _, err := raw.Write(append(binary.LittleEndian.AppendUint64(nil, 100), 0xa1, 0x65)); err != nil {
		t.Fatal(err)
	}
	raw.Close() // in the midst of a message
	if _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// Sending to one who is gone neither blocks nor keeps anything.
func TestSendToNobody(t *testing.T) {
	a, b, _ := pair(t)
	b.Close()
	ended := make(chan bool)
	go func() {
		for range 10 * queued {
			a.Send(&ToCoordinator{Line: &Line{Text: strings.Repeat("x", 1000)}})
			a.Wait()
		}
		ended <- true
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it blocks")
	}
	<-a.Done()
}

func TestDiffer(t *testing.T) {
	hello := func(index int, settings ...string) *Hello {
		h := &Hello{Index: index, Host: "h", PID: 7}
		for i := 0; i < len(settings); i += 2 {
			h.Settings = append(h.Settings, Setting{Name: settings[i], Value: settings[i+1]})
		}
		return h
	}
	a := hello(0, "--seed", "1", "the file x.star", "A")
	built := func(index int, program string) *Hello {
		h := hello(index, "--seed", "1", "the file x.star", "A")
		h.Program = program
		return h
	}
	if err := Differ(a, built(1, "devel.1")); err != nil {
		t.Errorf("without drun-plugin-host on one side: %v", err)
	}
	a = built(0, "devel.0")
	for want, b := range map[string]*Hello{
		"": hello(1, "--seed", "1", "the file x.star", "A"),
		"the version of drun-plugin-host differs: node 0 (process 7 on h) has \"devel.0\", node 1 (process 7 on h) has \"devel.1\"": built(1, "devel.1"),
		"--seed differs: node 0 (process 7 on h) has 1, node 1 (process 7 on h) has 2":                                              hello(1, "--seed", "2", "the file x.star", "A"),
		"the file x.star differs: node 0 (process 7 on h) has A, node 1 (process 7 on h) has nothing":                               hello(1, "--seed", "1"),
		"the file y.star differs: node 0 (process 7 on h) has nothing, node 1 (process 7 on h) has B":                               hello(1, "--seed", "1", "the file x.star", "A", "the file y.star", "B"),
	} {
		err := Differ(a, b)
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	a, b, none := hello(0), hello(1), hello(2)
	for i, h := range []*Hello{a, b} {
		h.Settings = append(h.Settings, Setting{Name: "the key", Value: []string{"c0ffee", "decade"}[i], Secret: true})
	}
	for _, pair := range [][2]*Hello{{a, b}, {a, none}, {none, a}} {
		if err := Differ(pair[0], pair[1]); err == nil || strings.Contains(err.Error(), "c0ffee") || strings.Contains(err.Error(), "decade") {
			t.Errorf("of a secret it tells: %v", err)
		}
	}
}

func TestMachine(t *testing.T) {
	if m := Machine(); m == "" || m != Machine() {
		t.Error(m)
	}
}

// One who takes nothing is as good as gone: what is sent to him does not grow for ever.
func TestQueueIsBounded(t *testing.T) {
	a, _, _ := pair(t) // nobody receives
	line := strings.Repeat("x", 1000)
	for range 2 * mostQueued {
		a.Send(&ToCoordinator{Line: &Line{Text: line}})
	}
	select {
	case <-a.Done():
	case <-time.After(10 * time.Second):
		t.Error("it keeps what nobody takes")
	}
}

// A link whose other side is silent is given up, and called silent, not ended; one whose other side is there but has
// nothing to say is not.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, other := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, other) }() // takes what comes, as the kernel of a stopped process does
		link := NewConn[int, int](conn, Steady)
		start := time.Now()
		_, err := link.Receive()
		if err == nil || err.Error() != "nothing was received for 20s" {
			t.Errorf("a silent link: %v", err)
		}
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("it was given up after %v", took)
		}
		link.Close()
		other.Close()

		conn, other = net.Pipe()
		a, b := NewConn[int, int](conn, Steady), NewConn[int, int](other, Steady)
		time.AfterFunc(5*time.Minute, func() { b.Send(new(7)) })
		go func() { _, _ = b.Receive() }() // ends with the link
		if got, err := a.Receive(); err != nil || *got != 7 {
			t.Errorf("a link without messages for five minutes: %v, %v", got, err)
		}
		a.Close()
		b.Close()
	})
}

// A link within the process carries messages in order, and ends as one between
// machines does: what was sent before the end is received.
func TestPipe(t *testing.T) {
	a, b := Pipe()
	go func() {
		for i := range 3 * queued {
			b.Send(&ToCoordinator{Rank: i})
			b.Wait()
		}
		b.Close()
		b.Send(&ToCoordinator{Rank: -1})
	}()
	for i := range 3 * queued {
		if m, err := a.Receive(); err != nil || m.Rank != i {
			t.Fatalf("message %d: %v %v", i, m, err)
		}
	}
	for range 2 {
		if m, err := a.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v %v", m, err)
		}
	}
}
