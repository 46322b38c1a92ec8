package lang

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/try"
)

// maxWidth bounds widths and precisions: "%999999999d" must not exhaust memory.
const maxWidth = 10_000

// format evaluates x % y in a recipe. Strings format as in Python, but a conversion without flags, width or precision
// prints as Starlark's does: "%g" % 1.0 is 1.0, and "%.3g" % 1.0 is 1.
func format(x, y starlark.Value) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	s, ok := x.(starlark.String)
	if !ok {
		return starlark.Binary(syntax.PERCENT, x, y)
	}
	try.Ok(CheckDepth(y))
	f := formatter{operand: y, args: starlark.Tuple{y}}
	if tuple, ok := y.(starlark.Tuple); ok {
		f.args = tuple
	}
	var out strings.Builder
	before, rest, more := strings.Cut(string(s), "%")
	for out.WriteString(before); more; out.WriteString(before) {
		parts := specification().FindStringSubmatch(rest)
		out.WriteString(f.convert(parts))
		before, rest, more = strings.Cut(rest[len(parts[0]):], "%")
	}
	if _, dict := y.(starlark.Mapping); f.used < len(f.args) && !dict {
		return nil, fmt.Errorf("too many arguments for format string: it takes %d of %d", f.used, len(f.args))
	}
	return starlark.String(out.String()), nil
}

// specification matches what follows the %: (name), flags, width, precision, letter. Length modifiers are ignored, as in Python.
var specification = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)^(\([^)]*\))?([-+ 0#]*)(\*|[0-9]*)(\.(?:\*|[0-9]*))?[hlL]*(.?)`)
})

// A formatter formats one string; a failed try ends format with its error.
type formatter struct {
	operand starlark.Value // the whole right operand
	args    starlark.Tuple // the positional operands; used counts those taken
	used    int
}

// A conversion is one %-specification.
type conversion struct {
	flags       string // of "-+ 0#"
	width, prec int    // prec < 0: none
	verb        string
}

func (c conversion) has(flag string) bool { return strings.Contains(c.flags, flag) }

func (f *formatter) convert(parts []string) string {
	var arg starlark.Value
	if name := parts[1]; name != "" {
		arg = f.lookup(name[1 : len(name)-1])
	}
	c := conversion{flags: parts[2], width: f.number(parts[3]), prec: -1, verb: parts[5]}
	if c.width < 0 { // given by a *
		c.flags, c.width = c.flags+"-", -c.width
	}
	if parts[4] != "" {
		c.prec = max(f.number(parts[4][1:]), 0)
	}
	switch {
	case c.verb == "":
		try.Fail("incomplete format: a conversion has no letter")
	case c.verb == "(":
		try.Fail("incomplete format key: a %%( without a )")
	case c.verb == "%":
		return "%"
	case !strings.Contains("diouxXeEfFgGcrs", c.verb):
		try.Fail("unknown conversion %%%s", c.verb)
	case c.verb == "i" || c.verb == "u":
		c.verb = "d"
	}
	if arg == nil {
		arg = f.next()
	}
	return c.text(arg)
}

func (f *formatter) next() starlark.Value {
	if f.used == len(f.args) {
		try.Fail("not enough arguments for format string: it has %d", len(f.args))
	}
	f.used++
	return f.args[f.used-1]
}

// lookup returns the value for a conversion with a name.
func (f *formatter) lookup(key string) starlark.Value {
	dict, ok := f.operand.(starlark.Mapping)
	if !ok {
		try.Fail("format requires a mapping for %%(%s), not %s", key, f.operand.Type())
	}
	v, found := try.To2(dict.Get(starlark.String(key)))
	if !found {
		try.Fail("key not found: %s", key)
	}
	return v
}

// number reads a width or precision; * takes it from the operands.
func (f *formatter) number(text string) (n int) {
	var err error
	if text == "*" {
		if n, err = starlark.AsInt32(f.next()); err != nil {
			try.Fail("* wants an int: %w", err)
		}
	} else if text != "" {
		n, err = strconv.Atoi(text)
	}
	if err != nil || n > maxWidth || n < -maxWidth {
		try.Fail("a width or precision above %d", maxWidth)
	}
	return n
}

func (c conversion) bare() bool {
	return c == conversion{verb: c.verb, prec: -1}
}

func (c conversion) text(arg starlark.Value) string {
	if t, ok := arg.(scalar); ok && !strings.Contains("crs", c.verb) {
		arg = try.To(t.Item())
	}
	switch c.verb {
	case "d", "o", "x", "X":
		return c.integer(arg)
	case "e", "E", "f", "F", "g", "G":
		if !c.bare() {
			return c.float(arg)
		}
	}
	text := string(try.To(starlark.Binary(syntax.PERCENT, starlark.String("%"+c.verb), starlark.Tuple{arg})).(starlark.String))
	if c.prec >= 0 && c.verb != "c" && utf8.RuneCountInString(text) > c.prec {
		text = string([]rune(text)[:c.prec])
	}
	return c.pad("", text, false)
}

func (c conversion) integer(arg starlark.Value) string {
	i, err := starlark.NumberToInt(arg)
	if err != nil {
		try.Fail("%%%s format requires integer: %w", c.verb, err)
	}
	base, prefix := 10, ""
	switch c.verb {
	case "o":
		base, prefix = 8, "0o"
	case "x", "X":
		base, prefix = 16, "0"+c.verb
	}
	digits := i.BigInt().Text(base)
	if c.verb == "X" {
		digits = strings.ToUpper(digits)
	}
	digits, negative := strings.CutPrefix(digits, "-")
	if n := c.prec - len(digits); n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	sign := c.sign(negative)
	if c.has("#") && base != 10 {
		sign += prefix
	}
	return c.pad(sign, digits, true)
}

func (c conversion) float(arg starlark.Value) string {
	x, ok := starlark.AsFloat(arg)
	if !ok {
		try.Fail("%%%s format requires float, not %s", c.verb, arg.Type())
	}
	if math.IsInf(x, 0) || math.IsNaN(x) {
		text := strings.ToLower(strconv.FormatFloat(math.Abs(x), 'f', -1, 64))
		if c.verb == strings.ToUpper(c.verb) {
			text = strings.ToUpper(text)
		}
		return c.pad(c.sign(x < 0), strings.TrimPrefix(text, "+"), false)
	}
	prec := c.prec
	if prec < 0 {
		prec = 6
	}
	return fmt.Sprintf("%"+c.flags+"*.*"+c.verb, c.width, prec, x)
}

func (c conversion) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case c.has("+"):
		return "+"
	case c.has(" "):
		return " "
	}
	return ""
}

// pad pads to the width, with zeros between sign and digits if the flags say so.
func (c conversion) pad(sign, text string, number bool) string {
	n := c.width - len(sign) - utf8.RuneCountInString(text)
	switch {
	case n <= 0:
		return sign + text
	case c.has("-"):
		return sign + text + strings.Repeat(" ", n)
	case c.has("0") && number:
		return sign + strings.Repeat("0", n) + text
	}
	return strings.Repeat(" ", n) + sign + text
}
