package exchange

import (
	"database/sql"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
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
// parameters as texts: those that look like numbers, True, False or None are converted. A tag becomes key=value,
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
			r.Params = append(r.Params, history.Param{Name: key, Value: plain(value)})
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

// plain parses a value that MLflow has made into a text with Python's str.
func plain(text string) any {
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

// label adds a tag; a text too long for one becomes a note.
func label(r *history.Foreign, text string) {
	const most = 200 // bytes, as for run.tag
	if len(text) > most {
		r.Notes = append(r.Notes, text)
		return
	}
	r.Tags = append(r.Tags, text)
}
