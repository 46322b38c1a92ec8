package lang

import (
	"fmt"
	"math/bits"
	"reflect"
	"strings"
	"unicode"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// A limit is how many bytes one plain value may take, 0 for any number. Go cannot
// recover from memory that it does not get, so what one step would allocate is
// refused before it does; the watch over the memory bounds what many steps hold together.
type limit int

// valueLimit is that of a recipe whose plain values may take heap bytes together:
// where one is made of another, both exist for a moment.
func valueLimit(heap int) limit { return limit(heap / 2) }

// What values take at least, in bytes: an element of a list or tuple, an entry of
// a dict or set, a part of a string that was split.
const (
	elementBytes = 16
	entryBytes   = 64
	partBytes    = 48

	// Products, and digits as text, of integers longer than this take seconds and
	// hours, in which nothing can interrupt them.
	maxIntBits   = 1 << 22
	maxIntDigits = 1_200_000
)

// refuse returns an error where n parts of so many bytes each are too much; it begins
// with what, which ends in "take".
func (l limit) refuse(n, each int, what string) error {
	high, low := bits.Mul64(uint64(max(n, 0)), uint64(each))
	if l <= 0 || high == 0 && low <= uint64(l) {
		return nil
	}
	size := "more bytes than can be counted"
	if high == 0 {
		size = megabytes(low)
	}
	return fmt.Errorf("%s %s, and one value may take %s", what, size, megabytes(uint64(l)))
}

func megabytes(n uint64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%d kB", n>>10)
	}
	return fmt.Sprintf("%d MB", n>>20)
}

// operand checks the right side of a + or +=, and what a * unpacks in a call. The
// left side is checked when it is on the right side, or grows too slowly to matter.
func (l limit) operand(v starlark.Value) error {
	switch v := v.(type) {
	case starlark.Int, starlark.Float:
		return nil
	case starlark.String:
		return l.refuse(len(v), 1, "a sum with this string takes more than")
	case starlark.Bytes:
		return l.refuse(len(v), 1, "a sum with these bytes takes more than")
	case *starlark.List:
		return l.refuse(v.Len(), elementBytes, "a sum with this list takes more than")
	case starlark.Tuple:
		return l.refuse(len(v), elementBytes, "a sum with this tuple takes more than")
	}
	if reflect.TypeOf(v) == rangeType {
		return l.refuse(starlark.Len(v), elementBytes, fmt.Sprintf("the %d numbers of a range take", starlark.Len(v)))
	}
	return nil
}

// rangeType has no name outside Starlark. Asking a value for the name of its type costs
// more than the rest of a sum of small tensors allows.
var rangeType = func() reflect.Type {
	empty, err := starlark.Call(new(starlark.Thread), starlark.Universe["range"], starlark.Tuple{starlark.MakeInt(0)}, nil)
	if err != nil {
		panic(err) // range(0) is right
	}
	return reflect.TypeOf(empty)
}()

// multiply is x * y.
func (l limit) multiply(x, y starlark.Value) (starlark.Value, error) {
	count, counted := y.(starlark.Int)
	sequence := x
	if !counted {
		if count, counted = x.(starlark.Int); counted {
			sequence = y
		}
	}
	if counted {
		if err := l.repeat(sequence, count); err != nil {
			return nil, err
		}
	}
	return starlark.Binary(syntax.STAR, x, y)
}

func (l limit) repeat(v starlark.Value, count starlark.Int) error {
	var n, each int
	switch v := v.(type) {
	case starlark.Int:
		a, small := v.Int64()
		b, smallToo := count.Int64()
		if small && smallToo || a == 0 && small || b == 0 && smallToo {
			return nil
		}
		if n := v.BigInt().BitLen() + count.BigInt().BitLen(); n > maxIntBits {
			return fmt.Errorf("a product of %d bits: integers here have at most %d", n, maxIntBits)
		}
		return nil
	case starlark.String:
		n, each = len(v), 1
	case starlark.Bytes:
		n, each = len(v), 1
	case *starlark.List:
		n, each = v.Len(), elementBytes
	case starlark.Tuple:
		n, each = len(v), elementBytes
	default:
		return nil
	}
	if times, ok := count.Int64(); ok && times > 0 && n > 0 {
		return l.refuse(int(times), n*each, fmt.Sprintf("a %s of %d repeated %d times takes", v.Type(), n, times))
	}
	return nil // Starlark's own error, or nothing at all
}

