package collective

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"drun/kernel/dtype"
)

func TestHashSeesWhatMustAgree(t *testing.T) {
	f := func(n int) Buffer { return Of(make([]float32, n)) }
	shaped := NewAllReduce(f(20), dtype.Sum)
	shaped.Shape = []int{4, 5}
	turned := shaped
	turned.Shape = []int{5, 4}
	calls := []Call{
		NewAllReduce(f(20), dtype.Sum), shaped, turned, NewAllReduce(f(20), dtype.Max), NewAllReduce(f(21), dtype.Sum),
		NewAllReduce(Of(make([]int32, 20)), dtype.Sum), NewReduce(f(20), f(20), dtype.Sum, 0), NewReduce(f(20), f(20), dtype.Sum, 1),
		NewBroadcast(f(20), 0), NewBroadcast(f(20), 1), NewBarrier(), NewAllGather(f(20), f(40)), NewGather(f(20), f(40), 0),
		NewScatter(f(40), f(20), 0), NewReduceScatter(f(40), f(20), dtype.Sum), NewAllToAll(f(40), f(40), []int{20, 20}, []int{20, 20}),
		{Kind: AllGather, Send: f(1), Counts: []int{1, 2}}, {Kind: AllGather, Send: f(1), Counts: []int{1, 3}},
		{Kind: NewGroup, Tag: 1}, {Kind: NewGroup, Tag: 2},
	}
	seen := map[uint64]int{}
	for i := range calls {
		h := calls[i].Hash()
		if j, ok := seen[h]; ok {
			t.Errorf("calls %d and %d have the same fingerprint", i, j)
		}
		if seen[h] = i; h == 0 {
			t.Errorf("call %d has fingerprint 0", i)
		}
	}
	root, other := NewGather(f(20), f(40), 1), NewGather(f(20), Buffer{}, 1)
	if root.Hash() != other.Hash() {
		t.Error("gather differs between the root and the others")
	}
	one, two := Call{Kind: AllGather, Send: f(1), Counts: []int{1, 2}}, Call{Kind: AllGather, Send: f(2), Counts: []int{1, 2}}
	if one.Hash() != two.Hash() {
		t.Error("parts of different sizes differ between ranks")
	}
}

func TestBufferSharesMemory(t *testing.T) {
	s := []int64{1, 2, 3}
	b := Of(s)
	Slice[int64](b.Part(1, 3))[0] = 7
	if s[1] != 7 || b.Count() != 3 || b.DType != dtype.Int64 || Of([]bool(nil)).Count() != 0 || Slice[float32](Buffer{}) != nil {
		t.Errorf("%v %v", s, b)
	}
}

func TestSleepEnds(t *testing.T) {
	long := func(ctx context.Context) error {
		s := NewSleep(ctx)
		for {
			d, err := s.Next()
			if err != nil {
				return err
			}
			if d > lastSlice {
				t.Errorf("sleeps for %v", d)
			}
			time.Sleep(d)
		}
	}
	p := Within(context.Background(), 30*time.Millisecond)
	for range 2 { // each wait has the whole limit
		start := time.Now()
		if err := long(p); !errors.Is(err, ErrTimeout) || time.Since(start) < 30*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	}
	derived, cancel := context.WithCancelCause(p)
	if err := long(derived); !errors.Is(err, ErrTimeout) {
		t.Errorf("a derived context: %v", err)
	}
	why := errors.New("why")
	cancel(why)
	if err := long(derived); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	p.Check = func() error { return why }
	if err := long(p); !errors.Is(err, why) {
		t.Errorf("checked: %v", err)
	}
	if err := Wait(Within(context.Background(), time.Millisecond), make(chan struct{})); !errors.Is(err, ErrTimeout) {
		t.Errorf("Wait: %v", err)
	}
}

