package lang

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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
	if plainFormat(string(s)) {
		return starlark.Binary(syntax.PERCENT, x, y)
	}
	f := formatter{rest: string(s), args: starlark.Tuple{y}, operand: y}
	if tuple, ok := y.(starlark.Tuple); ok {
		f.args = tuple
	}
	return f.run()
}

// plainFormat reports whether Starlark's own % does all that s asks for.
func plainFormat(s string) bool {
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 || i+1 == len(s) {
			return true
		}
		s = s[i+1:]
		if s[0] == '(' {
			j := strings.IndexByte(s, ')')
			if j < 0 || j+1 == len(s) {
				return true
			}
			s = s[j+1:]
		}
		if strings.IndexByte("-+ #0123456789.*hlLu", s[0]) >= 0 {
			return false
		}
		s = s[1:]
	}
}

// A conversion is one %-specification.
type conversion struct {
	flags       string // of "-+ 0#"
	width, prec int    // prec < 0: none
	verb        byte
}

func (c conversion) has(flag string) bool { return strings.Contains(c.flags, flag) }

type formatter struct {
	out     strings.Builder
	rest    string
	args    starlark.Tuple // the positional operands, and how many are used
	used    int
	operand starlark.Value // the whole right operand
	named   bool           // a %(name) has been seen
}

func (f *formatter) run() (starlark.Value, error) {
	for {
		i := strings.IndexByte(f.rest, '%')
		if i < 0 {
			f.out.WriteString(f.rest)
			break
		}
		f.out.WriteString(f.rest[:i])
		f.rest = f.rest[i+1:]
		if err := f.convert(); err != nil {
			return nil, err
		}
	}
	if _, dict := f.operand.(starlark.Mapping); f.used < len(f.args) && !f.named && !dict {
		return nil, fmt.Errorf("too many arguments for format string: it takes %d of %d", f.used, len(f.args))
	}
	return starlark.String(f.out.String()), nil
}

func (f *formatter) convert() error {
	var arg starlark.Value
	if strings.HasPrefix(f.rest, "(") {
		var err error
		if arg, err = f.lookup(); err != nil {
			return err
		}
	}
	c, err := f.parse()
	if err != nil {
		return err
	}
	if c.verb == '%' {
		f.out.WriteByte('%')
		return nil
	}
	if arg == nil {
		if arg, err = f.next(); err != nil {
			return err
		}
	}
	text, err := c.text(arg)
	if err != nil {
		return err
	}
	f.out.WriteString(text)
	return nil
}

func (f *formatter) next() (starlark.Value, error) {
	if f.used == len(f.args) {
		return nil, fmt.Errorf("not enough arguments for format string: it has %d", len(f.args))
	}
	f.used++
	return f.args[f.used-1], nil
}

// lookup reads the "(name)" of a conversion and returns its value.
func (f *formatter) lookup() (starlark.Value, error) {
	end := strings.IndexByte(f.rest, ')')
	if end < 0 {
		return nil, fmt.Errorf("incomplete format key: a %%( without its )")
	}
	key := f.rest[1:end]
	f.rest = f.rest[end+1:]
	f.named = true
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

// parse reads flags, width, precision and verb.
func (f *formatter) parse() (c conversion, err error) {
	c.prec = -1
	rest := strings.TrimLeft(f.rest, "-+ 0#")
	c.flags, f.rest = f.rest[:len(f.rest)-len(rest)], rest
	if c.width, err = f.number(); err != nil {
		return c, err
	}
	if c.width < 0 { // from a *
		c.flags, c.width = c.flags+"-", -c.width
	}
	if strings.HasPrefix(f.rest, ".") {
		f.rest = f.rest[1:]
		if c.prec, err = f.number(); err != nil {
			return c, err
		}
		c.prec = max(c.prec, 0)
	}
	f.rest = strings.TrimLeft(f.rest, "hlL") // length modifiers mean nothing, as in Python
	if f.rest == "" {
		return c, fmt.Errorf("incomplete format: a conversion ends without its letter")
	}
	r, size := utf8.DecodeRuneInString(f.rest)
	if !strings.ContainsRune("diouxXeEfFgGcrs%", r) {
		return c, fmt.Errorf("unknown conversion %%%c", r)
	}
	c.verb, f.rest = f.rest[0], f.rest[size:]
	if c.verb == 'i' || c.verb == 'u' {
		c.verb = 'd'
	}
	return c, nil
}

// number reads digits, or the * that takes the number from the operands.
func (f *formatter) number() (int, error) {
	n := 0
	if strings.HasPrefix(f.rest, "*") {
		f.rest = f.rest[1:]
		arg, err := f.next()
		if err != nil {
			return 0, err
		}
		if n, err = starlark.AsInt32(arg); err != nil {
			return 0, fmt.Errorf("* wants an int: %w", err)
		}
	}
	for f.rest != "" && '0' <= f.rest[0] && f.rest[0] <= '9' && n <= maxWidth {
		n = n*10 + int(f.rest[0]-'0')
		f.rest = f.rest[1:]
	}
	if n > maxWidth || n < -maxWidth {
		return 0, fmt.Errorf("a width or precision above %d", maxWidth)
	}
	return n, nil
}

func (c conversion) bare() bool {
	return c == conversion{verb: c.verb, prec: -1}
}

func (c conversion) text(arg starlark.Value) (string, error) {
	switch c.verb {
	case 'd', 'o', 'x', 'X':
		return c.integer(arg)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if !c.bare() {
			return c.float(arg)
		}
	}
	s, err := starlark.Binary(syntax.PERCENT, starlark.String("%"+string(c.verb)), starlark.Tuple{arg})
	if err != nil {
		return "", err
	}
	text := string(s.(starlark.String))
	if c.prec >= 0 && c.verb != 'c' && utf8.RuneCountInString(text) > c.prec {
		text = string([]rune(text)[:c.prec])
	}
	return c.pad("", text, false), nil
}

func (c conversion) integer(arg starlark.Value) (string, error) {
	i, err := starlark.NumberToInt(arg)
	if err != nil {
		return "", fmt.Errorf("%%%c format requires integer: %w", c.verb, err)
	}
	base, prefix := 10, ""
	switch c.verb {
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0"+string(c.verb)
	}
	digits := i.BigInt().Text(base)
	if c.verb == 'X' {
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
		return "", fmt.Errorf("%%%c format requires float, not %s", c.verb, arg.Type())
	}
	if math.IsInf(x, 0) || math.IsNaN(x) {
		text := strings.ToLower(strconv.FormatFloat(math.Abs(x), 'f', -1, 64))
		if 'A' <= c.verb && c.verb <= 'Z' {
			text = strings.ToUpper(text)
		}
		return c.pad(c.sign(x < 0), strings.TrimPrefix(text, "+"), false), nil
	}
	prec := c.prec
	if prec < 0 {
		prec = 6
	}
	return fmt.Sprintf("%"+c.flags+"*.*"+string(c.verb), c.width, prec, x), nil
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
