package data

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/data/table"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Table is a file's columns as a recipe sees them.
type Table struct {
	starlib.Opaque
	*table.Table
	file   string // for messages
	ctx    *tensor.Context
	thread *starlark.Thread
}

var (
	_ starlark.Mapping  = (*Table)(nil)
	_ starlark.HasAttrs = (*Table)(nil)
	_ starlark.Sequence = (*Table)(nil)
)

func (t *Table) String() string {
	return fmt.Sprintf("<table of %d rows and %d columns>", t.Rows, len(t.Columns))
}
func (t *Table) Truth() starlark.Bool { return t.Rows > 0 }
func (t *Table) Len() int             { return t.Rows }

// Iterate yields the rows, each a dict.
func (t *Table) Iterate() starlark.Iterator {
	return &iterator{len: t.Len, thread: t.thread, at: func(i int) (starlark.Value, error) {
		return plainValue(t.Row(i)), nil
	}}
}

// plainValue returns a cell as a recipe's value.
func plainValue(v any) starlark.Value {
	switch v := v.(type) {
	case bool:
		return starlark.Bool(v)
	case int64:
		return starlark.MakeInt64(v)
	case float64:
		return starlark.Float(v)
	case string:
		return starlark.String(v)
	case []byte:
		return starlark.Bytes(v)
	case []any:
		return starlark.NewList(each.Of(v, plainValue))
	case table.Object:
		d := starlark.NewDict(len(v))
		for _, m := range v {
			_ = d.SetKey(starlark.String(m.Name), plainValue(m.Value))
		}
		return d
	}
	return starlark.None
}

func (t *Table) column(name string) (*table.Column, error) {
	if c := t.Find(name); c != nil {
		return c, nil
	}
	return nil, table.NoColumn(name, t.Names())
}

// Get is t[name]: a tensor of a column of numbers or bools, a list of any other.
func (t *Table) Get(key starlark.Value) (_ starlark.Value, _ bool, err error) {
	defer try.Caught(&err)
	name, ok := starlark.AsString(key)
	try.FailIf(!ok, "a table is indexed by the name of a column, not by %s", key.Type())
	c := try.To(t.column(name))
	v, err := t.values(c)
	return v, err == nil, err
}

func (t *Table) values(c *table.Column) (starlark.Value, error) {
	shape := []int{t.Rows}
	switch {
	case c.Kind == table.Bool && c.Missing == nil:
		return startensor.Result(tensor.FromBytes(t.ctx, bytesOf(c.Bools), shape, dtype.Bool))
	case c.Kind == table.Int && c.Missing == nil:
		return startensor.Result(tensor.FromBytes(t.ctx, bytesOf(c.Ints), shape, dtype.Int64))
	case c.Kind == table.Int:
		for i, n := range c.Ints {
			if n < -1<<53 || n > 1<<53 {
				return nil, fmt.Errorf("column %q: row %d is %d, and a column with missing cells is float64, which does not hold it exactly", shorten(c.Name), i, n)
			}
		}
		fallthrough
	case c.Kind == table.Float, c.Kind == table.Empty:
		numbers, _ := c.Numbers()
		return startensor.Result(tensor.FromBytes(t.ctx, bytesOf(numbers), shape, dtype.Float64))
	}
	list := each.UpTo(t.Rows, func(i int) starlark.Value { return plainValue(c.Cell(i)) })
	return starlark.NewList(list), nil
}

// formatOf returns a file's format, by the extension of its name before any .gz or .zst.
func formatOf(name string) string {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), ".gz"), ".zst")
	ext := strings.TrimPrefix(path.Ext(name), ".")
	if other, ok := map[string]string{"ndjson": "jsonl", "txt": "csv", "feather": "arrow", "ipc": "arrow", "arrows": "arrow", "pq": "parquet"}[ext]; ok {
		return other
	}
	return ext
}

