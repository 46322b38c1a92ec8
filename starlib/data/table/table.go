// Package table reads files of rows and columns (CSV, JSON lines, Parquet, Arrow) into columns of one type each: numbers, bools, strings,
// or any values. It is called by the recipes' module data and by drun data.
package table

import (
	"fmt"
	"math"
	"strings"

	"drun/internal/each"
)

// Kind is the kind of a column's cells.
type Kind uint8

// The kinds of columns. In an Empty one all cells are missing.
const (
	Empty Kind = iota
	Bool
	Int
	Float
	Text
	Any // lists and objects, or cells of different kinds where the format allows them
)

func (k Kind) String() string {
	return [...]string{"empty", "bool", "int64", "float64", "text", "any"}[k]
}

// Column is the cells of one column, in the slice of its kind. A missing cell is NaN, "", false or nil there.
type Column struct {
	Name    string
	Kind    Kind
	Bools   []bool
	Ints    []int64
	Floats  []float64
	Texts   []string
	Values  []any  // nil, bool, int64, float64, string, []any, map[string]any
	Missing []bool // nil: no cell is missing
}

// Table is a set of columns with the same number of rows.
type Table struct {
	Columns []*Column
	Rows    int
}

func (t *Table) Names() []string {
	return each.Of(t.Columns, func(c *Column) string { return c.Name })
}

// Find returns a column by its name; nil if there is none.
func (t *Table) Find(name string) *Column {
	for _, c := range t.Columns {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (c *Column) Len() int {
	return max(len(c.Bools), len(c.Ints), len(c.Floats), len(c.Texts), len(c.Values), len(c.Missing))
}

// IsMissing counts NaN, which is how pandas writes missing numbers to Parquet and Arrow.
func (c *Column) IsMissing(row int) bool {
	return c.Missing != nil && c.Missing[row] || c.Kind == Float && math.IsNaN(c.Floats[row])
}

// Row returns a row by the names of its columns.
func (t *Table) Row(i int) Object {
	return each.Of(t.Columns, func(c *Column) Member { return Member{c.Name, c.Cell(i)} })
}

// Cell returns a cell as a value: nil, bool, int64, float64, string, []any or map[string]any.
func (c *Column) Cell(row int) any {
	switch {
	case c.IsMissing(row):
		return nil
	case c.Kind == Bool:
		return c.Bools[row]
	case c.Kind == Int:
		return c.Ints[row]
	case c.Kind == Float:
		return c.Floats[row]
	case c.Kind == Text:
		return c.Texts[row]
	case c.Kind == Any:
		return c.Values[row]
	}
	return nil
}

// Append adds a cell; nil means that it is missing. Integers become floats in a column of floats, which is an error if no
// float64 holds them exactly; other kinds cannot be mixed, unless the column is Any.
func (c *Column) Append(v any) error {
	row := c.Len()
	if v == nil {
		if c.Missing == nil {
			c.Missing = make([]bool, row, row+1)
		}
		c.Missing = append(c.Missing, true)
		c.zero()
		return nil
	}
	kind := kindOf(v)
	switch {
	case c.Kind == Empty:
		c.Kind = kind
		for range row {
			c.zero()
		}
	case c.Kind == Int && kind == Float:
		for i, n := range c.Ints {
			if !c.IsMissing(i) && !Exact(n) {
				return fmt.Errorf("%v after %d, which no float64 holds exactly", v, n)
			}
			f := float64(n)
			if c.IsMissing(i) {
				f = math.NaN()
			}
			c.Floats = append(c.Floats, f)
		}
		c.Kind, c.Ints = Float, nil
	case c.Kind == Float && kind == Int:
		if n := v.(int64); !Exact(n) {
			return fmt.Errorf("%d among floats, which no float64 holds exactly", n)
		}
		v = float64(v.(int64))
	case c.Kind != kind && c.Kind != Any:
		return fmt.Errorf("%s after rows of %s", kind, c.Kind)
	}
	switch c.Kind {
	case Bool:
		c.Bools = append(c.Bools, v.(bool))
	case Int:
		c.Ints = append(c.Ints, v.(int64))
	case Float:
		c.Floats = append(c.Floats, v.(float64))
	case Text:
		c.Texts = append(c.Texts, v.(string))
	case Any:
		c.Values = append(c.Values, v)
	}
	if c.Missing != nil {
		c.Missing = append(c.Missing, false)
	}
	return nil
}

// Exact reports whether a float64 holds the integer.
func Exact(n int64) bool { return -1<<53 <= n && n <= 1<<53 }

// zero appends the placeholder of a missing cell.
func (c *Column) zero() {
	switch c.Kind {
	case Bool:
		c.Bools = append(c.Bools, false)
	case Int:
		c.Ints = append(c.Ints, 0)
	case Float:
		c.Floats = append(c.Floats, math.NaN())
	case Text:
		c.Texts = append(c.Texts, "")
	case Any:
		c.Values = append(c.Values, nil)
	}
}

func kindOf(v any) Kind {
	switch v.(type) {
	case bool:
		return Bool
	case int64:
		return Int
	case float64:
		return Float
	case string:
		return Text
	}
	return Any
}

// Numbers returns the cells as float64, NaN for missing ones; false for a column of strings or of any values.
func (c *Column) Numbers() ([]float64, bool) {
	out := make([]float64, c.Len())
	for i := range out {
		switch {
		case c.Kind == Empty || c.IsMissing(i):
			out[i] = math.NaN()
		case c.Kind == Bool && c.Bools[i]:
			out[i] = 1
		case c.Kind == Bool:
		case c.Kind == Int:
			out[i] = float64(c.Ints[i])
		case c.Kind == Float:
			out[i] = c.Floats[i]
		default:
			return nil, false
		}
	}
	return out, true
}

// budget bounds what the cells of a file may take, since a small file can unpack to any size.
type budget struct{ left, all int }

func newBudget(bytes int) *budget { return &budget{bytes, bytes} }

// take returns an error if the cells exceed the budget; a budget of 0 is no limit.
func (b *budget) take(bytes int) error {
	if b.left -= bytes; b.all > 0 && b.left < 0 {
		return fmt.Errorf("the cells up to here take more than the %d bytes that a table may take; data.stream reads a file of any size piece by piece", b.all)
	}
	return nil
}

// Short quotes and shortens a string from a file, for an error.
func Short(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:57], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}

// unique returns an error if two columns have the same name.
func unique(names []string) error {
	seen := make(map[string]int, len(names))
	for i, name := range names {
		if k, twice := seen[name]; twice {
			return fmt.Errorf("columns %d and %d are both named %s", k+1, i+1, Short(name))
		}
		seen[name] = i
	}
	return nil
}
