package sdk

import (
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"drun/collective"
	"drun/collective/sharedmem"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/plugins/internal/wire"
)

// executor takes calls from the arena and runs them, in the order in which they were submitted. It has two goroutines:
// one runs synchronous calls itself, since handing them over would cost more than the call; drun wakes the other for
// calls submitted while the first may be blocked.
type executor struct {
	*server
	order sync.Mutex     // taking a slot and starting its call are one step
	poll  sharedmem.Poll // for the next slot
}

func (s *server) execute(localSize int) {
	x := &executor{server: s, poll: sharedmem.PollBeside(2 * localSize)}
	s.executor.Store(x)
	go x.inline()
	go x.standby()
}

// awaitStarts waits until every submitted call has been started, even calls that nobody waits for.
func (x *executor) awaitStarts() {
	for end := time.Now().Add(startLimit); x.arena.Waiting() && time.Now().Before(end); {
		time.Sleep(50 * time.Microsecond)
	}
	x.order.Lock()
	defer x.order.Unlock()
}

const startLimit = 500 * time.Millisecond

// inline runs synchronous calls to their end.
func (x *executor) inline() {
	for {
		if !x.step(true) && !x.poll.Until(x.arena.Waiting) {
			x.arena.Work.Sleep(time.Second, x.arena.Waiting)
		}
	}
}

// standby starts calls while inline is blocked. It never blocks itself.
func (x *executor) standby() {
	for {
		x.arena.Standby.Sleep(time.Second, x.arena.Waiting)
		for x.step(false) {
			continue
		}
	}
}

// step starts the next call, and waits for it if mayBlock; false if there is none.
func (x *executor) step(mayBlock bool) bool {
	x.order.Lock()
	slot, ok := x.arena.Take()
	if !ok {
		x.order.Unlock()
		return false
	}
	r := &running{executor: x, slot: slot}
	if slot.Async == 0 && !mayBlock { // a synchronous call is waited for by the goroutine that started it
		over := make(chan struct{})
		go func() {
			started := r.start()
			close(over)
			if started {
				r.wait()
			}
		}()
		<-over
		x.order.Unlock()
		return true
	}
	started := r.start()
	x.order.Unlock()
	switch {
	case started && r.call.Async:
		go r.wait()
		runtime.Gosched() // lets it begin now, not only when another thread takes it from this one, which polls
	case started:
		r.wait()
	}
	return true
}

// running is a call in the backend.
type running struct {
	*executor
	slot *wire.Slot
	comm *comm
	call collective.Call
	work collective.Work
	at   time.Time // when it was started
	// Collectives are reported in order: when one is done, so are all before it.
	before, done chan struct{}
}

// start begins the call; if that fails the call is over.
func (r *running) start() bool {
	failure := guarded(func() (err error) {
		defer try.Caught(&err)
		r.comm = try.To(r.server.comm(r.slot.Comm))
		r.call = r.read()
		r.at = time.Now()
		if !r.call.Kind.PointToPoint() {
			r.before = r.comm.last
			if r.call.Async {
				r.done = make(chan struct{})
				r.comm.last = r.done
			}
		}
		r.work, err = r.comm.Start(&r.call)
		return err
	})
	if failure != nil {
		r.end(failure)
		return false
	}
	return true
}

func (r *running) wait() {
	r.end(guarded(func() error {
		ctx := r.comm.ctx
		if r.slot.Limit > 0 {
			ctx = collective.Within(ctx, time.Duration(r.slot.Limit))
		}
		if err := r.work.Wait(ctx); err != nil {
			return err
		}
		r.comm.done.add(&r.call, time.Since(r.at))
		if receipt, ok := r.work.(collective.Receipt); ok {
			r.slot.Source = int32(receipt.Source())
		}
		return nil
	}))
}

// end returns the slot.
func (r *running) end(failure *wire.Failure) {
	r.slot.Status = wire.OK
	if failure != nil {
		r.slot.Status = failure.Status
		r.slot.SetText(failure.Text)
	}
	if r.before != nil {
		<-r.before
	}
	r.slot.State.Store(wire.Ended)
	if r.done != nil {
		close(r.done)
	}
	r.slot.Over.Open()
}

// read takes the call from the slot, or fails (internal/try).
func (r *running) read() collective.Call {
	s := r.slot
	c := collective.Call{
		Kind: collective.Kind(s.Kind), Reduce: dtype.ReduceOp(s.Reduce), Root: int(s.Root), Peer: int(s.Peer), Tag: int(s.Tag),
		Send: collective.Buffer{DType: dtype.Type(s.SendType)}, Recv: collective.Buffer{DType: dtype.Type(s.RecvType)},
		Async: s.Async != 0, Paired: s.Paired != 0, Limit: time.Duration(s.Limit), Guarded: collective.Guarded{Group: s.Group, Seq: s.Seq, Fingerprint: s.Fingerprint},
	}
	c.Send.Data, c.Recv.Data = try.To(r.arena.Bytes(s.Send)), try.To(r.arena.Bytes(s.Recv))
	c.Counts, c.RecvCounts = try.To(r.arena.Ints(s.Counts)), try.To(r.arena.Ints(s.RecvCounts))
	return c
}

// counters is what every plugin counts for a group, by the kind of call.
type counters [collective.NewGroup + 1]struct{ calls, bytes, waited atomic.Int64 }

// add counts a call that has ended.
func (c *counters) add(call *collective.Call, took time.Duration) {
	if int(call.Kind) >= len(c) {
		return
	}
	k := &c[call.Kind]
	k.calls.Add(1)
	k.bytes.Add(int64(max(len(call.Send.Data), len(call.Recv.Data))))
	k.waited.Add(int64(took))
}

// statistics are those of every plugin, and the engine's own.
func (c *comm) statistics() map[string]int64 {
	all := map[string]int64{}
	for kind := range c.done {
		k, name := &c.done[kind], collective.Kind(kind).String()
		if n := k.calls.Load(); n > 0 {
			all[name+" calls"], all[name+" bytes"], all[name+" us"] = n, k.bytes.Load(), k.waited.Load()/1000
		}
	}
	if counter, ok := c.Comm.(Counter); ok {
		maps.Copy(all, counter.Statistics())
	}
	return all
}
