package rendezvous

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"drun/internal/build"
	"drun/internal/freeport"
)

const secret = "swordfish swordfish swordfish"

// serve starts a listener that sends back what it gets from those who know the secret.
func serve(t testing.TB) *Listener {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Serve(secret, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// connect makes a bare connection.
func connect(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// alive fails the test unless the listener admits who knows the secret, and soon.
func alive(t *testing.T, l *Listener) {
	t.Helper()
	start := time.Now()
	conn, err := Dial(soon(5*time.Second), l.Addr().String(), secret)
	if err != nil {
		t.Fatalf("the listener is of no more use: %v", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Error(err)
	}
	echo := make([]byte, 5)
	if _, err := io.ReadFull(conn, echo); err != nil || string(echo) != "hello" {
		t.Errorf("%q %v", echo, err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// dropped fails the test unless the listener ends the connection without a word.
func dropped(t *testing.T, what string, c net.Conn) {
	t.Helper()
	said, err := io.ReadAll(c)
	var timeout net.Error
	if len(said) == 7 && said[0] == 21 {
		said = nil // that TLS is spoken here
	}
	if len(bytes.Trim(said, "\x00")) > 0 || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%s: the listener said %q (%v)", what, said, err)
	}
}

// refused waits until the listener says so.
func refused(t *testing.T, l *Listener, want string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); l.Refused() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the listener says %q, want %q", l.Refused(), want)
		}
	}
}

func TestStrangers(t *testing.T) {
	l := serve(t)
	if why := l.Refused(); why != "" {
		t.Error(why)
	}
	for _, guess := range []string{"", "wrong", secret + "x", secret[1:], strings.Repeat("x", 1<<20)} {
		if _, err := Dial(soon(5*time.Second), l.Addr().String(), guess); !errors.As(err, new(*SecretError)) {
			t.Errorf("secret %.30q: %v", guess, err)
		}
		refused(t, l, "a process at 127.0.0.1 was refused: it has a different secret")
	}
	for name, text := range map[string][]byte{
		"HTTP":  []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"zeros": make([]byte, 1<<16),
		"ones":  bytes.Repeat([]byte{0xff}, 1<<16),
		"short": {1, 2, 3},
	} {
		c := connect(t, l)
		_, _ = c.Write(text) // it may be cut off already
		_ = c.(*net.TCPConn).CloseWrite()
		dropped(t, name, c)
		under := secureClient(connect(t, l))
		_, _ = under.Write(text)
		_ = under.CloseWrite()
		dropped(t, name+" under TLS", under)
	}
	alive(t, l)
}

// Processes of two releases refuse each other; the one that connects is told both versions.
func TestOtherVersion(t *testing.T) {
	l := serve(t)
	c := tls.Client(connect(t, l), &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"drun-99", versionProtocol}, InsecureSkipVerify: true})
	if version, err := io.ReadAll(c); string(version) != build.Own() || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the listener says %q (%v), not its version %q", version, err, build.Own())
	}
	refused(t, l, "a process at 127.0.0.1 was refused: it runs another release of drun")
	old := tls.Client(connect(t, l), &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"drun-4"}, InsecureSkipVerify: true})
	if err := old.Handshake(); err == nil || !strings.Contains(err.Error(), "no application protocol") {
		t.Error(err)
	}
	for _, protocols := range [][]string{{"drun-99", versionProtocol}, {"drun-4"}} {
		other, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		go func() {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			key, _ := ownKey()
			_, _ = io.WriteString(tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protocols, Certificates: []tls.Certificate{key}}), "v9\x1b[2J")
		}()
		_, err = dial(soon(5*time.Second), other.Addr().String(), secret)
		if !errors.As(err, new(*RefusedError)) {
			t.Error(err)
		}
		if len(protocols) == 2 {
			wantErr(t, err, `it is drun "v9\x1b[2J", and this is drun `+strconv.Quote(build.Own()))
		} else {
			wantErr(t, err, "another release")
		}
	}
}

