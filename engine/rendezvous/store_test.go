package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"drun/collective"

	"github.com/fxamacker/cbor/v2"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// remote gives access to a table by messages, which a goroutine answers each.
func remote(table *Table) *Store {
	var r *Remote
	r = NewRemote(7<<32, func(q *Request) error {
		go func() { r.Deliver(table.Do(q, nil)) }()
		return nil
	})
	return r.Store()
}

// both runs a test on a store of this process and on one that is reached by messages.
func both(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Run("memory", func(t *testing.T) { test(t, Memory()) })
	t.Run("remote", func(t *testing.T) { test(t, remote(NewTable())) })
	t.Run("file", func(t *testing.T) { test(t, file()) })
}

// file makes a store whose file is in memory.
func file() *Store {
	var mu sync.Mutex
	var content []byte
	return File(func(fn func([]byte) ([]byte, error)) error {
		mu.Lock()
		defer mu.Unlock()
		after, err := fn(content)
		if err == nil {
			content = after
		}
		return err
	})
}

// Queues give each value once, in the order in which they came, and are not among the keys.
func TestQueues(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for _, v := range []string{"a", "", strings.Repeat("x", 1000)} {
			if err := s.Push(ctx, "q", []byte(v)); err != nil {
				t.Error(err)
			}
		}
		n, err := s.Queued(ctx, "q")
		want(t, "queued", n, err, 3)
		for _, v := range []string{"a", "", strings.Repeat("x", 1000)} {
			got, err := s.Pop(soon(time.Second), "q")
			want(t, "pop", string(got), err, v)
		}
		_, err = s.Pop(soon(50*time.Millisecond), "q")
		wantErr(t, err, `queue "q" has no value within 0.05s`)
		n, err = s.Queued(ctx, "q")
		want(t, "queued", n, err, 0)

		// Several wait, and each value wakes one.
		got := make(chan string, 3)
		for range 3 {
			go func() {
				v, err := s.Pop(soon(10*time.Second), "q")
				if err != nil {
					t.Error(err)
				}
				got <- string(v)
			}()
		}
		var all []string
		for _, v := range []string{"1", "2", "3"} {
			if err := s.Push(ctx, "q", []byte(v)); err != nil {
				t.Error(err)
			}
			all = append(all, <-got)
		}
		want(t, "popped", strings.Join(all, " "), nil, "1 2 3")
		if err := s.MultiSet(ctx, []string{"b", "a"}, [][]byte{nil, nil}); err != nil {
			t.Error(err)
		}
		if err := s.Beneath("part").Set(ctx, "c", nil); err != nil {
			t.Error(err)
		}
		keys, err := s.Keys(ctx)
		want(t, "keys", strings.Join(keys, " "), err, "a b")
	})
}

func soon(d time.Duration) context.Context { return collective.Within(context.Background(), d) }

// want fails the test unless err is nil and got is want.
func want[T comparable](t *testing.T, what string, got T, err error, want T) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	} else if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantErr(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q has no %q", err, text)
		}
	}
}

