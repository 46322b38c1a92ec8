package mlflow

import (
	"database/sql"
	"math"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"drun/history"
	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/exchange"
	"drun/runs/serve/access"
)

func checkLength(what, text string, most int) {
	if n := utf8.RuneCountInString(text); n > most {
		try.Ok(invalid("%s '%.100s…' had length %d, which exceeded length limit of %d", what, text, n, most))
	}
}

// checkKey refuses what MLflow takes for no name: a name is also a path there.
func checkKey(what, key string) {
	checkLength(what+" name", key, mostKey)
	switch clean := path.Clean(key); {
	case key == "":
		try.Ok(invalid("Missing value for required parameter 'key': a %s has a name", what))
	case !keyForm().MatchString(key):
		try.Ok(invalid("Invalid value %q for parameter '%s' supplied: Names may only contain alphanumerics, underscores (_), dashes (-), periods (.), spaces ( ), colon(:) and slashes (/).", key, what+" name"))
	case clean != key || clean == "." || strings.HasPrefix(clean, "..") || strings.HasPrefix(clean, "/"):
		try.Ok(invalid("Invalid value %q for parameter '%s' supplied: Names may be treated as files in certain cases, and must not resolve to other names when treated as such. This name would resolve to %q", key, what+" name", clean))
	}
}

func checkTags(tags []pair) {
	for _, tag := range tags {
		checkKey("tag", tag.Key)
		checkLength("tag value", tag.Value, mostTag)
	}
}

// timeOf is a time in milliseconds since 1970, which the history keeps as a text with a year of four digits.
func timeOf(ms int64, name string) time.Time {
	t := time.UnixMilli(ms).UTC()
	if year := t.Year(); year < 1 || year > 9999 || ms < -62135596800000 || ms > 253402300799999 {
		try.Ok(invalid("Invalid value %d for parameter '%s' supplied: want milliseconds since 1970, in the years 1 to 9999", ms, name))
	}
	return t
}

// metric is a point that a client logs.
type metric struct {
	Key       string `json:"key"`
	Value     *float `json:"value"`
	Timestamp *whole `json:"timestamp"`
	Step      whole  `json:"step"`
	Model     string `json:"model_id"`
	Dataset   string `json:"dataset_name"`
	Digest    string `json:"dataset_digest"`
}

// log records points, parameters and tags, all or none.
func (c *call) log(uid string, metrics []metric, params, tags []pair) any {
	points := make([]records.Point, len(metrics))
	for i, m := range metrics {
		checkKey("metric", m.Key)
		if m.Value == nil || m.Timestamp == nil {
			try.Ok(invalid("Missing value for required parameter 'metrics[%d].%s' of the metric %s", i, map[bool]string{true: "value", false: "timestamp"}[m.Value == nil], m.Key))
		}
		points[i] = records.Point{Name: m.Key, Step: int64(m.Step), Value: float64(*m.Value), Exact: true, Time: timeOf(int64(*m.Timestamp), "timestamp")}
	}
	given := map[string]string{}
	for _, p := range params {
		checkKey("param", p.Key)
		checkLength("param value", p.Value, mostParam)
		if before, twice := given[p.Key]; twice && before != p.Value {
			try.Ok(invalid("Duplicate parameter keys have been submitted: ['%s']. Please ensure the request contains only one param value per param key.", p.Key))
		}
		given[p.Key] = p.Value
	}
	checkTags(tags)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update(func(tx *sql.Tx) {
		r := c.runOf(tx, uid, access.Write).active()
		if len(points)+len(params) > 0 {
			r.logged()
		}
		addParams(tx, r, given)
		try.Ok(history.AddPoints(tx, r.id, points, c.recentOf(r.id)))
		for i, m := range metrics {
			if m.Model == "" {
				continue
			}
			value := any(points[i].Value)
			if math.IsNaN(points[i].Value) {
				value = "NaN"
			}
			try.To(tx.Exec("INSERT OR IGNORE INTO mlflow_model_points VALUES (?, ?, ?, ?, ?, ?, ?, ?)", m.Model, r.id, m.Key, int64(m.Step), int64(*m.Timestamp), value, m.Dataset, m.Digest))
		}
		setTags(tx, r.id, tags)
		touch(tx, r.id)
	})
	return nothing{}
}

// touch numbers a change, so that copies of the run are brought up to date.
func touch(tx *sql.Tx, run int64) {
	try.To(tx.Exec("UPDATE runs SET batch = batch + 1 WHERE id = ?", run))
}

func (h *Handler) recentOf(run int64) *history.Recent {
	known := h.recent[run]
	if known == nil {
		for other := range h.recent {
			if len(h.recent) < mostRecent {
				break
			}
			delete(h.recent, other)
		}
		known = &history.Recent{}
		h.recent[run] = known
	}
	return known
}

