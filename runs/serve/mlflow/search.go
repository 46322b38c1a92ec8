package mlflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// query makes one of SQL from what MLflow's search takes: conditions that are joined with AND, and columns to sort by.
type query struct {
	fields *fields
	tables string // that it joins
	tableA []any  // their arguments, which come first
	wheres []string
	whereA []any
	orders []string
	orderA []any
}

// query is a search for what the user may read; project is the column with the project.
func (c *call) query(f *fields, project, filter string, order []string) *query {
	q := &query{fields: f}
	if within := c.user.Within(access.Read); within != nil {
		q.where(project+" IN (SELECT value FROM json_each(?))", sqldb.JSON(within))
	}
	q.filter(filter)
	q.order(order)
	return q
}

// inExperiments names the experiments of a search.
type inExperiments struct {
	Experiments []string `json:"experiment_ids"`
}

func (q *query) within(in inExperiments) {
	q.where("e.id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))", sqldb.JSON(in.Experiments))
}

func (q *query) where(condition string, args ...any) {
	q.wheres, q.whereA = append(q.wheres, condition), append(q.whereA, args...)
}

// tail is the query after its own tables, for one row more than the most. What is equal is sorted by more columns.
func (q *query) tail(from, most int, more ...string) (tail string, args []any) {
	return q.tables + " WHERE " + strings.Join(append(q.wheres, "TRUE"), " AND ") + " ORDER BY " + strings.Join(append(q.orders, more...), ", ") + " LIMIT ? OFFSET ?",
		slices.Concat(q.tableA, q.whereA, q.orderA, []any{most + 1, from})
}

// view selects what is not deleted, what is, or both.
func (q *query) view(raw json.RawMessage, column string) {
	switch enum(raw, "view_type", "ACTIVE_ONLY", "ACTIVE_ONLY", "DELETED_ONLY", "ALL") {
	case "ACTIVE_ONLY":
		q.where(column + " IS NULL")
	case "DELETED_ONLY":
		q.where(column + " IS NOT NULL")
	}
}

// fields are what a search knows of what it searches.
type fields struct {
	attributes map[string]attribute
	kinds      map[string]kind // of what has keys of the user's
}

// attribute is a column.
type attribute struct {
	sql     string
	numeric bool
	in      bool // it can be compared with a list
}

// kind is an expression with the key for an argument. Its value is NULL where there is none.
type kind struct {
	sql     string
	numeric bool
	join    string // table to join for sorting, as m0, m1 …, with the key for an argument; "": sql will do
	exists  string // a condition with %s in place of the comparison, for what there may be several of; key is among these
	keys    []string
}

// kindOf are the names of each kind.
var kindOf = map[string]string{"metric": "metric", "metrics": "metric", "param": "parameter", "params": "parameter", "parameter": "parameter", "parameters": "parameter",
	"tag": "tag", "tags": "tag", "attribute": "attribute", "attributes": "attribute", "attr": "attribute", "run": "attribute", "dataset": "dataset", "datasets": "dataset"}

const quoted = "`[^`]*`|\"[^\"]*\""

var (
	column    = `(?:[A-Za-z_]\w*|` + quoted + `)(?:\.(?:[\w.]+|` + quoted + `))?`
	text      = `'(?:[^']|'')*'|"[^"]*"`
	oneClause = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?is)^\s*(` + column + `)\s*(=|!=|>=|<=|>|<|LIKE\b|ILIKE\b|NOT\s+IN\b|IN\b)\s*(` + text + `|[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|\((?:` + text + `|[^()'"])*\))\s*(?:AND\b|;?\s*$)`)
	})
	oneOrder = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?is)^\s*(` + column + `)(?:\s+(ASC|DESC))?\s*$`)
	})
	oneOfList = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*(` + text + `)\s*(?:,|$)`) })
)

// identifier splits kind.key; a key alone is that of an attribute.
func (f *fields) identifier(name string) (what, key string) {
	at := strings.IndexByte(name, '.')
	if name[0] == '`' || name[0] == '"' {
		if at = 2 + strings.IndexByte(name[1:], name[0]); at >= len(name) {
			at = -1
		}
	}
	if at < 0 {
		return "attribute", unquote(name)
	}
	first, key := unquote(name[:at]), name[at+1:]
	if what = kindOf[first]; what == "" {
		refuse("Invalid entity type '%.100s'. Valid values are ['metric', 'parameter', 'tag', 'attribute', 'dataset']", first)
	}
	return what, unquote(key)
}

