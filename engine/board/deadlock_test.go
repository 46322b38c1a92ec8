package board_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
)

// slow is a backend whose messages take long, as over a network.
type slow struct{ collective.Comm }

const slowly = 1200 * time.Millisecond

func (s slow) Start(c *collective.Call) (collective.Work, error) {
	w, err := s.Comm.Start(c)
	if err != nil || !c.Kind.PointToPoint() {
		return w, err
	}
	return &slowWork{Work: w, at: time.Now().Add(slowly)}, nil
}

// slowTaker is slow, and can still take in what arrives.
type slowTaker struct{ slow }

func (slowTaker) VerifiesFingerprints() {}
func (s slowTaker) TakeMessages() bool  { return s.Comm.(collective.Taker).TakeMessages() }

type slowWork struct {
	collective.Work
	at time.Time
}

func (w *slowWork) Done() bool { return time.Now().After(w.at) && w.Work.Done() }

func (w *slowWork) Wait(ctx context.Context) error {
	for sleep := collective.NewSleep(ctx); time.Now().Before(w.at); {
		slice, err := sleep.Next()
		if err != nil {
			return err
		}
		time.Sleep(min(slice, 10*time.Millisecond))
	}
	return w.Work.Wait(ctx)
}

// The ends of a message that takes long do not wait for each other, whichever of
// them are asynchronous, and whatever else their ranks wait for.
func TestSlowMessageIsNoCircle(t *testing.T) {
	const tag = 3
	data := func() collective.Buffer { return collective.Of(make([]float32, 4)) }
	call := func(c collective.Call, async bool) collective.Call {
		c.Async = async
		return c
	}
	for name, bodies := range map[string][2]func(do func(collective.Call), start func(collective.Call) collective.Work){
		"both wait": {
			func(do func(collective.Call), start func(collective.Call) collective.Work) {
				do(collective.NewSend(data(), 1, tag))
			},
			func(do func(collective.Call), start func(collective.Call) collective.Work) {
				do(collective.NewRecv(data(), 0, tag))
			},
		},
		"any source": {
			func(do func(collective.Call), start func(collective.Call) collective.Work) {
				do(collective.NewSend(data(), 1, tag))
			},
			func(do func(collective.Call), start func(collective.Call) collective.Work) {
				do(collective.NewRecv(data(), collective.AnySource, tag))
			},
		},
		"the sender goes on to a barrier": {
			func(do func(collective.Call), start func(collective.Call) collective.Work) {
				start(call(collective.NewSend(data(), 1, tag), true))
				do(collective.NewBarrier())
			},
			func(do func(collective.Call), start func(collective.Call) collective.Work) {
				do(collective.NewRecv(data(), 0, tag))
				do(collective.NewBarrier())
			},
		},
		"the receiver goes on to a barrier": {
			func(do func(collective.Call), start func(collective.Call) collective.Work) {
				do(collective.NewSend(data(), 1, tag))
				do(collective.NewBarrier())
			},
			func(do func(collective.Call), start func(collective.Call) collective.Work) {
				start(call(collective.NewRecv(data(), collective.AnySource, tag), true))
				do(collective.NewBarrier())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			comms, _ := guardedBy(t, 2, func(c collective.Comm) collective.Comm { return slow{c} })
			disttest.Each(t, comms, func(rank int, comm collective.Comm) (err error) {
				bodies[rank](func(c collective.Call) {
					if e := disttest.Do(comm, c); e != nil && err == nil {
						err = e
					}
				}, func(c collective.Call) collective.Work {
					w, e := comm.Start(&c)
					if e != nil && err == nil {
						err = e
					}
					return w
				})
				return err
			})
		})
	}
}

// A rank that is leaving takes in what is sent to it: who waits until that has gone does not wait for a circle, however
// long it takes.
func TestDrainedMessageIsNoCircle(t *testing.T) {
	comms, boards := guardedBy(t, 2, func(c collective.Comm) collective.Comm { return slowTaker{slow{c}} })
	disttest.Each(t, comms, func(rank int, comm collective.Comm) error {
		defer boards[rank].DrainMessages()()
		if err := disttest.Do(comm, collective.NewSend(collective.Of(make([]float32, 1<<20)), 1-rank, 1)); err != nil {
			return err
		}
		return disttest.Do(comm, collective.NewBarrier())
	})
}

// A message for which only one end was called does make a circle, also beside
// one that moves.
func TestOtherMessagesMakeACircle(t *testing.T) {
	comms, _ := guarded(t, 2, false)
	disttest.Each(t, comms, func(rank int, comm collective.Comm) error {
		async := collective.NewSend(collective.Of(make([]float32, 1<<20)), 1-rank, 1)
		async.Async = true
		if _, err := comm.Start(&async); err != nil {
			return err
		}
		start := time.Now()
		err := disttest.Do(comm, collective.NewRecv(collective.Of(make([]float32, 1)), 1-rank, 2))
		if err == nil || !strings.Contains(err.Error(), "wait for each other in a circle") || time.Since(start) > 2*time.Second {
			t.Errorf("rank %d: after %v: %v", rank, time.Since(start), err)
		}
		return nil
	})
}
