package board_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/board"
)

// late is a backend that notices the end of messages late on one side, as if that rank's plugin got no core, and at once
// on the other.
type late struct {
	collective.Comm
	kind collective.Kind
}

func (l late) Start(c *collective.Call) (collective.Work, error) {
	if c.Kind != l.kind {
		return l.Comm.Start(c)
	}
	apart := *c
	apart.Async = true // it goes on while nobody looks
	w, err := l.Comm.Start(&apart)
	if err != nil {
		return nil, err
	}
	return &slowReceipt{slowWork{Work: w, at: time.Now().Add(slowly)}}, nil
}

type slowReceipt struct{ slowWork }

func (w *slowReceipt) Source() int { return w.Work.(collective.Receipt).Source() }

// lead does what the coordinator does for nodes of one rank each, until the test ends or a circle is found.
func lead(t *testing.T, agents []*board.Board) {
	stop := make(chan struct{})
	var leading sync.WaitGroup
	leading.Go(func() {
		var watch board.CircleWatch
		knows := make([]uint64, len(agents)*len(agents)) // of nodes, about ranks
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			for _, a := range agents[1:] {
				agents[0].Adopt(a.Show(nil, false))
			}
			circle := watch.Check(agents[0])
			for i, a := range agents {
				var news []int
				for r := range agents {
					if wait := agents[0].Awaits(r, []int{i}); i > 0 && r != i && (circle != nil || agents[0].State(r) == collective.Returned || wait != 0 && wait != knows[i*len(agents)+r]) {
						knows[i*len(agents)+r] = wait
						news = append(news, r)
					}
				}
				if news != nil {
					a.Adopt(agents[0].Show(news, false))
				}
				a.Confirm(circle)
			}
		}
	})
	t.Cleanup(func() { close(stop); leading.Wait() })
}

// nearAndFar runs a test on ranks of one node, and on ranks with a node each.
func nearAndFar(t *testing.T, n int, wrap func(collective.Comm) collective.Comm, body func(rank int, comm collective.Comm) error) {
	t.Run("near", func(t *testing.T) {
		t.Parallel()
		comms, _ := guardedBy(t, n, wrap)
		disttest.Each(t, comms, body)
	})
	t.Run("far", func(t *testing.T) {
		t.Parallel()
		comms, agents := apart(t, n, wrap)
		lead(t, agents)
		disttest.Each(t, comms, body)
	})
}

func number() collective.Buffer { return collective.Of(make([]float32, 1)) }

// soon makes a call that must end soon.
func soon(comm collective.Comm, c collective.Call) error {
	w, err := comm.Start(&c)
	if err != nil {
		return err
	}
	return w.Wait(collective.Within(context.Background(), 15*time.Second))
}

func async(c collective.Call) collective.Call {
	c.Async = true
	return c
}

// A message that has left its sender but that its receiver has not seen makes no circle with what the sender waits for
// next; nor does one that was received without its sender having seen that.
func TestMessageUnderWayIsNoCircle(t *testing.T) {
	for _, kind := range []collective.Kind{collective.Recv, collective.Send} {
		for name, receive := range map[string]collective.Call{
			"from its sender": collective.NewRecv(number(), 0, 3),
			"from any":        collective.NewRecv(number(), collective.AnySource, 3),
		} {
			for _, answer := range []string{"message", "barrier"} {
				t.Run(fmt.Sprintf("late %v, %s, then a %s", kind, name, answer), func(t *testing.T) {
					t.Parallel()
					nearAndFar(t, 2, func(c collective.Comm) collective.Comm { return plain{late{c, kind}} }, func(rank int, comm collective.Comm) error {
						var first, second collective.Call
						switch {
						case rank == 0:
							first, second = collective.NewSend(number(), 1, 3), collective.NewRecv(number(), 1, 4)
						default:
							first, second = receive, collective.NewSend(number(), 0, 4)
							first.Recv = number()
						}
						if kind == collective.Send && rank == 1 { // its receive is over soon: it waits for more from the late sender
							second = collective.NewRecv(number(), 0, 4)
						} else if kind == collective.Send {
							second = collective.NewSend(number(), 1, 4)
						}
						if answer == "barrier" {
							second = collective.NewBarrier()
						}
						return errors.Join(disttest.Do(comm, first), disttest.Do(comm, second))
					})
				})
			}
		}
	}
}

