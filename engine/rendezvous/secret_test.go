package rendezvous

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// pair connects two sides under TLS, of which tap sees what the first says.
func pair(t *testing.T, tap io.Writer) (client, server *conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	under, err := secureServer(theirs)
	if err != nil {
		t.Fatal(err)
	}
	return newConn(secureClient(recorded{ours, tap})), newConn(under)
}

// Who listens must know the secret too: what the other side has said proves nothing
// when it comes back, nor does a proof for another purpose, or for another connection.
func TestFalseServers(t *testing.T) {
	const secret = "swordfish"
	old := ""
	for _, name := range []string{"honest", "an echo", "nothing", "the store's", "of another", "an older one"} {
		ours, theirs := pair(t, io.Discard)
		go func() {
			var first handshake
			if theirs.receive(&first, maxHello, time.Now().Add(time.Second)) != nil {
				return
			}
			key, _ := theirs.bound(secret, time.Now().Add(time.Second))
			guess, _ := theirs.bound("guess", time.Now().Add(time.Second))
			answer := map[string][]byte{"honest": proof(key, serverLabel, true), "an echo": first.Proof, "nothing": nil, "the store's": proof(key, serverLabel, false),
				"of another": proof(guess, serverLabel, true), "an older one": []byte(old)}[name]
			if name == "honest" {
				old = string(answer)
			}
			_ = theirs.send(&handshake{Proof: answer})
		}()
		err := ours.clientHandshake(secret, true)
		if (err == nil) != (name == "honest") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who connects must know the secret: neither a made-up proof will do, nor one that
// was right for another connection.
func TestFalseClients(t *testing.T) {
	s, _ := serve(t)
	s.Agents("swordfish", func(conn net.Conn) { _, _ = conn.Write([]byte("welcome")) })
	var old []byte // a proof that was right
	for _, name := range []string{"honest", "made up", "of another purpose", "older", "none"} {
		k := newConn(secureClient(connect(t, s)))
		end := time.Now().Add(5 * time.Second)
		key, err := k.bound("swordfish", end)
		if err != nil {
			t.Fatal(err)
		}
		shown := old
		switch name {
		case "honest":
			shown = proof(key, clientLabel, true)
			old = shown
		case "made up":
			shown = make([]byte, 32)
		case "of another purpose":
			shown = proof(key, clientLabel, false)
		case "none":
			shown = nil
		}
		if err := k.send(&handshake{Version: version, Agent: true, Proof: shown}); err != nil {
			t.Fatal(err)
		}
		var last handshake
		err = k.receive(&last, maxHello, end)
		if honest := name == "honest"; err != nil || honest != (last.Proof != nil) || honest == (last.Error != "") {
			t.Errorf("%s: %+v %v", name, last, err)
		}
		k.Close()
	}
}

// The secret does not go over the network, nor does anything else that is said; and what was said once is of no use again.
func TestSecretStaysHere(t *testing.T) {
	const secret = "swordfish swordfish swordfish"
	s, _ := serve(t)
	taken := make(chan string, 1)
	s.Agents(secret, func(conn net.Conn) {
		text := make([]byte, 11)
		_, _ = io.ReadFull(conn, text)
		taken <- string(text)
	})
	var said bytes.Buffer
	k := newConn(secureClient(recorded{connect(t, s), &said}))
	if err := k.clientHandshake(secret, true); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write([]byte("parameters!")); err != nil {
		t.Fatal(err)
	}
	if got := <-taken; got != "parameters!" {
		t.Fatal(got)
	}
	if bytes.Contains(said.Bytes(), []byte("swordfish")) || bytes.Contains(said.Bytes(), []byte("parameters")) {
		t.Errorf("%q", said.Bytes())
	}
	again := connect(t, s)
	_, _ = again.Write(said.Bytes())
	_ = again.(*net.TCPConn).CloseWrite()
	_, _ = io.ReadAll(again)
	select {
	case text := <-taken:
		t.Errorf("what was said before was taken again: %q", text)
	case <-time.After(50 * time.Millisecond):
	}
}

// Someone in between, who ends TLS on both sides and passes everything on, hears no more than the greeting.
func TestSomeoneInBetween(t *testing.T) {
	s, _ := serve(t)
	s.Agents("swordfish", func(net.Conn) { t.Error("it was let in") })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			left, err := secureServer(from)
			if err != nil {
				return
			}
			right := secureClient(connect(t, s))
			go func() { _, _ = io.Copy(right, left); right.Close() }()
			go func() { _, _ = io.Copy(left, right); left.Close() }()
		}
	}()
	conn, err := DialAgent(soon(3*time.Second), listener.Addr().String(), "swordfish")
	if !errors.As(err, new(*SecretError)) {
		t.Errorf("%v %v", conn, err)
	}
}

