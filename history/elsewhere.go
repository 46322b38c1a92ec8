package history

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	random "math/rand/v2"
	"strings"
	"time"

	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Runs that another tool logs (runs/serve/mlflow) have no agent: whoever logs them may go on after their end, and sends again
// what got no answer. Their records are written by Update.

// Update runs fn in a transaction that writes.
func (db *DB) Update(fn func(*sql.Tx) error) error {
	return db.write(func(tx *sql.Tx) error {
		try.Ok(db.stillKnown(tx))
		return fn(tx)
	})
}

// Reader is the history for queries.
func (db *DB) Reader() sqldb.Queryer { return db.sql }

// Logged is a run that another tool begins to log.
type Logged struct {
	Name    string // any text: the run gets a free name that is as near to it as names allow
	Source  string // shown in place of a recipe's path
	Tool    string // shown in place of drun's version
	Project string // "": none
	Owner   string // user of the server
	Started time.Time
}

// forEver is the lease of a run that only its tool ends.
const forEver = "9999-12-31T23:59:59.000000Z"

// Begin enters the run, with status running.
func (l *Logged) Begin(tx *sql.Tx) (id int64, name, uid string, err error) {
	defer try.Caught(&err)
	name = try.To(NearName(tx, l.Name))
	uid = rand.Text()
	result := try.To(tx.Exec(`INSERT INTO runs (uid, name, recipe, status, world_size, backend, seed, threads, started, version, host, pid, dir, command, project_name, owner, leased)
		VALUES (?, ?, ?, 'running', 1, 'none', 0, 0, ?, ?, '', 0, '', '[]', nullif(?, ''), ?, ?)`,
		uid, name, l.Source, formatTime(l.Started), l.Tool, l.Project, l.Owner, forEver))
	return try.To(result.LastInsertId()), name, uid, nil
}

// NearName makes a free name for a run of any text.
func NearName(tx *sql.Tx, text string) (string, error) {
	near := strings.Map(func(r rune) rune {
		if nameForm().MatchString("a" + string(r)) {
			return r
		}
		return '-'
	}, text)
	near = fmt.Sprintf("%.90s", strings.TrimLeft(near, "-.0123456789"))
	if CheckName(near) != nil {
		return freeName(tx, "")
	}
	name := near
	for n := 1; ; n += 1 + random.IntN(n) { // far apart where many are taken
		if n > 1 {
			name = fmt.Sprintf("%s-%d", near, n)
		}
		taken := nameTaken(tx, name)
		if !errors.As(taken, new(*NameError)) {
			return name, taken
		}
	}
}

// Recent remembers the latest points of a run, so that those that are sent twice are known. The zero value knows none yet. One that
// remembers points of a transaction that failed notices that at the next.
type Recent struct {
	next   int64 // number of the run's next point
	points map[pointKey]bool
	order  []pointKey // of them, a ring
	at     int        // the oldest of the ring
	older  int64      // no point that was forgotten has a later time
}

const remembered = 2048 // points, more than a request has

// pointKey is a point for a tool that has no numbers of points.
type pointKey struct {
	metric, step, time int64
	bits               uint64
}

func keyOf(p *numbered) pointKey {
	value := p.value
	switch {
	case value == 0:
		value = 0 // not -0.0
	case math.IsNaN(value):
		value = math.NaN()
	}
	return pointKey{p.metric, p.step, p.time, math.Float64bits(value)}
}

func (k *Recent) add(key pointKey) {
	if k.points[key] {
		return
	}
	k.points[key] = true
	if len(k.order) < remembered {
		k.order = append(k.order, key)
		return
	}
	gone := k.order[k.at]
	delete(k.points, gone)
	k.older = max(k.older, gone.time)
	k.order[k.at] = key
	k.at = (k.at + 1) % remembered
}

// AddPoints appends points to a run that another tool logs, none of them twice: a point of the same metric, step, time and
// value is the same point. The last value of a metric is that of the highest step.
func AddPoints(tx *sql.Tx, run int64, points []records.Point, known *Recent) (err error) {
	defer try.Caught(&err)
	if len(points) == 0 {
		return nil
	}
	t := blocks{tx, run}
	seq, last := try.To2(t.next())
	if known.next != seq {
		*known = Recent{points: map[pointKey]bool{}, older: math.MinInt64}
		try.Ok(t.points(!superseded, 0, math.MaxInt64, func(p *numbered) { known.add(keyOf(p)) }))
	}
	numbers, forgotten := map[string]int64{}, map[pointKey]bool{} // those of which it is unknown whether they are there
	given := make([]numbered, len(points))
	for i := range points {
		p := &points[i]
		metric, is := numbers[p.Name]
		if !is {
			metric = try.To(metricNumber(tx, p.Name))
			numbers[p.Name] = metric
		}
		given[i] = numbered{0, metric, p.Step, int64(p.Rank), p.Time.UnixMicro(), p.Value, p.Exact}
		if key := keyOf(&given[i]); given[i].time <= known.older && !known.points[key] {
			forgotten[key] = false
		}
	}
	if len(forgotten) > 0 {
		try.Ok(t.points(!superseded, 0, math.MaxInt64, func(p *numbered) {
			key := keyOf(p)
			if _, asked := forgotten[key]; asked {
				forgotten[key] = true
			}
		}))
	}
	fresh, summaries := []numbered{}, map[int64]*summary{}
	for _, p := range given {
		key := keyOf(&p)
		if known.points[key] || forgotten[key] {
			continue
		}
		p.seq = seq + int64(len(fresh))
		fresh = append(fresh, p)
		known.add(key)
		add(summaries, &p, true)
	}
	known.next = seq + int64(len(fresh))
	try.Ok(t.append(tx, last, fresh))
	return t.merge(tx, summaries, true)
}

