package terminal

import (
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

var colours = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;]*m") })

// Columns is how many columns of a terminal a text takes: an emoji or Chinese character takes two, an accent none, nor
// does a change of the colour.
func Columns(text string) int {
	if strings.Contains(text, "\x1b") {
		text = colours().ReplaceAllString(text, "")
	}
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return uniseg.StringWidth(text)
		}
	}
	return len(text)
}

// Table aligns cells that end in tabs, as text/tabwriter does, by the columns that a terminal gives them. Consecutive
// lines that have a cell in a column share its width, two more than the widest.
type Table struct {
	out  io.Writer
	text strings.Builder
}

// NewTable makes a table that Flush writes to out.
func NewTable(out io.Writer) *Table { return &Table{out: out} }

func (t *Table) Write(p []byte) (int, error) { return t.text.Write(p) }

// Flush writes what has been written to the table so far.
func (t *Table) Flush() error {
	var lines [][]string
	for line := range strings.SplitAfterSeq(t.text.String(), "\n") {
		if line != "" {
			lines = append(lines, strings.Split(line, "\t"))
		}
	}
	t.text.Reset()
	var widths []int // of the blocks of columns that the line is in
	var ends []int   // the line after each
	var b strings.Builder
	for i, cells := range lines {
		last := len(cells) - 1
		for len(ends) > 0 && (ends[len(ends)-1] <= i || len(ends) > last) {
			ends, widths = ends[:len(ends)-1], widths[:len(widths)-1]
		}
		for k := len(ends); k < last; k++ {
			width, end := 0, i
			for ; end < len(lines) && len(lines[end])-1 > k; end++ {
				width = max(width, Columns(lines[end][k]))
			}
			widths, ends = append(widths, width+2), append(ends, end)
		}
		for k, cell := range cells {
			b.WriteString(cell)
			if k < last {
				b.WriteString(strings.Repeat(" ", widths[k]-Columns(cell)))
			}
		}
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}