func TestMessages(t *testing.T) {
	pos := Position{"train.star", 41, 9}
	row := Row{Rank: 1, State: Running, Pos: pos, For: 1500 * time.Millisecond, Note: "sleeping",
		Call: Description{Kind: AllReduce, DType: dtype.Float32, Shape: []int{20, 2}, Seq: 3, Group: 4, Origin: Origin{Pos: pos}}}
	waiting := Row{Rank: 2, State: Waiting, Pos: pos, Call: Description{Kind: Recv, DType: dtype.Int8, Count: 2, Peer: AnySource, Tag: 7}}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{&MismatchError{Seq: 3, Group: 4, Reason: "the ranks disagree", Rows: []Row{row, waiting}},
			[]string{"collective 3 of group 4: the ranks disagree\n", "(last) all_reduce(float32[20,2], sum)", "recv(int8[2], from any rank, tag 7)", "1.5 s"}},
		{&TimeoutError{Call: Description{Kind: Barrier, Origin: Origin{Pos: pos}}, After: time.Minute, Arrived: []int{0, 2}, Missing: []Row{row}},
			[]string{"barrier at train.star:41:9 timed out after 1m00s: waiting for rank 1; arrived: ranks 0, 2", "sleeping"}},
		{&TimeoutError{Call: Description{Kind: Send, Peer: 1}, Missing: []Row{row}}, []string{"no answer from rank 1"}},
		{&TimeoutError{Call: Description{Kind: Barrier}, Arrived: []int{0, 1}}, []string{"every rank arrived"}},
		{&PeerLostError{Rank: 1, How: "killed by SIGKILL", Last: row},
			[]string{"rank 1 was lost: killed by SIGKILL; it was last seen sleeping at train.star:41:9 for 1.5 s; its last call was all_reduce"}},
		{&PeerLostError{Rank: 1, How: "killed", Last: waiting}, []string{"last seen in recv("}},
		{&AbortError{Rank: 2, Cause: &FailedError{Rank: 2, Msg: "x"}}, []string{"aborted: rank 2 failed: x"}},
		{&BackendError{Backend: "gloo", Rank: 1, Msg: "x"}, []string{"backend gloo failed on rank 1: x"}},
		{&StoppedError{By: "SIGINT"}, []string{"stopped by SIGINT"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("no %q in\n%v", want, c.err)
			}
		}
	}
}

// Everything that must be equal on all ranks is in the fingerprint.
func TestFingerprint(t *testing.T) {
	base := NewReduce(Of(make([]float32, 6)), Of(make([]float32, 6)), dtype.Sum, 0)
	base.Shape, base.Builtin = []int{2, 3}, "dist.reduce"
	changes := map[string]func(*Call){
		"kind":    func(c *Call) { c.Kind = Broadcast },
		"builtin": func(c *Call) { c.Builtin = "dist.redact" },
		"length":  func(c *Call) { c.Builtin = "dist.reduce_dict" },
		"form":    func(c *Call) { c.Form = Plain },
		"as":      func(c *Call) { c.As = dtype.Int8 },
		"dtype":   func(c *Call) { c.Send = Of(make([]int32, 6)) },
		"op":      func(c *Call) { c.Reduce = dtype.Max },
		"root":    func(c *Call) { c.Root = 1 },
		"count":   func(c *Call) { c.Send = Of(make([]float32, 7)) },
		"shape":   func(c *Call) { c.Shape = []int{3, 2} },
		"counts":  func(c *Call) { c.Counts = []int{6, 1} },
		"digest":  func(c *Call) { c.Digest = 9 },
	}
	seen := map[uint64]string{base.Hash(): "nothing"}
	for what, change := range changes {
		c := base
		change(&c)
		if other, known := seen[c.Hash()]; known {
			t.Errorf("changing the %s gives the fingerprint of changing %s", what, other)
		}
		seen[c.Hash()] = what
	}
	for what, c := range map[string]func(*Call){"arguments": func(c *Call) { c.Arguments = 6 }, "count": changes["count"], "kind": changes["kind"], "digest": changes["digest"]} {
		one, other := base, base
		one.Arguments, other.Arguments = 5, 5
		c(&other)
		f, passed := one.Fingerprints()
		if g, otherwise := other.Fingerprints(); f != g || passed == otherwise {
			t.Errorf("with arguments, another %s: fingerprints %x and %x, passed %x and %x", what, f, g, passed, otherwise)
		}
		if other.Builtin = "dist.redact"; f == first(other.Fingerprints()) || f == base.Hash() {
			t.Error("the fingerprint of a call with arguments is not the builtin's")
		}
	}
	same := base
	same.Pos, same.Async, same.Tag = Position{File: "elsewhere", Line: 3}, true, 4
	if same.Hash() != base.Hash() {
		t.Error("the fingerprint holds what may differ")
	}
}

func first(fingerprint, _ uint64) uint64 { return fingerprint }
