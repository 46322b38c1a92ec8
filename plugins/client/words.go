package client

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
)

// words takes what a plugin writes to stderr, line by line, and passes it on under the plugin's name.
type words struct {
	prefix string
	out    io.Writer

	mu   sync.Mutex
	part []byte // of a line that has not ended
	last []string
}

const (
	keptLines = 20 // for the message when the plugin dies
	lineBytes = 4096
)

func newWords(name string, out io.Writer) *words { return &words{prefix: name + ": ", out: out} }

func (x *words) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		rest, end := p, bytes.IndexByte(p, '\n')
		if end >= 0 {
			rest = p[:end]
		}
		x.mu.Lock()
		x.part = append(x.part, rest[:min(len(rest), max(0, lineBytes-len(x.part)))]...)
		x.mu.Unlock()
		if end < 0 {
			break
		}
		x.line()
		p = p[end+1:]
	}
	return n, nil
}

// line ends a line.
func (x *words) line() {
	x.mu.Lock()
	text := strings.ToValidUTF8(strings.TrimRight(string(x.part), "\r"), "\ufffd")
	x.part = x.part[:0]
	if strings.TrimSpace(text) == "" {
		x.mu.Unlock()
		return
	}
	if x.last = append(x.last, text); len(x.last) > keptLines {
		x.last = x.last[1:]
	}
	x.mu.Unlock()
	_, _ = fmt.Fprintf(x.out, "%s%s\n", x.prefix, text) // an error cannot be reported here
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
