package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// Limits of the store. They keep a faulty recipe, or an unknown process, from
// filling the agent's memory. Both sides of a connection check them, so that an
// error names the key instead of a lost connection.
const (
	MaxKey     = 4 << 10  // bytes of a key
	MaxValue   = 16 << 20 // bytes of a value
	MaxKeys    = 1 << 16  // keys of one call
	MaxTotal   = 1 << 30  // bytes of all keys and values together
	maxMessage = 64 << 20
	maxHello   = 256
)

// ioTimeout limits how long the rest of a message may take once it has begun.
const ioTimeout = 20 * time.Second

// op is a request's operation.
type op uint8

const (
	opSet op = iota + 1
	opGet
	opAdd
	opCompareSet
	opAppend
	opWait
	opCheck
	opDelete
	opNumKeys
	opEnd // one more than the last operation
)

// waits reports whether the answer waits until all the keys exist.
func (o op) waits() bool { return o == opGet || o == opWait }

// version is the version of the handshake (see secret.go) and of the requests.
const version = 4

// request is one operation. Values correspond to Keys one to one, except for opCompareSet: the expected value and
// the desired one.
type request struct {
	Op     op            `cbor:"1,keyasint"`
	Space  string        `cbor:"2,keyasint,omitempty"`
	Keys   []string      `cbor:"3,keyasint,omitempty"`
	Values [][]byte      `cbor:"4,keyasint,omitempty"`
	Amount int64         `cbor:"5,keyasint,omitempty"`
	Wait   time.Duration `cbor:"6,keyasint,omitempty"` // how long to wait for keys, at most
	ID     uint64        `cbor:"7,keyasint,omitempty"` // the reply repeats it, since replies may come in another order
}

// reply answers a request.
type reply struct {
	Values  [][]byte `cbor:"1,keyasint,omitempty"`
	Number  int64    `cbor:"2,keyasint,omitempty"`
	Missing []string `cbor:"3,keyasint,omitempty"` // the keys that did not exist after Wait
	Error   string   `cbor:"4,keyasint,omitempty"`
	ID      uint64   `cbor:"5,keyasint,omitempty"` // that of the request
}

// check validates a request without looking at the table.
func (q *request) check() error {
	if q.Op == 0 || q.Op >= opEnd {
		return fmt.Errorf("unknown operation %d", q.Op)
	}
	if len(q.Space) > MaxKey {
		return fmt.Errorf("a namespace of %d bytes: at most %d are possible", len(q.Space), MaxKey)
	}
	if len(q.Keys) > MaxKeys {
		return fmt.Errorf("%d keys: at most %d are possible in one call", len(q.Keys), MaxKeys)
	}
	total := 0
	for _, key := range q.Keys {
		if len(key) > MaxKey {
			return fmt.Errorf("key %s has %d bytes: at most %d are possible", quote(key), len(key), MaxKey)
		}
		total += len(key)
	}
	for _, value := range q.Values {
		if len(value) > MaxValue {
			return fmt.Errorf("key %s: a value of %d bytes: at most %d are possible", quote(q.Keys[0]), len(value), MaxValue)
		}
		total += len(value)
	}
	if total > maxMessage/2 {
		return fmt.Errorf("%d bytes in one call: at most %d are possible", total, maxMessage/2)
	}
	keys, values := -1, 0 // -1: any number of keys
	switch q.Op {
	case opSet:
		values = len(q.Keys)
	case opAppend:
		keys, values = 1, 1
	case opCompareSet:
		keys, values = 1, 2
	case opAdd, opDelete:
		keys = 1
	case opNumKeys:
		keys = 0
	}
	if keys >= 0 && len(q.Keys) != keys || len(q.Values) != values {
		return fmt.Errorf("operation %d with %d keys and %d values", q.Op, len(q.Keys), len(q.Values))
	}
	return nil
}

// quote shows a key in an error, shortened.
func quote(key string) string {
	const most = 60
	if len(key) > most {
		return strconv.Quote(key[:most]) + "…"
	}
	return strconv.Quote(key)
}

// Keys may be any bytes, so text is encoded as byte strings.
var (
	encoding = must(cbor.EncOptions{String: cbor.StringToByteString}.EncMode())
	decoding = must(cbor.DecOptions{
		ByteStringToString: cbor.ByteStringToStringAllowed,
		MaxArrayElements:   MaxKeys,
		MaxMapPairs:        16,
		MaxNestedLevels:    4,
		IndefLength:        cbor.IndefLengthForbidden,
		TagsMd:             cbor.TagsForbidden,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options above are constants
	}
	return v
}

var errTooLarge = errors.New("the message is too large")

// conn carries one message at a time in each direction. One goroutine at a time may send, and one receive.
type conn struct {
	net.Conn
	rank bool // it uses the store; guarded by the server's lock
	enc  *cbor.Encoder
	in   bounded
	dec  *cbor.Decoder
}

func newConn(c net.Conn) *conn {
	k := &conn{Conn: c, enc: encoding.NewEncoder(c), in: bounded{from: c}}
	k.dec = decoding.NewDecoder(&k.in)
	return k
}

func (c *conn) send(msg any) error {
	if err := c.SetWriteDeadline(time.Now().Add(ioTimeout)); err != nil {
		return err
	}
	return c.enc.Encode(msg)
}

// receive reads a message of at most most bytes. It waits until start for the message to begin (zero: without a
// deadline), then at most ioTimeout for the rest.
func (c *conn) receive(msg any, most int, start time.Time) error {
	if err := c.SetReadDeadline(start); err != nil {
		return err
	}
	c.in.left, c.in.begun = most, false
	err := c.dec.Decode(msg)
	if most-c.in.left > 1<<16 {
		// A kept decoder would keep a buffer as large as the largest message.
		c.dec = decoding.NewDecoder(&c.in)
	}
	return err
}

// bounded reads a message within a size and a deadline.
type bounded struct {
	from  net.Conn
	left  int
	begun bool
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	if n > 0 && !b.begun {
		b.begun = true
		if err := b.from.SetReadDeadline(time.Now().Add(ioTimeout)); err != nil {
			return n, err
		}
	}
	return n, err
}

var _ io.Reader = (*bounded)(nil)