// Connections that say nothing, or half of something, cost nobody else's time, and do not stay.
func TestSilentGuests(t *testing.T) {
	l := serve(t)
	var guests []net.Conn
	for i := range 300 {
		c := connect(t, l)
		if i%2 == 0 {
			_, _ = c.Write([]byte{22, 3, 1})
		}
		guests = append(guests, c)
	}
	start := time.Now()
	alive(t, l)
	if testing.Short() {
		return
	}
	dropped(t, "silence", guests[1])
	if took := time.Since(start); took > proofTimeout+2*time.Second {
		t.Errorf("a silent guest stayed for %s", took)
	}
}

// pair connects two sides under TLS.
func pair(t *testing.T) (client, server conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	server, err := secureServer(theirs)
	if err != nil {
		t.Fatal(err)
	}
	return secureClient(ours), server
}

// Who listens must know the secret too: what the other side has said proves nothing when it comes back, nor does a proof
// for another connection.
func TestFalseServers(t *testing.T) {
	var old []byte
	for _, name := range []string{"honest", "an echo", "nothing", "of another", "an older one"} {
		ours, theirs := pair(t)
		go func() {
			_, proof, _ := theirs.proofs(secret)
			_, guess, _ := theirs.proofs("guess")
			shown := make([]byte, sha256.Size)
			if _, err := io.ReadFull(theirs, shown); err != nil {
				return
			}
			if name == "honest" {
				old = proof
			}
			_, _ = theirs.Write(map[string][]byte{"honest": proof, "an echo": shown, "nothing": make([]byte, sha256.Size), "of another": guess, "an older one": old}[name])
		}()
		if err := ours.introduce(secret); (err == nil) != (name == "honest") || err != nil && !errors.Is(err, errSecret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who connects must know the secret: neither a made-up proof will do, nor one that was right for another connection.
func TestFalseClients(t *testing.T) {
	var old []byte // a proof that was right
	for _, name := range []string{"honest", "made up", "the other side's", "older"} {
		ours, theirs := pair(t)
		admitted := make(chan bool, 1)
		go func() { admitted <- theirs.admit(secret) == nil }()
		shown, other, err := ours.proofs(secret)
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "honest":
			old = shown
		case "made up":
			shown = make([]byte, sha256.Size)
		case "the other side's":
			shown = other
		case "older":
			shown = old
		}
		if _, err := ours.Write(shown); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, sha256.Size)
		if _, err := io.ReadFull(ours, answer); err != nil || bytes.Equal(answer, other) != (name == "honest") {
			t.Errorf("%s: it answers %x: %v", name, answer, err)
		}
		if got := <-admitted; got != (name == "honest") {
			t.Errorf("%s: admitted %v", name, got)
		}
	}
}

type recorded struct {
	net.Conn
	into io.Writer
}

func (r recorded) Write(p []byte) (int, error) { _, _ = r.into.Write(p); return r.Conn.Write(p) }

// The secret does not go over the network, nor does anything else that is said; and what was said once is of no use again.
func TestSecretStaysHere(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := make(chan string, 1)
	l.Serve(secret, func(conn net.Conn) {
		text := make([]byte, 11)
		_, _ = io.ReadFull(conn, text)
		taken <- string(text)
	})
	var said bytes.Buffer
	c := secureClient(recorded{connect(t, l), &said})
	if err := c.introduce(secret); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("parameters!")); err != nil {
		t.Fatal(err)
	}
	if got := <-taken; got != "parameters!" {
		t.Fatal(got)
	}
	if bytes.Contains(said.Bytes(), []byte("swordfish")) || bytes.Contains(said.Bytes(), []byte("parameters")) {
		t.Errorf("%q", said.Bytes())
	}
	again := connect(t, l)
	_, _ = again.Write(said.Bytes())
	_ = again.(*net.TCPConn).CloseWrite()
	_, _ = io.ReadAll(again)
	select {
	case text := <-taken:
		t.Errorf("what was said before was taken again: %q", text)
	case <-time.After(50 * time.Millisecond):
	}
}

// Someone in between, who ends TLS on both sides and passes everything on, hears no more than the proofs.
func TestSomeoneInBetween(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Serve(secret, func(net.Conn) { t.Error("it was let in") })
	between, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer between.Close()
	go func() {
		for {
			from, err := between.Accept()
			if err != nil {
				return
			}
			left, err := secureServer(from)
			if err != nil {
				return
			}
			right := secureClient(connect(t, l))
			go func() { _, _ = io.Copy(right, left); right.Close() }()
			go func() { _, _ = io.Copy(left, right); left.Close() }()
		}
	}()
	conn, err := Dial(soon(3*time.Second), between.Addr().String(), secret)
	if !errors.As(err, new(*SecretError)) {
		t.Errorf("%v %v", conn, err)
	}
}

