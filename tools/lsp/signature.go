package lsp

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
)

// call is the innermost call that has a position among its arguments.
type call struct {
	callee   string   // a dotted name
	at       Position // of the callee's end
	earlier  int      // the number of arguments before the one at the position
	argument string   // the argument at the position, up to the position
}

// open is an unclosed bracket, with its own commas.
type open struct {
	at     int
	commas []int
}

// unclosed lists the brackets of Starlark text that are open at its end, the innermost last. A def at the beginning
// of a line closes whatever a mistake above it left open. inText says that the end is within a string or comment.
func unclosed(text string) (list []open, inText bool) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '#':
			line := strings.IndexByte(text[i:], '\n')
			if line < 0 {
				return list, true
			}
			i += line - 1
		case '"', '\'':
			if i = textEnd(text, i) - 1; i >= len(text) {
				return list, true
			}
		case '(', '[', '{':
			list = append(list, open{at: i})
		case ')', ']', '}':
			list = list[:max(0, len(list)-1)]
		case ',':
			if n := len(list); n > 0 {
				list[n-1].commas = append(list[n-1].commas, i)
			}
		case '\n':
			if strings.HasPrefix(text[i+1:], "def ") {
				list = nil
			}
		}
	}
	return list, false
}

// textEnd returns where the string that begins with the quote at i ends; beyond the text if it does not end.
func textEnd(text string, i int) int {
	quote := text[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(text[i:], triple) {
		quote = triple
	}
	for i += len(quote); i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote)
		case text[i] == '\n' && len(quote) == 1:
			return i
		case text[i] == '\\':
			i++
		}
	}
	return len(text) + 1
}

// call finds the innermost call around a position; nil if there is none, or if the callee has no name.
func (d *document) call(p Position) *call {
	if p.Line < 0 || p.Line >= len(d.lines) {
		return nil
	}
	here, _ := d.around(p)
	text := strings.Join(append(slices.Clone(d.lines[:p.Line]), here), "\n")
	list, _ := unclosed(text)
	if len(list) == 0 {
		return nil
	}
	last := list[len(list)-1]
	head := text[:last.at]
	callee := head[len(strings.TrimRightFunc(head, func(r rune) bool { return isName(r) || r == '.' })):]
	if before := strings.TrimRight(strings.TrimSuffix(head, callee), " \t"); text[last.at] != '(' || callee == "" || strings.HasSuffix(before, "def") {
		return nil
	}
	begin := last.at + 1
	if n := len(last.commas); n > 0 {
		begin = last.commas[n-1] + 1
	}
	line := strings.Count(head, "\n")
	end := head[strings.LastIndexByte(head, '\n')+1:]
	return &call{callee, Position{line, units(end)}, len(last.commas), text[begin:]}
}

func units(s string) int { return len(utf16.Encode([]rune(s))) }

// parameters returns the parts between a signature's brackets, and where in it each begins.
func parameters(signature string) (list []string, at []int) {
	for i := range len(signature) {
		if c := signature[i]; c == ',' || c == ')' {
			around, _ := unclosed(signature[:i])
			if len(around) != 1 {
				continue
			}
			begin := around[0].at + 1
			if n := len(around[0].commas); n > 0 {
				begin = around[0].commas[n-1] + 1
			}
			param := strings.TrimSpace(signature[begin:i])
			if param != "" {
				list, at = append(list, param), append(at, begin+strings.Index(signature[begin:], param))
			}
			if c == ')' {
				break
			}
		}
	}
	return list, at
}

var leading = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\**([\pL_][\pL\pN_]*)`) })

// parameterName returns the name in a part of a signature, "" for a star alone.
func parameterName(param string) string {
	if m := leading().FindStringSubmatch(param); m != nil {
		return m[1]
	}
	return ""
}

// signature returns the signature of a name and its documentation, for a function of the recipe or a builtin; "" if
// there is none.
func (s *Server) signature(d *document, c *call) (signature, doc string) {
	if def, _ := s.find(d, Position{c.at.Line, c.at.Character - 1}); def != nil {
		if def.def == nil {
			return "", ""
		}
		lines := strings.Split(def.text, "\n")
		return headOf(def.name, strings.Join(lines[def.def.Def.Line-1:], "\n")), def.doc
	}
	if !strings.Contains(c.callee, ".") { // search the text, since the document may not parse
		if at := regexp.MustCompile(`(?m)^[ \t]*def[ \t]+` + regexp.QuoteMeta(c.callee) + `[ \t]*\(`).FindStringIndex(d.text); at != nil {
			return headOf(c.callee, d.text[at[0]:]), ""
		}
	}
	if e := s.entry(d, c.at, c.callee); e != nil && strings.Contains(e.Signature, "(") {
		return e.Declaration(), e.Doc
	}
	return "", ""
}

const maxHead = 4 << 10 // bytes of a def's signature

// headOf returns the signature of the function that a text begins with, on one line.
func headOf(name, text string) string {
	list, _ := parameters(text[:min(len(text), maxHead)])
	return strings.Join(strings.Fields(name+"("+strings.Join(list, ", ")+")"), " ")
}

var named = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*([\pL_][\pL\pN_]*)\s*=(?:[^=]|$)`) })

// active returns the parameter that the argument at the position is for, len(list) if there is none.
func (c *call) active(list []string) int {
	if m := named().FindStringSubmatch(c.argument); m != nil {
		for i, param := range list {
			if parameterName(param) == m[1] && !strings.HasPrefix(param, "*") {
				return i
			}
		}
		if last := len(list) - 1; last >= 0 && strings.HasPrefix(list[last], "**") {
			return last
		}
		return len(list)
	}
	for i, param := range list {
		switch {
		case param == "*" || strings.HasPrefix(param, "**"):
			return len(list)
		case i == c.earlier || strings.HasPrefix(param, "*"):
			return i
		}
	}
	return len(list)
}

// signatureHelp shows the signature of the call at a position, and which parameter is being typed.
func (s *Server) signatureHelp(d *document, p Position) (any, error) {
	c := d.call(p)
	if c == nil {
		return nil, nil
	}
	label, doc := s.signature(d, c)
	if label == "" {
		return nil, nil
	}
	list, at := parameters(label)
	labels := []map[string]any{}
	for i, param := range list {
		begin := units(label[:at[i]])
		labels = append(labels, map[string]any{"label": [2]int{begin, begin + units(param)}})
	}
	return map[string]any{"activeSignature": 0, "activeParameter": c.active(list), "signatures": []any{map[string]any{
		"label": label, "documentation": map[string]string{"kind": "markdown", "value": doc}, "parameters": labels,
	}}}, nil
}