func unquote(text string) string {
	if n := len(text); n >= 2 && strings.ContainsRune("`'\"", rune(text[0])) && text[n-1] == text[0] {
		return strings.ReplaceAll(text[1:n-1], strings.Repeat(text[:1], 2), text[:1])
	}
	return text
}

const mostFilter = 10_000 // bytes

// filter adds the conditions of a filter string.
func (q *query) filter(filter string) {
	if len(filter) > mostFilter {
		refuse("the filter has %d bytes, more than %d", len(filter), mostFilter)
	}
	for rest := filter; strings.TrimSpace(rest) != ""; {
		found := oneClause().FindStringSubmatchIndex(rest)
		if found == nil {
			refuse("Invalid clause(s) in filter string: %.200q. Want clauses such as metrics.loss < 0.1, params.model = 'tree' or tags.team LIKE 'a%%', with AND between them", rest)
		}
		part := func(i int) string { return rest[found[2*i]:found[2*i+1]] }
		q.clause(part(1), strings.Join(strings.Fields(strings.ToUpper(part(2))), " "), part(3))
		tail := rest[found[7]:found[1]]
		if rest = rest[found[1]:]; strings.TrimSpace(rest) == "" && strings.HasSuffix(strings.ToUpper(tail), "AND") {
			refuse("Invalid clause(s) in filter string: nothing follows AND")
		}
	}
}

var (
	ordered  = []string{"=", "!=", ">", ">=", "<", "<="}
	textual  = []string{"=", "!=", "LIKE", "ILIKE"}
	withList = []string{"=", "!=", "LIKE", "ILIKE", "IN", "NOT IN"}
)

// column looks up what a clause or an order is about, and the arguments that its SQL takes.
func (q *query) column(name string) (a attribute, k kind, args []any) {
	what, key := q.fields.identifier(name)
	if what == "attribute" {
		a, is := q.fields.attributes[key]
		if !is {
			refuse("Invalid attribute key '%.100s' specified. Valid keys are '%s'", key, strings.Join(slices.Sorted(maps.Keys(q.fields.attributes)), "', '"))
		}
		return a, kind{}, nil
	}
	k, is := q.fields.kinds[what]
	switch {
	case !is:
		refuse("Invalid entity type '%s': there is none here", what)
	case k.keys == nil:
		args = []any{key}
	case !slices.Contains(k.keys, key):
		refuse("Invalid %s key '%.100s' specified. Valid keys are '%s'", what, key, strings.Join(k.keys, "', '"))
	default:
		k.sql = fmt.Sprintf(k.sql, key)
	}
	return attribute{k.sql, k.numeric, k.keys != nil}, k, args
}

func (q *query) clause(name, comparator, value string) {
	a, k, args := q.column(name)
	valid := textual
	switch {
	case a.numeric:
		valid = ordered
	case a.in:
		valid = withList
	}
	if !slices.Contains(valid, comparator) {
		refuse("Invalid comparator '%s' for %s, not one of '%s'", comparator, name, strings.Join(valid, "', '"))
	}
	if a.numeric && comparator == "!=" && k.exists != "" { // NaN is NULL, and differs from every number
		comparator = "IS NOT"
	}
	sql, with, to := literal(comparator, value, name, a.numeric)
	condition := "(" + a.sql + ") " + sql + with
	if k.exists != "" {
		condition = fmt.Sprintf(k.exists, condition)
	}
	q.where(condition, append(args, to)...)
}

// literal reads a literal: the comparison with it in SQL, and the argument.
func literal(comparator, value, name string, numeric bool) (sql, with string, to any) {
	isText, isList := strings.ContainsRune(`'"`, rune(value[0])), value[0] == '('
	switch {
	case numeric && (isText || isList):
		refuse("Expected numeric value type for %s. Found %.100s", name, value)
	case !numeric && !isText && !isList:
		refuse("Expected a quoted string value for %s (e.g. 'my-value'). Got value %.100s", name, value)
	case isList != (comparator == "IN" || comparator == "NOT IN"):
		refuse("Invalid value %.100s for the comparator %s", value, comparator)
	case numeric:
		var n float
		try.Ok(n.UnmarshalJSON([]byte(strings.TrimPrefix(value, "+"))))
		return comparator, " ?", float64(n)
	case isList:
		return comparator, " (SELECT value FROM json_each(?))", listOf(value)
	case comparator == "LIKE": // SQLite's LIKE takes a for A
		return "GLOB", " ?", strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]", "%", "*", "_", "?").Replace(unquote(value))
	case comparator == "ILIKE":
		comparator = "LIKE"
	}
	return comparator, " ?", unquote(value)
}

