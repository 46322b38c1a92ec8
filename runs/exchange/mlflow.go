package exchange

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "github.com/mattn/go-sqlite3" // SQL driver

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// readMLflow reads the runs of MLflow's SQLite store, except those that are deleted or have not ended. MLflow keeps
// parameters as strings: those that look like numbers, True, False or None are converted. A tag becomes key=value,
// the experiment experiment=NAME, and the description a note.
func readMLflow(path string) (runs []history.Foreign, notes []string, err error) {
	defer try.Caught(&err)
	abs := try.To(filepath.Abs(path))
	db := try.To(sql.Open("sqlite3", "file:"+(&url.URL{Path: abs}).EscapedPath()+"?mode=ro&_query_only=1&_busy_timeout=10000"))
	defer db.Close()
	each := func(scan func(*sql.Rows) error, query string) {
		if err == nil {
			err = sqldb.Each(db, scan, query)
		}
	}
	// A view may be endless.
	each(func(rows *sql.Rows) error {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			return err
		}
		return fmt.Errorf("%s is a %s: MLflow has a table", name, kind)
	}, "SELECT name, type FROM sqlite_schema WHERE type <> 'table' AND name IN ('runs', 'experiments', 'params', 'tags', 'metrics')")
	index := map[string]*history.Foreign{}
	var order []string
	left := 0
	each(func(rows *sql.Rows) error {
		var uuid, name, status, stage, experiment string
		var start, end sql.NullInt64
		if err := rows.Scan(&uuid, &name, &status, &stage, &start, &end, &experiment); err != nil {
			return err
		}
		ended, known := map[string]history.Status{"FINISHED": history.Done, "FAILED": history.Failed, "KILLED": history.Interrupted}[status]
		if !known || stage != "active" {
			left++
			return nil
		}
		r := &history.Foreign{Mark: "mlflow:" + uuid, Name: name, Source: path, Tool: "MLflow", Status: ended, Started: time.UnixMilli(start.Int64)}
		if end.Valid {
			r.Seconds = float64(end.Int64-start.Int64) / 1000
		}
		if experiment != "" {
			label(r, "experiment="+experiment)
		}
		index[uuid] = r
		order = append(order, uuid)
		return nil
	}, `SELECT run_uuid, coalesce(r.name, ''), coalesce(status, ''), coalesce(r.lifecycle_stage, 'active'), start_time, end_time, coalesce(e.name, '')
		FROM runs r LEFT JOIN experiments e USING (experiment_id) ORDER BY start_time, run_uuid`)
	each(func(rows *sql.Rows) error {
		var uuid, key, value string
		err := rows.Scan(&uuid, &key, &value)
		if r := index[uuid]; r != nil {
			r.Params = append(r.Params, history.Param{Name: key, Value: Plain(value)})
		}
		return err
	}, "SELECT run_uuid, key, value FROM params ORDER BY run_uuid, key")
	each(func(rows *sql.Rows) error {
		var uuid, key, value string
		err := rows.Scan(&uuid, &key, &value)
		r := index[uuid]
		switch {
		case r == nil:
		case key == "mlflow.note.content":
			r.Notes = append(r.Notes, value)
		case len(key) > 7 && key[:7] == "mlflow.":
		default:
			label(r, key+"="+value)
		}
		return err
	}, "SELECT run_uuid, key, coalesce(value, '') FROM tags ORDER BY run_uuid, key")
	each(func(rows *sql.Rows) error {
		var uuid, key string
		var value float64
		var stamp, step int64
		var nan bool
		err := rows.Scan(&uuid, &key, &value, &stamp, &step, &nan)
		switch { // MLflow's forms for what its column cannot hold
		case nan:
			value = math.NaN()
		case value == math.MaxFloat64:
			value = math.Inf(1)
		case value == -math.MaxFloat64:
			value = math.Inf(-1)
		}
		if r := index[uuid]; r != nil {
			r.Points = append(r.Points, records.Point{Name: key, Step: step, Value: value, Exact: true, Time: time.UnixMilli(stamp)})
		}
		return err
	}, "SELECT run_uuid, key, value, timestamp, step, is_nan FROM metrics ORDER BY run_uuid, step, timestamp, key")
	if err != nil {
		if found := scanned().FindStringSubmatch(err.Error()); found != nil {
			err = fmt.Errorf("the column %s has a value of another type", found[1])
		}
		return nil, nil, exit.WithHint(exit.Errorf(exit.Usage, "%s: %w", path, err), "want a SQLite store of MLflow, as mlflow.db; CSV and TensorBoard's events are read, too")
	}
	for _, uuid := range order {
		runs = append(runs, *index[uuid])
	}
	if left > 0 {
		notes = append(notes, fmt.Sprintf("%s: %d runs are left out, which are deleted or have not ended", path, left))
	}
	return runs, notes, nil
}

