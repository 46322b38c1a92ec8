package board_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/board"
	"drun/internal/exit"
	"drun/kernel/dtype"
)

// plain hides what a Comm can do beyond the required, as a backend of which
// the guard has to compare the calls.
type plain struct{ collective.Comm }

func (p plain) Split(ctx context.Context, g collective.Group) (collective.Comm, error) {
	sub, err := p.Comm.Split(ctx, g)
	if sub == nil {
		return nil, err
	}
	return plain{sub}, err
}

// guarded makes a world on a board; hide makes its backend a plain one.
func guarded(t testing.TB, n int, hide bool) ([]collective.Comm, []*board.Board) {
	t.Helper()
	return guardedBy(t, n, func(c collective.Comm) collective.Comm {
		if hide {
			return plain{c}
		}
		return c
	})
}

// guardedBy makes a world on a board, whose backend wrap has changed.
func guardedBy(t testing.TB, n int, wrap func(collective.Comm) collective.Comm) ([]collective.Comm, []*board.Board) {
	t.Helper()
	f, err := board.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	boards := make([]*board.Board, n)
	for rank := range n {
		boards[rank] = open(t, f, rank)
	}
	comms := disttest.InProcess(t, n)
	for rank, comm := range comms {
		boards[rank].SetState(collective.Running)
		if comms[rank], err = board.Guard(wrap(comm), boards[rank]); err != nil {
			t.Fatal(err)
		}
	}
	return comms, boards
}

func open(t testing.TB, f *os.File, rank int) *board.Board {
	t.Helper()
	b, err := board.Open(disttest.Dup(t, f), rank)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestConformanceThroughTheGuard(t *testing.T) {
	t.Parallel()
	for _, hide := range []bool{false, true} {
		if !hide && testing.Short() {
			continue // it has no goroutine that the other has not
		}
		t.Run(fmt.Sprintf("plain=%v", hide), func(t *testing.T) {
			t.Parallel()
			disttest.Conformance(t, func(t testing.TB, n int) []collective.Comm {
				comms, _ := guarded(t, n, hide)
				return comms
			})
		})
	}
}

func at(line int32) collective.Position {
	return collective.Position{File: "recipe.star", Line: line, Col: 5}
}

// results makes one call a rank, each at line 10 + rank, and gives the errors.
func results(comms []collective.Comm, calls ...collective.Call) []error {
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	for rank, call := range calls {
		call.Pos = at(10 + int32(rank))
		wg.Go(func() { errs[rank] = disttest.Do(comms[rank], call) })
	}
	wg.Wait()
	return errs
}

func TestMismatch(t *testing.T) {
	f32 := func(n int) collective.Buffer { return collective.Of(make([]float32, n)) }
	shaped := func(shape ...int) collective.Call {
		c := collective.NewAllReduce(f32(shape[0]*shape[1]), dtype.Sum)
		c.Shape = shape
		return c
	}
	cases := []struct {
		name string
		a, b collective.Call
		want []string // in both ranks' table
	}{
		{"operation", collective.NewAllReduce(f32(1), dtype.Sum), collective.NewReduce(f32(1), f32(1), dtype.Sum, 0),
			[]string{"all_reduce(float32[1], sum)", "reduce(float32[1], sum, root 0)"}},
		{"shape", shaped(20, 2), shaped(20, 10), []string{"float32[20,2]", "float32[20,10]"}},
		{"shape of equal size", shaped(4, 5), shaped(5, 4), []string{"float32[4,5]", "float32[5,4]"}},
		{"large", shaped(2000, 1000), shaped(2000, 999), []string{"float32[2000,1000]"}},
		{"dtype", collective.NewBroadcast(f32(3), 0), collective.NewBroadcast(collective.Of(make([]int32, 3)), 0),
			[]string{"broadcast(float32[3], root 0)", "broadcast(int32[3], root 0)"}},
		{"reduce op", collective.NewAllReduce(f32(1), dtype.Sum), collective.NewAllReduce(f32(1), dtype.Max),
			[]string{"sum", "max"}},
		{"root", collective.NewBroadcast(f32(1), 0), collective.NewBroadcast(f32(1), 1), []string{"root 0", "root 1"}},
		{"barrier", collective.NewBarrier(), collective.NewAllReduce(f32(1), dtype.Sum), []string{"barrier", "all_reduce"}},
		{"parts", collective.Call{Kind: collective.AllGather, Send: f32(1), Recv: f32(3), Counts: []int{1, 2}},
			collective.Call{Kind: collective.AllGather, Send: f32(1), Recv: f32(2), Counts: []int{1, 1}}, []string{"all_gather"}},
		{"splits", collective.NewAllToAll(f32(3), f32(2), []int{1, 2}, []int{1, 1}),
			collective.NewAllToAll(f32(2), f32(2), []int{1, 1}, []int{1, 1}), []string{"all_to_all(float32[3])"}},
	}
	for _, hide := range []bool{false, true} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s/plain=%v", c.name, hide), func(t *testing.T) {
				comms, _ := guarded(t, 2, hide)
				if errs := results(comms, collective.NewBarrier(), collective.NewBarrier()); errors.Join(errs...) != nil {
					t.Fatal(errs)
				}
				before := append([]byte(nil), c.a.Recv.Data...)
				start := time.Now()
				errs := results(comms, c.a, c.b)
				if took := time.Since(start); took > time.Second {
					t.Errorf("reported after %v", took)
				}
				for rank, err := range errs {
					var e *collective.MismatchError
					if !errors.As(err, &e) {
						t.Fatalf("rank %d: %v", rank, err)
					}
					if e.Seq != 2 || len(e.Rows) != 2 {
						t.Errorf("rank %d: %+v", rank, e)
					}
					for _, want := range append(c.want, "recipe.star:10:5", "recipe.star:11:5", "collective 2") {
						if !strings.Contains(err.Error(), want) {
							t.Errorf("rank %d: no %q in\n%v", rank, want, err)
						}
					}
				}
				if errs[0].Error() != errs[1].Error() {
					t.Errorf("the ranks were told different things:\n%v\n%v", errs[0], errs[1])
				}
				if string(before) != string(c.a.Recv.Data) {
					t.Error("data was touched")
				}
			})
		}
	}
}

