package rendezvous

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func connect(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// dropped fails the test unless the server ends the connection without a word.
func dropped(t *testing.T, what string, c net.Conn) {
	t.Helper()
	said, err := io.ReadAll(c)
	var timeout net.Error
	if len(said) == 7 && said[0] == 21 {
		said = nil // that TLS is spoken here
	}
	if len(said) > 0 || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%s: the server said %q (%v)", what, said, err)
	}
}

func alive(t *testing.T, s *Server) {
	t.Helper()
	k := Dial(s.Addr(), s.token)
	defer k.Close()
	if _, err := k.Add(soon(5*time.Second), "alive", 1); err != nil {
		t.Errorf("the server is of no more use: %v", err)
	}
}

func TestStrangers(t *testing.T) {
	s, _ := serve(t)
	for _, token := range []string{"", "wrong", s.token + "x", s.token[:len(s.token)-1], strings.Repeat("x", 1<<20)} {
		k := Dial(s.Addr(), token)
		if _, err := k.Get(soon(5*time.Second), "secret"); err == nil {
			t.Errorf("token %.30q was let in", token)
		}
		k.Close()
	}
	k := Dial(s.Addr(), "wrong")
	defer k.Close()
	wantErr(t, k.Set(t.Context(), "k", nil), s.Addr(), "refused")

	for name, text := range map[string][]byte{
		"HTTP":       []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"zeros":      make([]byte, 1<<16),
		"ones":       bytes.Repeat([]byte{0xff}, 1<<16),
		"a bomb":     {0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"long text":  {0x5b, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff},
		"a request":  encoded(t, &request{Op: opGet, Keys: []string{"k"}}),
		"deep":       bytes.Repeat([]byte{0x81}, 200),
		"other type": encoded(t, []string{"hello"}),
	} {
		c := connect(t, s)
		_, _ = c.Write(text) // it may be cut off already
		_ = c.(*net.TCPConn).CloseWrite()
		dropped(t, name, c)
		c = connect(t, s)
		under := secureClient(c)
		_, _ = under.Write(text)
		_ = under.CloseWrite()
		dropped(t, name+" under TLS", under)
	}
	alive(t, s)
}

func encoded(t testing.TB, msg any) []byte {
	t.Helper()
	data, err := encoding.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestOtherVersion(t *testing.T) {
	s, _ := serve(t)
	c := newConn(secureClient(connect(t, s)))
	if err := c.send(&handshake{Version: 99}); err != nil {
		t.Fatal(err)
	}
	var r handshake
	if err := c.receive(&r, maxMessage, time.Now().Add(5*time.Second)); err != nil || !strings.Contains(r.Error, "version 99") {
		t.Errorf("%+v, %v", r, err)
	}
}

// Connections that say nothing, or half of something, cost nobody else's time,
// and guests do not stay.
func TestSilentGuests(t *testing.T) {
	s, _ := serve(t)
	var guests []net.Conn
	for i := range 50 {
		c := connect(t, s)
		if i%2 == 0 {
			_, _ = c.Write(encoded(t, &handshake{Version: version})[:3])
		}
		guests = append(guests, c)
	}
	start := time.Now()
	alive(t, s)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("an honest rank waited %s", took)
	}
	if testing.Short() {
		return
	}
	dropped(t, "silence", guests[1])
	if took := time.Since(start); took > helloTimeout+2*time.Second {
		t.Errorf("a silent guest stayed for %s", took)
	}
}

// A rank that sends what no rank would send loses its connection, or gets an error.
func TestOddRequests(t *testing.T) {
	s, _ := serve(t)
	greet := func() *conn {
		c := newConn(secureClient(connect(t, s)))
		if err := c.clientHandshake(s.token, false); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := greet()
	for _, q := range []request{
		{},
		{Op: opEnd},
		{Op: opSet, Keys: []string{"k"}},
		{Op: opSet, Values: [][]byte{{1}}},
		{Op: opAdd},
		{Op: opAppend, Keys: []string{"k"}},
		{Op: opCompareSet, Keys: []string{"k"}, Values: [][]byte{{1}}},
		{Op: opDelete, Keys: []string{"a", "b"}},
		{Op: opNumKeys, Keys: []string{"a"}},
		{Op: opGet, Keys: []string{strings.Repeat("k", MaxKey+1)}},
		{Op: opNumKeys, Space: strings.Repeat("s", MaxKey+1)},
	} {
		var r reply
		if err := c.send(&q); err != nil {
			t.Fatal(err)
		}
		if err := c.receive(&r, maxMessage, time.Now().Add(5*time.Second)); err != nil || r.Error == "" {
			t.Errorf("%.80v: %+v, %v", q, r, err)
		}
	}
	// A wait for a year is answered after a poll, and one with a negative time at once.
	for _, wait := range []time.Duration{1 << 62, -1 << 62} {
		var r reply
		start := time.Now()
		if err := c.send(&request{Op: opGet, Keys: []string{"never"}, Wait: wait}); err != nil {
			t.Fatal(err)
		}
		if err := c.receive(&r, maxMessage, time.Now().Add(5*time.Second)); err != nil || len(r.Missing) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if took := time.Since(start); took > pollSeldom+time.Second {
			t.Errorf("it took %s", took)
		}
	}
	if _, err := c.Write(bytes.Repeat([]byte{0xff}, 100)); err != nil {
		t.Fatal(err)
	}
	dropped(t, "garbage", c.Conn)

	c = greet() // announces 1 GB, and sends as much of it as it is let
	_, _ = c.Write([]byte{0xa1, 0x03, 0x81, 0x5a, 0x40, 0, 0, 0})
	sent, chunk := 0, make([]byte, 1<<20)
	for ; sent < 1<<30; sent += len(chunk) {
		if _, err := c.Write(chunk); err != nil {
			break
		}
	}
	if sent >= 1<<30 {
		t.Error("the server took 1 GB")
	}
	alive(t, s)
}

func TestCloseEndsWaits(t *testing.T) {
	s, k := serve(t)
	done := make(chan error)
	go func() { done <- k.Wait(soon(time.Hour), []string{"never"}) }()
	time.Sleep(30 * time.Millisecond)
	start := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantErr(t, <-done, "store at "+s.Addr())
	if took := time.Since(start); took > pollAtMost {
		t.Errorf("it took %s", took)
	}
	wantErr(t, k.Set(t.Context(), "k", nil), "store at "+s.Addr())
}

// A client that goes away while it waits leaves nothing behind.
func TestLostClient(t *testing.T) {
	s, _ := serve(t)
	k := Dial(s.Addr(), s.token)
	defer k.Close()
	if _, err := k.Get(soon(20*time.Millisecond), "never"); err == nil {
		t.Error("no error")
	}
	k.Close()
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		conns := len(s.conns)
		s.mu.Unlock()
		s.table.mu.Lock()
		bells := len(s.table.awaited)
		s.table.mu.Unlock()
		if conns == 0 && bells == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections and %d waits are left", conns, bells)
		}
	}
}