func TestSemantics(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		text := func(key string) string {
			t.Helper()
			value, err := s.Get(soon(time.Second), key)
			if err != nil {
				t.Error(err)
			}
			return string(value)
		}

		for i, sum := range []int64{1, 3, 6} {
			got, err := s.Add(ctx, "n", int64(i+1))
			want(t, "add", got, err, sum)
		}
		want(t, "the counter", text("n"), nil, "6")
		got, err := s.Add(ctx, "n", -10)
		want(t, "add", got, err, -4)

		for _, step := range []struct{ expected, desired, want string }{
			{"not there", "a", "not there"}, // the key stays away
			{"", "a", "a"},
			{"", "b", "a"},
			{"wrong", "b", "a"},
			{"a", "b", "b"},
		} {
			value, err := s.CompareSet(ctx, "c", []byte(step.expected), []byte(step.desired))
			want(t, fmt.Sprint("compare_set ", step), string(value), err, step.want)
		}
		exists, err := s.Check(ctx, []string{"c", "n"})
		want(t, "check", exists, err, true)
		exists, err = s.Check(ctx, []string{"c", "other"})
		want(t, "check", exists, err, false)

		for _, part := range []string{"po", "", "tato"} {
			if err := s.Append(ctx, "p", []byte(part)); err != nil {
				t.Error(err)
			}
		}
		want(t, "append", text("p"), nil, "potato")
		if err := s.Set(ctx, "p", nil); err != nil {
			t.Error(err)
		}
		want(t, "an empty value", text("p"), nil, "")
		value, err := s.CompareSet(ctx, "p", nil, []byte("x"))
		want(t, "compare_set of an empty value", string(value), err, "x")

		n, err := s.NumKeys(ctx)
		want(t, "num_keys", n, err, 3)
		for _, existed := range []bool{true, false} {
			got, err := s.Delete(ctx, "p")
			want(t, "delete", got, err, existed)
		}
		n, err = s.NumKeys(ctx)
		want(t, "num_keys", n, err, 2)

		odd := []string{"", "a\x00b", "\xff\xfe", "é", strings.Repeat("k", MaxKey)}
		values := make([][]byte, len(odd))
		for i, key := range odd {
			values[i] = []byte(strconv.Quote(key))
		}
		if err := s.MultiSet(ctx, odd, values); err != nil {
			t.Error(err)
		}
		back, err := s.MultiGet(soon(time.Second), append(odd, odd[1]))
		if err != nil || !slices.EqualFunc(back, append(values, values[1]), bytes.Equal) {
			t.Errorf("multi_get: %q, %v", back, err)
		}
		if back, err = s.MultiGet(ctx, nil); err != nil || len(back) != 0 {
			t.Errorf("multi_get of nothing: %q, %v", back, err)
		}
	})
}

func TestNamespaces(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		a, b := s.In("a"), s.In("b")
		if err := errors.Join(a.Set(t.Context(), "k", []byte("1")), b.Set(t.Context(), "k", []byte("2"))); err != nil {
			t.Fatal(err)
		}
		value, err := a.Get(t.Context(), "k")
		want(t, "get", string(value), err, "1")
		existed, err := b.Delete(t.Context(), "k")
		want(t, "delete", existed, err, true)
		n, err := a.NumKeys(t.Context())
		want(t, "num_keys of a", n, err, 1)
		n, err = b.NumKeys(t.Context())
		want(t, "num_keys of b", n, err, 0)
	})
}

func TestFaults(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		if err := s.MultiSet(ctx, []string{"text", "huge"}, [][]byte{[]byte("abc"), []byte("9223372036854775807")}); err != nil {
			t.Fatal(err)
		}
		_, err := s.Add(ctx, "text", 1)
		wantErr(t, err, `key "text" holds "abc"`, "not an integer")
		_, err = s.Add(ctx, "huge", 1)
		wantErr(t, err, `key "huge"`, "does not fit into 64 bits")
		got, err := s.Add(ctx, "huge", 0)
		want(t, "add", got, err, 1<<63-1)

		long := strings.Repeat("x", 10<<20)
		wantErr(t, s.Set(ctx, long, nil), "key \"xxx", "has 10485760 bytes", "at most 4096")
		wantErr(t, s.Wait(ctx, []string{long}), "at most 4096")
		wantErr(t, s.Set(ctx, "k", make([]byte, MaxValue+1)), `key "k"`, "a value of 16777217 bytes", "at most 16777216")
		wantErr(t, s.MultiSet(ctx, make([]string, MaxKeys+1), make([][]byte, MaxKeys+1)), "65537 keys", "at most 65536")
		full := make([]byte, MaxValue)
		wantErr(t, s.MultiSet(ctx, []string{"a", "b", "c"}, [][]byte{full, full, full}), "in one call")
		for _, key := range []string{"a", "b", "c"} {
			if err := s.Set(ctx, key, full); err != nil {
				t.Fatal(err)
			}
		}
		wantErr(t, s.Append(ctx, "a", []byte("x")), "at most 16777216")
		_, err = s.MultiGet(ctx, []string{"a", "b", "c"})
		wantErr(t, err, "ask for fewer keys")
		back, err := s.Get(ctx, "a")
		want(t, "a large value", len(back), err, MaxValue)
	})
}