// listOf makes JSON of ('a', 'b').
func listOf(value string) string {
	list := []string{}
	for rest := value[1 : len(value)-1]; strings.TrimSpace(rest) != "" || len(list) == 0; {
		found := oneOfList().FindStringSubmatchIndex(rest)
		if found == nil {
			refuse("Expected a list of quoted string values, found %.100s", value)
		}
		list = append(list, unquote(rest[found[2]:found[3]]))
		rest = rest[found[1]:]
	}
	return sqldb.JSON(list)
}

// order adds columns to sort by. What has no value comes last, in both directions.
func (q *query) order(columns []string) {
	for i, given := range columns {
		found := oneOrder().FindStringSubmatch(given)
		if found == nil {
			refuse("Invalid order_by clause '%.200s'. Could not be parsed.", given)
		}
		direction := " " + strings.ToUpper(found[2])
		a, k, args := q.column(found[1])
		switch {
		case k.keys != nil:
			refuse("Invalid order_by entity '%.100s'", found[1])
		case k.join != "":
			q.tables, q.tableA = q.tables+" LEFT JOIN "+fmt.Sprintf(k.join, i), append(q.tableA, args...)
			q.orders = append(q.orders, fmt.Sprintf("m%[1]d.run IS NULL, m%[1]d.last IS NULL, m%[1]d.last%[2]s", i, direction))
		default:
			q.sortBy(a.sql, direction, args...)
		}
	}
}

func (q *query) sortBy(sql, direction string, args ...any) {
	q.orders = append(q.orders, "("+sql+") IS NULL", "("+sql+")"+direction)
	q.orderA = slices.Concat(q.orderA, args, args)
}

var experimentFields = &fields{
	attributes: map[string]attribute{"name": {sql: "e.name"}, "experiment_id": {sql: "e.id", numeric: true}, "creation_time": {sql: "e.created", numeric: true}, "last_update_time": {sql: "e.updated", numeric: true}},
	kinds:      map[string]kind{"tag": {sql: "SELECT value FROM json_each(e.tags) WHERE key = ?"}},
}

// What MLflow calls the attributes of a run, in SQL.
const (
	runStatus = "CASE r.status WHEN 'running' THEN 'RUNNING' WHEN 'pending' THEN 'SCHEDULED' WHEN 'done' THEN 'FINISHED' WHEN 'failed' THEN 'FAILED' ELSE 'KILLED' END"
	runStart  = "unixepoch(substr(r.started, 1, 19)) * 1000 + CAST(substr(r.started, 21, 3) AS INTEGER)"
	runEnd    = "CASE WHEN r.status <> 'running' AND r.seconds IS NOT NULL THEN " + runStart + " + CAST(round(r.seconds * 1000) AS INTEGER) END"
	runName   = "SELECT value FROM mlflow_run_tags WHERE run = r.id AND key = 'mlflow.runName'"
	runUser   = "coalesce((SELECT value FROM mlflow_tags WHERE run = r.id AND key = 'mlflow.user'), 'unknown')"
	// runTag joins the values of a key that a run of drun has several times.
	runTag = "SELECT group_concat(value, ', ') FROM mlflow_run_tags WHERE run = r.id AND key = ?"
)

var runFields = &fields{
	attributes: map[string]attribute{
		"run_id": {sql: "r.uid", in: true}, "run_name": {sql: runName}, "Run name": {sql: runName}, "run name": {sql: runName}, "Run Name": {sql: runName},
		"status": {sql: runStatus}, "user_id": {sql: runUser},
		"start_time": {sql: runStart, numeric: true}, "created": {sql: runStart, numeric: true}, "Created": {sql: runStart, numeric: true}, "end_time": {sql: runEnd, numeric: true},
	},
	kinds: map[string]kind{
		"metric": {sql: "last", numeric: true,
			exists: "EXISTS (SELECT 1 FROM run_metrics WHERE run = r.id AND metric = (SELECT id FROM metric_names WHERE name = ?) AND %s)",
			join:   "run_metrics m%[1]d ON m%[1]d.run = r.id AND m%[1]d.metric = (SELECT id FROM metric_names WHERE name = ?)"},
		"parameter": {sql: "SELECT text FROM mlflow_params WHERE run = r.id AND name = ?"},
		"tag":       {sql: runTag},
		"dataset": {sql: "d.%s", keys: []string{"name", "digest", "context"},
			exists: "EXISTS (SELECT 1 FROM mlflow_inputs d WHERE d.run = r.id AND %s)"},
	},
}
