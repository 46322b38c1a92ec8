package rendezvous

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Both sides of a connection prove that they know the same secret without sending it: each sends an HMAC-SHA256
// whose key is derived from the secret and the connection, which is under TLS (tls.go). A label in it says which
// side speaks, and for what purpose.

// A proof covers a label, so that it is not valid for another purpose.
const (
	clientLabel = "drun: who connects"
	serverLabel = "drun: who listens"
	forStore    = " for the store"
	forAgents   = " for an agent"
)

// handshake is a message sent before the other side has proven the secret.
type handshake struct {
	Version int    `cbor:"1,keyasint,omitempty"`
	Agent   bool   `cbor:"3,keyasint,omitempty"` // the connection is not for the store: see Server.Agents
	Error   string `cbor:"4,keyasint,omitempty"`
	Proof   []byte `cbor:"6,keyasint,omitempty"`
}

// proof is made with the key of the connection, see bound.
func proof(key, label string, agent bool) []byte {
	purpose := forStore
	if agent {
		purpose = forAgents
	}
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = mac.Write([]byte(label + purpose)) // a hash's Write never fails
	return mac.Sum(nil)
}

// errSecret says that the other side has another secret.
var errSecret = errors.New("the secret there is another one")

// clientHandshake is the handshake of the side that connected.
func (c *conn) clientHandshake(secret string, agent bool) error {
	end := time.Now().Add(ioTimeout) // many may connect at once and wait for their turn
	key, err := c.bound(secret, end)
	if err != nil {
		return err
	}
	if err := c.send(&handshake{Version: version, Agent: agent, Proof: proof(key, clientLabel, agent)}); err != nil {
		return err
	}
	var theirs handshake
	if err := c.receive(&theirs, maxHello, end); err != nil {
		return err
	}
	switch {
	case theirs.Error == errSecret.Error():
		return errSecret
	case theirs.Error != "":
		return &saidError{theirs.Error}
	case !hmac.Equal(theirs.Proof, proof(key, serverLabel, agent)):
		return errSecret
	}
	return nil
}

// saidError is an error that the other side sent instead of its proof.
type saidError struct{ text string }

func (e *saidError) Error() string { return e.text }

// serverHandshake is the handshake of the listening side, without its own proof, which is to be sent once there is a place for
// the other side. secretOf returns the secret, or false if no such connection is expected.
func (c *conn) serverHandshake(secretOf func(agent bool) (string, bool)) (agent bool, own *handshake) {
	end := time.Now().Add(helloTimeout)
	var first handshake
	if c.receive(&first, maxHello, end) != nil {
		return false, nil
	}
	secret, expected := secretOf(first.Agent)
	if !expected {
		return false, nil
	}
	if first.Version != version {
		_ = c.send(&handshake{Error: fmt.Sprintf("it speaks version %d, this side version %d: they come from different releases of drun", version, first.Version)})
		return false, nil
	}
	key, err := c.bound(secret, end)
	if err != nil {
		return false, nil
	}
	if !hmac.Equal(first.Proof, proof(key, clientLabel, first.Agent)) {
		_ = c.send(&handshake{Error: errSecret.Error()}) // for the user on the other side
		return false, nil
	}
	return first.Agent, &handshake{Proof: proof(key, serverLabel, first.Agent)}
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
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "drun", "secret"), nil
}

// OwnSecret returns the secret in [SecretFile]. If there is none, it is made, by only one of several processes that
// look at the same time.
func OwnSecret() (string, error) {
	file, err := SecretFile()
	if err != nil {
		return "", err
	}
	if secret, err := ReadSecret(file); !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".secret-*") // of mode 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(rand.Text() + rand.Text() + "\n")
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return "", err
	}
	if err := os.Link(temp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return ReadSecret(file)
}