// collectors are the builtins that go through iterables, with what they make of an
// element; zip's depends on its arguments.
var collectors = map[string]int{
	"list": elementBytes, "tuple": elementBytes, "sorted": elementBytes, "reversed": elementBytes,
	"enumerate": 4 * elementBytes, "zip": elementBytes, "set": entryBytes, "dict": entryBytes, "bytes": 1,
	"max": 0, "min": 0, "sum": 0, "all": 0, "any": 0,
}

// collectingMethods are methods that do, by the receiver's type.
var collectingMethods = map[string]map[string]int{
	"list": {"extend": elementBytes},
	"dict": {"update": entryBytes},
	"set": {"update": entryBytes, "union": entryBytes, "symmetric_difference": entryBytes,
		"difference": 0, "intersection": 0, "issubset": 0, "issuperset": 0},
}

// collects gives a builtin that refuses iterables of more elements than it may
// make values of, and that can be cancelled while it goes through them.
func (l limit) collects(b *starlark.Builtin, each int) *starlark.Builtin {
	return wrap(b, func(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		name, each := b.Name(), each
		if (name == "max" || name == "min") && len(args) != 1 {
			return b.CallInternal(thread, args, kwargs)
		}
		if name == "zip" {
			each = elementBytes * (len(args) + 2)
		}
		g := &guard{limit: l, thread: thread, each: each}
		least := -1
		for _, arg := range args {
			if n := starlark.Len(arg); n >= 0 && (least < 0 || n < least) {
				least = n
			}
		}
		if err := l.refuse(least, each, fmt.Sprintf("%d elements take at least", least)); err != nil && iterates(args) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		v, err := b.CallInternal(thread, g.all(args), g.named(kwargs))
		if g.err != nil {
			return nil, fmt.Errorf("%s: %w", name, g.err)
		}
		return v, err
	})
}

// iterates reports whether the first argument is iterable; where it is not, the
// builtin's own error says more.
func iterates(args starlark.Tuple) bool {
	_, ok := args[0].(starlark.Iterable)
	return ok
}

// wrap gives a builtin with the name and receiver of b.
func wrap(b *starlark.Builtin, fn func(*starlark.Thread, starlark.Tuple, []starlark.Tuple) (starlark.Value, error)) *starlark.Builtin {
	w := starlark.NewBuiltin(b.Name(), func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		return fn(thread, args, kwargs)
	})
	if recv := b.Receiver(); recv != nil {
		return w.BindReceiver(recv)
	}
	return w
}

// checked gives a builtin that is not called where check finds an error.
func checked(b *starlark.Builtin, check func(args starlark.Tuple, kwargs []starlark.Tuple) error) *starlark.Builtin {
	return wrap(b, func(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if err := check(args, kwargs); err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name(), err)
		}
		return b.CallInternal(thread, args, kwargs)
	})
}

// A guard goes through iterables on behalf of a builtin.
type guard struct {
	limit
	thread *starlark.Thread
	each   int
	err    error // of an iterable without a length that did not end in time
}

func (g *guard) all(args starlark.Tuple) starlark.Tuple {
	out := make(starlark.Tuple, len(args))
	for i, arg := range args {
		out[i] = g.value(arg)
	}
	return out
}

func (g *guard) named(kwargs []starlark.Tuple) []starlark.Tuple {
	var out []starlark.Tuple
	for _, kv := range kwargs {
		if string(kv[0].(starlark.String)) == "iterable" {
			kv = starlark.Tuple{kv[0], g.value(kv[1])}
			if n := starlark.Len(kv[1]); g.err == nil {
				g.err = g.refuse(n, g.each, fmt.Sprintf("%d elements take at least", n))
			}
			if g.err != nil {
				kv[1] = starlark.Tuple{}
			}
		}
		out = append(out, kv)
	}
	return out
}

// value is v, or a stand-in for what takes long or for ever to go through.
func (g *guard) value(v starlark.Value) starlark.Value {
	const short = 100_000
	switch v.(type) {
	case *starlark.List, starlark.Tuple, starlark.IterableMapping, *starlark.Set, starlark.String, starlark.Bytes:
		return v
	}
	items, ok := v.(starlark.Iterable)
	switch n := starlark.Len(v); {
	case !ok, 0 <= n && n < short:
		return v
	case n < 0:
		return guarded{items, g}
	default:
		return guardedSequence{guarded{items, g}, n}
	}
}

type guarded struct {
	starlark.Iterable
	*guard
}

type guardedSequence struct {
	guarded
	n int
}