func TestFullStore(t *testing.T) {
	table := NewTable()
	s := remote(table)
	one := make([]byte, MaxValue)
	var err error
	n := 0
	for ; err == nil && n <= MaxTotal/MaxValue; n++ {
		err = s.Set(t.Context(), strconv.Itoa(n), one)
	}
	wantErr(t, err, "the store is full")
	if n < MaxTotal/MaxValue {
		t.Errorf("full after %d values", n)
	}
	if _, err := s.Delete(t.Context(), "3"); err != nil {
		t.Error(err)
	}
	if err := s.Set(t.Context(), "small", []byte("fits again")); err != nil {
		t.Error(err)
	}
	for at := range table.values {
		table.Do(&Request{Op: opDelete, Keys: []string{at.key}}, nil)
	}
	if table.bytes != 0 {
		t.Errorf("the empty store counts %d bytes", table.bytes)
	}
}

func TestWaits(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		start := time.Now()
		_, err := s.Get(soon(100*time.Millisecond), "x")
		wantErr(t, err, `key "x" was not set within 0.1s`)
		if !errors.Is(err, collective.ErrTimeout) {
			t.Errorf("%v is no timeout", err)
		}
		if took := time.Since(start); took < 100*time.Millisecond || took > time.Second {
			t.Errorf("it took %s", took)
		}
		if err := s.Set(t.Context(), "there", nil); err != nil {
			t.Fatal(err)
		}
		err = s.Wait(soon(time.Millisecond), []string{"b", "there", "a", "b"})
		wantErr(t, err, `keys "b", "a" were not set within 0.001s`)
		many := make([]string, 20)
		for i := range many {
			many[i] = "many " + strconv.Itoa(i)
		}
		wantErr(t, s.Wait(soon(time.Millisecond), many), `"many 7" and 12 more were not set`)

		// A wait longer than a poll, ended by the last of its keys.
		done := make(chan error)
		go func() { done <- s.Wait(soon(10*time.Second), []string{"one", "two"}) }()
		time.Sleep(pollAtMost + 50*time.Millisecond)
		for _, key := range []string{"two", "one"} {
			select {
			case err := <-done:
				t.Fatalf("it ended too soon: %v", err)
			default:
			}
			if err := s.Set(t.Context(), key, nil); err != nil {
				t.Error(err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWaitEndsWithContext(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		cause := errors.New("rank 2 failed")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
		start := time.Now()
		if _, err := s.Get(collective.Within(ctx, time.Hour), "never"); !errors.Is(err, cause) {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if err := s.Set(ctx, "k", nil); !errors.Is(err, cause) {
			t.Errorf("a call after the end: %v", err)
		}
		if err := s.Set(t.Context(), "k", nil); err != nil {
			t.Errorf("the store is of no more use: %v", err)
		}
	})
}

func TestWaitLooksAround(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		nobody := errors.New("nobody is left")
		p := &collective.WaitLimit{Context: t.Context(), Check: func() error { return nobody }}
		start := time.Now()
		err := s.Wait(p, []string{"k"})
		wantErr(t, err, `key "k" was not set within`, "nobody is left")
		if took := time.Since(start); !errors.Is(err, nobody) || took > time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// Many ranks at once: no addition is lost, every waiter wakes, one compare_set wins.
func TestConcurrency(t *testing.T) {
	table := NewTable()
	const ranks, rounds = 24, 20
	var wg sync.WaitGroup
	winners := make(chan string, ranks)
	for rank := range ranks {
		wg.Go(func() {
			s := remote(table)
			ctx := soon(20 * time.Second)
			me := strconv.Itoa(rank)
			for range rounds {
				if _, err := s.Add(ctx, "n", 1); err != nil {
					t.Error(err)
				}
				if err := s.Append(ctx, "log", []byte{byte(rank)}); err != nil {
					t.Error(err)
				}
			}
			if err := s.Set(ctx, "here "+me, []byte(me)); err != nil {
				t.Error(err)
			}
			for peer := range ranks {
				value, err := s.Get(ctx, "here "+strconv.Itoa(peer))
				want(t, "get", string(value), err, strconv.Itoa(peer))
			}
			value, err := s.CompareSet(ctx, "winner", nil, []byte(me))
			if err != nil {
				t.Error(err)
			}
			winners <- string(value)
		})
	}
	wg.Wait()
	close(winners)
	first := <-winners
	for w := range winners {
		want(t, "winner", w, nil, first)
	}
	s := remote(table)
	sum, err := s.Get(t.Context(), "n")
	want(t, "sum", string(sum), err, strconv.Itoa(ranks*rounds))
	log, err := s.Get(t.Context(), "log")
	want(t, "log", len(log), err, ranks*rounds)
}

// One rank's wait must not hold up its other goroutines.
func TestSharedClient(t *testing.T) {
	s := remote(NewTable())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			value, err := s.Get(soon(10*time.Second), "k")
			want(t, fmt.Sprint("waiter ", i), string(value), err, "v")
		})
	}
	time.Sleep(20 * time.Millisecond)
	if err := s.Set(t.Context(), "k", []byte("v")); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// Where a disk is slow, what the coordinator hears may have to wait for a minute, and the replies with it.
func TestLateReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable()
		var r *Remote
		r = NewRemote(0, func(q *Request) error {
			time.AfterFunc(time.Minute, func() { r.Deliver(table.Do(q, nil)) })
			return nil
		})
		if err := r.Store().Set(t.Context(), "k", []byte("v")); err != nil {
			t.Error(err)
		}
	})
}

