package mlflow

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// run is a row of the history, as MLflow has it.
type run struct {
	id           int64
	uid          string
	project      string
	experiment   int64
	name, user   string
	status       string
	start        int64
	end          *int64
	deleted      bool
	foreign      bool // MLflow's clients made it
	location     string
	params       []pair
	metrics      []metricJSON
	tags         []pair
	inputs       []json.RawMessage
	modelInputs  []modelLink
	modelOutputs []modelLink
}

// runColumns are those of run up to location. Experiments must be there for all projects: see enter.
const runColumns = "r.id, r.uid, coalesce(r.project_name, ''), e.id, coalesce((" + runName + "), r.name), " + runUser + ", " + runStatus + ", " + runStart + ", " + runEnd + ", r.trashed IS NOT NULL, r.pid = 0, e.location"

const runTables = "runs r JOIN mlflow_experiments e ON e.name = coalesce(r.project_name, 'Default')"

func (r *run) columns() []any {
	return []any{&r.id, &r.uid, &r.project, &r.experiment, &r.name, &r.user, &r.status, &r.start, &r.end, &r.deleted, &r.foreign, &r.location}
}

// runOf finds a run by its uid, if the user has a role in its project.
func (c *call) runOf(from sqldb.Queryer, uid string, role access.Role) *run {
	if uid == "" {
		try.Ok(invalid("Missing value for required parameter 'run_id'. See the API docs for more information about request parameters."))
	}
	r := &run{}
	if !one(from, r.columns(), "SELECT "+runColumns+" FROM "+runTables+" WHERE r.uid = ?", uid) {
		try.Ok(missing("Run with id=%.100s not found", uid))
	}
	try.Ok(c.user.Must(role, r.project))
	return r
}

// active refuses a run that is deleted.
func (r *run) active() *run {
	if r.deleted {
		try.Ok(invalid("The run %s must be in the 'active' state. Current state is deleted.", r.uid))
	}
	return r
}

// logged refuses a run that drun has made: what is in it is what its recipe recorded.
func (r *run) logged() *run {
	if !r.active().foreign {
		try.Ok(invalid("The run %s was made by drun: it can be tagged and renamed here, but nothing can be logged to it.", r.uid))
	}
	return r
}

// root is where the artifacts of a run are.
func (r *run) root() string {
	e := experiment{id: r.experiment, location: r.location}
	return e.at() + "/" + r.uid + "/artifacts"
}

// complete reads what belongs to runs. Each query is for all of them.
func complete(from sqldb.Queryer, runs []run) {
	at, ids := map[int64]*run{}, make([]int64, len(runs))
	for i := range runs {
		at[runs[i].id], ids[i] = &runs[i], runs[i].id
	}
	set := sqldb.JSON(ids)
	var id, step int64
	var key, value string
	read := func(query string, into []any, fn func(r *run)) {
		try.Ok(sqldb.Each(from, func(rows *sql.Rows) error {
			if err := rows.Scan(append([]any{&id}, into...)...); err != nil {
				return err
			}
			fn(at[id])
			return nil
		}, strings.ReplaceAll(query, "THESE", "run IN (SELECT value FROM json_each(?))"), set))
	}
	text := []any{&key, &value}
	read("SELECT run, name, text FROM mlflow_params WHERE THESE", text, func(r *run) { r.params = append(r.params, pair{key, value}) })
	read("SELECT run, key, group_concat(value, ', ') FROM mlflow_run_tags WHERE THESE GROUP BY run, key", text, func(r *run) { r.tags = append(r.tags, pair{key, value}) })
	var last sql.NullFloat64
	var lastStep, lastTime sql.NullInt64
	read("SELECT run, (SELECT name FROM metric_names WHERE id = metric), last, last_step, last_time FROM run_metrics WHERE THESE", []any{&key, &last, &lastStep, &lastTime}, func(r *run) {
		m := metricJSON{Key: key, Value: records.Float(math.NaN()), Step: lastStep.Int64, Timestamp: lastTime.Int64 / 1000, Run: r.uid}
		if last.Valid {
			m.Value = records.Float(last.Float64)
		}
		if !lastTime.Valid {
			m.Timestamp = r.start
		}
		r.metrics = append(r.metrics, m)
	})
	read("SELECT run, input, '' FROM mlflow_inputs WHERE THESE", text, func(r *run) { r.inputs = append(r.inputs, json.RawMessage(key)) })
	output := false
	read("SELECT run, output, model, step FROM mlflow_links WHERE THESE ORDER BY step, model", []any{&output, &value, &step}, func(r *run) {
		if output {
			r.modelOutputs = append(r.modelOutputs, modelLink{value, step})
		} else {
			r.modelInputs = append(r.modelInputs, modelLink{value, step})
		}
	})
}