// isText reports whether a file is text, by the extension of its name.
func isText(name string) bool {
	return strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst"), ".txt")
}

func delimiterOf(c *starlib.Call) rune {
	if c.IsNone("delimiter") {
		return 0
	}
	d := []rune(c.String("delimiter"))
	try.FailIf(len(d) != 1 || strings.ContainsRune("\"\r\n\ufffd", d[0]), "delimiter = %s: want one character other than a quote or a line's end", c.Arg("delimiter"))
	return d[0]
}

func readTable(files *starlib.Files, ctx *tensor.Context, thread *starlark.Thread, name, format string, o table.Options) (_ *Table, err error) {
	defer try.Caught(&err)
	t := &Table{Opaque: "Table", file: name, ctx: ctx, thread: thread}
	o.Largest = files.Largest
	if table.IsColumns(format) {
		var err error
		t.Table, err = readColumns(files, name, format, o)
		return t, err
	}
	in, _, closer := try.To3(open(files, name))
	defer closer.Close()
	switch format {
	case "csv":
		t.Table, err = o.CSV(in)
	case "tsv":
		o.Delimiter = cmp.Or(o.Delimiter, '\t')
		t.Table, err = o.CSV(in)
	case "jsonl":
		t.Table, err = table.JSONLines(in, o.Columns, o.Largest)
	default:
		err = fmt.Errorf("unknown format %q of a table; set format to one of: arrow, csv, jsonl, parquet, tsv", format)
	}
	try.FailIf(err != nil, "%s: %w", name, err)
	return t, nil
}

// withColumns calls use with an open file of columns (Parquet, Arrow).
func withColumns(files *starlib.Files, name, format string, columns []string, use func(r table.Columns, f *starlib.File) error) (err error) {
	defer try.Caught(&err)
	f := try.To(files.OpenQuietly(name))
	defer f.Close()
	in, packed, err := unpack(f)
	var r table.Columns
	if err == nil {
		r, err = table.OpenColumns(format, f, in, packed, columns)
	}
	if err == nil {
		defer r.Close()
		err = use(r, f)
	}
	try.FailIf(err != nil, "%s: %w", name, err)
	return nil
}

func readColumns(files *starlib.Files, name, format string, o table.Options) (t *table.Table, err error) {
	err = withColumns(files, name, format, o.Columns, func(r table.Columns, f *starlib.File) error {
		if t, err = table.ReadColumns(r, o.Largest); err == nil {
			err = f.Finish()
		}
		f.Report()
		return err
	})
	return t, err
}

