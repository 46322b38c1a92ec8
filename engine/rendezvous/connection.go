package rendezvous

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"drun/internal/build"
	"drun/internal/try"
)

// Every connection between the processes of a run uses TLS 1.3. The listening side has a key of its own, made on first
// use, which nobody knows beforehand: TLS alone stops eavesdroppers, but not a man in the middle. So both sides then
// prove that they know the same secret without sending it: each sends an HMAC-SHA256 whose key is derived from the
// secret and from this very connection. A proof that a man in the middle passes on belongs to another connection, and is
// invalid here. A label in it says which side speaks.
const (
	clientLabel = "drun: who connects"
	serverLabel = "drun: who listens"
	// protocol is what is spoken under TLS. Another version of it has another name. Two sides without a common one agree
	// on versionProtocol, in which the listener sends its version of drun and nothing else.
	protocol        = "drun-5"
	versionProtocol = "drun-version"
	// proofTimeout limits how long a connection may take to prove the secret; the side that connects waits longer, as
	// many may connect at once and wait for their turn.
	proofTimeout = 7 * time.Second
	dialTimeout  = 20 * time.Second
)

var protocols = []string{protocol, versionProtocol}

// curves has only the fastest: thousands of nodes may connect at once.
var curves = []tls.CurveID{tls.X25519}

// conn is a connection under TLS. Close ends it at once, without a last message that nobody may read.
type conn struct{ *tls.Conn }

func (c conn) Close() error { return c.NetConn().Close() }

func secureClient(socket net.Conn) conn {
	return conn{tls.Client(socket, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols, CurvePreferences: curves,
		InsecureSkipVerify: true, // no authority signs the key: see above
	})}
}

func secureServer(socket net.Conn) (conn, error) {
	key, err := ownKey()
	return conn{tls.Server(socket, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols, CurvePreferences: curves,
		Certificates: []tls.Certificate{key}, SessionTicketsDisabled: true,
	})}, err
}

var ownKey = sync.OnceValues(func() (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1)} // nobody checks its dates, since clocks may differ
	signed, err := x509.CreateCertificate(rand.Reader, about, about, public, private)
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: private}, err
})

// proofs are what the two sides send on this connection to prove the secret.
func (c conn) proofs(secret string) (client, server []byte, err error) {
	defer try.Caught(&err)
	try.Ok(c.Handshake())
	state := c.ConnectionState()
	if state.NegotiatedProtocol != protocol {
		return nil, nil, errRelease
	}
	session := try.To(state.ExportKeyingMaterial("EXPORTER-drun-rendezvous", nil, sha256.Size))
	key, err := hkdf.Key(sha256.New, []byte(secret), session, "drun rendezvous", sha256.Size)
	return proof(key, clientLabel), proof(key, serverLabel), err
}

func proof(key []byte, label string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(label)) // a hash's Write never fails
	return mac.Sum(nil)
}

var errRelease = errors.New("another release of drun")

var errSecret = errors.New("the other side has a different secret")

// introduce proves the secret to the listening side, which must prove it, too.
func (c conn) introduce(secret string) (err error) {
	defer try.Caught(&err)
	own, theirs := try.To2(c.proofs(secret))
	try.To(c.Write(own))
	shown := make([]byte, len(theirs))
	try.To(io.ReadFull(c, shown))
	if !hmac.Equal(shown, theirs) {
		return errSecret
	}
	return nil
}

// admit returns an error unless the side that connected proves the secret; this side then proves it, too.
func (c conn) admit(secret string) error {
	theirs, own, err := c.proofs(secret)
	if errors.Is(err, errRelease) {
		_, _ = io.WriteString(c, build.Own())
	}
	if err != nil {
		return err
	}
	shown := make([]byte, len(theirs))
	if _, err := io.ReadFull(c, shown); err != nil {
		return err
	}
	if !hmac.Equal(shown, theirs) {
		_, _ = c.Write(make([]byte, len(own))) // no proof, which tells the user on the other side that the secrets differ
		return errSecret
	}
	_, err = c.Write(own)
	return err
}

// Listener accepts the processes of a run at the address where they meet.
type Listener struct {
	net.Listener
	running sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]struct{} // nil: the listener is closed
	refused string
}

// Refused says which drun was refused last, and why; "" if none was.
func (l *Listener) Refused() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// An InUseError says that another program listens at the address.
type InUseError struct{ Port, Host string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("port %s of %s is in use by another program: choose another one (--rdzv, MASTER_PORT)", e.Port, e.Host)
}

// Listen takes an address; with port 0, a free port. Connections wait until Serve is called.
func Listen(address string) (*Listener, error) {
	inner, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		host, port, _ := net.SplitHostPort(address) // it was listened to
		return nil, &InUseError{port, host}
	}
	if err != nil {
		return nil, fmt.Errorf("rendezvous: %w", err)
	}
	return &Listener{Listener: inner, conns: map[net.Conn]struct{}{}}, nil
}

