package recipetest

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"drun/starlib/lang/chunk"
)

// matrix records what ran: a row per case, a column per backend and world size.
type matrix struct {
	rows    []string
	columns []string
	mu      sync.Mutex // guards cells
	cells   map[[2]string]string
	partial bool // -run selects some cells: the others are not required
}

func newMatrix(t *testing.T) *matrix {
	pattern := flag.Lookup("test.run").Value.String()
	return &matrix{cells: map[[2]string]string{}, partial: strings.Contains(pattern, "/")}
}

func cell(c chunk.Chunk, backend string, ranks int) [2]string {
	return [2]string{c.File + ": " + c.Name, fmt.Sprintf("%s %d", backend, ranks)}
}

// want adds a cell that must run.
func (m *matrix) want(c chunk.Chunk, backend string, ranks int) {
	at := cell(c, backend, ranks)
	for i, list := range []*[]string{&m.rows, &m.columns} {
		known := false
		for _, name := range *list {
			known = known || name == at[i]
		}
		if !known {
			*list = append(*list, at[i])
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cells[at] = "missing"
}

func (m *matrix) result(c chunk.Chunk, backend string, ranks int, ok bool) {
	word := "FAIL"
	if ok {
		word = "ok"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cells[cell(c, backend, ranks)] = word
}

// print shows the matrix, and fails the test for cells that did not run.
func (m *matrix) print(t *testing.T) {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "case\t%s\n", strings.Join(m.columns, "\t"))
	missing, count := 0, 0
	for _, row := range m.rows {
		fmt.Fprint(w, row)
		for _, column := range m.columns {
			word, planned := m.cells[[2]string{row, column}]
			switch {
			case !planned:
				word = "·"
			case word == "missing":
				missing++
			default:
				count++
			}
			fmt.Fprintf(w, "\t%s", word)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	t.Logf("%d cells ran\n%s", count, b.String())
	if missing > 0 && !m.partial {
		t.Errorf("%d cells are missing", missing)
	}
}
