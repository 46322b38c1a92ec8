// Package sweep runs a recipe once for each combination of parameters (a cell): a grid, or random draws. `drun
// sweep` calls it. Runs that finished earlier with the same bits are not repeated, so an interrupted sweep
// continues when it is started again.
package sweep

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/syntax"

	"drun/internal/exit"
)

// Axis is a parameter with its values: a list, or a range to draw from.
type Axis struct {
	Name   string
	Values []string // nil: the axis is a range
	low    float64
	high   float64
	log    bool
	whole  bool // the ends are whole numbers, and so are the values
}

// ParseAxis parses NAME=VALUE,VALUE… or NAME=LOW..HIGH[:log]. A comma within a value is written \, and two dots
// that are not a range \.. ; a value that is a list, [64,64], is taken unchanged.
func ParseAxis(text string) (Axis, error) {
	name, rest, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return Axis{}, problem("for example -p lr=0.1,0.01", "-p %s: want name=value,value…", text)
	}
	if low, high, is := strings.Cut(rest, ".."); is && !strings.HasSuffix(low, `\`) && !strings.HasPrefix(rest, "[") {
		return parseRange(name, low, high)
	}
	a := Axis{Name: name}
	value := strings.Builder{}
	for i := 0; i < len(rest); i++ {
		if value.Len() == 0 && rest[i] == '[' {
			if n := listLength(rest[i:]); n > 0 {
				value.WriteString(rest[i : i+n])
				i += n - 1
				continue
			}
		}
		switch {
		case rest[i] == '\\' && i+1 < len(rest) && strings.ContainsRune(`,\.`, rune(rest[i+1])):
			i++
			value.WriteByte(rest[i])
		case rest[i] == ',':
			a.Values = append(a.Values, value.String())
			value.Reset()
		default:
			value.WriteByte(rest[i])
		}
	}
	a.Values = append(a.Values, value.String())
	for i, v := range a.Values {
		if slices.Contains(a.Values[:i], v) {
			return a, problem("", "-p %s: the value %q is there twice", text, v)
		}
	}
	return a, nil
}

// listLength is the length in bytes of the list with which a text begins; 0 if it is not a list that the end of the
// text or a comma follows.
func listLength(text string) int {
	for i := range len(text) {
		if end := i + 1; text[i] == ']' && (end == len(text) || text[end] == ',') {
			if _, err := syntax.ParseExpr("list", text[:end], 0); err == nil {
				return end
			}
		}
	}
	return 0
}

func parseRange(name, low, high string) (Axis, error) {
	a := Axis{Name: name}
	high, scale, scaled := strings.Cut(high, ":")
	fault := func(why string) (Axis, error) {
		return a, problem(`for example -p lr=1e-4..1e-1:log or -p layers=1..8; two dots that are no range are written \..`, "-p %s: %s", name, why)
	}
	if scaled && scale != "log" {
		return fault(fmt.Sprintf("the scale of a range is log, not %q", scale))
	}
	a.log = scaled
	for i, text := range []string{low, high} {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return fault(fmt.Sprintf("the ends of a range are numbers, not %q", text))
		}
		*[]*float64{&a.low, &a.high}[i] = v
	}
	_, lowErr := strconv.ParseInt(low, 10, 64)
	_, highErr := strconv.ParseInt(high, 10, 64)
	a.whole = lowErr == nil && highErr == nil
	switch {
	case a.low >= a.high:
		return fault("a range goes from a smaller number to a larger one")
	case a.log && a.low <= 0:
		return fault("a logarithmic range is above 0")
	case math.IsInf(a.high-a.low, 0) || a.whole && max(-a.low, a.high) > 1<<53:
		return fault("the range is too large")
	}
	return a, nil
}

func (a *Axis) draw(from *rand.Rand) string {
	u := from.Float64()
	switch {
	case a.Values != nil:
		return a.Values[int(u*float64(len(a.Values)))]
	case a.whole && a.log:
		// Each whole number owns the interval up to the next one.
		v := math.Floor(math.Exp(math.Log(a.low) + u*(math.Log(a.high+1)-math.Log(a.low))))
		return strconv.FormatFloat(min(max(v, a.low), a.high), 'f', 0, 64)
	case a.whole:
		return strconv.FormatFloat(min(a.low+math.Floor(u*(a.high-a.low+1)), a.high), 'f', 0, 64)
	}
	v := a.low + u*(a.high-a.low)
	if a.log {
		v = math.Exp(math.Log(a.low) + u*(math.Log(a.high)-math.Log(a.low)))
	}
	// Six digits are the same wherever the logarithm was computed; more are used if six do not tell the ends apart.
	digits := 6
	if ratio := max(math.Abs(a.low), math.Abs(a.high)) / (a.high - a.low); ratio > 1 {
		digits = min(digits+int(math.Log10(ratio)), 17)
	}
	text := strconv.FormatFloat(v, 'g', digits, 64)
	if near, err := strconv.ParseFloat(text, 64); err == nil && (near < a.low || near > a.high) { // rounded beyond an end
		text = strconv.FormatFloat(min(max(near, a.low), a.high), 'g', -1, 64)
	}
	if !strings.ContainsAny(text, ".e") {
		text += ".0" // a float, even if the recipe gives the parameter no type
	}
	return text
}

// Cell is one combination, as name=value in the order of the axes.
type Cell []string

func (c Cell) String() string { return strings.Join(c, " ") }

// maxCells limits a sweep: more would be a slip.
const maxCells = 100_000

// Grid returns all combinations; the last axis changes fastest.
func Grid(axes []Axis) ([]Cell, error) {
	if err := checkNames(axes); err != nil {
		return nil, err
	}
	cells := []Cell{{}}
	for _, a := range axes {
		if a.Values == nil {
			return nil, problem("--random N draws N combinations from ranges and lists", "-p %s is a range", a.Name)
		}
		if len(cells)*len(a.Values) > maxCells {
			return nil, problem("--random N draws some of them", "the grid has more than %d cells", maxCells)
		}
		var next []Cell
		for _, c := range cells {
			for _, v := range a.Values {
				next = append(next, append(slices.Clone(c), a.Name+"="+v))
			}
		}
		cells = next
	}
	return cells, nil
}

// Random draws n combinations independently; the same seed draws the same ones, and a larger n begins with the same
// ones. A combination that was drawn before is drawn again, unless there are no others.
func Random(axes []Axis, n int, seed int64) ([]Cell, error) {
	if err := checkNames(axes); err != nil {
		return nil, err
	}
	if n < 1 || n > maxCells {
		return nil, problem("", "--random %d: want 1 to %d", n, maxCells)
	}
	from := rand.New(rand.NewPCG(uint64(seed), 0x73776565)) // "swee"
	var cells []Cell
	known := map[string]bool{}
	for misses := 0; len(cells) < n && misses < 1000; {
		c := Cell{}
		for i := range axes {
			c = append(c, axes[i].Name+"="+axes[i].draw(from))
		}
		key := strings.Join(c, "\x00")
		if known[key] {
			misses++
			continue
		}
		known[key], misses = true, 0
		cells = append(cells, c)
	}
	return cells, nil
}

func checkNames(axes []Axis) error {
	for i, a := range axes {
		if slices.ContainsFunc(axes[:i], func(b Axis) bool { return b.Name == a.Name }) {
			return problem("give all values in one -p, with commas between them", "-p %s is there twice", a.Name)
		}
	}
	return nil
}

func problem(hint, format string, args ...any) error {
	return exit.WithHint(exit.Errorf(exit.Usage, format, args...), hint)
}
