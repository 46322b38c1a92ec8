package rendezvous

import (
	"math/rand/v2"
	"net"
	"reflect"
	"testing"
	"time"
)

// Whatever bytes keys, tokens and values hold, messages arrive as they were sent.
func TestMessagesOfAnyBytes(t *testing.T) {
	a, b := net.Pipe()
	from, to := newConn(a), newConn(b)
	defer from.Close()
	defer to.Close()
	rng := rand.New(rand.NewPCG(1, 0))
	noise := func() []byte {
		b := make([]byte, 1+rng.IntN(9))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for range 300 {
		for _, pair := range [][2]any{
			{&handshake{Version: rng.IntN(9), Agent: rng.IntN(2) == 0, Error: string(noise()), Proof: noise()}, new(handshake)},
			{&request{Op: opSet, Space: string(noise()), Keys: []string{string(noise()), string(noise())}, Values: [][]byte{noise(), noise()},
				Amount: rng.Int64(), Wait: time.Duration(rng.Int64())}, new(request)},
			{&reply{Values: [][]byte{noise()}, Number: rng.Int64(), Missing: []string{string(noise())}, Error: string(noise())}, new(reply)},
		} {
			sent := make(chan error, 1)
			go func() { sent <- from.send(pair[0]) }()
			if err := to.receive(pair[1], maxMessage, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Fatalf("sent %+v, got %+v", pair[0], pair[1])
			}
		}
	}
}
