package query

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/history"
	"drun/internal/each"
	"drun/internal/spelling"
	"drun/internal/try"
)

// Key is what runs are sorted by.
type Key struct {
	*Expr
	Descending bool
}

// ParseKey parses the argument of --sort: an expression, whose order a leading minus reverses.
func ParseKey(text string) (Key, error) {
	rest, descending := strings.CutPrefix(strings.TrimSpace(text), "-")
	list, err := ParseList("--sort", rest)
	if err == nil && len(list) != 1 {
		err = &Error{What: "--sort", Text: rest, Msg: "want one key; --sort can be given several times"}
	}
	if err != nil {
		return Key{}, err
	}
	switch list[0].tree.(type) {
	case *syntax.BinaryExpr, *syntax.CondExpr: // does the minus in -a + b belong to a, or reverse the order?
		if descending {
			return Key{}, &Error{What: "--sort", Text: text, Msg: fmt.Sprintf("write -(%s), or 0 - …", list[0])}
		}
	}
	return Key{list[0], descending}, nil
}

// Tagged is the condition that a run has a tag.
func Tagged(tag string) (*Expr, error) { return Parse("--tag", syntax.Quote(tag, false)+" in tags") }

// ParseSelection parses the conditions and tags that choose runs, and the keys that sort them; flags begins their names
// in errors. An empty text, as of an empty field on a page, is no condition and no key.
func ParseSelection(flags string, where, tags, sort []string) (conditions []*Expr, keys []Key, err error) {
	defer try.Caught(&err)
	for _, text := range where {
		if strings.TrimSpace(text) == "" && flags == "" {
			continue
		}
		e := try.To(Parse(flags+"where", text))
		conditions = append(conditions, e)
	}
	for _, tag := range tags {
		e := try.To(Tagged(tag))
		conditions = append(conditions, e)
	}
	for _, text := range sort {
		if strings.TrimSpace(text) == "" && flags == "" {
			continue
		}
		keys = append(keys, try.To(ParseKey(text)))
	}
	return conditions, keys, nil
}

// Load reads the selected runs with everything that the expressions mention, newest first.
func Load(db *history.DB, s history.Selection, exprs ...*Expr) ([]history.Summary, error) {
	for _, e := range exprs {
		s.Params.All = s.Params.All || e.params.All
		s.Params.Some = append(s.Params.Some, e.params.Some...)
		s.Metrics.All = s.Metrics.All || e.metrics.All
		s.Metrics.Some = append(s.Metrics.Some, e.metrics.Some...)
		s.Tags = s.Tags || e.names["tags"]
	}
	return db.Select(s)
}

// Choose returns the ids of the runs that match all conditions, sorted by the keys, newest first among equals; trash
// chooses among those in the trash instead of the others. unknown lists parameters and metrics that no run has.
func Choose(db *history.DB, trash bool, where []*Expr, keys []Key) (ids []int64, unknown []string, err error) {
	defer try.Caught(&err)
	exprs := slices.Clone(where)
	for _, k := range keys {
		exprs = append(exprs, k.Expr)
	}
	runs := try.To(Load(db, history.Selection{Trashed: trash}, exprs...))
	type sortable struct {
		id     int64
		values []starlark.Value
	}
	ev := NewEvaluator()
	chosen := []sortable{}
next:
	for i := range runs {
		for _, e := range where {
			if !try.To(ev.Match(e, &runs[i])) {
				continue next
			}
		}
		s := sortable{id: runs[i].ID}
		for _, k := range keys {
			s.values = append(s.values, try.To(ev.Value(k.Expr, &runs[i])))
		}
		chosen = append(chosen, s)
	}
	slices.SortStableFunc(chosen, func(a, b sortable) int {
		for i, k := range keys {
			if c := Order(a.values[i], b.values[i], k.Descending); c != 0 {
				return c
			}
		}
		return 0
	})
	ids = each.Of(chosen, func(s sortable) int64 { return s.id })
	unknown, err = unknownNames(db, exprs, runs)
	return ids, unknown, err
}

// unknownNames lists parameters and metrics of the expressions that none of the runs has.
func unknownNames(db *history.DB, exprs []*Expr, runs []history.Summary) ([]string, error) {
	var notes []string
	check := func(kind string, wanted history.Names, has func(*history.Summary, string) bool, known func() ([]string, error)) error {
		for _, name := range wanted.Some {
			if len(runs) == 0 || slices.ContainsFunc(runs, func(r history.Summary) bool { return has(&r, name) }) {
				continue
			}
			names, err := known()
			if err != nil {
				return err
			}
			note := fmt.Sprintf("no run has a %s %q", kind, name)
			if near := spelling.Nearest(name, names); near != "" {
				note += fmt.Sprintf(": did you mean %q?", near)
			}
			if !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
		return nil
	}
	for _, e := range exprs {
		err := check("parameter", e.params, func(r *history.Summary, name string) bool { _, ok := r.Params[name]; return ok }, db.ParamNames)
		if err == nil {
			err = check("metric", e.metrics, func(r *history.Summary, name string) bool { _, ok := r.Metrics[name]; return ok }, db.MetricNames)
		}
		if err != nil {
			return nil, err
		}
	}
	return notes, nil
}

// Table evaluates expressions for the runs with these ids, in that order.
func Table(db *history.DB, ids []int64, columns []*Expr) (_ *history.Table, err error) {
	defer try.Caught(&err)
	runs := try.To(Load(db, history.Selection{IDs: append([]int64{}, ids...)}, columns...))
	index := make(map[int64]*history.Summary, len(runs))
	for i := range runs {
		index[runs[i].ID] = &runs[i]
	}
	table := &history.Table{Rows: [][]any{}}
	for _, c := range columns {
		table.Columns = append(table.Columns, c.String())
	}
	ev := NewEvaluator()
	for _, id := range ids {
		if index[id] == nil {
			continue // it has since been removed
		}
		row := each.Of(columns, func(c *Expr) any { return Plain(try.To(ev.Value(c, index[id]))) })
		table.Rows = append(table.Rows, row)
	}
	return table, nil
}
