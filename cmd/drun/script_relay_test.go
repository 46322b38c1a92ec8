package main

import (
	"io"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"
)

// relayed is what has gone through the relay of a script, in bytes.
type relayed struct{ n atomic.Int64 }

// relayKey is where a script has its.
type relayKey struct{}

func (r *relayed) Write(p []byte) (int, error) { r.n.Add(int64(len(p))); return len(p), nil }

// relay NAME PORT: sets a variable to a port that leads to another one, and counts
// what goes through it, either way. relay -atmost N: fails if that was more than N
// bytes, or nothing.
func relay(ts *testscript.TestScript, args []string) {
	if args[0] == "-atmost" {
		most, err := strconv.ParseInt(args[1], 10, 64)
		ts.Check(err)
		n := ts.Value(relayKey{}).(*relayed).n.Load()
		ts.Logf("%d bytes", n)
		if n == 0 || n > most {
			ts.Fatalf("%d bytes went through the relay, want at most %d", n, most)
		}
		return
	}
	count := ts.Value(relayKey{}).(*relayed)
	l := listener(ts, args[:1])
	ts.Defer(func() { l.Close() })
	go count.forward(l, "127.0.0.1:"+args[1])
}

// forward passes on what comes to a listener, until that is closed.
func (r *relayed) forward(l net.Listener, address string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", address)
		if err != nil {
			from.Close() // the head has not started; it is tried again
			continue
		}
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(io.MultiWriter(way[0], r), way[1])
				way[0].Close()
			}()
		}
	}
}
