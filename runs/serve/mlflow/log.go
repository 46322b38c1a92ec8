package mlflow

import (
	"database/sql"
	"math"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"drun/history"
	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/exchange"
)

// Limits of MLflow's server.
const (
	mostKey     = 250 // characters
	mostParam   = 6000
	mostTag     = 8000
	mostMetrics = 1000 // in a batch
	mostParams  = 100
	mostTags    = 100
	mostBatch   = 1000 // of all kinds
)

var keyForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[/\pL\pN\pM_.\- :]+$`) })

func checkLength(what, text string, most int) {
	if n := utf8.RuneCountInString(text); n > most {
		refuse("%s '%.100s…' had length %d, which exceeded length limit of %d", what, text, n, most)
	}
}

// checkKey refuses what MLflow takes for no name: a name is also a path there.
func checkKey(what, key string) {
	checkLength(what+" name", key, mostKey)
	switch clean := path.Clean(key); {
	case key == "":
		lacks("key")
	case !keyForm().MatchString(key):
		refuse("Invalid value %q for parameter '%s' supplied: Names may only contain alphanumerics, underscores (_), dashes (-), periods (.), spaces ( ), colon(:) and slashes (/).", key, what+" name")
	case clean != key || clean == "." || strings.HasPrefix(clean, "..") || strings.HasPrefix(clean, "/"):
		refuse("Invalid value %q for parameter '%s' supplied: Names may be treated as files in certain cases, and must not resolve to other names when treated as such. This name would resolve to %q", key, what+" name", clean)
	}
}

func checkTags(tags labels) {
	for key, value := range tags {
		checkKey("tag", key)
		checkLength("tag value", value, mostTag)
	}
}

// checkParams checks parameters, and makes labels of them.
func checkParams(params []pair) labels {
	given := labels{}
	for _, p := range params {
		checkKey("param", p.Key)
		checkLength("param value", p.Value, mostParam)
		if before, twice := given[p.Key]; twice && before != p.Value {
			refuse("Duplicate parameter keys have been submitted: ['%s']. Please ensure the request contains only one param value per param key.", p.Key)
		}
		given[p.Key] = p.Value
	}
	return given
}

// missingOf are those of the given parameters that are not there. One that is there with another value is an error.
func missingOf(given, there labels, what, id string) labels {
	fresh := labels{}
	for key, value := range given {
		was, has := there[key]
		if has && was != value {
			refuse("Changing param values is not allowed. Param with key='%s' was already logged with value='%s' for %s ID='%s'. Attempted logging new value '%s'.", key, was, what, id, value)
		}
		if !has {
			fresh[key] = value
		}
	}
	return fresh
}

// timeOf is a time in milliseconds since 1970, which the history keeps as a text with a year of four digits.
func timeOf(ms whole, name string) time.Time {
	if ms < -62135596800000 || ms > 253402300799999 {
		refuse("Invalid value %d for parameter '%s' supplied: want milliseconds since 1970, in the years 1 to 9999", ms, name)
	}
	return time.UnixMilli(int64(ms)).UTC()
}

// metric is a point that a client logs.
type metric struct {
	Key       string `json:"key" need:""`
	Value     *float `json:"value" need:""`
	Timestamp *whole `json:"timestamp" need:""`
	Step      whole  `json:"step"`
	Model     string `json:"model_id"`
	Dataset   string `json:"dataset_name"`
	Digest    string `json:"dataset_digest"`
}

// log records points, parameters and tags, all or none.
func (c *call) log(uid string, metrics []metric, params []pair, tags labels) any {
	points := make([]records.Point, len(metrics))
	for i, m := range metrics {
		checkKey("metric", m.Key)
		if m.Value == nil || m.Timestamp == nil {
			refuse("Missing value for required parameter 'metrics[%d].%s' of the metric %s", i, map[bool]string{true: "value", false: "timestamp"}[m.Value == nil], m.Key)
		}
		points[i] = records.Point{Name: m.Key, Step: int64(m.Step), Value: float64(*m.Value), Exact: true, Time: timeOf(*m.Timestamp, "timestamp")}
	}
	given := checkParams(params)
	checkTags(tags)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changeRun(uid, len(points)+len(params) > 0, func(tx *sql.Tx, r *run) {
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
	})
}

// mostRecent is of how many runs the latest points are remembered.
const mostRecent = 128

func (h *Handler) recentOf(run int64) *history.Recent {
	if h.recent[run] == nil {
		for other := range h.recent {
			if len(h.recent) < mostRecent {
				break
			}
			delete(h.recent, other)
		}
		h.recent[run] = &history.Recent{}
	}
	return h.recent[run]
}

// addParams adds parameters, which never change. A text that Python's str makes of a value is kept as that value, so that drun
// runs --where compares it as one.
func addParams(tx *sql.Tx, r *run, given labels) {
	if len(given) == 0 {
		return
	}
	there := labels{}
	try.Ok(sqldb.Each(tx, func(rows *sql.Rows) error {
		var name, text string
		err := rows.Scan(&name, &text)
		there[name] = text
		return err
	}, "SELECT name, text FROM mlflow_params WHERE run = ?", r.id))
	fresh := []history.Param{}
	for _, p := range missingOf(given, there, "run", r.Info.ID).pairs() {
		value := exchange.Plain(p.Value)
		if exchange.Pythonic(value, history.Params{"": value}.Text("")) != p.Value {
			value = p.Value
		}
		fresh = append(fresh, history.Param{Name: p.Key, Value: value})
	}
	try.Ok(history.AddParams(tx, r.id, fresh))
}

// setTags gives tags their values. Those that drun's tags can be are among these, as key=value.
func setTags(tx *sql.Tx, run int64, tags labels) {
	for key, value := range tags {
		removeTag(tx, run, key)
		text := key
		if value != "" {
			text += "=" + value
		}
		if !strings.HasPrefix(key, "mlflow.") && history.CheckTag(text) == nil && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
			try.To(tx.Exec("INSERT INTO tags VALUES (?, ?)", run, text))
			continue
		}
		try.To(tx.Exec("INSERT INTO mlflow_tags VALUES (?, ?, ?)", run, key, value))
		var name string
		if key == nameTag && value != "" && one(tx, []any{&name}, "SELECT name FROM runs WHERE id = ? AND name <> ?", run, value) {
			try.To(tx.Exec("UPDATE runs SET name = ? WHERE id = ?", try.To(history.NearName(tx, value)), run)) // as near as names here allow
		}
	}
}

func removeTag(tx *sql.Tx, run int64, key string) (was bool) {
	for _, from := range []string{"mlflow_tags WHERE run = ? AND key = ?", "tags WHERE run = ? AND substr(tag, 1, instr(tag || '=', '=') - 1) = ?"} {
		n := try.To(try.To(tx.Exec("DELETE FROM "+from, run, key)).RowsAffected())
		was = was || n > 0
	}
	return was
}

func logMetric(c *call, in *struct {
	ofRun
	metric
}) any {
	return c.log(in.ID, []metric{in.metric}, nil, nil)
}

type runPair struct {
	ofRun
	pair
}

func logParameter(c *call, in *runPair) any { return c.log(in.ID, nil, []pair{in.pair}, nil) }
func setTag(c *call, in *runPair) any       { return c.log(in.ID, nil, nil, labels{in.Key: in.Value}) }

func logBatch(c *call, in *struct {
	ofRun
	Metrics []metric `json:"metrics"`
	Params  []pair   `json:"params"`
	Tags    []pair   `json:"tags"`
}) any {
	for what, n := range map[string][2]int{"metrics": {len(in.Metrics), mostMetrics}, "params": {len(in.Params), mostParams}, "tags": {len(in.Tags), mostTags},
		"metrics, params, and tags": {len(in.Metrics) + len(in.Params) + len(in.Tags), mostBatch}} {
		if n[0] > n[1] {
			refuse("A batch logging request can contain at most %d %s. Got %d %s. Please split up %s across multiple requests and try again.", n[1], what, n[0], what, what)
		}
	}
	tags := labels{}
	for _, tag := range in.Tags {
		tags[tag.Key] = tag.Value
	}
	return c.log(in.ID, in.Metrics, in.Params, tags)
}

func deleteTag(c *call, in *runPair) any {
	return c.changeRun(in.ID, false, func(tx *sql.Tx, r *run) {
		if !removeTag(tx, r.id, in.Key) {
			missing("No tag with name: %s in run with id %s", in.Key, in.ID)
		}
	})
}
