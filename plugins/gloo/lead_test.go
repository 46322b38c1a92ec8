//go:build gloo

package gloo

import (
	"fmt"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
)

// While a rank waits in a collective it reads the connections itself. Between collectives Gloo's thread does: a message that
// comes then does not wait for the next collective.
func TestMessagesBetweenCollectives(t *testing.T) {
	disttest.RunWith(t, factory(Options{}), 2, func(t *testing.T, rank int, comm collective.Comm) {
		ctx := collective.Within(t.Context(), 20*time.Second)
		other := 1 - rank
		for i, bytes := range []int{8, 64 << 10, 8, 3 << 20, 8, 64 << 10} {
			if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(make([]float32, bytes/4)), dtype.Sum)); err != nil {
				t.Fatal(err)
			}
			out, in := make([]byte, bytes), make([]byte, bytes)
			out[bytes-1] = byte(10*i + rank)
			send, recv := collective.NewSend(collective.Of(out), other, i), collective.NewRecv(collective.Of(in), other, i)
			send.Async = true
			sent, err := comm.Start(&send)
			if err != nil {
				t.Fatal(err)
			}
			came, err := comm.Start(&recv)
			if err != nil {
				t.Fatal(err)
			}
			for _, work := range []collective.Work{came, sent} {
				if err := work.Wait(ctx); err != nil {
					t.Fatalf("message %d of %d bytes: %v", i, bytes, err)
				}
			}
			if in[bytes-1] != byte(10*i+other) {
				t.Errorf("message %d of %d bytes ends in %d", i, bytes, in[bytes-1])
			}
		}
	})
}

// Paired messages arrive whole and each at its receive, whichever side is first, beside collectives that other
// goroutines wait for, and each soon: those that are over when they are posted too.
func TestPairedMessages(t *testing.T) {
	disttest.RunWith(t, factory(Options{}), 3, func(t *testing.T, rank int, comm collective.Comm) {
		ctx := collective.Within(t.Context(), 40*time.Second)
		begin := func(call collective.Call) collective.Work {
			call.Async, call.Paired = true, call.Kind.PointToPoint()
			work, err := comm.Start(&call)
			if err != nil {
				t.Fatal(err)
			}
			return work
		}
		const messages = 60
		size := func(i int) int { return []int{1, 100, 200 << 10, 2 << 20}[i%4] }
		for round := range 3 {
			var works []collective.Work
			var came [][]byte
			sum := collective.Of([]float32{float32(rank)})
			for i := range messages {
				from, to := (rank+2)%3, (rank+1)%3
				in, out := make([]byte, size(i)), make([]byte, size(i))
				out[0], out[len(out)-1] = byte(i+rank), byte(i+rank)
				came = append(came, in)
				recv := func() { works = append(works, begin(collective.NewRecv(collective.Of(in), from, 300+i%2))) }
				send := func() { works = append(works, begin(collective.NewSend(collective.Of(out), to, 300+i%2))) }
				if (i+rank+round)%2 == 0 {
					recv, send = send, recv
				}
				recv()
				send()
				if i == messages/2 {
					works = append(works, begin(collective.NewAllReduce(sum, dtype.Sum)))
				}
			}
			began := time.Now()
			for i, work := range works {
				if err := work.Wait(ctx); err != nil {
					t.Fatalf("round %d, call %d: %v", round, i, err)
				}
			}
			for i, in := range came {
				if want := byte(i + (rank+2)%3); in[0] != want || in[len(in)-1] != want {
					t.Errorf("round %d: message %d of %d bytes has %d and %d, not %d", round, i, len(in), in[0], in[len(in)-1], want)
				}
			}
			if got := fmt.Sprint(collective.Slice[float32](sum)); got != "[3]" {
				t.Errorf("round %d: the sum is %s", round, got)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("round %d took %v", round, took)
			}
		}
		// One by one: none waits for anything but its own end.
		began := time.Now()
		for i := range 20 {
			if i%3 == rank {
				in := make([]byte, 64)
				if err := begin(collective.NewRecv(collective.Of(in), (rank+2)%3, 400)).Wait(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if (i+2)%3 == rank {
				if err := begin(collective.NewSend(collective.Of(make([]byte, 64)), (rank+1)%3, 400)).Wait(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("20 messages, one after the other, took %v", took)
		}
	})
}
