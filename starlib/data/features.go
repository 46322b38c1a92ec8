package data

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/data/table"
	"drun/tensor"
)

// categories returns the distinct cells of a column, sorted, without missing ones.
func categories(c *table.Column) []string {
	seen := map[string]bool{}
	for i := range c.Len() {
		if !c.IsMissing(i) {
			seen[text(c.Cell(i))] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b string) int {
		var x, y float64
		if c.Kind == table.Int || c.Kind == table.Float { // sorted as numbers
			x, _ = strconv.ParseFloat(a, 64)
			y, _ = strconv.ParseFloat(b, 64)
		}
		return cmp.Or(cmp.Compare(x, y), strings.Compare(a, b))
	})
}

// text returns a cell as a category's name.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// codes returns the cells' indices in a list of categories, -1 for a missing cell.
func codes(c *table.Column, list []string) ([]int64, error) {
	at := make(map[string]int64, len(list))
	for i, s := range list {
		if _, twice := at[s]; twice {
			return nil, fmt.Errorf("categories of column %q: %q appears twice", shorten(c.Name), shorten(s))
		}
		at[s] = int64(i)
	}
	out := make([]int64, c.Len())
	for i := range out {
		if out[i] = -1; c.IsMissing(i) {
			continue
		}
		k, ok := at[text(c.Cell(i))]
		if !ok {
			return nil, fmt.Errorf("column %q: row %d is %q, which is not one of the %d categories", shorten(c.Name), i, shorten(text(c.Cell(i))), len(list))
		}
		out[i] = k
	}
	return out, nil
}

// stringsOf returns the elements of a list of strings, which errors call what.
func stringsOf(v starlark.Value, what string) []string {
	list := []string{}
	it, ok := v.(starlark.Iterable)
	try.FailIf(!ok, "%s: want a list of strings, got %s", what, v.Type())
	for x := range starlark.Elements(it) {
		s, ok := starlark.AsString(x)
		if !ok {
			try.Fail("%s: want a list of strings, but element %d is a %s", what, len(list), x.Type())
		}
		list = append(list, s)
	}
	return list
}

// stringsIn returns the strings of an argument; nil if it is None.
func stringsIn(c *starlib.Call, name string) []string {
	if c.IsNone(name) {
		return nil
	}
	return stringsOf(c.Arg(name), name)
}

// listOf converts strings to a recipe's value.
func listOf(list []string) *starlark.List {
	return starlark.NewList(each.Of(list, func(s string) starlark.Value { return starlark.String(s) }))
}

// features says how a dataset is made from a table.
type features struct {
	label      string                    // "": none
	columns    []string                  // nil: all but the label
	categories map[string][]string       // of columns that become category numbers; a nil list: the column's own, sorted
	missing    starlark.Value            // None, a number, "mean" or "drop"
	each       map[string]starlark.Value // the same for columns by name, or the category of missing cells
}

func featuresOf(c *starlib.Call) features {
	f := features{categories: map[string][]string{}, missing: c.Arg("missing")}
	if s, ok := starlark.AsString(c.Arg("label")); ok {
		f.label = s
	}
	f.columns = stringsIn(c, "columns")
	switch list := c.Arg("categories").(type) {
	case *starlark.Dict:
		for _, item := range list.Items() {
			name, ok := starlark.AsString(item[0])
			try.FailIf(!ok, "categories: want the names of columns, got %s", item[0].Type())
			f.categories[name] = stringsOf(item[1], "categories of "+strconv.Quote(name))
		}
	case starlark.NoneType:
	default:
		for _, name := range stringsOf(list, "categories") {
			f.categories[name] = nil
		}
	}
	d, byColumn := f.missing.(*starlark.Dict)
	if !byColumn {
		fillable("missing", f.missing, false)
		return f
	}
	f.missing, f.each = starlark.None, map[string]starlark.Value{}
	for _, item := range d.Items() {
		name, ok := starlark.AsString(item[0])
		try.FailIf(!ok, "missing: want the names of columns, got %s", item[0].Type())
		_, category := f.categories[name]
		fillable(fmt.Sprintf("missing[%q]", shorten(name)), item[1], category)
		f.each[name] = item[1]
	}
	return f
}

// fillable checks a value that says what happens to missing cells; those of a category may get any text.
func fillable(what string, v starlark.Value, category bool) {
	switch v := v.(type) {
	case starlark.String:
		try.FailIf(v != "mean" && v != "drop" && !category, "%s = %s: want a number, \"mean\" or \"drop\"", what, v)
	case starlark.Int, starlark.Float, starlark.NoneType:
	default:
		try.Fail("%s: want a number, \"mean\" or \"drop\", got %s", what, v.Type())
	}
}

// missingIn says what happens to the missing cells of a column.
func (f *features) missingIn(name string) starlark.Value {
	if v := f.each[name]; v != nil {
		return v
	}
	return f.missing
}

// unknown returns the category for a column's missing cells, if there is one.
func (f *features) unknown(name string) (string, bool) {
	s, ok := starlark.AsString(f.each[name])
	_, category := f.categories[name]
	return s, ok && category && s != "mean" && s != "drop"
}

