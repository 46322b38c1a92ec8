package lsp

import (
	"net/url"
	"path/filepath"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.starlark.net/syntax"
)

// Position is a position in a document: line and character, both from 0, the character in UTF-16 units.
type Position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// Range is a part of a document; it excludes its end.
type Range struct {
	Start Position `json:"start"`
	End   Position `json:"end"`
}

// Location is a range in a file.
type Location struct {
	URI   string `json:"uri"`
	Range Range  `json:"range"`
}

// A document is a recipe file as the editor has it.
type document struct {
	uri, path string
	text      string
	lines     []string
}

func newDocument(uri, text string) *document {
	text = strings.ToValidUTF8(text, "\ufffd")
	return &document{uri: uri, path: pathOf(uri), text: text, lines: strings.Split(text, "\n")}
}

// pathOf returns the path of a file's URI; for others, such as untitled:1, a name that no file has.
func pathOf(uri string) string {
	if u, err := url.Parse(uri); err == nil && u.Scheme == "file" && filepath.IsAbs(u.Path) {
		return filepath.Clean(u.Path)
	}
	return "/nonexistent/untitled.star"
}

func uriOf(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// line returns a line's text, "" if there is none.
func (d *document) line(n int) string {
	if n < 0 || n >= len(d.lines) {
		return ""
	}
	return strings.TrimSuffix(d.lines[n], "\r")
}

func (d *document) around(p Position) (before, after string) {
	line, units := d.line(p.Line), 0
	for i, r := range line {
		if units >= p.Character {
			return line[:i], line[i:]
		}
		units += utf16.RuneLen(max(r, 0))
	}
	return line, ""
}

// position converts a position of the language, which counts from 1, to the editor's.
func (d *document) position(line, col int) Position {
	p := Position{Line: max(line-1, 0)}
	for i, r := range []rune(d.line(p.Line)) {
		if i >= col-1 {
			break
		}
		p.Character += max(utf16.RuneLen(r), 1)
	}
	return p
}

// word returns the range of the name at a position of the language, or of one character.
func (d *document) word(line, col int) Range {
	runes := []rune(d.line(line - 1))
	end := max(col-1, 0)
	for end < len(runes) && isName(runes[end]) {
		end++
	}
	if end == col-1 {
		end++
	}
	return Range{d.position(line, col), d.position(line, end+1)}
}

func (d *document) whole() Range {
	last := len(d.lines) - 1
	return Range{End: Position{last, len(utf16.Encode([]rune(d.line(last))))}}
}

// named returns the dotted name around a position, such as tensor.zeros, up to the end of the part that the position is in.
func (d *document) named(p Position) string {
	before, after := d.around(p)
	start, end := len(before), 0
	for start > 0 {
		r, size := utf8.DecodeLastRuneInString(before[:start])
		if !isName(r) && r != '.' {
			break
		}
		start -= size
	}
	for i, r := range after {
		if !isName(r) {
			break
		}
		end = i + utf8.RuneLen(r)
	}
	return before[start:] + after[:end]
}

func isName(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r >= 0x80 && r != utf8.RuneError
}

// contains reports whether an editor's position is within a node.
func (d *document) contains(n syntax.Node, p Position) bool {
	start, end := n.Span()
	from, to := d.position(int(start.Line), int(start.Col)), d.position(int(end.Line), int(end.Col))
	return !before(p, from) && !before(to, p)
}

func before(a, b Position) bool {
	return a.Line < b.Line || a.Line == b.Line && a.Character < b.Character
}