// AddParams adds parameters to a run that lacks them.
func AddParams(tx *sql.Tx, run int64, params []Param) (err error) {
	defer try.Caught(&err)
	columns := try.To(encodeParams(params))
	return insertAll(tx, "", "params", columns, "run, ", run)
}

// ToolRecords are what a tool that logs a run has said of it that has no other place: its tags, data sets and logged models.
type ToolRecords struct {
	Tags   []ToolTag
	Inputs []ToolInput
	Models []ToolModel // that the run has logged
	Points []ToolPoint // that are about a model
	Links  []ToolLink
}

type ToolTag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type ToolInput struct {
	Name    string `json:"name"`
	Digest  string `json:"digest"`
	Context string `json:"context" db:",null"`
	Input   string `json:"input"` // JSON
}

// ToolModel is a logged model, whose files are among a server's artifacts. Times are milliseconds since 1970.
type ToolModel struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Created int64  `json:"created"`
	Updated int64  `json:"updated"`
	Deleted *int64 `json:"deleted"`
	Params  string `json:"params"` // JSON
	Tags    string `json:"tags"`   // JSON
}

type ToolPoint struct {
	Model   string `json:"model"`
	Name    string `json:"name"`
	Step    int64  `json:"step"`
	Time    int64  `json:"time"`
	Value   any    `json:"value"` // a float64, or NaN as a text
	Dataset string `json:"dataset"`
	Digest  string `json:"digest"`
}

type ToolLink struct {
	Output bool   `json:"output"`
	Model  string `json:"model"`
	Step   int64  `json:"step"`
}

func toolIn(in sqldb.Queryer, run int64) (f ToolRecords, err error) {
	defer try.Caught(&err)
	f.Tags = try.To(rowsIn[ToolTag](in, "mlflow_tags WHERE run = ? ORDER BY key", run))
	f.Inputs = try.To(rowsIn[ToolInput](in, "mlflow_inputs WHERE run = ? ORDER BY name, digest", run))
	f.Models = try.To(rowsIn[ToolModel](in, "mlflow_models WHERE source = (SELECT uid FROM runs WHERE id = ?) ORDER BY id", run))
	f.Points = try.To(rowsIn[ToolPoint](in, "mlflow_model_points WHERE run = ? ORDER BY model, name, step, time", run))
	f.Links = try.To(rowsIn[ToolLink](in, "mlflow_links WHERE run = ? ORDER BY output, model", run))
	return f, nil
}

// put replaces what is said of a run. A model that another run has logged stays as it is.
func (f *ToolRecords) put(tx *sql.Tx, run int64, uid string) (err error) {
	defer try.Caught(&err)
	for _, table := range []string{"mlflow_tags", "mlflow_inputs", "mlflow_model_points", "mlflow_links"} {
		try.To(tx.Exec("DELETE FROM "+table+" WHERE run = ?", run))
	}
	try.To(tx.Exec("DELETE FROM mlflow_models WHERE source = ?", uid))
	try.Ok(insertAll(tx, "", "mlflow_tags", f.Tags, "run, ", run))
	try.Ok(insertAll(tx, "", "mlflow_inputs", f.Inputs, "run, ", run))
	try.Ok(insertAll(tx, "IGNORE", "mlflow_models", f.Models, "source, ", uid))
	try.To(tx.Exec("UPDATE mlflow_models SET project = (SELECT project_name FROM runs WHERE id = ?) WHERE source = ?", run, uid))
	try.Ok(insertAll(tx, "IGNORE", "mlflow_model_points", f.Points, "run, ", run))
	return insertAll(tx, "", "mlflow_links", f.Links, "run, ", run)
}

// EnterExperiments makes experiments of the projects that runs have come with.
func EnterExperiments(tx *sql.Tx) error {
	_, err := tx.Exec(`INSERT OR IGNORE INTO mlflow_experiments (name, location, created, updated, tags)
		SELECT DISTINCT project_name, '', unixepoch() * 1000, unixepoch() * 1000, '{}' FROM runs WHERE project_name IS NOT NULL AND project_name NOT IN (SELECT name FROM mlflow_experiments)`)
	return err
}

// ToolFolders are the folders, in a server's artifacts, of what a tool has kept of a run (artifacts) and of its models (models/ID).
func (db *DB) ToolFolders(uid string) (map[string]string, error) {
	folders := map[string]string{}
	err := db.read(func(rows *sql.Rows) error {
		var experiment int64
		var model string
		err := rows.Scan(&experiment, &model)
		folders["artifacts"] = fmt.Sprintf("%d/%s/artifacts", experiment, uid)
		if model != "" {
			folders["models/"+model] = fmt.Sprintf("%d/models/%s/artifacts", experiment, model)
		}
		return err
	}, `SELECT e.id, coalesce(m.id, '') FROM runs r JOIN mlflow_experiments e ON e.name = coalesce(r.project_name, 'Default')
		LEFT JOIN mlflow_models m ON m.source = r.uid AND m.deleted IS NULL WHERE r.uid = ? AND r.pid = 0`, uid)
	return folders, err
}
