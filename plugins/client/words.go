package client

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// words takes what a plugin writes to stderr, line by line, and passes it on
// under the plugin's name. It never blocks the plugin: if the reader cannot
// keep up, lines are dropped and counted.
type words struct {
	prefix string
	out    chan string
	done   chan struct{}

	mu      sync.Mutex
	part    []byte // of a line that has not ended
	last    []string
	dropped int
	closed  bool
}

const (
	keptLines  = 20 // for the message when the plugin dies
	queueLines = 1000
	lineBytes  = 4096
)

func newWords(name string, w io.Writer) *words {
	x := &words{prefix: name + ": ", out: make(chan string, queueLines), done: make(chan struct{})}
	go func() {
		defer close(x.done)
		for line := range x.out {
			_, _ = io.WriteString(w, line) // an error cannot be reported here
		}
	}()
	return x
}

func (x *words) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			x.part = append(x.part, p[:min(len(p), max(0, lineBytes-len(x.part)))]...)
			break
		}
		x.line(string(x.part) + string(p[:min(end, lineBytes)]))
		x.part, p = x.part[:0], p[end+1:]
	}
	return n, nil
}

func (x *words) line(text string) {
	text = strings.ToValidUTF8(strings.TrimRight(text, "\r"), "\ufffd")
	if strings.TrimSpace(text) == "" || x.closed {
		return
	}
	if x.last = append(x.last, text); len(x.last) > keptLines {
		x.last = x.last[1:]
	}
	if x.dropped > 0 && len(x.out) < cap(x.out)/2 {
		x.out <- fmt.Sprintf("%s(%d lines were dropped)\n", x.prefix, x.dropped)
		x.dropped = 0
	}
	if x.dropped > 0 {
		x.dropped++
		return
	}
	select {
	case x.out <- x.prefix + text + "\n":
	default:
		x.dropped++
	}
}

// latest returns the plugin's last words: from the first line of a panic on, if there was one, else the last few lines.
func (x *words) latest() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	lines := x.last
	if len(x.part) > 0 {
		lines = append(lines[:len(lines):len(lines)], string(x.part))
	}
	const few = 3
	for i, line := range lines {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return strings.Join(lines[i:min(len(lines), i+few)], "; ")
		}
	}
	return strings.Join(lines[max(0, len(lines)-few):], "; ")
}

// close passes the rest on, unless the reader takes too long.
func (x *words) close() {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return
	}
	if len(x.part) > 0 {
		x.line(string(x.part))
		x.part = nil
	}
	if x.dropped > 0 {
		select {
		case x.out <- fmt.Sprintf("%s(%d lines were dropped)\n", x.prefix, x.dropped):
		default:
		}
	}
	x.closed = true
	close(x.out)
	x.mu.Unlock()
	select {
	case <-x.done:
	case <-time.After(time.Second):
	}
}
