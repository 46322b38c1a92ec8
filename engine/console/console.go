// Package console shows a person the run while it goes on: the ranks' lines and, on a terminal, the progress bar of
// rank 0. Every node has a console, for its own ranks.
package console

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"drun/history/records"
	"drun/internal/terminal"

	"github.com/schollz/progressbar/v3"
)

// Console writes the ranks' lines, with the bar below them.
type Console struct {
	out, err io.Writer
	prefix   bool
	terminal bool

	shows func(rank int) bool
	files *Files // nil: there are none
	began time.Time

	mu      sync.Mutex
	bar     *progressbar.ProgressBar
	label   string
	current int64
	status  bool // the bar of a recipe without run.progress: it has no end
	metrics []metric
	drawn   time.Time // when the metrics were drawn
}

type metric struct {
	name  string
	value float64
}

const (
	drawEvery = 50 * time.Millisecond
	barAfter  = time.Second // a recipe that ends before then needs no bar
	barWidth  = 30
	barLeast  = 8
	barRoom   = 45 // columns for the bar's numbers
	textRoom  = 30 // columns that a bar leaves for its label and a metric, if it can
)

// New makes a console. prefix: there is more than one rank, so each line names its own. terminal: err is a
// terminal, and shows the bar. shows tells whose lines are shown; nil: all ranks'. files gets lines, too; nil: there are none.
func New(out, err io.Writer, prefix, terminal bool, shows func(rank int) bool, files *Files) *Console {
	return &Console{out: out, err: err, prefix: prefix, terminal: terminal, shows: shows, files: files, began: time.Now()}
}

// Begin says that a rank starts, with its number on this node.
func (c *Console) Begin(run string, attempt, rank, local int) error {
	if c.files == nil {
		return nil
	}
	return c.files.Begin(run, attempt, rank, local)
}

// Line shows one line of a rank. Write errors are ignored: a run goes on even if nobody reads its output any more.
func (c *Console) Line(rank int, stderr bool, text string) {
	w, stream := c.out, 0
	if stderr {
		w, stream = c.err, 1
	}
	if c.files != nil {
		shown, err := c.files.write(rank, stream, text)
		if err != nil {
			c.Note("drun: warning: the output of rank " + strconv.Itoa(rank) + " goes to its file no longer: " + err.Error())
		}
		if !shown {
			return
		}
	}
	if c.shows != nil && !c.shows(rank) {
		return
	}
	if terminal.Is(w) {
		text = terminal.Line(text) // whoever reads a pipe gets the bytes unchanged
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

func (c *Console) Progress(p *records.Progress) {
	if !c.terminal {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar == nil || c.status || c.label != p.Label || c.bar.GetMax64() != p.Total || p.Current < c.current {
		c.begin(p.Label, p.Total)
	}
	c.current = p.Current
	_ = c.bar.Set64(p.Current)
	if p.Finished {
		c.clear()
	}
}

// Metrics shows the latest values beside the bar. A recipe without a bar gets one that counts the steps that it logs.
func (c *Console) Metrics(points []records.Point) {
	if !c.terminal || len(points) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range points {
		i := slices.IndexFunc(c.metrics, func(m metric) bool { return m.name == p.Name })
		if i < 0 {
			if len(c.metrics) == mostMetrics {
				continue
			}
			i = len(c.metrics)
			c.metrics = append(c.metrics, metric{name: p.Name})
		}
		c.metrics[i].value = p.Value
	}
	if time.Since(c.drawn) < drawEvery {
		return
	}
	c.drawn = time.Now()
	if c.bar == nil {
		if time.Since(c.began) < barAfter {
			return
		}
		c.begin("", -1)
		c.status = true
	}
	if c.status {
		_ = c.bar.Set64(points[len(points)-1].Step + 1)
	}
	c.bar.Describe(c.description())
}

// mostMetrics is more than fits in a line.
const mostMetrics = 50

// begin shows another bar; total is -1 if unknown.
func (c *Console) begin(label string, total int64) {
	c.clear()
	c.label = label
	c.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(c.err),
		progressbar.OptionSetDescription(c.description()),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetWidth(c.barWidth()),
		progressbar.OptionThrottle(drawEvery),
		progressbar.OptionClearOnFinish(),
	)
}

func (c *Console) barWidth() int {
	return min(barWidth, max(barLeast, terminal.Width(c.err)-barRoom-textRoom))
}

func (c *Console) description() string {
	text := terminal.Escape(c.label)
	room := terminal.Width(c.err) - barRoom - c.barWidth() - utf8.RuneCountInString(text)
	for _, m := range c.metrics {
		one := fmt.Sprintf("%s %.4g", terminal.Escape(m.name), m.value)
		if text != "" {
			one = "  " + one
		}
		if room -= utf8.RuneCountInString(one); room < 0 {
			break
		}
		text += one
	}
	return text
}

func (c *Console) clear() {
	if c.bar != nil {
		_ = c.bar.Clear()
		c.bar, c.status = nil, false
	}
}

func (c *Console) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
}

// Ranks parses whose output is shown: "all", "none", or ranks and ranges such as "0,4-7". world is the number of
// ranks; 0: not known yet.
func Ranks(text string, world int) (shows func(rank int) bool, err error) {
	switch text {
	case "", "all":
		return nil, nil
	case "none":
		return func(int) bool { return false }, nil
	}
	type span struct{ first, last int }
	var chosen []span
	for item := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(item, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, lastErr := strconv.Atoi(high)
		if err != nil || lastErr != nil || first < 0 || first > last {
			return nil, fmt.Errorf("want all, none, or ranks such as 0 or 0,4-7, not %q", text)
		}
		if world > 0 && last >= world {
			return nil, fmt.Errorf("there is no rank %d: the run has %d", last, world)
		}
		chosen = append(chosen, span{first, last})
	}
	return func(rank int) bool {
		return slices.ContainsFunc(chosen, func(s span) bool { return s.first <= rank && rank <= s.last })
	}, nil
}