// Ranks that start again have a store of their own; those before them are not heard any more, whether they are
// connected, wait, or come only now.
func TestRenew(t *testing.T) {
	s, old := serve(t)
	if err := old.Set(t.Context(), "k", []byte("old")); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	before := s.token
	go func() {
		k := Dial(s.Addr(), before)
		defer k.Close()
		waits <- k.Wait(soon(time.Minute), []string{"never"})
	}()
	time.Sleep(50 * time.Millisecond)
	s.Renew("another")
	wantErr(t, old.Set(t.Context(), "k", []byte("stale")), "store at")
	wantErr(t, <-waits, "store at")
	late := Dial(s.Addr(), before)
	defer late.Close()
	wantErr(t, late.Set(t.Context(), "k", []byte("stale")), "refused")
	k := Dial(s.Addr(), "another")
	defer k.Close()
	if value, err := k.CompareSet(t.Context(), "k", nil, []byte("new")); err != nil || string(value) != "new" {
		t.Errorf("%q %v", value, err)
	}
}

func TestBusyPort(t *testing.T) {
	s, _ := serve(t)
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Listen("127.0.0.1:"+port, "token")
	wantErr(t, err, "port "+port, "in use", "MASTER_PORT")
	_, err = Listen("127.0.0.1:70000", "token")
	wantErr(t, err, "70000")
}

// FuzzRequest: whatever arrives, the table answers, and keeps its count.
func FuzzRequest(f *testing.F) {
	for _, q := range []request{
		{Op: opSet, Keys: []string{"a", "b"}, Values: [][]byte{{1}, nil}},
		{Op: opAdd, Keys: []string{"n"}, Amount: -3},
		{Op: opCompareSet, Space: "s", Keys: []string{"k"}, Values: [][]byte{nil, {2}}},
		{Op: opGet, Keys: []string{"a", "\xff"}, Wait: 1},
		{Op: opDelete, Keys: []string{"a"}},
	} {
		f.Add(encoded(f, &q))
	}
	f.Add([]byte{0xa1, 0x03, 0x9a, 0xff, 0xff, 0xff, 0xff})
	t := newTable()
	f.Fuzz(func(tt *testing.T, data []byte) {
		var q request
		if err := decoding.Unmarshal(data, &q); err != nil {
			return
		}
		q.Wait = min(q.Wait, time.Millisecond)
		r := t.do(&q, nil)
		if r.Error == "" && q.Op.waits() && len(r.Missing) == 0 && q.Op == opGet && len(r.Values) != len(q.Keys) {
			tt.Fatalf("%d values for %d keys", len(r.Values), len(q.Keys))
		}
		var back reply
		if err := decoding.Unmarshal(encoded(tt, r), &back); err != nil {
			tt.Fatalf("the answer %+v cannot be read: %v", r, err)
		}
		total, count := 0, 0
		for at, value := range t.values {
			total += len(at.key) + len(value)
			count++
		}
		for _, n := range t.counts {
			count -= n
		}
		if total != t.bytes || count != 0 || len(t.awaited) != 0 {
			tt.Fatalf("%d bytes counted of %d, %d keys too many, %d waits", t.bytes, total, count, len(t.awaited))
		}
		if total > 1<<20 {
			t = newTable()
		}
	})
}
