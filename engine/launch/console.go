package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"drun/engine"
	"drun/internal/terminal"

	"github.com/schollz/progressbar/v3"
)

// console is what the user sees of a run: the ranks' lines, and below them, on a
// terminal, the progress bar of rank 0.
type console struct {
	mu       sync.Mutex
	out, err io.Writer
	prefix   bool // more than one rank: name it before each line
	terminal bool // err is a terminal: show the bar there
	bar      *progressbar.ProgressBar
	label    string
}

// line shows one line of a rank. Errors of writing are ignored: a run goes on
// though nobody reads its output any more.
func (c *console) line(rank int, stderr bool, text string) {
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

// note shows lines of the agent's own.
func (c *console) note(text string) { c.write(c.err, terminal.Lines(text)) }

func (c *console) write(w io.Writer, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		_ = c.bar.Clear()
		defer func() { _ = c.bar.RenderBlank() }()
	}
	_, _ = io.WriteString(w, text+"\n")
}

// progress moves the bar.
func (c *console) progress(p *engine.Progress) {
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
func (c *console) clear() {
	if c.bar != nil {
		_ = c.bar.Clear()
		c.bar = nil
	}
}

// close takes the bar away for good.
func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
}

// maxLine is where a line without an end is cut.
const maxLine = 64 << 10

// lines calls each for every line of r until its end. Bytes that are not UTF-8
// are replaced, since the lines are kept as text.
func lines(r io.Reader, each func(text string)) {
	buf := bufio.NewReaderSize(r, maxLine)
	for {
		text, err := buf.ReadSlice('\n')
		if len(text) > 0 {
			each(strings.ToValidUTF8(strings.TrimRight(string(text), "\r\n"), "\ufffd"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
