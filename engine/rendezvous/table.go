package rendezvous

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"drun/internal/try"
)

type name struct{ space, key string }

// Table holds the contents of a run's store and carries out requests.
type Table struct {
	mu      sync.Mutex
	values  map[name][]byte
	counts  map[string]int // of keys, by namespace
	bytes   int            // of all keys and values
	changed bool
	awaited map[name]map[*waiter]struct{}
}

// waiter is a request that waits for keys.
type waiter struct {
	left int           // keys that it still waits for
	done chan struct{} // closed when none are left
}

// NewTable makes an empty table.
func NewTable() *Table {
	return &Table{values: map[name][]byte{}, counts: map[string]int{}, awaited: map[name]map[*waiter]struct{}{}}
}

// Do carries out a request. When stop is closed, a waiting request ends without its keys. Callers must not change
// values that they pass or get.
func (t *Table) Do(q *Request, stop <-chan struct{}) *Reply {
	r, err := &Reply{}, q.check()
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if q.Op.waits() {
			r.Missing = t.await(q, stop)
		}
		if len(r.Missing) == 0 {
			r, err = t.apply(q)
		}
	}
	if err != nil {
		r = &Reply{Error: err.Error()}
	}
	r.ID = q.ID
	return r
}

func (t *Table) apply(q *Request) (_ *Reply, err error) {
	defer try.Caught(&err)
	r := &Reply{}
	var at name
	if len(q.Keys) > 0 {
		at = name{q.Space, q.Keys[0]}
	}
	switch q.Op {
	case opSet:
		total := 0
		for i, key := range q.Keys {
			total += len(key) + len(q.Values[i])
		}
		if t.bytes+total > MaxTotal { // all or none of them
			return nil, errFull(at.key)
		}
		for i, key := range q.Keys {
			try.Ok(t.put(name{q.Space, key}, q.Values[i]))
		}
	case opGet:
		total := 0
		for _, key := range q.Keys {
			value := t.values[name{q.Space, key}]
			if total += len(value); total > maxMessage/2 {
				return nil, fmt.Errorf("the values have more than %d bytes together: ask for fewer keys at once", maxMessage/2)
			}
			r.Values = append(r.Values, value)
		}
	case opAdd:
		sum := try.To(t.sum(at, q.Amount))
		r.Number = sum
		return r, t.put(at, strconv.AppendInt(nil, sum, 10))
	case opCompareSet:
		value, exists := t.values[at]
		expected, desired := q.Values[0], q.Values[1]
		if exists && string(value) == string(expected) || !exists && len(expected) == 0 {
			r.Values = [][]byte{desired}
			return r, t.put(at, desired)
		}
		if r.Values = [][]byte{value}; !exists {
			r.Values = [][]byte{expected} // as PyTorch's TCPStore
		}
	case opAppend:
		old := t.values[at]
		if n := len(old) + len(q.Values[0]); n > MaxValue {
			return nil, fmt.Errorf("key %s: a value of %d bytes: at most %d are possible", quote(at.key), n, MaxValue)
		}
		// Only the newest slice of a value is ever appended to, so holders of an older slice do not see the change.
		return r, t.put(at, append(old, q.Values[0]...))
	case opCheck:
		if len(t.missing(q)) == 0 {
			r.Number = 1
		}
	case opDelete:
		if _, exists := t.values[at]; exists {
			t.remove(at)
			r.Number = 1
		}
	case opNumKeys:
		r.Number = int64(t.counts[q.Space])
	case opKeys:
		for at := range t.values {
			if at.space == q.Space {
				r.Values = append(r.Values, []byte(at.key))
			}
		}
		slices.SortFunc(r.Values, bytes.Compare)
	case opPush:
		item := append(binary.AppendUvarint(nil, uint64(len(q.Values[0]))), q.Values[0]...)
		return r, t.put(at, append(t.values[at], item...))
	case opPop:
		item, rest, err := head(t.values[at])
		if err != nil {
			return nil, err
		}
		if r.Values = [][]byte{item}; len(rest) > 0 {
			return r, t.put(at, rest)
		}
		t.remove(at)
	case opQueued:
		for items := t.values[at]; len(items) > 0; r.Number++ {
			var err error
			if _, items, err = head(items); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// head divides a queue into its first item and the others.
func head(queue []byte) (item, rest []byte, err error) {
	n, size := binary.Uvarint(queue)
	if size <= 0 || n > uint64(len(queue)-size) {
		return nil, nil, errors.New("the value is not a queue")
	}
	end := size + int(n)
	return queue[size:end], queue[end:], nil
}

// remove deletes a key that exists.
func (t *Table) remove(at name) {
	t.bytes -= len(at.key) + len(t.values[at])
	delete(t.values, at)
	t.counts[at.space]--
	t.changed = true
}

// put sets a value and wakes the goroutines that wait for its key.
func (t *Table) put(at name, value []byte) error {
	old, exists := t.values[at]
	grown := t.bytes + len(value) - len(old)
	if !exists {
		grown += len(at.key)
	}
	if grown > MaxTotal {
		return errFull(at.key)
	}
	t.bytes, t.values[at], t.changed = grown, value, true
	if exists {
		return nil
	}
	t.counts[at.space]++
	for w := range t.awaited[at] {
		if w.left--; w.left == 0 {
			close(w.done)
		}
	}
	delete(t.awaited, at)
	return nil
}

func errFull(key string) error {
	return fmt.Errorf("key %s: the store is full: it holds at most %d bytes", quote(key), MaxTotal)
}

// sum adds to a counter, which is decimal text and initially 0.
func (t *Table) sum(at name, amount int64) (int64, error) {
	value, exists := t.values[at]
	if !exists {
		return amount, nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("key %s holds %s, which is not an integer of 64 bits", quote(at.key), quote(string(value)))
	}
	sum := n + amount
	if (sum > n) != (amount > 0) && amount != 0 {
		return 0, fmt.Errorf("key %s: %d + %d does not fit into 64 bits", quote(at.key), n, amount)
	}
	return sum, nil
}

// missing lists a request's keys that do not exist, each once.
func (t *Table) missing(q *Request) (keys []string) {
	seen := map[string]bool{}
	for _, key := range q.Keys {
		if _, exists := t.values[name{q.Space, key}]; !exists && !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// await returns nil when all keys exist at the same time, or the missing ones when the time is up. It is called
// with the lock held, which it releases while it sleeps.
func (t *Table) await(q *Request, stop <-chan struct{}) []string {
	missing := t.missing(q)
	if len(missing) == 0 {
		return nil
	}
	timer := time.NewTimer(min(q.Wait, pollSeldom))
	defer timer.Stop()
	for len(missing) > 0 {
		if !t.sleep(q.Space, missing, timer.C, stop) {
			return t.missing(q)
		}
		missing = t.missing(q) // some may have been deleted again
	}
	return nil
}

// sleep waits until all these keys have been set, and reports whether they were.
func (t *Table) sleep(space string, keys []string, over <-chan time.Time, stop <-chan struct{}) bool {
	w := &waiter{left: len(keys), done: make(chan struct{})}
	for _, key := range keys {
		at := name{space, key}
		if t.awaited[at] == nil {
			t.awaited[at] = map[*waiter]struct{}{}
		}
		t.awaited[at][w] = struct{}{}
	}
	t.mu.Unlock()
	came := false
	select {
	case <-w.done:
		came = true
	case <-over:
	case <-stop:
	}
	t.mu.Lock()
	if w.left == 0 {
		return came
	}
	for _, key := range keys {
		at := name{space, key}
		if delete(t.awaited[at], w); len(t.awaited[at]) == 0 {
			delete(t.awaited, at)
		}
	}
	return came
}

// Limits of the store. They keep a faulty recipe from filling the coordinator's memory.
const (
	MaxKey     = 4 << 10  // bytes of a key
	MaxValue   = 16 << 20 // bytes of a value
	MaxKeys    = 1 << 16  // keys of one call
	MaxTotal   = 1 << 30  // bytes of all keys and values together
	maxMessage = 64 << 20
)

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
	opKeys
	opPush   // of a queue, whose value is its items, each after its length
	opPop    // waits until the queue has an item
	opQueued // how many items a queue has
	opEnd    // one more than the last operation
)

// waits reports whether the answer waits until all the keys exist.
func (o op) waits() bool { return o == opGet || o == opWait || o == opPop }

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
func (q *Request) check() (err error) {
	defer try.Caught(&err)
	try.FailIf(q.Op == 0 || q.Op >= opEnd, "unknown operation %d", q.Op)
	try.FailIf(len(q.Space) > MaxKey, "a namespace of %d bytes: at most %d are possible", len(q.Space), MaxKey)
	try.FailIf(len(q.Keys) > MaxKeys, "%d keys: at most %d are possible in one call", len(q.Keys), MaxKeys)
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
	case opAppend, opPush:
		keys, values = 1, 1
	case opCompareSet:
		keys, values = 1, 2
	case opAdd, opDelete, opPop, opQueued:
		keys = 1
	case opNumKeys, opKeys:
		keys = 0
	}
	if keys >= 0 && len(q.Keys) != keys || len(q.Values) != values {
		return fmt.Errorf("operation %d with %d keys and %d values", q.Op, len(q.Keys), len(q.Values))
	}
	return nil
}

func quote(key string) string {
	const most = 60
	if len(key) > most {
		return strconv.Quote(key[:most]) + "…"
	}
	return strconv.Quote(key)
}
