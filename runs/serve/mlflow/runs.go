package mlflow

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// run is a row of the history, as MLflow has it.
type run struct {
	id      int64
	project string
	foreign bool // MLflow's clients made it
	Info    struct {
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
	} `json:"info"`
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

// runColumns and runTables are of a run without what complete reads. Experiments must be there for all projects: see enter.
var runColumns = "r.id, coalesce(r.project_name, ''), r.pid = 0, r.uid, r.uid, coalesce((" + runName + "), r.name), CAST(e.id AS TEXT), " + runUser + ", " + runStatus + ", " + runStart + ", " + runEnd + ", " +
	location + " || '/' || r.uid || '/artifacts', " + stage("r.trashed")

const runTables = "runs r JOIN mlflow_experiments e ON e.name = coalesce(r.project_name, 'Default')"

func (r *run) columns() []any {
	i := &r.Info
	return []any{&r.id, &r.project, &r.foreign, &i.ID, &i.UUID, &i.Name, &i.Experiment, &i.User, &i.Status, &i.Start, &i.End, &i.Root, &i.Stage}
}

// runOf finds a run by its uid, if the user has a role in its project.
func (c *call) runOf(from sqldb.Queryer, uid string, role access.Role) *run {
	if uid == "" {
		lacks("run_id")
	}
	r := &run{}
	if !one(from, r.columns(), "SELECT "+runColumns+" FROM "+runTables+" WHERE r.uid = ?", uid) {
		missing("Run with id=%.100s not found", uid)
	}
	try.Ok(c.user.Must(role, r.project))
	return r
}

// changeRun changes a run that is not deleted, in a transaction; logged tells that something is logged to it, which a run that drun
// has made does not allow. A change has a number, so that copies of the run are brought up to date.
func (c *call) changeRun(uid string, logged bool, fn func(tx *sql.Tx, r *run)) any {
	c.update(func(tx *sql.Tx) {
		r := c.runOf(tx, uid, access.Write)
		r.changeable(logged)
		fn(tx, r)
		try.To(tx.Exec("UPDATE runs SET batch = batch + 1 WHERE id = ?", r.id))
	})
	return nothing{}
}

func (r *run) changeable(logged bool) {
	if r.Info.Stage == deleted {
		refuse("The run %s must be in the 'active' state. Current state is deleted.", r.Info.ID)
	}
	if logged && !r.foreign {
		refuse("The run %s was made by drun: it can be tagged and renamed here, but nothing can be logged to it.", r.Info.ID)
	}
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
	read := func(query string, fn func(r *run), into ...any) {
		try.Ok(sqldb.Each(from, func(rows *sql.Rows) error {
			err := rows.Scan(append([]any{&id}, into...)...)
			if err == nil {
				fn(at[id])
			}
			return err
		}, strings.ReplaceAll(query, "THESE", "run IN (SELECT value FROM json_each(?))"), set))
	}
	read("SELECT run, name, text FROM mlflow_params WHERE THESE", func(r *run) { r.Data.Params = append(r.Data.Params, pair{key, value}) }, &key, &value)
	read("SELECT run, key, group_concat(value, ', ') FROM mlflow_run_tags WHERE THESE GROUP BY run, key", func(r *run) { r.Data.Tags = append(r.Data.Tags, pair{key, value}) }, &key, &value)
	var last sql.NullFloat64
	var lastTime sql.NullInt64
	read("SELECT run, (SELECT name FROM metric_names WHERE id = metric), last, coalesce(last_step, 0), last_time FROM run_metrics WHERE THESE", func(r *run) {
		m := metricJSON{Key: key, Value: records.Float(last.Float64), Step: step, Timestamp: lastTime.Int64 / 1000, Run: r.Info.ID}
		if !last.Valid {
			m.Value = records.Float(math.NaN())
		}
		if !lastTime.Valid {
			m.Timestamp = r.Info.Start
		}
		r.Data.Metrics = append(r.Data.Metrics, m)
	}, &key, &last, &step, &lastTime)
	read("SELECT run, input FROM mlflow_inputs WHERE THESE", func(r *run) { r.Inputs.Datasets = append(r.Inputs.Datasets, json.RawMessage(key)) }, &key)
	output := false
	read("SELECT run, output, model, step FROM mlflow_links WHERE THESE ORDER BY step, model", func(r *run) {
		list := &r.Inputs.Models
		if output {
			list = &r.Outputs.Models
		}
		*list = append(*list, modelLink{value, step})
	}, &output, &value, &step)
}

// answerRun is a run with all that belongs to it.
func (c *call) answerRun(uid string) any {
	list := []run{*c.runOf(c.reader(), uid, access.Read)}
	complete(c.reader(), list)
	return object{"run": list[0]}
}

// ofRun names a run.
type ofRun struct {
	ID string `json:"run_id" or:"run_uuid"`
}

const nameTag = "mlflow.runName"

func createRun(c *call, in *struct {
	Experiment string `json:"experiment_id"`
	User       string `json:"user_id"`
	Name       string `json:"run_name"`
	Start      *whole `json:"start_time"`
	Tags       labels `json:"tags"`
}) any {
	checkTags(in.Tags)
	tags := labels{nameTag: in.Name}
	if in.User != "unknown" {
		tags["mlflow.user"] = in.User
	}
	for key, value := range in.Tags {
		if key == nameTag && value == "" {
			continue
		}
		if key == nameTag && in.Name != "" && value != in.Name {
			refuse("Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values (run_name='%s', mlflow.runName='%s').", in.Name, value)
		}
		tags[key] = value
	}
	checkLength("run name", tags[nameTag], mostTag)
	started := time.Now()
	if in.Start != nil {
		started = timeOf(*in.Start, "start_time")
	}
	tool, _, _ := strings.Cut(strings.Replace(c.r.UserAgent(), "mlflow-python-client/", "MLflow ", 1), " (")
	if !strings.HasPrefix(tool, "MLflow ") {
		tool = "MLflow's API"
	}
	begun := &history.Logged{Name: tags[nameTag], Source: tags["mlflow.source.name"], Tool: fmt.Sprintf("%.100s", tool), Owner: c.user.Name, Started: started}
	var uid string
	c.update(func(tx *sql.Tx) {
		if in.Experiment == "" {
			in.Experiment = "0"
		}
		begun.Project = c.experimentOf(tx, in.Experiment, access.Write).active().inProject()
		id, name, begunAs, err := begun.Begin(tx)
		try.Ok(err)
		if uid = begunAs; tags[nameTag] == "" {
			tags[nameTag] = name
		}
		if tags["mlflow.user"] == "" {
			delete(tags, "mlflow.user")
		}
		setTags(tx, id, tags)
	})
	c.user.Log(access.Event{Action: "enter", UID: uid, Project: begun.Project})
	return c.answerRun(uid)
}

func getRun(c *call, in *ofRun) any { return c.answerRun(in.ID) }

func updateRun(c *call, in *struct {
	ofRun
	Status json.RawMessage `json:"status"`
	End    *whole          `json:"end_time"`
	Name   string          `json:"run_name"`
}) any {
	status := enum(in.Status, "status", "", "RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
	checkLength("run name", in.Name, mostTag)
	c.changeRun(in.ID, status != "" || in.End != nil, func(tx *sql.Tx, r *run) {
		if in.Name != "" {
			setTags(tx, r.id, labels{nameTag: in.Name})
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
			timeOf(*in.End, "end_time")
			try.To(tx.Exec("UPDATE runs AS r SET seconds = (?1 - ("+runStart+")) / 1000.0 WHERE id = ?2", int64(*in.End), r.id))
		}
	})
	c.user.Log(access.Event{Action: "change", UID: in.ID, What: strings.TrimSpace("update " + status)})
	return object{"run_info": c.runOf(c.reader(), in.ID, access.Read).Info}
}

// moveRun moves a run to the trash, or out of it.
func (c *call) moveRun(uid, action string) any {
	var r *run
	c.update(func(tx *sql.Tx) {
		r = c.runOf(tx, uid, access.Write)
		trashed := action == "remove"
		if trashed && !r.foreign && r.Info.Status == "RUNNING" {
			refuse("The run %s is running: stop it first (drun stop)", uid)
		}
		c.setTrashed(tx, trashed, "id = ?", r.id)
	})
	c.user.Log(access.Event{Action: action, UID: uid, Project: r.project})
	return nothing{}
}

func deleteRun(c *call, in *ofRun) any  { return c.moveRun(in.ID, "remove") }
func restoreRun(c *call, in *ofRun) any { return c.moveRun(in.ID, "restore") }

func searchRuns(c *call, in *struct {
	pages
	inExperiments
	Filter string          `json:"filter"`
	View   json.RawMessage `json:"run_view_type"`
	Order  []string        `json:"order_by"`
}) any {
	c.enter()
	q := c.query(runFields, "r.project_name", in.Filter, in.Order)
	q.within(in.inExperiments)
	q.view(in.View, "r.trashed")
	from, most := in.part(1000, mostResults)
	tail, args := q.tail(from, most, "substr(r.started, 1, 23) DESC", "r.uid")
	found := try.To(sqldb.List(c.reader(), (*run).columns, "WITH found AS MATERIALIZED (SELECT r.id FROM "+runTables+tail+") SELECT "+
		runColumns+" FROM found JOIN runs r USING (id) JOIN mlflow_experiments e ON e.name = coalesce(r.project_name, 'Default')", args...))
	answer := page("runs", found, from, most)
	runs := answer["runs"].([]run)
	if len(runs) <= runsAtOnce {
		complete(c.reader(), runs)
		return answer
	}
	answer["runs"] = []run{}
	head, end, _ := bytes.Cut(try.To(records.Marshal(answer)), []byte("[]"))
	next, begun := append(head, '['), false
	err := func() (err error) {
		defer try.Caught(&err)
		for part := range slices.Chunk(runs, runsAtOnce) {
			complete(c.reader(), part)
			text := try.To(records.Marshal(part))
			c.w.Header().Set("Content-Type", "application/json")
			begun = true
			try.To(c.w.Write(append(next, text[1:len(text)-1]...)))
			next = []byte{','}
			clear(part)
		}
		return nil
	}()
	if err != nil && begun {
		panic(http.ErrAbortHandler) // whoever reads it sees that it was cut off
	}
	try.Ok(err)
	_, _ = c.w.Write(append([]byte{']'}, end...))
	return nil
}

// runsAtOnce limits the memory for an answer with many runs.
const runsAtOnce = 1000