type metricJSON struct {
	Key       string        `json:"key"`
	Value     records.Float `json:"value"`
	Timestamp int64         `json:"timestamp"`
	Step      int64         `json:"step"`
	Model     string        `json:"model_id,omitempty"`
	Dataset   string        `json:"dataset_name,omitempty"`
	Digest    string        `json:"dataset_digest,omitempty"`
	Run       string        `json:"run_id,omitempty"`
}

type modelLink struct {
	Model string `json:"model_id"`
	Step  int64  `json:"step"`
}

type runInfo struct {
	ID         string `json:"run_id"`
	UUID       string `json:"run_uuid"`
	Name       string `json:"run_name"`
	Experiment string `json:"experiment_id"`
	User       string `json:"user_id"`
	Status     string `json:"status"`
	Start      int64  `json:"start_time"`
	End        *int64 `json:"end_time,omitempty"`
	Root       string `json:"artifact_uri"`
	Stage      string `json:"lifecycle_stage"`
}

type runJSON struct {
	Info runInfo `json:"info"`
	Data struct {
		Metrics []metricJSON `json:"metrics,omitempty"`
		Params  []pair       `json:"params,omitempty"`
		Tags    []pair       `json:"tags,omitempty"`
	} `json:"data"`
	Inputs struct {
		Datasets []json.RawMessage `json:"dataset_inputs,omitempty"`
		Models   []modelLink       `json:"model_inputs,omitempty"`
	} `json:"inputs"`
	Outputs struct {
		Models []modelLink `json:"model_outputs,omitempty"`
	} `json:"outputs"`
}

func (r *run) info() runInfo {
	return runInfo{r.uid, r.uid, r.name, fmt.Sprint(r.experiment), r.user, r.status, r.start, r.end, r.root(), stage(r.deleted)}
}

func (r run) json() *runJSON {
	out := &runJSON{Info: r.info()}
	out.Data.Metrics, out.Data.Params, out.Data.Tags = r.metrics, r.params, r.tags
	out.Inputs.Datasets, out.Inputs.Models, out.Outputs.Models = r.inputs, r.modelInputs, r.modelOutputs
	return out
}

type runAnswer struct {
	Run *runJSON `json:"run"`
}

// answerRun is a run with all that belongs to it.
func (c *call) answerRun(uid string) runAnswer {
	from := c.reader()
	list := []run{*c.runOf(from, uid, access.Read)}
	complete(from, list)
	return runAnswer{list[0].json()}
}

func createRun(c *call, in *struct {
	Experiment string `json:"experiment_id"`
	User       string `json:"user_id"`
	Name       string `json:"run_name"`
	Start      *whole `json:"start_time"`
	Tags       []pair `json:"tags"`
}) any {
	checkTags(in.Tags)
	tags := ofPairs(in.Tags)
	switch tag := tags["mlflow.runName"]; {
	case in.Name == "":
		in.Name = tag
	case tag != "" && tag != in.Name:
		try.Ok(invalid("Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values (run_name='%s', mlflow.runName='%s').", in.Name, tag))
	}
	checkLength("run name", in.Name, mostTag)
	if _, has := tags["mlflow.user"]; !has && in.User != "" && in.User != "unknown" {
		in.Tags = append(in.Tags, pair{"mlflow.user", in.User})
	}
	started := time.Now()
	if in.Start != nil {
		started = timeOf(int64(*in.Start), "start_time")
	}
	tool, _, _ := strings.Cut(strings.Replace(c.r.UserAgent(), "mlflow-python-client/", "MLflow ", 1), " (")
	if !strings.HasPrefix(tool, "MLflow ") {
		tool = "MLflow's API"
	}
	var uid, project string
	c.update(func(tx *sql.Tx) {
		if in.Experiment == "" {
			in.Experiment = "0"
		}
		project = c.experimentOf(tx, in.Experiment, access.Write).active().inProject()
		begun := &history.Logged{Name: in.Name, Source: tags["mlflow.source.name"], Tool: fmt.Sprintf("%.100s", tool), Project: project, Owner: c.user.Name, Started: started}
		id, name, begunAs, err := begun.Begin(tx)
		try.Ok(err)
		uid = begunAs
		if in.Name != "" {
			name = in.Name
		}
		setTags(tx, id, append(in.Tags, pair{"mlflow.runName", name}))
	})
	c.user.Log(access.Event{Action: "enter", UID: uid, Project: project})
	return c.answerRun(uid)
}

type runID struct {
	ID   string `json:"run_id"`
	UUID string `json:"run_uuid"` // the id's former name
}

// either is the id, by its former name too.
func either(id, uuid string) string {
	if id == "" {
		return uuid
	}
	return id
}