// A server without TLS, or with an older one, hears no proof, and nobody without it is heard.
func TestNoWayBackToPlain(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	key, err := ownKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]func(conn net.Conn) string{
		"plain": func(conn net.Conn) string {
			_, _ = conn.Write(encoded(t, &handshake{Proof: make([]byte, 32)}))
			text, _ := io.ReadAll(io.LimitReader(conn, 64))
			return string(text)
		},
		"TLS 1.2": func(conn net.Conn) string {
			old := tls.Server(conn, &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{key}})
			var first handshake
			_ = newConn(old).receive(&first, maxHello, time.Now().Add(time.Second))
			return string(first.Proof)
		},
	} {
		heard := make(chan string, 20)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			heard <- answer(conn)
		}()
		_, err := dialAgent(soon(3*time.Second), listener.Addr().String(), "swordfish")
		if !errors.As(err, new(*RefusedError)) {
			t.Errorf("%s: %v", name, err)
		}
		var m handshake
		if text := <-heard; name == "plain" && (text[0] != 22 || decoding.Unmarshal([]byte(text), &m) == nil) || name != "plain" && text != "" {
			t.Errorf("%s: it heard %q", name, text)
		}
	}
	s, _ := serve(t)
	if c := tls.Client(connect(t, s), &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true}); c.Handshake() == nil {
		t.Error("TLS 1.2 is spoken")
	}
	c := newConn(connect(t, s))
	_ = c.send(&handshake{Version: version, Agent: true, Proof: make([]byte, 32)})
	var m handshake
	if err := c.receive(&m, maxHello, time.Now().Add(5*time.Second)); err == nil {
		t.Errorf("plain: %+v", m)
	}
	alive(t, s)
}

type recorded struct {
	net.Conn
	into io.Writer
}

func (r recorded) Write(p []byte) (int, error) { _, _ = r.into.Write(p); return r.Conn.Write(p) }

// Many connections that say nothing keep nobody out.
func TestFloodOfSilence(t *testing.T) {
	s, _ := serve(t)
	for range 300 {
		connect(t, s)
	}
	start := time.Now()
	alive(t, s)
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("an honest rank waited %s", took)
	}
}

func TestOwnSecret(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	secrets := make([]string, 20)
	var all sync.WaitGroup
	for i := range secrets {
		all.Go(func() {
			var err error
			if secrets[i], err = OwnSecret(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range secrets {
		if s != secrets[0] || len(s) < 40 {
			t.Fatalf("%q and %q", s, secrets[0])
		}
	}
	file, err := SecretFile()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir + "/drun"); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if err := os.WriteFile(file, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OwnSecret(); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty secret: %v", err)
	}
}

// Whatever a stranger says, it is not let in, and the server goes on.
func FuzzHandshake(f *testing.F) {
	for _, parts := range [][]any{
		{&handshake{Version: version, Agent: true, Proof: make([]byte, 32)}},
		{&handshake{Version: version}, &handshake{}},
		{&handshake{Version: version, Agent: true}},
		{&handshake{Version: version, Proof: make([]byte, 5)}, &request{Op: opGet, Keys: []string{"k"}}},
		{[]string{"hello"}},
	} {
		var text []byte
		for _, part := range parts {
			text = append(text, encoded(f, part)...)
		}
		f.Add(text)
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(bytes.Repeat([]byte{0x9b}, 300))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Server{token: "swordfish", table: newTable(), done: make(chan struct{}), conns: map[*conn]struct{}{}}
		s.Agents("swordfish", func(net.Conn) { t.Error("a stranger was let in") })
		ours, theirs := net.Pipe()
		under, err := secureServer(theirs)
		if err != nil {
			t.Fatal(err)
		}
		c := newConn(under)
		if !s.welcome(c) {
			t.Fatal("no room")
		}
		served := make(chan struct{})
		go func() { s.serve(c); close(served) }()
		stranger := ours
		if len(text)%2 == 0 { // others do not even speak TLS
			stranger = secureClient(ours)
			_ = stranger.(*secured).Handshake()
		}
		go func() { // what it says is not read slower than it comes
			buf := make([]byte, 512)
			for {
				if _, err := stranger.Read(buf); err != nil {
					return
				}
			}
		}()
		_, _ = stranger.Write(text)
		ours.Close()
		<-served
		if len(s.conns) != 0 {
			t.Errorf("it is still known: %v", s.conns)
		}
	})
}