// Serve calls take, in a goroutine of its own, for each connection whose other side proves the secret. The connection
// is closed when take returns.
func (l *Listener) Serve(secret string, take func(net.Conn)) {
	l.running.Go(func() {
		for {
			socket, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // out of descriptors, or the peer gave up: try again
				time.Sleep(20 * time.Millisecond)
				continue
			}
			l.running.Go(func() { l.serve(socket, secret, take) })
		}
	})
}

func (l *Listener) serve(socket net.Conn, secret string, take func(net.Conn)) {
	defer socket.Close()
	l.mu.Lock()
	if l.conns == nil {
		l.mu.Unlock()
		return
	}
	l.conns[socket] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, socket)
	}()
	c, err := secureServer(socket)
	if err == nil {
		err = errors.Join(c.SetDeadline(time.Now().Add(proofTimeout)), c.admit(secret), c.SetDeadline(time.Time{}))
	}
	why := map[bool]string{errors.Is(err, errSecret): "has a different secret", errors.Is(err, errRelease): "runs another release of drun"}[true]
	switch host, _, _ := net.SplitHostPort(socket.RemoteAddr().String()); {
	case err == nil:
		take(c)
	case why != "":
		l.mu.Lock()
		l.refused = fmt.Sprintf("a process at %s was refused: it %s", host, why)
		l.mu.Unlock()
	}
}

func (l *Listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	for c := range l.conns {
		c.Close()
	}
	l.conns = nil
	l.mu.Unlock()
	l.running.Wait()
	return err
}

// A RefusedError is the other side's reason for refusing this one.
type RefusedError struct {
	Address, Reason string
	closed          bool // without a word
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s refused: %s", e.Address, e.Reason) }

// A SecretError says that the two sides have different secrets.
type SecretError struct{ Address string }

func (e *SecretError) Error() string {
	return "the run at " + e.Address + " has a different secret from this process"
}

// Dial connects to a [Listener]. It retries until ctx ends, because the first process of a run may start later.
func Dial(ctx context.Context, address, secret string) (net.Conn, error) {
	const retry, most = 50 * time.Millisecond, 10
	var closed error
	for refused := 0; ; {
		conn, err := dial(ctx, address, secret)
		if err == nil {
			return conn, nil
		}
		if r := (*RefusedError)(nil); errors.As(err, &r) {
			// A tunnel or a proxy closes connections while nobody listens behind it, and so may a machine flooded with them.
			if r.closed {
				closed = err
			} else {
				refused++
			}
		}
		if refused == most || errors.As(err, new(*SecretError)) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, cmp.Or(closed, err)
		case <-time.After(retry):
		}
	}
}

func dial(ctx context.Context, address, secret string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: proofTimeout}
	socket, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if socket.LocalAddr().String() == socket.RemoteAddr().String() {
		// Nobody listened: the kernel gave this socket the very port that it was dialling.
		socket.Close()
		return nil, errors.New("nobody listens there")
	}
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	c := secureClient(socket)
	err = errors.Join(c.SetDeadline(time.Now().Add(dialTimeout)), c.introduce(secret))
	if !stop() {
		err = context.Cause(ctx) // the socket is being closed
	}
	var alert *net.OpError // of TLS
	switch {
	case err == nil:
		if err = c.SetDeadline(time.Time{}); err == nil {
			return c, nil
		}
	case errors.Is(err, errRelease):
		theirs, _ := io.ReadAll(io.LimitReader(c, 100))
		err = &RefusedError{address, fmt.Sprintf("it is drun %q, and this is drun %q: the nodes of a run need the same one", theirs, build.Own()), false}
	case errors.Is(err, errSecret):
		err = &SecretError{address}
	case errors.As(err, new(tls.RecordHeaderError)), errors.As(err, &alert) && alert.Op == "remote error", errors.Is(err, io.ErrUnexpectedEOF):
		err = &RefusedError{address, "what listens there does not speak this drun's protocol: it is another program, or another release", false}
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		err = &RefusedError{address, "what listens there does not wait for other processes of a run", true}
	}
	c.Close()
	return nil, err
}

// ReadSecret reads the secret from a file: its text without surrounding white space.
func ReadSecret(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if text := strings.TrimSpace(string(data)); text != "" {
		return text, nil
	}
	return "", fmt.Errorf("%s holds no secret: it is empty", file)
}

// SecretFile is the default file of a user's secret.
func SecretFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "drun", "secret"), err
}

// OwnSecret returns the secret in [SecretFile]. If there is none, it is made, by only one of several processes that
// look at the same time.
func OwnSecret() (_ string, err error) {
	defer try.Caught(&err)
	file := try.To(SecretFile())
	if secret, err := ReadSecret(file); !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	try.Ok(os.MkdirAll(filepath.Dir(file), 0o700))
	temp := try.To(os.CreateTemp(filepath.Dir(file), ".secret-*")) // of mode 0600
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(rand.Text() + rand.Text() + "\n")
	try.Ok(errors.Join(err, temp.Sync(), temp.Close()))
	if err := os.Link(temp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return ReadSecret(file)
}