func (s guardedSequence) Len() int { return s.n }

func (i guarded) Iterate() starlark.Iterator {
	return &guardedIterator{Iterator: i.Iterable.Iterate(), guard: i.guard}
}

type guardedIterator struct {
	starlark.Iterator
	*guard
	n int
}

func (it *guardedIterator) Next(p *starlark.Value) bool {
	const often = 1024
	if it.n++; it.n%often == 0 {
		if err := Cancelled(it.thread); err != nil {
			it.thread.Cancel(err.Error()) // Cancel may be about to: the thread must end before it sees what was made of a part
			return false
		}
		if err := it.refuse(it.n, it.each, fmt.Sprintf("more than %d elements take at least", it.n)); err != nil {
			it.err = err
			return false
		}
	}
	return it.Iterator.Next(p)
}

// method gives a method of a string, list, dict or set that is refused what would
// take too much memory; any other value as it is.
func (l limit) method(v starlark.Value) starlark.Value {
	b, ok := v.(*starlark.Builtin)
	if !ok || l <= 0 {
		return v
	}
	switch recv := b.Receiver().(type) {
	case starlark.String:
		if size := stringMethods[b.Name()]; size != nil {
			return checked(b, func(args starlark.Tuple, kwargs []starlark.Tuple) error {
				return l.refuse(size(string(recv), args, kwargs), 1, "the result takes up to")
			})
		}
	case *starlark.List, *starlark.Dict, *starlark.Set:
		if each, ok := collectingMethods[recv.Type()][b.Name()]; ok {
			return l.collects(b, each)
		}
	}
	return v
}

// bounded are the names of methods that limit.method knows.
var bounded = func() map[string]bool {
	names := map[string]bool{}
	for name := range stringMethods {
		names[name] = true
	}
	for _, methods := range collectingMethods {
		for name := range methods {
			names[name] = true
		}
	}
	return names
}()

// stringMethods gives what strings' methods would make, in bytes; 0 where the
// arguments are wrong, which the method itself says.
var stringMethods = map[string]func(s string, args starlark.Tuple, kwargs []starlark.Tuple) int{
	"replace": replaced,
	"join":    joined,
	"format":  formatted,
	"split":   func(s string, args starlark.Tuple, _ []starlark.Tuple) int { return parted(s, args) },
	"rsplit":  func(s string, args starlark.Tuple, _ []starlark.Tuple) int { return parted(s, args) },
	"splitlines": func(s string, _ starlark.Tuple, _ []starlark.Tuple) int {
		return partBytes * (1 + strings.Count(s, "\n"))
	},
}

func text(args starlark.Tuple, i int) (string, bool) {
	if i >= len(args) {
		return "", false
	}
	return starlark.AsString(args[i])
}

func replaced(s string, args starlark.Tuple, _ []starlark.Tuple) int {
	old, ok := text(args, 0)
	by, okToo := text(args, 1)
	if !ok || !okToo || len(by) <= len(old) {
		return 0
	}
	return product(atMost(strings.Count(s, old), args, 2), len(by)-len(old)) + len(s)
}

func joined(s string, args starlark.Tuple, _ []starlark.Tuple) int {
	if len(args) != 1 || starlark.Len(args[0]) < 0 {
		return 0
	}
	n := product(starlark.Len(args[0]), len(s))
	if args[0].Type() == "range" {
		return 0
	}
	if items := starlark.Iterate(args[0]); items != nil {
		defer items.Done()
		for x := starlark.Value(nil); items.Next(&x); {
			part, ok := starlark.AsString(x)
			if !ok {
				return 0
			}
			n = total(n, len(part))
		}
	}
	return n
}

// formatted is the most that can come of it: every field as long as the longest value.
func formatted(s string, args starlark.Tuple, kwargs []starlark.Tuple) int {
	longest := 0
	for _, arg := range args {
		longest = max(longest, printedSize(arg))
	}
	for _, kv := range kwargs {
		longest = max(longest, printedSize(kv[1]))
	}
	return total(len(s), product(strings.Count(s, "{"), longest))
}

func parted(s string, args starlark.Tuple) int {
	n := 0
	if sep, ok := text(args, 0); ok && sep != "" {
		n = strings.Count(s, sep)
	} else {
		space := true
		for _, r := range s {
			was := space
			if space = unicode.IsSpace(r); was && !space {
				n++
			}
		}
	}
	return partBytes * (atMost(n, args, 1) + 1)
}