// A listener without TLS, or with an older one, hears no proof, and nobody without it is heard.
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
			_, _ = conn.Write(make([]byte, sha256.Size))
			text, _ := io.ReadAll(io.LimitReader(conn, 64))
			return string(text)
		},
		"TLS 1.2": func(conn net.Conn) string {
			text := make([]byte, sha256.Size)
			n, _ := io.ReadFull(tls.Server(conn, &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{key}}), text)
			return string(text[:n])
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
		_, err := dial(soon(3*time.Second), listener.Addr().String(), secret)
		if !errors.As(err, new(*RefusedError)) {
			t.Errorf("%s: %v", name, err)
		}
		if text := <-heard; name == "plain" && text[0] != 22 || name != "plain" && text != "" {
			t.Errorf("%s: it heard %q", name, text)
		}
	}
	l := serve(t)
	if c := tls.Client(connect(t, l), &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true}); c.Handshake() == nil {
		t.Error("TLS 1.2 is spoken")
	}
	alive(t, l)
}

func TestBusyPort(t *testing.T) {
	l := serve(t)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Listen("127.0.0.1:" + port)
	wantErr(t, err, "port "+port, "in use", "MASTER_PORT")
	_, err = Listen("127.0.0.1:70000")
	wantErr(t, err, "70000")
}

// A process that comes before the first one waits for it, but not for ever.
func TestDialThatIsEarly(t *testing.T) {
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(context.Background(), 120*time.Millisecond)
	defer stop()
	if _, err := Dial(short, address, ""); err == nil {
		t.Error("nobody is there")
	}
	met := make(chan error, 1)
	long, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	go func() {
		conn, err := Dial(long, address, "")
		if err == nil {
			conn.Close()
		}
		met <- err
	}()
	time.Sleep(60 * time.Millisecond)
	l, err := Listen(address)
	if err != nil {
		t.Skip("another process has taken the port: run it again")
	}
	defer l.Close()
	l.Serve("", func(net.Conn) {})
	if err := <-met; err != nil {
		t.Error(err)
	}
}

// A tunnel accepts connections and closes them as long as nobody listens at its other end.
func TestDialThroughTunnel(t *testing.T) {
	l := serve(t)
	tunnel, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	up := time.Now().Add(time.Second)
	go func() {
		for {
			from, err := tunnel.Accept()
			if err != nil {
				return
			}
			if time.Now().Before(up) {
				from.Close()
				continue
			}
			to := connect(t, l)
			go func() { _, _ = io.Copy(to, from); to.Close() }()
			go func() { _, _ = io.Copy(from, to); from.Close() }()
		}
	}()
	ctx, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	if _, err := Dial(ctx, tunnel.Addr().String(), secret); !errors.As(err, new(*RefusedError)) {
		t.Errorf("nobody is there yet: %v", err)
	}
	ctx, stop = context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	conn, err := Dial(ctx, tunnel.Addr().String(), secret)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// A dial that waits for the listener's answer ends with its context, and Close ends those that have been let in.
func TestEnds(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	start := time.Now()
	if _, err := Dial(ctx, mute.Addr().String(), secret); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	l := serve(t)
	conn, err := Dial(soon(5*time.Second), l.Addr().String(), secret)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes from a listener that is closed", n)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Whatever a stranger says, it is not let in.
func FuzzHandshake(f *testing.F) {
	f.Add(make([]byte, sha256.Size))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(bytes.Repeat([]byte{0x9b}, 301))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := &Listener{conns: map[net.Conn]struct{}{}}
		ours, theirs := net.Pipe()
		served := make(chan struct{})
		go func() {
			l.serve(theirs, secret, func(net.Conn) { t.Error("a stranger was let in") })
			close(served)
		}()
		stranger := ours
		if len(text)%2 == 0 { // others do not even speak TLS
			under := secureClient(ours)
			_ = under.Handshake()
			stranger = under
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
		if len(l.conns) != 0 {
			t.Errorf("it is still known: %v", l.conns)
		}
	})
}
