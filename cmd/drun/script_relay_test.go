package main

import (
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// relayed is what has gone through the relay of a script, in bytes.
type relayed struct {
	n     atomic.Int64
	since atomic.Int64 // when the first byte came, in nanoseconds of Unix time

	gate sync.RWMutex // held while nothing goes through
	stop atomic.Int64 // after so many bytes
	held chan bool
}

// relayKey is where a script has its.
type relayKey struct{}

func (r *relayed) Write(p []byte) (int, error) {
	r.since.CompareAndSwap(0, time.Now().UnixNano())
	n := r.n.Add(int64(len(p)))
	if stop := r.stop.Load(); stop > 0 && n >= stop && r.stop.CompareAndSwap(stop, 0) {
		r.gate.Lock()
		r.held <- true
	}
	r.gate.RLock()
	defer r.gate.RUnlock()
	return len(p), nil
}

// relay NAME PORT: sets a variable to a port that leads to another one, and counts
// what goes through it, either way. relay -atmost N: fails if that was nothing, or more
// than N bytes for each second since the first. relay -total LEAST MOST: fails unless so many bytes went through it.
// relay -hold N: lets N more bytes through, then nothing until relay -release; it returns when they have gone.
func relay(ts *testscript.TestScript, args []string) {
	if args[0] == "-atmost" {
		most, err := strconv.ParseInt(args[1], 10, 64)
		ts.Check(err)
		count := ts.Value(relayKey{}).(*relayed)
		n, took := count.n.Load(), time.Duration(time.Now().UnixNano()-count.since.Load())
		ts.Logf("%d bytes in %v", n, took)
		if n == 0 || float64(n) > float64(most)*took.Seconds() {
			ts.Fatalf("%d bytes went through the relay in %v, want at most %d a second", n, took, most)
		}
		return
	}
	count := ts.Value(relayKey{}).(*relayed)
	if args[0] == "-hold" || args[0] == "-release" {
		r := ts.Value(relayKey{}).(*relayed)
		if args[0] == "-release" {
			r.gate.Unlock()
			return
		}
		n, err := strconv.ParseInt(args[1], 10, 64)
		ts.Check(err)
		r.stop.Store(r.n.Load() + n)
		select {
		case <-r.held:
		case <-time.After(20 * time.Second):
			ts.Fatalf("%d bytes did not go through the relay", n)
		}
		return
	}
	if args[0] == "-total" {
		least, err := strconv.ParseInt(args[1], 10, 64)
		ts.Check(err)
		most, err := strconv.ParseInt(args[2], 10, 64)
		ts.Check(err)
		if n := count.n.Swap(0); n < least || n > most {
			ts.Fatalf("%d bytes went through the relay, want %d to %d", n, least, most)
		}
		return
	}
	l := listener(ts, args[:1])
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