// numbers returns a feature's cells as numbers, NaN where missing; whole says that they are classes.
func (f *features) numbers(c *table.Column) (numbers []float64, whole bool, err error) {
	defer try.Caught(&err)
	list, named := f.categories[c.Name]
	if !named && c.Kind == table.Text && c.Name == f.label {
		list, named = categories(c), true
	}
	if named {
		if list == nil {
			list = categories(c)
		}
		places := try.To(codes(c, list))
		missing := math.NaN()
		if s, ok := f.unknown(c.Name); ok {
			k := slices.Index(list, s)
			try.FailIf(k < 0 && f.categories[c.Name] != nil, "column %q: missing cells are to be %q, which is not one of the %d categories", shorten(c.Name), shorten(s), len(list))
			if k < 0 {
				k = len(list) // after the categories that occur in cells
			}
			missing = float64(k)
		}
		for _, k := range places {
			if k < 0 {
				numbers = append(numbers, missing)
			} else {
				numbers = append(numbers, float64(k))
			}
		}
		return numbers, true, nil
	}
	numbers, ok := c.Numbers()
	if !ok {
		example := 0
		for example < c.Len()-1 && c.IsMissing(example) {
			example++
		}
		if c.Kind == table.Text {
			try.Fail("column %q holds text (row %d is %q): name it in categories, or leave it out of columns", shorten(c.Name), example, shorten(c.Texts[example]))
		}
		return nil, false, fmt.Errorf("column %q holds lists or objects: leave it out of columns", shorten(c.Name))
	}
	return numbers, c.Kind == table.Int || c.Kind == table.Bool, nil
}

// dataset makes a dataset from the table; errors name its file.
func (t *Table) dataset(f features) (starlark.Value, error) {
	ds, err := t.samples(f)
	try.FailIf(err != nil, "%s: %w", t.file, err)
	return ds, nil
}

// samples makes the table's samples: x is float32, y int64 if the labels are whole numbers, bools or categories.
func (t *Table) samples(f features) (_ *Dataset, err error) {
	defer try.Caught(&err)
	names := f.columns
	if names == nil {
		for _, c := range t.Columns {
			if c.Name != f.label {
				names = append(names, c.Name)
			}
		}
	}
	if f.label != "" {
		names = append(slices.Clone(names), f.label)
	}
	for i, named := range [][]string{slices.Sorted(maps.Keys(f.categories)), slices.Sorted(maps.Keys(f.each))} {
		for _, name := range named {
			try.FailIf(!slices.Contains(names, name), "%s: column %q is neither among the columns nor the label", []string{"categories", "missing"}[i], shorten(name))
		}
	}
	cells := make([][]float64, len(names))
	drop := make([]bool, t.Rows)
	classes := false
	for k, name := range names {
		c := try.To(t.column(name))
		label := f.label != "" && k == len(names)-1
		var whole bool
		cells[k], whole = try.To2(f.numbers(c))
		if label {
			classes = whole
		}
		_, category := f.categories[name]
		try.Ok(f.fill(c, cells[k], drop, label || category || c.Kind == table.Text))
		if label && c.Kind == table.Int && !category {
			for i, n := range c.Ints {
				if int64(cells[k][i]) != n && !c.IsMissing(i) {
					return nil, fmt.Errorf("column %q: row %d is %d, a label beyond 2^53", shorten(name), i, n)
				}
			}
		}
	}
	var x []float32
	var y []float64
	rows := 0
	for i := range t.Rows {
		if drop[i] {
			continue
		}
		rows++
		for k := range cells {
			v := cells[k][i]
			if f.label != "" && k == len(cells)-1 {
				y = append(y, v)
				continue
			}
			if single := float32(v); math.IsInf(float64(single), 0) && !math.IsInf(v, 0) {
				return nil, fmt.Errorf("column %q: row %d is %v, which does not fit float32", shorten(names[k]), i, v)
			}
			x = append(x, float32(v))
		}
	}
	try.FailIf(rows == 0, "no row is left: each has a missing cell")
	d := &tensors{}
	d.x = try.To(tensor.FromBytes(t.ctx, bytesOf(x), []int{rows, len(x) / rows}, dtype.Float32))
	if f.label != "" {
		as := dtype.Float32
		if classes {
			as = dtype.Int64
		}
		d.y, err = tensor.FromFloats(t.ctx, y, []int{rows}, as)
	}
	return &Dataset{d.items(), t.thread}, err
}

// fill handles a column's missing cells. In a label or category neither the mean nor a number can replace them.
func (f *features) fill(c *table.Column, cells []float64, drop []bool, exactly bool) error {
	if _, ok := f.unknown(c.Name); ok {
		return nil
	}
	value := 0.0
	switch m := f.missingIn(c.Name).(type) {
	case starlark.String:
		sum, n := 0.0, 0
		for i, v := range cells {
			if m == "drop" && c.IsMissing(i) {
				drop[i] = true
			} else if !c.IsMissing(i) {
				sum += v
				n++
			}
		}
		if m == "drop" {
			return nil
		}
		try.FailIf(n == 0, "column %q has no cells to take the mean of", shorten(c.Name))
		value = sum / float64(n)
	case starlark.NoneType:
		exactly = true
	default:
		value = starlib.Number(m)
	}
	for i := range cells {
		if !c.IsMissing(i) {
			continue
		}
		if exactly {
			return fmt.Errorf("column %q: row %d is missing; missing = \"drop\" leaves such rows out; for numbers other than labels, missing = \"mean\" or a number fills them in; missing = {%q: …} is for this column alone, and takes a string for a category", shorten(c.Name), i, shorten(c.Name))
		}
		cells[i] = value
	}
	return nil
}