func getRun(c *call, in *runID) any { return c.answerRun(either(in.ID, in.UUID)) }

func updateRun(c *call, in *struct {
	ID     string          `json:"run_id"`
	UUID   string          `json:"run_uuid"`
	Status json.RawMessage `json:"status"`
	End    *whole          `json:"end_time"`
	Name   string          `json:"run_name"`
}) any {
	uid := either(in.ID, in.UUID)
	status := enum(in.Status, "status", "", "RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
	checkLength("run name", in.Name, mostTag)
	c.update(func(tx *sql.Tx) {
		r := c.runOf(tx, uid, access.Write).active()
		if status != "" || in.End != nil {
			r.logged()
		}
		touch(tx, r.id)
		if in.Name != "" {
			setTags(tx, r.id, []pair{{"mlflow.runName", in.Name}})
		}
		ended := map[string]history.Status{"FINISHED": history.Done, "FAILED": history.Failed, "KILLED": history.Interrupted}[status]
		switch {
		case status == "":
		case ended == "":
			try.To(tx.Exec("UPDATE runs SET status = 'running', seconds = NULL, exit_code = NULL WHERE id = ?", r.id))
		default:
			code := map[history.Status]int{history.Failed: 1, history.Interrupted: 130}[ended]
			try.To(tx.Exec("UPDATE runs SET status = ?, exit_code = ? WHERE id = ?", ended, code, r.id))
		}
		if in.End != nil && *in.End != 0 {
			timeOf(int64(*in.End), "end_time")
			try.To(tx.Exec("UPDATE runs AS r SET seconds = (?1 - ("+runStart+")) / 1000.0 WHERE id = ?2", int64(*in.End), r.id))
		}
	})
	c.user.Log(access.Event{Action: "change", UID: uid, What: strings.TrimSpace("update " + status)})
	return struct {
		Info runInfo `json:"run_info"`
	}{c.runOf(c.reader(), uid, access.Read).info()}
}

// setTrashed moves a run to the trash, or out of it.
func (c *call) setTrashed(in *runID, trashed bool) any {
	uid, what := either(in.ID, in.UUID), map[bool]string{true: "remove", false: "restore"}[trashed]
	var project string
	c.update(func(tx *sql.Tx) {
		r := c.runOf(tx, uid, access.Write)
		if project = r.project; trashed && !r.foreign && r.status == "RUNNING" {
			try.Ok(invalid("The run %s is running: stop it first (drun stop)", uid))
		}
		at := any(nil)
		if trashed {
			at = time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		}
		try.To(tx.Exec("UPDATE runs SET trashed = ? WHERE id = ?", at, r.id))
	})
	c.user.Log(access.Event{Action: what, UID: uid, Project: project})
	return nothing{}
}

func deleteRun(c *call, in *runID) any  { return c.setTrashed(in, true) }
func restoreRun(c *call, in *runID) any { return c.setTrashed(in, false) }

func searchRuns(c *call, in *struct {
	Experiments []string        `json:"experiment_ids"`
	Filter      string          `json:"filter"`
	View        json.RawMessage `json:"run_view_type"`
	Most        whole           `json:"max_results"`
	Order       []string        `json:"order_by"`
	Token       string          `json:"page_token"`
}) any {
	c.enter()
	q := &query{fields: runFields}
	q.where("e.id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))", sqldb.JSON(in.Experiments))
	if within := c.user.Within(access.Read); within != nil {
		q.where("r.project_name IN (SELECT value FROM json_each(?))", sqldb.JSON(within))
	}
	q.view(in.View, "r.trashed")
	q.filter(in.Filter)
	q.order(in.Order)
	from, most := offset(in.Token), limited(in.Most, 1000, mostResults)
	order := strings.Join(append(q.orders, "substr(r.started, 1, 23) DESC", "r.uid"), ", ")
	reader := c.reader()
	found := try.To(sqldb.List(reader, func(r *run) []any { return r.columns() },
		"WITH found AS MATERIALIZED (SELECT r.id FROM "+runTables+q.tables+" WHERE "+q.conditions()+" ORDER BY "+order+" LIMIT ? OFFSET ?) SELECT "+
			runColumns+" FROM found JOIN runs r USING (id) JOIN mlflow_experiments e ON e.name = coalesce(r.project_name, 'Default')", append(q.args(), most+1, from)...))
	token := next(len(found), from, most)
	found = found[:min(most, len(found))]
	complete(reader, found)
	return struct {
		Runs []*runJSON `json:"runs"`
		Next string     `json:"next_page_token,omitempty"`
	}{each.Of(found, run.json), token}
}

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

// mostRecent is of how many runs the latest points are remembered.
const mostRecent = 128
