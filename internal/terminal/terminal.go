// Package terminal makes text from outside drun safe to show: the output of recipes, names, notes, messages of other
// hosts. A terminal obeys control characters, which may forge lines, retitle windows or fill the clipboard. The
// history keeps such texts as they are; everything that prints them for people uses this package.
package terminal

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// descriptor is implemented by what may be a terminal: an *os.File, or a writer to one.
type descriptor interface{ Fd() uintptr }

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	file, ok := w.(descriptor)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Width returns the number of columns of a terminal, or a wide default.
func Width(w io.Writer) int {
	if file, ok := w.(descriptor); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 120
}

// Escape shows a text on one line: control characters, bytes that are not UTF-8, and
// characters that reorder a line are written as \n, \x1b, \u202e.
func Escape(text string) string { return escape(text, "") }

// Word shows a text as one word of a shell, in quotes if it needs them.
func Word(text string) string {
	shown := Escape(text)
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("%+,-./:=@_", r)
	}
	if shown != "" && strings.IndexFunc(shown, func(r rune) bool { return !plain(r) }) < 0 {
		return shown
	}
	return "'" + strings.ReplaceAll(shown, "'", `'\''`) + "'"
}

// Line is Escape, but keeps tabs: for a line that is laid out already.
func Line(text string) string { return escape(text, "\t") }

// Lines is Escape, but keeps tabs and line ends: for a message of several lines.
func Lines(text string) string { return escape(text, "\t\n") }

func escape(text, kept string) string {
	harmless := func(r rune) bool { return !hidden(r) || strings.ContainsRune(kept, r) }
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !harmless(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case harmless(r):
			b.WriteString(text[i : i+size])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}

// JSON escapes, as JSON does, the characters that encoding/json leaves as they are; they occur only within strings.
func JSON(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r >= 0x7f && hidden(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if r >= 0x7f && hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hidden reports whether a character controls the terminal, ends a line, or changes the order of other characters,
// instead of being shown.
func hidden(r rune) bool {
	return unicode.IsControl(r) || r > unicode.MaxLatin1 && unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// Cell makes a text safe as a CSV cell: if a spreadsheet would take it for a formula, it gets an apostrophe, as
// spreadsheets mark texts. So does a text that begins like that, so that each can be read back. Not for numbers, such as -0.5.
func Cell(text string) string {
	if strings.IndexAny(strings.TrimLeft(text, "'"), "=+-@\t\r") == 0 {
		return "'" + text
	}
	return text
}

var colours = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;]*m") })

// Columns returns how many columns of a terminal a text takes: an emoji or Chinese character takes two; an accent
// or a change of colour takes none.
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