// A call that starts after an asynchronous one has failed unseen reports what that one
// disagreed on.
func TestMismatchOfAnEarlierCall(t *testing.T) {
	for _, async := range []bool{false, true} {
		comms, _ := guarded(t, 2, false)
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for rank, op := range []dtype.ReduceOp{dtype.Sum, dtype.Max} {
			wg.Go(func() {
				first := collective.NewAllReduce(collective.Of(make([]float32, 2)), op)
				first.Async, first.Pos = true, at(10+int32(rank))
				work, err := comms[rank].Start(&first)
				for err == nil && !work.Done() {
					time.Sleep(time.Millisecond)
				}
				second := collective.NewAllReduce(collective.Of(make([]float32, 3)), dtype.Sum)
				second.Async, second.Pos = async, at(20)
				if err == nil {
					work, err = comms[rank].Start(&second)
				}
				if err == nil {
					err = work.Wait(disttest.Context)
				}
				errs[rank] = err
			})
		}
		wg.Wait()
		for rank, err := range errs {
			var e *collective.MismatchError
			if !errors.As(err, &e) || e.Seq != 1 || e.Rows[0].Pos != at(10) || e.Rows[1].Pos != at(11) {
				t.Errorf("rank %d, async %v: %v", rank, async, err)
			}
		}
	}
}