// atMost is n, or the i-th argument where that is less.
func atMost(n int, args starlark.Tuple, i int) int {
	if i < len(args) {
		if most, err := starlark.AsInt32(args[i]); err == nil && most >= 0 {
			return min(n, most)
		}
	}
	return n
}

// product and total stop at the largest int.
func product(a, b int) int {
	if high, low := bits.Mul64(uint64(a), uint64(b)); high == 0 && low <= 1<<62 {
		return int(low)
	}
	return 1 << 62
}

func total(a, b int) int { return min(a+min(b, 1<<61), 1<<62) }

// prints gives a builtin that refuses arguments that are nested too deep, or of
// which it would make too long a text: a list that holds another twice, which holds
// a third twice, is small, and long when it is printed.
func (l limit) prints(b *starlark.Builtin) *starlark.Builtin {
	return checked(b, func(args starlark.Tuple, kwargs []starlark.Tuple) error {
		size, sep := 0, 1
		for _, kv := range kwargs {
			args = append(args[:len(args):len(args)], kv[1])
			if s, ok := starlark.AsString(kv[1]); ok {
				sep = max(sep, len(s))
			}
		}
		for _, arg := range args {
			if err := CheckDepth(arg); err != nil {
				return err
			}
			size = total(size, printedSize(arg))
		}
		return l.refuse(total(size, product(len(args), sep)), 1, "the text takes up to")
	})
}

// printedSize is how many bytes a value prints as, at least.
func printedSize(v starlark.Value) int {
	if !nests(v) {
		return flatSize(v)
	}
	n := nest{limit: maxPrintDepth, seen: map[any]extent{}}
	at, _ := n.visit(v, 0)
	return at.size
}

func flatSize(v starlark.Value) int {
	switch v := v.(type) {
	case starlark.String:
		return len(v)
	case starlark.Bytes:
		return len(v)
	case starlark.Int:
		if _, small := v.Int64(); !small {
			return v.BigInt().BitLen() * 3 / 10
		}
	}
	return 1
}

// number is int(x), which takes a time that grows with the square of the digits.
func number(b *starlark.Builtin) *starlark.Builtin {
	return checked(b, func(args starlark.Tuple, _ []starlark.Tuple) error {
		if s, ok := text(args, 0); ok && len(s) > maxIntDigits {
			return fmt.Errorf("a text of %d bytes: at most %d are read as an integer", len(s), maxIntDigits)
		}
		return nil
	})
}

// Bounded gives a module's builtin that reads or writes texts, such as
// json.encode, the bounds of the language's own; heap is as in Environment.
func Bounded(b *starlark.Builtin, heap int) *starlark.Builtin {
	l := valueLimit(heap)
	return checked(l.prints(b), func(args starlark.Tuple, kwargs []starlark.Tuple) error {
		s, _ := text(args, 0)
		switch b.Name() {
		case "json.decode":
			n := strings.Count(s, ",")*elementBytes + strings.Count(s, "[")*entryBytes + strings.Count(s, "{")*2*entryBytes
			return l.refuse(n, 1, "the value takes")
		case "json.indent":
			return l.refuse(indented(s, kwargs), 1, "the text takes up to")
		}
		return nil
	})
}

// indented is what json.indent at most makes of a text: a line for each value, all
// as deep as the deepest.
func indented(s string, kwargs []starlark.Tuple) int {
	prefix, indent := 0, 1
	for _, kv := range kwargs {
		if v, ok := starlark.AsString(kv[1]); ok {
			switch string(kv[0].(starlark.String)) {
			case "prefix":
				prefix = len(v)
			case "indent":
				indent = len(v)
			}
		}
	}
	depth, deepest, n := 0, 0, 1
	for i := range len(s) {
		switch s[i] {
		case '[', '{':
			depth++
			n++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
			n++
		case ',':
			n++
		}
	}
	return total(len(s), product(n, total(prefix, product(deepest, indent))))
}

// conversions is how many bytes s % y makes, at most of a mapping, whose values may
// come again and again, and at least of a tuple.
func conversions(s string, y starlark.Value) int {
	n := len(s)
	switch y := y.(type) {
	case starlark.Tuple:
		for _, v := range y {
			n = total(n, printedSize(v))
		}
	case *starlark.Dict:
		longest := 0
		for _, v := range y.Entries() {
			longest = max(longest, printedSize(v))
		}
		n = total(n, product(strings.Count(s, "%("), longest))
	default:
		n = total(n, printedSize(y))
	}
	return n
}
