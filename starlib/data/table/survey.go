package table

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
)

// Survey is what a file of separated values holds, without its rows.
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