// Different arguments are the builtin's to explain: the board takes the call as over, and the next one is compared as
// ever.
func TestOtherArguments(t *testing.T) {
	comms, boards := guarded(t, 2, false)
	if !collective.VerifiesArguments(comms[0]) {
		t.Fatal("the guard hides what the backend can do")
	}
	if plain, _ := guarded(t, 2, true); collective.VerifiesArguments(plain[0]) {
		t.Fatal("the guard promises what the backend cannot do")
	}
	call := func(count int, arguments uint64) collective.Call {
		c := collective.NewAllReduce(collective.Of(make([]float32, count)), dtype.Sum)
		c.Builtin, c.Form, c.Arguments = "dist.average", collective.Step, arguments
		return c
	}
	for rank, err := range results(comms, call(1, 5), call(1, 6)) {
		if !errors.Is(err, collective.ErrArguments) {
			t.Errorf("rank %d: %v", rank, err)
		}
		if row := boards[0].Row(rank); row.State != collective.Running || row.Call.Seq != 1 {
			t.Errorf("rank %d: %+v", rank, row)
		}
	}
	if errs := results(comms, call(1, 5), call(1, 5)); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	for rank, err := range results(comms, call(2, 0), call(3, 0)) {
		var e *collective.MismatchError
		if !errors.As(err, &e) || e.Seq != 3 {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestMismatchAmongMany(t *testing.T) {
	comms, _ := guarded(t, 5, false)
	x := collective.Of(make([]float32, 2))
	sum, product := collective.NewAllReduce(x, dtype.Sum), collective.NewAllReduce(x, dtype.Product)
	for rank, err := range results(comms, sum, sum, sum, product, sum) {
		var e *collective.MismatchError
		if !errors.As(err, &e) || len(e.Rows) != 5 || e.Rows[3].Call.Reduce != dtype.Product || e.Rows[3].Pos != at(13) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestRankThatReturned(t *testing.T) {
	for _, hide := range []bool{false, true} {
		comms, boards := guarded(t, 3, hide)
		time.AfterFunc(50*time.Millisecond, func() { boards[2].SetRankState(2, collective.Returned) })
		start := time.Now()
		for rank, err := range results(comms, collective.NewBarrier(), collective.NewBarrier()) {
			var e *collective.MismatchError
			if !errors.As(err, &e) || !strings.Contains(err.Error(), "rank 2 has returned from main") || !strings.Contains(exit.HintOf(err), "drop_last") {
				t.Errorf("rank %d: %v; hint %q", rank, err, exit.HintOf(err))
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("reported after %v", took)
		}
	}
}

func TestMessagesOfARankThatReturned(t *testing.T) {
	comms, boards := guarded(t, 2, false)
	x := []float32{3}
	if err := disttest.Do(comms[1], collective.NewSend(collective.Of(x), 0, 1)); err != nil {
		t.Fatal(err)
	}
	boards[1].SetState(collective.Returned)
	y := []float32{0}
	if err := disttest.Do(comms[0], collective.NewRecv(collective.Of(y), 1, 1)); err != nil || y[0] != 3 {
		t.Errorf("a message sent before: %v, %v", y, err)
	}
	for _, peer := range []int{1, collective.AnySource} {
		err := disttest.Do(comms[0], collective.NewRecv(collective.Of(y), peer, 1))
		if err == nil || !strings.Contains(err.Error(), "rank 1 has returned") {
			t.Errorf("a message that will not come, from %d: %v", peer, err)
		}
	}
}

func TestTimeoutNamesTheMissing(t *testing.T) {
	for _, hide := range []bool{false, true} {
		comms, boards := guarded(t, 3, hide)
		if errs := results(comms, collective.NewBarrier(), collective.NewBarrier(), collective.NewBarrier()); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		boards[1].At(at(77))
		boards[1].Note("saving a checkpoint")
		call := collective.NewAllReduce(collective.Of(make([]float32, 8)), dtype.Sum)
		errs := make(chan error, 2)
		for _, rank := range []int{0, 2} {
			go func() {
				call := call // the guard writes in it
				call.Pos = at(20 + int32(rank))
				w, err := comms[rank].Start(&call)
				if err == nil {
					err = w.Wait(collective.Within(context.Background(), 100*time.Millisecond))
				}
				errs <- err
			}()
		}
		lines := map[int32]bool{}
		for range 2 {
			err := <-errs
			var e *collective.TimeoutError
			if !errors.As(err, &e) || errors.As(err, new(*collective.AbortError)) {
				t.Fatal(err)
			}
			lines[e.Call.Pos.Line] = true
			if len(e.Missing) != 1 || e.Missing[0].Rank != 1 || len(e.Arrived) != 2 || e.After < 90*time.Millisecond {
				t.Errorf("%+v", e)
			}
			for _, want := range []string{fmt.Sprintf("all_reduce at recipe.star:%d:5 timed out after", e.Call.Pos.Line), "waiting for rank 1; arrived: ranks 0, 2",
				"recipe.star:77:5", "saving a checkpoint", "(last) barrier"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in\n%v", want, err)
				}
			}
		}
		if !lines[20] || !lines[22] {
			t.Errorf("both ranks timed out, at lines %v", lines)
		}
	}
}

func TestAbortTellsTheFirstCause(t *testing.T) {
	for _, hide := range []bool{false, true} {
		comms, boards := guarded(t, 3, hide)
		start := time.Now()
		time.AfterFunc(50*time.Millisecond, func() {
			first := boards[2].Abort(2, &collective.FailedError{Rank: 2, Msg: "recipe.star:41:9: division by zero", Code: exit.Recipe})
			if second := boards[1].Abort(1, errors.New("a consequence")); !first || second {
				t.Errorf("first %v, second %v", first, second)
			}
		})
		for rank, err := range results(comms, collective.NewBarrier(), collective.NewBarrier()) {
			var aborted *collective.AbortError
			var failed *collective.FailedError
			if !errors.As(err, &aborted) || !errors.As(err, &failed) || aborted.Rank != 2 || failed.Code != exit.Recipe {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the waits ended after %v", took)
		}
		call := collective.NewBarrier()
		if _, err := comms[2].Start(&call); err == nil || !strings.Contains(err.Error(), "division by zero") {
			t.Errorf("a call after the abort: %v", err)
		}
	}
}

func TestLostRankWithoutAWordFromTheAgent(t *testing.T) {
	t.Parallel()
	comms, boards := guarded(t, 2, false)
	boards[0].SetRankState(1, collective.Gone)
	var lost *collective.PeerLostError
	if errs := results(comms, collective.NewBarrier()); !errors.As(errs[0], &lost) || lost.Rank != 1 {
		t.Errorf("%v", errs[0])
	}
}

func TestAWorkIsWaitedForOnce(t *testing.T) {
	comms, _ := guarded(t, 1, false)
	call := collective.NewBarrier()
	call.Async = true
	w, err := comms[0].Start(&call)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(disttest.Context); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(disttest.Context); err == nil || !strings.Contains(err.Error(), "waited for already") {
		t.Error(err)
	}
}