// Replies that nobody waits for, such as those to ranks of an earlier attempt, are dropped.
func TestStrayReplies(t *testing.T) {
	asked := make(chan *Request, 1)
	r := NewRemote(1<<32, func(q *Request) error { asked <- q; return nil })
	done := make(chan string, 1)
	go func() {
		value, err := r.Store().Get(soon(10*time.Second), "k")
		if err != nil {
			t.Error(err)
		}
		done <- string(value)
	}()
	q := <-asked
	if q.ID <= 1<<32 {
		t.Errorf("the first request has number %d", q.ID)
	}
	for _, id := range []uint64{0, 1, q.ID - 1, q.ID + 1, q.ID} {
		r.Deliver(&Reply{ID: id, Values: [][]byte{[]byte(strconv.FormatUint(id, 10))}})
		r.Deliver(&Reply{ID: id, Values: [][]byte{[]byte("again")}})
	}
	want(t, "get", <-done, nil, strconv.FormatUint(q.ID, 10))
	if len(r.waiting) != 0 {
		t.Errorf("%d requests are left", len(r.waiting))
	}
	cause := errors.New("the channel is closed")
	if err := NewRemote(0, func(*Request) error { return cause }).Store().In("a").Set(t.Context(), "k", nil); !errors.Is(err, cause) {
		t.Error(err)
	}
}