// tables are the builtins that read tables and JSON lines.
func tables(r *starlib.Rank, ctx *tensor.Context) []*starlib.Def {
	return []*starlib.Def{
		{Sig: "table(path: string, format: string = None, columns: list = None, delimiter: string = None, header: bool = True, missing_values: list = None, per_rank: bool = False) -> Table",
			Doc: `A file of rows and columns: .csv, .tsv, .jsonl and .ndjson (one JSON object per line), each also compressed as .gz or .zst; .parquet; .arrow and .feather (Arrow's files and streams). format says which, if the name does not: csv, tsv, jsonl, parquet or arrow. columns are the names of the wanted columns. In CSV, delimiter separates the fields (by default a comma, or a tab in .tsv), header = False says that the first line holds no names (columns are then named "0", "1", ...), and missing_values are the strings that stand for a missing cell, by default those of pandas. A CSV column has integers, floats or bools (true, false) if all its cells are such; otherwise strings. An error names the file, line and column.
In Parquet and Arrow, a column's type comes from the file: integers become int64, decimals and floats of any size float64, binary cells bytes, lists lists, structs dicts, and maps lists of dicts with key and value. Dates, timestamps (in UTC) and times of day are int64 numbers of microseconds, since 1970-01-01 or midnight. A type that is not supported, or a cell that these types cannot hold exactly (a nanosecond, an integer beyond int64, a decimal of more than 15 digits), is an error that names it; use columns to leave such a column out.`,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				var o table.Options
				o.Delimiter = delimiterOf(c)
				o.Columns = stringsIn(c, "columns")
				o.Missing = stringsIn(c, "missing_values")
				notePerRank(r, c)
				header := c.Bool("header")
				o.Header = &header
				format := formatOf(c.String("path"))
				if !c.IsNone("format") {
					format = c.String("format")
				}
				return readTable(r.Files, ctx, c.Thread, c.String("path"), format, o)
			}},
		{Sig: "jsonl(path: string, per_rank: bool = False) -> list",
			Doc: "The values of a file with one JSON value per line, as dicts, lists, strings, numbers, bools and None. An error names the file and line.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				notePerRank(r, c)
				name := c.String("path")
				in, _, closer := try.To3(open(r.Files, name))
				defer closer.Close()
				var list []starlark.Value
				size := 0
				err := table.Lines(in, func(_ int, line []byte) error {
					if size += 2 * len(line); r.Files.Largest > 0 && size > r.Files.Largest {
						return fmt.Errorf("the values up to here take more than the %d bytes that one value may take; data.stream reads a file of any size piece by piece", r.Files.Largest)
					}
					v, err := table.ParseJSON(line)
					if err == nil {
						list = append(list, plainValue(v))
					}
					return err
				})
				try.FailIf(err != nil, "%s: %w", name, err)
				return starlark.NewList(list), nil
			}},
	}
}

var tableMethods = &starlib.Methods{
	Type:  "Table",
	Doc:   "The columns of a file. len(t) is the number of rows; t[name] is a column: a tensor of numbers (int64, float64) or bools, or a list of strings or other values. Missing cells are NaN, which makes integers float64, or None in a list. A loop yields the rows as dicts.",
	Attrs: [][2]string{{"columns", "the names of the columns, a list"}},
	Defs: []*starlib.Def{
		{Sig: "categories(column: string) -> list",
			Doc: "The distinct cells of a column as strings, sorted; missing ones do not count.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				column := try.To(c.Recv.(*Table).column(c.String("column")))
				return listOf(categories(column)), nil
			}},
		{Sig: "codes(column: string, categories: list = None) -> Tensor",
			Doc: "A column's cells as indices in a list of categories, by default the column's own; int64, shape (rows,). A missing cell is -1; a cell that is in no category is an error that names the row.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				t := c.Recv.(*Table)
				column := try.To(t.column(c.String("column")))
				list := categories(column)
				if !c.IsNone("categories") {
					list = stringsOf(c.Arg("categories"), "categories")
				}
				places := try.To(codes(column, list))
				return startensor.Result(tensor.FromBytes(t.ctx, bytesOf(places), []int{t.Rows}, dtype.Int64))
			}},
		{Sig: "dataset(label: string = None, columns: list = None, categories: list | dict = None, missing: number | string | dict = None) -> Dataset",
			Doc: `The rows as samples. x is float32, shape (rows, columns), with the named columns in this order, by default all but the label. y is int64 if the label's column holds integers, bools or strings (numbered as in t.categories), otherwise float32. categories names the columns whose cells become category numbers, too; a dict gives each its list of categories, so that training and test data get the same numbers. missing says what happens to missing cells: None makes them an error that names the first, a number or "mean" replaces missing numbers, "drop" leaves their rows out. A dict gives columns a value each by name; for a column of categories it may be a string, the category of missing cells, which is numbered after the others if no cell has it. Scale numbers (x / 255 and the like) on ds.x, or batch by batch.`,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				f := featuresOf(c)
				return c.Recv.(*Table).dataset(f)
			}},
	},
}

func (t *Table) Attr(name string) (starlark.Value, error) {
	if name != "columns" {
		return tableMethods.Attr(t, name)
	}
	return listOf(t.Names()), nil
}

func (t *Table) AttrNames() []string { return tableMethods.AttrNames() }
