package universe

import "strings"

// language documents what Starlark itself provides, one line each: the
// signature, then what it does. drun's modules document themselves.
const language = `
abs(x: number) -> number: The absolute value.
all(items: iterable) -> bool: Whether every item is true.
any(items: iterable) -> bool: Whether some item is true.
bool(x: any = False) -> bool: Whether a value is true.
bytes(x: any) -> bytes: The bytes of a string in UTF-8, or from integers of 0 to 255.
chr(i: int) -> string: The character of a Unicode code point.
dict(pairs: any = (), **entries: any) -> dict: A dict from a mapping or from pairs, with entries added.
dir(x: any) -> list: The names of a value's attributes.
enumerate(items: iterable, start: int = 0) -> list: The pairs (start, first item), (start + 1, second item), …
fail(*args: any, sep: string = " ") -> None: Fails the run on all ranks, with the arguments as the message.
float(x: any = 0) -> float: A number, or a string that holds one, as a float.
getattr(x: any, name: string, default: any = None) -> any: The attribute of that name; without a default it must exist.
hasattr(x: any, name: string) -> bool: Whether there is an attribute of that name.
hash(x: string | bytes) -> int: A hash of a string or bytes, the same in every run.
int(x: any, base: int = 10) -> int: A number truncated towards zero, or a string that holds an integer. Integers have any size.
len(x: any) -> int: The number of elements.
list(items: iterable = ()) -> list: A list of the items.
max(*items: any, key: callable = None) -> any: The greatest of the items, or of the items of one iterable; key(item) is what is compared.
min(*items: any, key: callable = None) -> any: The least of the items, or of the items of one iterable; key(item) is what is compared.
ord(s: string) -> int: The Unicode code point of a string of one character.
print(*args: any, sep: string = " ") -> None: Prints a line, which the history keeps.
range(start: int, stop: int = None, step: int = 1) -> range: The integers from start up to, but not including, stop; range(n) starts at 0.
repr(x: any) -> string: A value as a recipe would write it.
reversed(items: iterable) -> list: The items, last first.
round(x: number, ndigits: int = None) -> number: Rounds to the nearest integer, or to ndigits decimal places; halves are rounded to even.
set(items: iterable = ()) -> set: A set of the items.
sorted(iterable: iterable, key: callable = None, reverse: bool = False) -> list: The items in ascending order; key(item) is what is compared. Equal items stay in order.
str(x: any) -> string: A value as text.
struct(**fields: any) -> struct: A value with these attributes, which cannot be changed.
sum(iterable: iterable, start: any = 0) -> any: start + first item + second item + …
tuple(items: iterable = ()) -> tuple: A tuple of the items.
type(x: any) -> string: The name of a value's type.
zip(*items: iterable) -> list: Tuples of the first items, of the second, …; as many as the shortest iterable has items.

json: Values as JSON text and back.
json.encode(x: any) -> string: A value as JSON. NaN and infinities are errors.
json.decode(x: string, default: any = None) -> any: The value of a JSON text; default, if given, when the text is not JSON.
json.indent(x: string, prefix: string = "", indent: string = "\t") -> string: A JSON text, laid out in lines.
json.encode_indent(x: any, prefix: string = "", indent: string = "\t") -> string: A value as JSON, laid out in lines.

math: Functions of numbers, with the results of Go's library.
math.e: float
math.pi: float
math.ceil(x: number) -> int: The least integer that is not less than x.
math.floor(x: number) -> int: The greatest integer that is not greater than x.
math.round(x: number) -> float: The nearest integer; halves are rounded away from zero.
math.fabs(x: number) -> float: The absolute value.
math.copysign(x: number, y: number) -> float: x with the sign of y.
math.mod(x: number, y: number) -> float: The remainder of x / y, with the sign of x.
math.remainder(x: number, y: number) -> float: x minus the nearest multiple of y.
math.pow(x: number, y: number) -> float: x to the power of y.
math.sqrt(x: number) -> float: The square root.
math.exp(x: number) -> float: e to the power of x.
math.log(x: number, base: number = math.e) -> float: The logarithm.
math.gamma(x: number) -> float: The Gamma function.
math.hypot(x: number, y: number) -> float: The distance of (x, y) from the origin.
math.degrees(x: number) -> float: Radians as degrees.
math.radians(x: number) -> float: Degrees as radians.
math.sin(x: number) -> float: The sine of radians.
math.cos(x: number) -> float: The cosine of radians.
math.tan(x: number) -> float: The tangent of radians.
math.asin(x: number) -> float: The arc sine, in radians.
math.acos(x: number) -> float: The arc cosine, in radians.
math.atan(x: number) -> float: The arc tangent, in radians.
math.atan2(y: number, x: number) -> float: The angle of the point (x, y), in radians.
math.sinh(x: number) -> float: The hyperbolic sine.
math.cosh(x: number) -> float: The hyperbolic cosine.
math.tanh(x: number) -> float: The hyperbolic tangent.
math.asinh(x: number) -> float: The inverse of the hyperbolic sine.
math.acosh(x: number) -> float: The inverse of the hyperbolic cosine.
math.atanh(x: number) -> float: The inverse of the hyperbolic tangent.
`

// Language documents the language's own names.
func Language() Entries {
	var out Entries
	for line := range strings.Lines(language) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		// The colon after the signature is the first after its parameters and result.
		params := strings.LastIndex(line, " -> ")
		i := max(params, 0) + strings.Index(line[max(params, 0):], ": ")
		e := Entry{Kind: KindBuiltin, Signature: line[:i], Doc: line[i+2:]}
		e.Name, _, _ = strings.Cut(e.Signature, "(")
		if owner, name, member := strings.Cut(e.Name, "."); member {
			e.Owner, e.Name, e.Signature = owner, name, strings.TrimPrefix(e.Signature, owner+".")
		}
		switch {
		case params >= 0:
		case e.Owner == "":
			e.Kind, e.Signature = KindModule, ""
		default:
			e.Kind = KindAttribute
		}
		out = append(out, e)
	}
	return out
}