// scanned matches database/sql's error for a value of the wrong type.
var scanned = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`Scan error on column index \d+, name "([^"]*)"`) })

// Plain parses a value that MLflow has converted to a string with Python's str.
func Plain(text string) any {
	switch text {
	case "True":
		return true
	case "False":
		return false
	case "None":
		return nil
	}
	if n, is := new(big.Int).SetString(text[:min(len(text), 1000)], 10); is {
		switch {
		case n.String() != text:
			return text // such as 007
		case n.IsInt64():
			return n.Int64()
		}
		return n
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil && len(text) > 0 && (text[0] == '-' || '0' <= text[0] && text[0] <= '9' || text == "nan" || text == "inf") {
		return v
	}
	return text
}

// label adds a tag, or a note if the text is too long for a tag.
func label(r *history.Foreign, text string) {
	const most = 200 // bytes, as for run.tag
	if len(text) > most {
		r.Notes = append(r.Notes, text)
		return
	}
	r.Tags = append(r.Tags, text)
}

// WriteMLflow adds runs to a SQLite store that MLflow has made, in the experiment "drun", either all or none. A run
// that was added before is replaced. MLflow keeps parameters as strings, and has no ranks and no lost runs: these
// become killed. Metrics of ranks other than 0 are called NAME/rankN; the values of several tags KEY=VALUE with the
// same key are joined.
func WriteMLflow(path string, db *history.DB, runs []int64) (err error) {
	defer try.Caught(&err)
	abs := try.To(filepath.Abs(path))
	if _, err := os.Stat(abs); err != nil {
		return exit.WithHint(exit.Errorf(exit.Usage, "%w", err), "MLflow makes its store: mlflow db upgrade sqlite:///"+path)
	}
	store := try.To(sql.Open("sqlite3", "file:"+(&url.URL{Path: abs}).EscapedPath()+"?mode=rw&_txlock=immediate&_busy_timeout=10000&_foreign_keys=1"))
	defer store.Close()
	tx, err := store.BeginTx(context.Background(), nil)
	if err != nil {
		return exit.Errorf(exit.Storage, "%s: %w", path, err)
	}
	defer func() { _ = tx.Rollback() }()
	list := try.To(db.Summaries(runs))
	w := &mlflow{tx: tx}
	w.exec("INSERT INTO experiments (name, artifact_location, lifecycle_stage, creation_time, last_update_time) SELECT 'drun', ?1, 'active', ?2, ?2 WHERE NOT EXISTS (SELECT 1 FROM experiments WHERE name = 'drun')",
		filepath.Join(filepath.Dir(abs), "mlruns", "drun"), time.Now().UnixMilli())
	for i := range list {
		points := try.To(db.Points(list[i].ID))
		w.run(&list[i], points)
	}
	if w.err == nil {
		w.err = tx.Commit()
	}
	if w.err != nil {
		return exit.WithHint(exit.Errorf(exit.Usage, "%s: %w", path, w.err), "want a SQLite store that MLflow 3 has made: mlflow db upgrade sqlite:///"+path)
	}
	return nil
}

// mlflow writes to a store; it keeps the first error.
type mlflow struct {
	tx  *sql.Tx
	err error
}

func (w *mlflow) exec(query string, args ...any) {
	if w.err == nil {
		_, w.err = w.tx.Exec(query, args...)
	}
}

func (w *mlflow) run(r *history.Summary, points []records.Point) {
	sum := sha256.Sum256([]byte(r.UID)) // an id in MLflow's form
	uuid := hex.EncodeToString(sum[:16])
	for _, table := range []string{"metrics", "latest_metrics", "params", "tags", "runs"} {
		w.exec("DELETE FROM "+table+" WHERE run_uuid = ?", uuid)
	}
	status := map[history.Status]string{history.Done: "FINISHED", history.Failed: "FAILED", history.Running: "RUNNING"}[r.Status]
	if status == "" {
		status = "KILLED"
	}
	var end any // NULL: still running
	if r.Seconds != nil && r.Status != history.Running {
		end = r.Started.UnixMilli() + int64(*r.Seconds*1000)
	}
	w.exec(`INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time, end_time, source_version, lifecycle_stage, artifact_uri, experiment_id)
		SELECT ?, ?, 'LOCAL', ?, '', '', ?, ?, ?, '', 'active', artifact_location || '/' || ? || '/artifacts', experiment_id FROM experiments WHERE name = 'drun'`,
		uuid, r.Name, r.Recipe, status, r.Started.UnixMilli(), end, uuid)
	for name := range r.Params {
		w.exec("INSERT INTO params VALUES (?, ?, ?)", name, Pythonic(r.Params[name], r.Params.Text(name)), uuid)
	}
	tag := func(key, value string) { w.exec("INSERT OR REPLACE INTO tags VALUES (?, ?, ?)", key, value, uuid) }
	values := map[string][]string{} // MLflow has one tag per key
	for _, text := range r.Tags {
		key, value, _ := strings.Cut(text, "=")
		values[key] = append(values[key], value)
	}
	for key, list := range values {
		tag(key, strings.Join(list, ", "))
	}
	tag("mlflow.runName", r.Name) // after the user's tags, which may have the same names
	tag("mlflow.source.name", r.Recipe)
	tag("drun.id", fmt.Sprint(r.ID))
	latest := map[string]records.Point{}
	for _, p := range points {
		if p.Rank > 0 {
			p.Name += fmt.Sprintf("/rank%d", p.Rank)
		}
		value, nan := p.Value, math.IsNaN(p.Value)
		switch {
		case nan:
			value = 0
		case math.IsInf(value, 0):
			value = math.Copysign(math.MaxFloat64, value)
		}
		// MLflow allows no second point with the same name, step, time and value.
		w.exec("INSERT OR IGNORE INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, ?)", p.Name, value, p.Time.UnixMilli(), uuid, p.Step, nan)
		if before, has := latest[p.Name]; !has || p.Step >= before.Step {
			latest[p.Name] = p
			w.exec("INSERT OR REPLACE INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, ?, ?)", p.Name, value, p.Time.UnixMilli(), p.Step, nan, uuid)
		}
	}
}

// Pythonic writes a parameter as Python's str does; text is its form in JSON.
func Pythonic(v any, text string) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case string:
		return v
	case float64:
		switch {
		case math.IsNaN(v):
			return "nan"
		case math.IsInf(v, 1):
			return "inf"
		case math.IsInf(v, -1):
			return "-inf"
		case v != 0 && (math.Abs(v) < 1e-4 || math.Abs(v) >= 1e16):
			return strconv.FormatFloat(v, 'e', -1, 64)
		}
		if text = strconv.FormatFloat(v, 'f', -1, 64); !strings.Contains(text, ".") {
			text += ".0"
		}
	}
	return strings.Trim(text, `"`)
}
