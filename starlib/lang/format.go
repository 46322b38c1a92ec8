package lang

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// maxWidth bounds widths and precisions: "%999999999d" must not exhaust memory.
const maxWidth = 10_000

// format is x % y in a recipe. Strings format as in Python, but a conversion
// without flags, width or precision prints as Starlark's does: "%g" % 1.0 is
// 1.0, and "%.3g" % 1.0 is 1.
func format(x, y starlark.Value) (starlark.Value, error) {
	s, ok := x.(starlark.String)
	if !ok {
		return starlark.Binary(syntax.PERCENT, x, y)
	}
	if err := CheckDepth(y); err != nil {
		return nil, err
	}
	f := formatter{operand: y, args: starlark.Tuple{y}}
	if tuple, ok := y.(starlark.Tuple); ok {
		f.args = tuple
	}
	var out strings.Builder
	before, rest, more := strings.Cut(string(s), "%")
	for out.WriteString(before); more; out.WriteString(before) {
		parts := specification().FindStringSubmatch(rest)
		text, err := f.convert(parts)
		if err != nil {
			return nil, err
		}
		out.WriteString(text)
		before, rest, more = strings.Cut(rest[len(parts[0]):], "%")
	}
	if _, dict := y.(starlark.Mapping); f.used < len(f.args) && !dict {
		return nil, fmt.Errorf("too many arguments for format string: it takes %d of %d", f.used, len(f.args))
	}
	return starlark.String(out.String()), nil
}

// specification matches what follows the %: (name), flags, width, precision, letter. Length modifiers mean nothing, as in Python.
var specification = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)^(\([^)]*\))?([-+ 0#]*)(\*|[0-9]*)(\.(?:\*|[0-9]*))?[hlL]*(.?)`)
})

type formatter struct {
	operand starlark.Value // the whole right operand
	args    starlark.Tuple // the positional ones, and how many are used
	used    int
}

// A conversion is one %-specification.
type conversion struct {
	flags       string // of "-+ 0#"
	width, prec int    // prec < 0: none
	verb        string
}

func (c conversion) has(flag string) bool { return strings.Contains(c.flags, flag) }

func (f *formatter) convert(parts []string) (string, error) {
	var arg starlark.Value
	if name := parts[1]; name != "" {
		var err error
		if arg, err = f.lookup(name[1 : len(name)-1]); err != nil {
			return "", err
		}
	}
	c := conversion{flags: parts[2], prec: -1, verb: parts[5]}
	var err error
	if c.width, err = f.number(parts[3]); err != nil {
		return "", err
	}
	if c.width < 0 { // from a *
		c.flags, c.width = c.flags+"-", -c.width
	}
	if parts[4] != "" {
		if c.prec, err = f.number(parts[4][1:]); err != nil {
			return "", err
		}
		c.prec = max(c.prec, 0)
	}
	switch {
	case c.verb == "":
		return "", errors.New("incomplete format: a conversion ends without its letter")
	case c.verb == "(":
		return "", errors.New("incomplete format key: a %( without its )")
	case c.verb == "%":
		return "%", nil
	case !strings.Contains("diouxXeEfFgGcrs", c.verb):
		return "", fmt.Errorf("unknown conversion %%%s", c.verb)
	case c.verb == "i" || c.verb == "u":
		c.verb = "d"
	}
	if arg == nil {
		if arg, err = f.next(); err != nil {
			return "", err
		}
	}
	return c.text(arg)
}

func (f *formatter) next() (starlark.Value, error) {
	if f.used == len(f.args) {
		return nil, fmt.Errorf("not enough arguments for format string: it has %d", len(f.args))
	}
	f.used++
	return f.args[f.used-1], nil
}

// lookup returns the value for a conversion with a name.
func (f *formatter) lookup(key string) (starlark.Value, error) {
	dict, ok := f.operand.(starlark.Mapping)
	if !ok {
		return nil, fmt.Errorf("format requires a mapping for %%(%s), not %s", key, f.operand.Type())
	}
	v, found, err := dict.Get(starlark.String(key))
	if err == nil && !found {
		err = fmt.Errorf("key not found: %s", key)
	}
	return v, err
}

// number reads a width or precision, which * takes from the operands.
func (f *formatter) number(text string) (n int, err error) {
	if text == "*" {
		arg, err := f.next()
		if err != nil {
			return 0, err
		}
		if n, err = starlark.AsInt32(arg); err != nil {
			return 0, fmt.Errorf("* wants an int: %w", err)
		}
	} else if text != "" {
		n, err = strconv.Atoi(text)
	}
	if err != nil || n > maxWidth || n < -maxWidth {
		return 0, fmt.Errorf("a width or precision above %d", maxWidth)
	}
	return n, nil
}

func (c conversion) bare() bool {
	return c == conversion{verb: c.verb, prec: -1}
}

func (c conversion) text(arg starlark.Value) (string, error) {
	switch c.verb {
	case "d", "o", "x", "X":
		return c.integer(arg)
	case "e", "E", "f", "F", "g", "G":
		if !c.bare() {
			return c.float(arg)
		}
	}
	s, err := starlark.Binary(syntax.PERCENT, starlark.String("%"+c.verb), starlark.Tuple{arg})
	if err != nil {
		return "", err
	}
	text := string(s.(starlark.String))
	if c.prec >= 0 && c.verb != "c" && utf8.RuneCountInString(text) > c.prec {
		text = string([]rune(text)[:c.prec])
	}
	return c.pad("", text, false), nil
}

func (c conversion) integer(arg starlark.Value) (string, error) {
	i, err := starlark.NumberToInt(arg)
	if err != nil {
		return "", fmt.Errorf("%%%s format requires integer: %w", c.verb, err)
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
	return c.pad(sign, digits, true), nil
}

func (c conversion) float(arg starlark.Value) (string, error) {
	x, ok := starlark.AsFloat(arg)
	if !ok {
		return "", fmt.Errorf("%%%s format requires float, not %s", c.verb, arg.Type())
	}
	if math.IsInf(x, 0) || math.IsNaN(x) {
		text := strings.ToLower(strconv.FormatFloat(math.Abs(x), 'f', -1, 64))
		if c.verb == strings.ToUpper(c.verb) {
			text = strings.ToUpper(text)
		}
		return c.pad(c.sign(x < 0), strings.TrimPrefix(text, "+"), false), nil
	}
	prec := c.prec
	if prec < 0 {
		prec = 6
	}
	return fmt.Sprintf("%"+c.flags+"*.*"+c.verb, c.width, prec, x), nil
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

// pad fills to the width, with zeros between sign and digits if asked to.
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
