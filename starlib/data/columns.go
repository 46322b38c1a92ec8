package data

import (
	"fmt"
	"io"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/starlib"
	"drun/starlib/data/table"
)

// withColumns opens a file of columns (Parquet, Arrow) for a function.
func withColumns(files *starlib.Files, name, format string, columns []string, use func(r *table.Reader, f *starlib.File) error) error {
	f, err := files.OpenQuietly(name)
	if err != nil {
		return err
	}
	defer f.Close()
	in, packed, err := unpack(f)
	var r *table.Reader
	if err == nil {
		r, err = table.OpenColumns(format, f, in, packed, columns)
	}
	if err == nil {
		defer r.Close()
		err = use(r, f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readColumns reads a file of columns.
func readColumns(files *starlib.Files, name, format string, o table.Options) (t *table.Table, err error) {
	err = withColumns(files, name, format, o.Columns, func(r *table.Reader, f *starlib.File) error {
		if t, err = table.ReadColumns(r, o.Largest); err == nil {
			err = f.Finish()
		}
		f.Report()
		return err
	})
	return t, err
}

// columns reads a file of columns from a mark to its end, and returns the mark after its last row.
func (r *reading) columns(name string, from mark) (end mark, err error) {
	wanted := r.s.columns
	if label, named := starlark.AsString(r.s.label); named && wanted != nil {
		wanted = append(wanted[:len(wanted):len(wanted)], label)
	}
	end = from
	err = withColumns(r.s.files, name, r.s.format, wanted, func(in *table.Reader, f *starlib.File) error {
		if err := in.Seek(table.Place(from.offset)); err != nil {
			return err
		}
		for {
			t, err := in.Next(chunkRecords * min(r.size, 16))
			if err == io.EOF {
				if from.offset == 0 {
					if err := f.Finish(); err != nil {
						return err
					}
				}
				return r.send(&chunk{next: end, report: f.Report})
			}
			if err != nil {
				return err
			}
			label, err := r.s.labelOf(t)
			if err != nil {
				return err
			}
			first := in.Place() - table.Place(t.Rows)
			c := &chunk{}
			var rows []int
			for i := range t.Rows {
				if number := end.number + int64(i); int(number%int64(r.size)) == r.rank {
					c.records = append(c.records, record{mark: mark{from.file, int64(first) + int64(i), number}})
					rows = append(rows, i)
				}
			}
			c.parse = func(c *chunk) error {
				for k, i := range rows {
					if err := r.s.row(t, i, label, &c.records[k]); err != nil {
						at := first + table.Place(i)
						return fmt.Errorf("%s: batch %d, row %d (record %d): %w", name, at.Batch(), at.Row(), c.records[k].number, err)
					}
				}
				return nil
			}
			end = mark{from.file, int64(in.Place()), end.number + int64(t.Rows)}
			c.next = end
			if err := r.send(c); err != nil {
				return err
			}
		}
	})
	return end, err
}

// labelOf finds the column of the labels; -1: there is none.
func (s *Stream) labelOf(t *table.Table) (int, error) {
	label, named := starlark.AsString(s.label)
	if !named {
		return -1, nil
	}
	i := slices.Index(t.Names(), label)
	if i < 0 {
		return 0, table.NoColumn(label, t.Names())
	}
	return i, nil
}

// row makes a record from a row: its cells by name or, with a label, numbers.
func (s *Stream) row(t *table.Table, i, label int, r *record) error {
	if label < 0 {
		object := make(table.Object, len(t.Columns))
		for k, c := range t.Columns {
			object[k] = table.Member{Name: c.Name, Value: c.Cell(i)}
		}
		r.value = object
		return nil
	}
	r.x = make([]float32, 0, len(t.Columns)-1)
	for k, c := range t.Columns {
		var v float64
		switch cell := c.Cell(i).(type) {
		case nil:
			return fmt.Errorf("column %q: the cell is missing", shorten(c.Name))
		case bool:
			if cell {
				v = 1
			}
		case int64:
			if v = float64(cell); k == label {
				r.class = cell
			}
		case float64:
			v = cell
		default:
			return fmt.Errorf("column %q holds %s, which are not numbers: without label, samples are dicts, and columns selects what they hold", shorten(c.Name), c.Kind)
		}
		if k == label {
			if r.y = v; s.whole && c.Kind != table.Int {
				if c.Kind == table.Float && (v != math.Trunc(v) || math.Abs(v) > 1<<53) || math.IsNaN(v) {
					return fmt.Errorf("column %q: the label %v is not a 64-bit integer; label_dtype = \"float32\" takes it", shorten(c.Name), v)
				}
				r.class = int64(v)
			}
			continue
		}
		if single := float32(v); math.IsInf(float64(single), 0) && !math.IsInf(v, 0) {
			return fmt.Errorf("column %q: %v does not fit float32", shorten(c.Name), v)
		}
		r.x = append(r.x, float32(v))
	}
	return nil
}

// numeric reports whether samples are rows of numbers, x or (x, y).
func (s *Stream) numeric() bool {
	return s.format == "csv" || table.IsColumns(s.format) && s.label != starlark.None
}
