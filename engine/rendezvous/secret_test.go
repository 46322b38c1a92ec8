package rendezvous

import (
	"bytes"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// Who listens must know the secret too: what the other side has said proves nothing
// when it comes back, nor does a proof for another purpose.
func TestFalseServers(t *testing.T) {
	const secret = "swordfish"
	for name, answer := range map[string]func(first, second *handshake, own []byte) []byte{
		"honest": func(first, _ *handshake, own []byte) []byte {
			return proof(secret, serverLabel, true, first.Nonce, own)
		},
		"an echo": func(_, second *handshake, _ []byte) []byte { return second.Proof },
		"nothing": func(_, _ *handshake, _ []byte) []byte { return nil },
		"the store's": func(first, _ *handshake, own []byte) []byte {
			return proof(secret, serverLabel, false, first.Nonce, own)
		},
		"of another": func(first, _ *handshake, own []byte) []byte {
			return proof("guess", serverLabel, true, first.Nonce, own)
		},
		"an older one": func(_, _ *handshake, own []byte) []byte { return proof(secret, serverLabel, true, newNonce(), own) },
	} {
		ours, theirs := net.Pipe()
		go func() {
			k := newConn(theirs)
			var first, second handshake
			own := newNonce()
			if k.receive(&first, maxHello, time.Now().Add(time.Second)) == nil && k.send(&handshake{Nonce: own}) == nil &&
				k.receive(&second, maxHello, time.Now().Add(time.Second)) == nil {
				_ = k.send(&handshake{Proof: answer(&first, &second, own)})
			}
		}()
		err := newConn(ours).introduce(secret, true)
		if (err == nil) != (name == "honest") {
			t.Errorf("%s: %v", name, err)
		}
		ours.Close()
		theirs.Close()
	}
}

// Who connects must know the secret: neither a made-up proof will do, nor one that
// was right for another connection.
func TestFalseClients(t *testing.T) {
	s, _ := serve(t)
	s.Agents("swordfish", func(conn net.Conn) { _, _ = conn.Write([]byte("welcome")) })
	nonce := newNonce()
	var old []byte // a proof that was right
	for _, name := range []string{"honest", "made up", "of another purpose", "older"} {
		k := newConn(connect(t, s))
		var theirs, last handshake
		end := time.Now().Add(5 * time.Second)
		if err := k.send(&handshake{Version: version, Agent: true, Nonce: nonce}); err != nil {
			t.Fatal(err)
		}
		if err := k.receive(&theirs, maxHello, end); err != nil {
			t.Fatal(err)
		}
		shown := old
		switch name {
		case "honest":
			shown = proof("swordfish", clientLabel, true, nonce, theirs.Nonce)
			old = shown
		case "made up":
			shown = newNonce()
		case "of another purpose":
			shown = proof("swordfish", clientLabel, false, nonce, theirs.Nonce)
		}
		if err := k.send(&handshake{Proof: shown}); err != nil {
			t.Fatal(err)
		}
		err := k.receive(&last, maxHello, end)
		if honest := name == "honest"; err != nil || honest != (last.Proof != nil) || honest == (last.Error != "") {
			t.Errorf("%s: %+v %v", name, last, err)
		}
		k.Close()
	}
}

// The secret does not go over the network, and each connection has other proofs.
func TestSecretStaysHere(t *testing.T) {
	const secret = "swordfish swordfish swordfish"
	var said [2]bytes.Buffer
	for i := range said {
		ours, theirs := net.Pipe()
		met := make(chan bool)
		go func() {
			_, ok := newConn(theirs).meet(func(bool) (string, bool) { return secret, true })
			met <- ok
		}()
		if err := newConn(recorded{ours, &said[i]}).introduce(secret, true); err != nil || !<-met {
			t.Fatal(err)
		}
	}
	if bytes.Contains(said[0].Bytes(), []byte("swordfish")) || bytes.Equal(said[0].Bytes(), said[1].Bytes()) {
		t.Errorf("%q", said[0].Bytes())
	}
}

type recorded struct {
	net.Conn
	into *bytes.Buffer
}

func (r recorded) Write(p []byte) (int, error) { r.into.Write(p); return r.Conn.Write(p) }

// More connections than there is room for that say nothing keep nobody out.
func TestFloodOfSilence(t *testing.T) {
	s, _ := serve(t)
	for range maxGuests + 50 {
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
	nonce := bytes.Repeat([]byte{7}, nonceSize)
	for _, parts := range [][]any{
		{&handshake{Version: version, Agent: true, Nonce: nonce}, &handshake{Proof: make([]byte, 32)}},
		{&handshake{Version: version, Nonce: nonce}, &handshake{}},
		{&handshake{Version: version, Agent: true}},
		{&handshake{Version: version, Nonce: nonce[:5]}, &request{Op: opGet, Keys: []string{"k"}}},
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
		c := newConn(theirs)
		if !s.welcome(c) {
			t.Fatal("no room")
		}
		served := make(chan struct{})
		go func() { s.serve(c); close(served) }()
		go func() { // what it says is not read slower than it comes
			buf := make([]byte, 512)
			for {
				if _, err := ours.Read(buf); err != nil {
					return
				}
			}
		}()
		_, _ = ours.Write(text)
		ours.Close()
		<-served
		if len(s.conns) != 0 || len(s.guests) != 0 {
			t.Errorf("it is still known: %v %v", s.conns, s.guests)
		}
	})
}
