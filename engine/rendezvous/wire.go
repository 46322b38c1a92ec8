package rendezvous

import (
	"fmt"
	"strconv"
	"time"
)

// Limits of the store. They keep a faulty recipe from filling the coordinator's memory.
const (
	MaxKey     = 4 << 10  // bytes of a key
	MaxValue   = 16 << 20 // bytes of a value
	MaxKeys    = 1 << 16  // keys of one call
	MaxTotal   = 1 << 30  // bytes of all keys and values together
	maxMessage = 64 << 20
)

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

// Request is one operation. Values correspond to Keys one to one, except for opCompareSet: the expected value and
// the desired one. Keys are any bytes.
type Request struct {
	Op     op            `cbor:"1,keyasint"`
	Space  string        `cbor:"2,keyasint,omitempty"`
	Keys   []string      `cbor:"3,keyasint,omitempty"`
	Values [][]byte      `cbor:"4,keyasint,omitempty"`
	Amount int64         `cbor:"5,keyasint,omitempty"`
	Wait   time.Duration `cbor:"6,keyasint,omitempty"` // how long to wait for keys, at most
	ID     uint64        `cbor:"7,keyasint,omitempty"` // the reply repeats it, since replies may come in another order
}

// Reply answers a request.
type Reply struct {
	Values  [][]byte `cbor:"1,keyasint,omitempty"`
	Number  int64    `cbor:"2,keyasint,omitempty"`
	Missing []string `cbor:"3,keyasint,omitempty"` // the keys that did not exist after Wait
	Error   string   `cbor:"4,keyasint,omitempty"`
	ID      uint64   `cbor:"5,keyasint,omitempty"` // that of the request
}

// check validates a request without looking at the table.
func (q *Request) check() error {
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