// addParams adds parameters, which never change. A text that Python's str makes of a value is kept as that value, so that drun
// runs --where compares it as one.
func addParams(tx *sql.Tx, r *run, given map[string]string) {
	if len(given) == 0 {
		return
	}
	before := map[string]string{}
	try.Ok(sqldb.Each(tx, func(rows *sql.Rows) error {
		var name, text string
		err := rows.Scan(&name, &text)
		before[name] = text
		return err
	}, "SELECT name, text FROM mlflow_params WHERE run = ?", r.id))
	fresh := []history.Param{}
	for _, p := range pairs(given) {
		was, has := before[p.Key]
		if has && was != p.Value {
			try.Ok(invalid("Changing param values is not allowed. Param with key='%s' was already logged with value='%s' for run ID='%s'. Attempted logging new value '%s'.", p.Key, was, r.uid, p.Value))
		}
		if !has {
			fresh = append(fresh, history.Param{Name: p.Key, Value: valueOf(p.Value)})
		}
	}
	try.Ok(history.AddParams(tx, r.id, fresh))
}

func valueOf(text string) any {
	value := exchange.Plain(text)
	if exchange.Pythonic(value, history.Params{"": value}.Text("")) != text {
		return text
	}
	return value
}

// setTags gives tags their values. Those that drun's tags can be are among these, as key=value.
func setTags(tx *sql.Tx, run int64, tags []pair) {
	for _, tag := range tags {
		removeTag(tx, run, tag.Key)
		text := tag.Key
		if tag.Value != "" {
			text += "=" + tag.Value
		}
		plain := !strings.HasPrefix(tag.Key, "mlflow.") && history.CheckTag(text) == nil && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' })
		if plain {
			try.To(tx.Exec("INSERT INTO tags VALUES (?, ?)", run, text))
			continue
		}
		try.To(tx.Exec("INSERT INTO mlflow_tags VALUES (?, ?, ?)", run, tag.Key, tag.Value))
		if tag.Key == "mlflow.runName" {
			rename(tx, run, tag.Value)
		}
	}
}

// rename gives a run the name that MLflow's has, as far as names here allow.
func rename(tx *sql.Tx, run int64, text string) {
	var name string
	one(tx, []any{&name}, "SELECT name FROM runs WHERE id = ?", run)
	if name == text || text == "" {
		return
	}
	try.To(tx.Exec("UPDATE runs SET name = ? WHERE id = ?", try.To(history.NearName(tx, text)), run))
}

func removeTag(tx *sql.Tx, run int64, key string) (was bool) {
	for _, from := range []string{"mlflow_tags WHERE run = ? AND key = ?", "tags WHERE run = ? AND substr(tag, 1, instr(tag || '=', '=') - 1) = ?"} {
		n := try.To(try.To(tx.Exec("DELETE FROM "+from, run, key)).RowsAffected())
		was = was || n > 0
	}
	return was
}

func logMetric(c *call, in *struct {
	ID        string `json:"run_id"`
	UUID      string `json:"run_uuid"`
	Key       string `json:"key" need:""`
	Value     *float `json:"value" need:""`
	Timestamp *whole `json:"timestamp" need:""`
	Step      whole  `json:"step"`
	Model     string `json:"model_id"`
	Dataset   string `json:"dataset_name"`
	Digest    string `json:"dataset_digest"`
}) any {
	return c.log(either(in.ID, in.UUID), []metric{{in.Key, in.Value, in.Timestamp, in.Step, in.Model, in.Dataset, in.Digest}}, nil, nil)
}

func logParameter(c *call, in *struct {
	ID    string `json:"run_id"`
	UUID  string `json:"run_uuid"`
	Key   string `json:"key" need:""`
	Value string `json:"value"`
}) any {
	return c.log(either(in.ID, in.UUID), nil, []pair{{in.Key, in.Value}}, nil)
}

func setTag(c *call, in *struct {
	ID    string `json:"run_id"`
	UUID  string `json:"run_uuid"`
	Key   string `json:"key" need:""`
	Value string `json:"value"`
}) any {
	return c.log(either(in.ID, in.UUID), nil, nil, []pair{{in.Key, in.Value}})
}

func logBatch(c *call, in *struct {
	ID      string   `json:"run_id" need:""`
	Metrics []metric `json:"metrics"`
	Params  []pair   `json:"params"`
	Tags    []pair   `json:"tags"`
}) any {
	for what, n := range map[string][2]int{"metrics": {len(in.Metrics), mostMetrics}, "params": {len(in.Params), mostParams}, "tags": {len(in.Tags), mostTags},
		"metrics, params, and tags": {len(in.Metrics) + len(in.Params) + len(in.Tags), mostBatch}} {
		if n[0] > n[1] {
			try.Ok(invalid("A batch logging request can contain at most %d %s. Got %d %s. Please split up %s across multiple requests and try again.", n[1], what, n[0], what, what))
		}
	}
	return c.log(in.ID, in.Metrics, in.Params, in.Tags)
}

func deleteTag(c *call, in *struct {
	ID  string `json:"run_id" need:""`
	Key string `json:"key" need:""`
}) any {
	c.update(func(tx *sql.Tx) {
		r := c.runOf(tx, in.ID, access.Write).active()
		if !removeTag(tx, r.id, in.Key) {
			try.Ok(missing("No tag with name: %s in run with id %s", in.Key, in.ID))
		}
	})
	return nothing{}
}