// However many messages were exchanged, and by whichever calls they were received, two ranks that then both receive are
// found.
func TestCircleAfterMessages(t *testing.T) {
	for _, from := range []string{"each other", "any"} {
		t.Run(from, func(t *testing.T) {
			nearAndFar(t, 2, func(c collective.Comm) collective.Comm { return plain{c} }, func(rank int, comm collective.Comm) error {
				peer := 1 - rank
				var open []collective.Work
				for i := range 70 {
					source := peer
					if i%2 == 0 {
						source = collective.AnySource
					}
					send, receive := collective.NewSend(number(), peer, 5+i/60), collective.NewRecv(number(), source, 5+i/60)
					if i%3 == 0 { // nobody waits for these before the end
						for _, c := range []collective.Call{async(send), async(receive)} {
							w, err := comm.Start(&c)
							if err != nil {
								return err
							}
							open = append(open, w)
						}
						continue
					}
					if err := errors.Join(disttest.Do(comm, send), disttest.Do(comm, receive)); err != nil {
						return err
					}
				}
				last := collective.NewRecv(number(), peer, 5)
				if from == "any" {
					last.Peer = collective.AnySource
				}
				began := time.Now()
				err := soon(comm, last)
				if err == nil || !strings.Contains(err.Error(), "wait for each other in a circle") {
					t.Errorf("rank %d: after %v: %v", rank, time.Since(began), err)
				}
				if slices.ContainsFunc(open, func(w collective.Work) bool { return !w.Done() }) {
					t.Errorf("rank %d: a message has not come", rank)
				}
				return nil
			})
		})
	}
}

// A message that comes while its receiver waits for another is not taken for that one.
func TestCircleAfterLateMessage(t *testing.T) {
	for _, source := range []int{0, collective.AnySource} {
		t.Run(fmt.Sprintf("from %d", source), func(t *testing.T) {
			t.Parallel()
			nearAndFar(t, 2, func(c collective.Comm) collective.Comm { return plain{late{c, collective.Recv}} }, func(rank int, comm collective.Comm) error {
				peer := 1 - rank
				first := async(collective.NewRecv(number(), peer, 3))
				if source < 0 {
					first.Peer = source
				}
				if _, err := comm.Start(&first); err != nil {
					return err
				}
				began := time.Now()
				err := errors.Join(disttest.Do(comm, collective.NewSend(number(), peer, 3)), soon(comm, collective.NewRecv(number(), peer, 3)))
				if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "wait for each other in a circle") || took < slowly {
					t.Errorf("rank %d: after %v: %v", rank, took, err)
				}
				return nil
			})
		})
	}
}

// A message under another tag does not make a rank wait for one who has returned.
func TestAnotherLastMessage(t *testing.T) {
	comms, boards := guardedBy(t, 2, func(c collective.Comm) collective.Comm { return plain{c} })
	disttest.Each(t, comms, func(rank int, comm collective.Comm) error {
		if rank == 0 {
			defer boards[0].SetRankState(0, collective.Returned)
			return soon(comm, collective.NewSend(number(), 1, 5))
		}
		began := time.Now()
		err := soon(comm, collective.NewRecv(number(), 0, 3))
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "returned from main") || took > 2*time.Second {
			return fmt.Errorf("a message that was not sent, after %v: %w", took, err)
		}
		return nil
	})
}

// What a rank has sent or received before it returned comes to its end, also where the other rank does not see that for
// long.
func TestLastMessage(t *testing.T) {
	for _, kind := range []collective.Kind{collective.Recv, collective.Send} {
		for _, source := range []int{0, collective.AnySource} {
			body := func(boards []*board.Board) func(rank int, comm collective.Comm) error {
				return func(rank int, comm collective.Comm) error {
					call := collective.NewRecv(number(), source, 3)
					if (rank == 0) == (kind == collective.Recv) {
						call = collective.NewSend(number(), 1-rank, 3)
					} else if rank == 0 {
						call.Peer = 1
					}
					if err := soon(comm, call); err != nil {
						return err
					}
					if rank == 0 {
						boards[0].SetRankState(0, collective.Returned)
						return nil
					}
					began := time.Now()
					call = collective.NewRecv(number(), source, 3)
					err := soon(comm, call)
					if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "returned from main") || took > 5*time.Second {
						return fmt.Errorf("a message that was not sent, after %v: %w", took, err)
					}
					return nil
				}
			}
			wrap := func(c collective.Comm) collective.Comm {
				if c.Rank() == 0 {
					return plain{c}
				}
				return plain{late{c, kind}}
			}
			t.Run(fmt.Sprintf("%v, from %d, near", kind, source), func(t *testing.T) {
				t.Parallel()
				comms, boards := guardedBy(t, 2, wrap)
				disttest.Each(t, comms, body(boards))
			})
			t.Run(fmt.Sprintf("%v, from %d, far", kind, source), func(t *testing.T) {
				t.Parallel()
				comms, agents := apart(t, 2, wrap)
				lead(t, agents)
				disttest.Each(t, comms, body(agents))
			})
		}
	}
}
