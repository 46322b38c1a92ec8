// Package console is what a person sees of a run while it goes on: the ranks' lines and,
// on a terminal, the progress bar of rank 0. Every node has one, for its own ranks.
package console

import (
	"fmt"
	"io"
	"sync"
	"time"

	"drun/engine"
	"drun/internal/terminal"

	"github.com/schollz/progressbar/v3"
)

// Console writes the lines of ranks, and below them the bar.
type Console struct {
	out, err io.Writer
	prefix   bool
	terminal bool

	mu    sync.Mutex
	bar   *progressbar.ProgressBar
	label string
}

// New makes a console. prefix: there is more than one rank, each line names its own.
// terminal: err is one, and shows the bar.
func New(out, err io.Writer, prefix, terminal bool) *Console {
	return &Console{out: out, err: err, prefix: prefix, terminal: terminal}
}

// Line shows one line of a rank. Errors of writing are ignored: a run goes on
// though nobody reads its output any more.
func (c *Console) Line(rank int, stderr bool, text string) {
	w := c.out
	if stderr {
		w = c.err
	}
	if terminal.Is(w) {
		text = terminal.Line(text) // whoever reads a pipe gets the bytes
	}
	if c.prefix {
		text = fmt.Sprintf("[%d] %s", rank, text)
	}
	c.write(w, text)
}

// Note shows lines of drun's own.
func (c *Console) Note(text string) { c.write(c.err, terminal.Lines(text)) }

func (c *Console) write(w io.Writer, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		_ = c.bar.Clear()
		defer func() { _ = c.bar.RenderBlank() }()
	}
	_, _ = io.WriteString(w, text+"\n")
}

// Progress moves the bar.
func (c *Console) Progress(p *engine.Progress) {
	if !c.terminal {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar == nil || c.label != p.Label || c.bar.GetMax64() != p.Total {
		c.clear()
		c.label = p.Label
		c.bar = progressbar.NewOptions64(p.Total,
			progressbar.OptionSetWriter(c.err),
			progressbar.OptionSetDescription(terminal.Escape(p.Label)),
			progressbar.OptionShowCount(),
			progressbar.OptionShowIts(),
			progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
	_ = c.bar.Set64(p.Current)
	if p.Finished {
		c.clear()
	}
}

// clear takes the bar away.
func (c *Console) clear() {
	if c.bar != nil {
		_ = c.bar.Clear()
		c.bar = nil
	}
}

// Close takes the bar away for good.
func (c *Console) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
}
