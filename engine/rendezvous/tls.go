package rendezvous

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"sync"
	"time"
)

// Every connection is under TLS 1.3. The listening side has a key of its own, made on first use, which nobody knows
// beforehand: TLS alone keeps strangers from eavesdropping, but not one in between. What proves who speaks is the
// secret (secret.go), with keys derived from it and from this very connection: proofs that someone in between
// passes on belong to another connection, and are invalid here.

// protocol names the protocol spoken under TLS.
const protocol = "drun"

// curves has only the fastest: thousands of ranks may connect at once.
var curves = []tls.CurveID{tls.X25519}

// secured is a connection under TLS. Close ends it at once, without a last message that nobody may read.
type secured struct {
	*tls.Conn
	socket net.Conn
}

func (s *secured) Close() error { return s.socket.Close() }

func secureClient(socket net.Conn) *secured {
	return &secured{tls.Client(socket, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, CurvePreferences: curves,
		InsecureSkipVerify: true, // no authority signs the key: see above
	}), socket}
}

func secureServer(socket net.Conn) (*secured, error) {
	key, err := ownKey()
	if err != nil {
		return nil, err
	}
	return &secured{tls.Server(socket, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, CurvePreferences: curves,
		Certificates: []tls.Certificate{key}, SessionTicketsDisabled: true,
	}), socket}, nil
}

// ownKey is this process's key.
var ownKey = sync.OnceValues(func() (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1)} // nobody checks its dates, since clocks may differ
	signed, err := x509.CreateCertificate(rand.Reader, about, about, public, private)
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: private}, err
})

// bound is the key that both sides derive from a secret for this connection alone.
func (c *conn) bound(secret string, end time.Time) (string, error) {
	s, ok := c.Conn.(*secured)
	if !ok {
		return "", errors.New("the connection is not under TLS")
	}
	if err := s.SetDeadline(end); err != nil {
		return "", err
	}
	if err := s.Handshake(); err != nil {
		return "", err
	}
	state := s.ConnectionState()
	session, err := state.ExportKeyingMaterial("EXPORTER-drun-rendezvous", nil, sha256.Size)
	if err != nil {
		return "", err
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), session, "drun rendezvous", sha256.Size)
	return string(key), err
}