// Requests that no store makes are refused, and a wait ends after a poll.
func TestOddRequests(t *testing.T) {
	table := NewTable()
	for _, q := range []Request{
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
		{Op: opPush, Keys: []string{"k"}},
		{Op: opPop},
		{Op: opKeys, Keys: []string{"k"}},
		{Op: opPop, Keys: []string{"no queue"}},
		{Op: opQueued, Keys: []string{"no queue"}},
	} {
		for _, text := range []string{"\x05abc", "\xff", "\x01ab"} {
			table.Do(&Request{Op: opSet, Keys: []string{"no queue"}, Values: [][]byte{[]byte(text)}}, nil)
			if r := table.Do(&Request{Op: opQueued, Keys: []string{"no queue"}}, nil); r.Error == "" {
				t.Errorf("%q is a queue of %d", text, r.Number)
			}
		}
		table.Do(&Request{Op: opSet, Keys: []string{"no queue"}, Values: [][]byte{{9}}}, nil)
		q.ID = 5
		if r := table.Do(&q, nil); r.Error == "" || r.ID != 5 {
			t.Errorf("%.80v: %+v", q, r)
		}
	}
	for _, wait := range []time.Duration{1 << 62, -1 << 62} {
		start := time.Now()
		if r := table.Do(&Request{Op: opGet, Keys: []string{"never"}, Wait: wait}, nil); len(r.Missing) != 1 {
			t.Errorf("%+v", r)
		}
		if took := time.Since(start); took > pollSeldom+time.Second {
			t.Errorf("it took %s", took)
		}
	}
	if len(table.awaited) != 0 {
		t.Errorf("%d waits are left", len(table.awaited))
	}
}

// FuzzRequest: whatever arrives, the table answers, and keeps its count.
func FuzzRequest(f *testing.F) {
	for _, q := range []Request{
		{Op: opSet, Keys: []string{"a", "b"}, Values: [][]byte{{1}, nil}},
		{Op: opAdd, Keys: []string{"n"}, Amount: -3},
		{Op: opCompareSet, Space: "s", Keys: []string{"k"}, Values: [][]byte{nil, {2}}},
		{Op: opGet, Keys: []string{"a", "\xff"}, Wait: 1},
		{Op: opDelete, Keys: []string{"a"}},
	} {
		data, err := cbor.Marshal(&q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0xa1, 0x03, 0x9a, 0xff, 0xff, 0xff, 0xff})
	t := NewTable()
	f.Fuzz(func(tt *testing.T, data []byte) {
		var q Request
		if err := cbor.Unmarshal(data, &q); err != nil {
			return
		}
		q.Wait = min(q.Wait, time.Millisecond)
		r := t.Do(&q, nil)
		if r.Error == "" && q.Op.waits() && len(r.Missing) == 0 && q.Op == opGet && len(r.Values) != len(q.Keys) {
			tt.Fatalf("%d values for %d keys", len(r.Values), len(q.Keys))
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
			t = NewTable()
		}
	})
}

func BenchmarkSetGet(b *testing.B) {
	run := func(b *testing.B, s *Store) {
		ctx := soon(time.Minute)
		value := []byte("value")
		for b.Loop() {
			if err := s.Set(ctx, "key", value); err != nil {
				b.Fatal(err)
			}
			if _, err := s.Get(ctx, "key"); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("memory", func(b *testing.B) { run(b, Memory()) })
	b.Run("remote", func(b *testing.B) { run(b, remote(NewTable())) })
}

// A waiter is woken by the set, not by its client asking again.
func TestSetWakes(t *testing.T) {
	table := NewTable()
	done := make(chan *Reply, 1)
	go func() { done <- table.Do(&Request{Op: opGet, Keys: []string{"k"}, Wait: 20 * time.Second}, nil) }()
	for waiting := false; !waiting; time.Sleep(time.Millisecond) {
		table.mu.Lock()
		waiting = len(table.awaited) == 1
		table.mu.Unlock()
	}
	table.Do(&Request{Op: opSet, Keys: []string{"k"}, Values: [][]byte{[]byte("v")}}, nil)
	select {
	case r := <-done:
		if len(r.Values) != 1 || string(r.Values[0]) != "v" {
			t.Errorf("%+v", r)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody woke the waiter")
		<-done
	}
}
