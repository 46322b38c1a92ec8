package table

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"

	"drun/internal/each"
)

// Survey is what a file of separated values or of JSON lines holds, without its rows.
type Survey struct {
	Names   []string
	Kinds   []Kind
	Missing []int   // cells of each column
	Rows    int     // of the file
	First   [][]any // the first rows, with the columns' kinds; nil: a missing cell
}

// SurveyCSV reads a whole file as CSV does, but keeps only the first rows.
func (o Options) SurveyCSV(in io.Reader, first int) (*Survey, error) {
	isMissing := o.missing()
	s := &Survey{}
	var not [][]bool     // by column, which of cellKinds some cell does not fit
	var shown [][]string // the first rows
	err := Records(in, cmp.Or(o.Delimiter, ','), false, func(line int, record []string) (err error) {
		if s.Names == nil {
			var header bool
			if s.Names, header, err = o.names(line, record); err != nil {
				return err
			}
			s.Missing = make([]int, len(s.Names))
			for range s.Names {
				not = append(not, make([]bool, len(cellKinds)))
			}
			if header {
				return nil
			}
		}
		for k, field := range record {
			cell := strings.TrimSpace(field)
			if isMissing[cell] {
				s.Missing[k]++
				continue
			}
			for i, is := range cellKinds {
				if not[k][i] {
					continue
				}
				v, ok := is.parse(cell)
				not[k][i] = !ok
				if n, whole := v.(int64); ok && (is.kind == Text || whole && Exact(n)) {
					break // then it fits the wider kinds, too
				}
			}
		}
		if s.Rows++; s.Rows <= first {
			row := make([]string, len(record))
			for k, field := range record {
				row[k] = strings.Clone(strings.TrimSpace(field))
			}
			shown = append(shown, row)
		}
		return nil
	})
	if err == nil && s.Names == nil {
		err = errors.New("no rows")
	}
	if err != nil {
		return nil, err
	}
	fits := make([]int, len(s.Names)) // the first of cellKinds that all cells fit
	for k, missing := range s.Missing {
		fits[k] = slices.Index(not[k], false)
		s.Kinds = append(s.Kinds, Empty)
		if missing < s.Rows {
			s.Kinds[k] = cellKinds[fits[k]].kind
		}
	}
	for _, row := range shown {
		cells := make([]any, len(row))
		for k, cell := range row {
			if !isMissing[cell] {
				cells[k], _ = cellKinds[fits[k]].parse(cell)
			}
		}
		s.First = append(s.First, cells)
	}
	return s, nil
}

// SurveyJSONLines reads a whole file as JSONLines does, but keeps only the first rows. largest limits the memory that its
// columns may take; 0 does not.
func SurveyJSONLines(in io.Reader, first, largest int) (_ *Survey, err error) {
	const window, most = 4096, 4 << 20 // rows and bytes that are held at once
	s, t, left := &Survey{}, &Table{}, newBudget(largest)
	kept, begun := 0, left.left // rows of t that are counted, and what was left of the budget then
	forget := func() {
		for k, c := range t.Columns {
			if k == len(s.Missing) {
				s.Missing = append(s.Missing, s.Rows) // no row before had it
			}
			for i := kept; i < t.Rows; i++ {
				if c.IsMissing(i) {
					s.Missing[k]++
				}
			}
		}
		s.Rows += t.Rows - kept
		t.keep(first)
		kept, left.left = t.Rows, left.all-len(t.Columns)*256
		begun = left.left
	}
	err = t.readObjects(in, nil, left, func() {
		if t.Rows >= kept+window || begun-left.left > most {
			forget()
		}
	})
	if err != nil {
		return nil, err
	}
	forget()
	for _, c := range t.Columns {
		s.Names, s.Kinds = append(s.Names, c.Name), append(s.Kinds, c.Kind)
	}
	for i := range min(first, s.Rows) {
		s.First = append(s.First, each.Of(t.Columns, func(c *Column) any { return c.Cell(i) }))
	}
	return s, nil
}

// keep removes all rows but the first ones, and those whose integers decide whether floats may follow.
func (t *Table) keep(first int) {
	rows := each.UpTo(min(first, t.Rows), func(i int) int { return i })
	for _, c := range t.Columns {
		inexact := func(n int64) bool { return !Exact(n) }
		if i := slices.IndexFunc(c.Ints, inexact); i >= first && !slices.Contains(rows, i) {
			rows = append(rows, i)
		}
	}
	slices.Sort(rows)
	for _, c := range t.Columns {
		c.Bools, c.Ints, c.Floats, c.Texts = chosen(c.Bools, rows), chosen(c.Ints, rows), chosen(c.Floats, rows), chosen(c.Texts, rows)
		c.Values, c.Missing = chosen(c.Values, rows), chosen(c.Missing, rows)
	}
	t.Rows = len(rows)
}

// chosen keeps some elements of a list, nil if there is none.
func chosen[T any](list []T, at []int) []T {
	if list == nil {
		return nil
	}
	return each.Of(at, func(i int) T { return list[i] })
}
