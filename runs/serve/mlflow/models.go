package mlflow

import (
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"drun/history/records"
	"drun/internal/each"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// model is a row of mlflow_models: a logged model, whose files are artifacts.
type model struct {
	project string
	Info    struct {
		ID         string `json:"model_id"`
		Experiment string `json:"experiment_id"`
		Name       string `json:"name"`
		Created    int64  `json:"creation_timestamp_ms"`
		Updated    int64  `json:"last_updated_timestamp_ms"`
		Root       string `json:"artifact_uri"`
		Status     string `json:"status"`
		Kind       string `json:"model_type,omitempty"`
		Run        string `json:"source_run_id,omitempty"` // uid of the run that made it
		Tags       labels `json:"tags,omitempty"`
	} `json:"info"`
	Data struct {
		Params  labels       `json:"params,omitempty"`
		Metrics []metricJSON `json:"metrics,omitempty"`
	} `json:"data"`
}

// models are those that the rest of a query selects, with their metrics.
func models(from sqldb.Queryer, tail string, args ...any) []model {
	list := try.To(sqldb.List(from, func(m *model) []any {
		i := &m.Info
		return []any{&m.project, &i.ID, &i.Experiment, &i.Root, &i.Run, &i.Name, &i.Kind, &i.Status, &i.Created, &i.Updated, &m.Data.Params, &i.Tags}
	}, "SELECT coalesce(m.project, ''), m.id, CAST(e.id AS TEXT), "+location+` || '/models/' || m.id || '/artifacts', m.source, m.name, m.type, m.status, m.created, m.updated, m.params, m.tags
		FROM mlflow_models m JOIN mlflow_experiments e ON e.name = coalesce(m.project, 'Default')`+tail, args...))
	at := map[string]*model{}
	for i := range list {
		at[list[i].Info.ID] = &list[i]
	}
	try.Ok(sqldb.Each(from, func(rows *sql.Rows) error {
		var m metricJSON
		var value any
		err := rows.Scan(&m.Model, &m.Run, &m.Key, &m.Step, &m.Timestamp, &value, &m.Dataset, &m.Digest)
		if err == nil {
			err = (*float)(&m.Value).UnmarshalJSON(fmt.Append(nil, value))
		}
		at[m.Model].Data.Metrics = append(at[m.Model].Data.Metrics, m)
		return err
	}, `SELECT p.model, r.uid, p.name, p.step, p.time, p.value, p.dataset, p.digest FROM mlflow_model_points p JOIN runs r ON r.id = p.run
		WHERE p.model IN (SELECT value FROM json_each(?)) ORDER BY p.model, p.name, p.step, p.time`, sqldb.JSON(each.Of(list, func(m model) string { return m.Info.ID }))))
	return list
}

func (c *call) modelOf(from sqldb.Queryer, id string, role access.Role) *model {
	found := models(from, " WHERE m.id = ? AND m.deleted IS NULL", id)
	if len(found) == 0 {
		missing("Logged model with ID '%.100s' not found.", id)
	}
	try.Ok(c.user.Must(role, found[0].project))
	return &found[0]
}

type modelID struct {
	ID string `json:"model_id" need:""`
}

func createModel(c *call, in *struct {
	experimentID
	Name   string `json:"name"`
	Kind   string `json:"model_type"`
	Run    string `json:"source_run_id"`
	Params []pair `json:"params"`
	Tags   labels `json:"tags"`
}) any {
	checkTags(in.Tags)
	params := checkParams(in.Params)
	if strings.ContainsAny(in.Name, `/:.%"'`) || len(in.Name) > 500 {
		refuse("Invalid model name (%.100q): Model name must be a non-empty string and cannot contain the following characters: '/', ':', '.', '%%', '\"', \"'\"", in.Name)
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	id := "m-" + hex.EncodeToString(random)
	if in.Name == "" {
		in.Name = id
	}
	c.update(func(tx *sql.Tx) {
		e := c.experimentOf(tx, in.ID, access.Write).active()
		try.To(tx.Exec("INSERT INTO mlflow_models VALUES (?, nullif(?, ''), ?, ?, ?, 'LOGGED_MODEL_PENDING', ?6, ?6, NULL, ?, ?)",
			id, e.inProject(), in.Run, in.Name, in.Kind, now(), params, in.Tags))
		touch(tx, in.Run)
	})
	c.user.Log(access.Event{Action: "enter", UID: in.Run, What: "model " + id})
	return getModel(c, &modelID{id})
}

// touch numbers a change of what a run has made, as changeRun does.
func touch(tx *sql.Tx, uid string) {
	try.To(tx.Exec("UPDATE runs SET batch = batch + 1 WHERE uid = ? AND pid = 0", uid))
}

func getModel(c *call, in *modelID) any {
	return object{"model": c.modelOf(c.reader(), in.ID, access.Read)}
}

// changeModel writes what fn changes of a model.
func (c *call) changeModel(id string, fn func(m *model)) any {
	var m *model
	c.update(func(tx *sql.Tx) {
		m = c.modelOf(tx, id, access.Write)
		m.Info.Updated = now()
		fn(m)
		try.To(tx.Exec("UPDATE mlflow_models SET updated = ?, status = ?, tags = ?, params = ? WHERE id = ?", m.Info.Updated, m.Info.Status, m.Info.Tags, m.Data.Params, id))
		touch(tx, m.Info.Run)
	})
	return object{"model": m}
}

func finalizeModel(c *call, in *struct {
	modelID
	Status json.RawMessage `json:"status" need:""`
}) any {
	status := enum(in.Status, "status", "", "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED")
	if status == "LOGGED_MODEL_PENDING" {
		refuse("Invalid model status: a model that is finalized is not pending")
	}
	return c.changeModel(in.ID, func(m *model) { m.Info.Status = status })
}

func deleteModel(c *call, in *modelID) any {
	c.update(func(tx *sql.Tx) {
		m := c.modelOf(tx, in.ID, access.Write)
		try.To(tx.Exec("UPDATE mlflow_models SET updated = ?1, deleted = ?1 WHERE id = ?2", now(), in.ID))
		touch(tx, m.Info.Run)
	})
	return nothing{}
}

func setModelTags(c *call, in *struct {
	modelID
	Tags labels `json:"tags"`
}) any {
	checkTags(in.Tags)
	return c.changeModel(in.ID, func(m *model) { maps.Copy(m.Info.Tags, in.Tags) })
}

func deleteModelTag(c *call, in *struct {
	modelID
	Key string `json:"tag_key" need:""`
}) any {
	c.changeModel(in.ID, func(m *model) {
		if _, has := m.Info.Tags[in.Key]; !has {
			missing("No tag with key %s found for model with ID %s", in.Key, in.ID)
		}
		delete(m.Info.Tags, in.Key)
	})
	return nothing{}
}

func logModelParams(c *call, in *struct {
	modelID
	Params []pair `json:"params"`
}) any {
	given := checkParams(in.Params)
	c.changeModel(in.ID, func(m *model) { maps.Copy(m.Data.Params, missingOf(given, m.Data.Params, "model", in.ID)) })
	return nothing{}
}

// ofDataset are the data sets that a search of models names, in SQL.
const ofDataset = "OFDATASET"

// modelFields are what models can be searched by. A metric is the latest of its name, of the data set that a search names or of any.
var modelFields = &fields{
	attributes: map[string]attribute{"name": {sql: "m.name", in: true}, "model_id": {sql: "m.id", in: true}, "model_type": {sql: "m.type", in: true}, "status": {sql: "replace(m.status, 'LOGGED_MODEL_', '')", in: true},
		"source_run_id":      {sql: "m.source", in: true},
		"creation_timestamp": {sql: "m.created", numeric: true}, "creation_time": {sql: "m.created", numeric: true},
		"last_updated_timestamp": {sql: "m.updated", numeric: true}, "last_updated_time": {sql: "m.updated", numeric: true}},
	kinds: map[string]kind{
		"metric":    {sql: "p.value", numeric: true, exists: "EXISTS (SELECT 1 FROM mlflow_model_points p WHERE p.model = m.id AND p.name = ? AND p.value <> 'NaN' AND " + ofDataset + " AND %s)"},
		"parameter": {sql: "SELECT value FROM json_each(m.params) WHERE key = ?"},
		"tag":       {sql: "SELECT value FROM json_each(m.tags) WHERE key = ?"},
	},
}

const mostModels = 50

type dataset struct {
	Name   string `json:"dataset_name"`
	Digest string `json:"dataset_digest"`
}

func searchModels(c *call, in *struct {
	pages
	inExperiments
	Filter   string    `json:"filter"`
	Datasets []dataset `json:"datasets"`
	Order    []struct {
		dataset
		Field     string `json:"field_name" need:""`
		Ascending *bool  `json:"ascending"`
	} `json:"order_by"`
}) any {
	c.enter()
	q := c.query(modelFields, "m.project", in.Filter, nil)
	q.within(in.inExperiments)
	q.where("m.deleted IS NULL")
	of := "TRUE"
	if len(in.Datasets) > 0 {
		names := sqldb.JSON(each.Of(in.Datasets, func(d dataset) []string { return []string{d.Name, d.Digest} }))
		of = "(p.dataset, p.digest) IN (SELECT value ->> 0, CASE WHEN value ->> 1 = '' THEN p.digest ELSE value ->> 1 END FROM json_each('" + strings.ReplaceAll(names, "'", "''") + "'))"
		q.where("EXISTS (SELECT 1 FROM mlflow_model_points p WHERE p.model = m.id AND " + ofDataset + ")")
	}
	for i := range q.wheres {
		q.wheres[i] = strings.ReplaceAll(q.wheres[i], ofDataset, of)
	}
	for _, o := range in.Order {
		if o.Field == "" {
			refuse("order_by has no field_name")
		}
		direction := " ASC"
		if o.Ascending != nil && !*o.Ascending {
			direction = " DESC"
		}
		if what, key := modelFields.identifier(o.Field); what == "metric" {
			q.sortBy("SELECT value FROM mlflow_model_points WHERE model = m.id AND name = ? AND ? IN ('', dataset) AND ? IN ('', digest) ORDER BY time DESC, step DESC LIMIT 1", direction, key, o.Name, o.Digest)
		} else {
			q.order([]string{o.Field + direction})
		}
	}
	from, most := in.part(mostModels, mostModels)
	tail, args := q.tail(from, most, "m.created DESC", "m.id")
	return page("models", models(c.reader(), tail, args...), from, most)
}

func logInputs(c *call, in *struct {
	ofRun
	Datasets []struct { // that a run used, with what it was used for
		Tags    labels `json:"tags"`
		Dataset struct {
			Name       string `json:"name"`
			Digest     string `json:"digest"`
			SourceType string `json:"source_type"`
			Source     string `json:"source"`
			Schema     string `json:"schema,omitempty"`
			Profile    string `json:"profile,omitempty"`
		} `json:"dataset"`
	} `json:"datasets"`
	Models []modelLink `json:"models"`
}) any {
	return c.changeRun(in.ID, true, func(tx *sql.Tx, r *run) {
		for i := range in.Datasets {
			d := &in.Datasets[i]
			if d.Dataset.Name == "" || d.Dataset.Digest == "" || d.Dataset.SourceType == "" {
				refuse("Missing value for required parameter 'datasets[%d].dataset': it has a name, a digest and a source_type", i)
			}
			context := any(nil)
			if text, has := d.Tags["mlflow.data.context"]; has {
				context = text
			}
			try.To(tx.Exec("INSERT OR IGNORE INTO mlflow_inputs VALUES (?, ?, ?, ?, ?)", r.id, d.Dataset.Name, d.Dataset.Digest, context, string(try.To(records.Marshal(d)))))
		}
		link(tx, r, false, in.Models)
	})
}

func logOutputs(c *call, in *struct {
	ofRun
	Models []modelLink `json:"models"`
}) any {
	return c.changeRun(in.ID, true, func(tx *sql.Tx, r *run) { link(tx, r, true, in.Models) })
}

func link(tx *sql.Tx, r *run, output bool, models []modelLink) {
	for _, m := range models {
		try.To(tx.Exec("INSERT OR IGNORE INTO mlflow_links VALUES (?, ?, ?, ?)", r.id, output, m.Model, m.Step))
	}
}

// logModel records a model in the way of clients before MLflow 3, in a tag.
func logModel(c *call, in *struct {
	ofRun
	Model string `json:"model_json" need:""`
}) any {
	var described struct {
		Path    string         `json:"artifact_path"`
		Created string         `json:"utc_time_created"`
		Flavors map[string]any `json:"flavors"`
	}
	if json.Unmarshal([]byte(in.Model), &described) != nil {
		refuse("Malformed model info. \n %.200s \n not a valid JSON", in.Model)
	}
	if described.Path == "" || described.Created == "" || described.Flavors == nil {
		refuse("Model json is missing mandatory fields: artifact_path, utc_time_created, flavors")
	}
	const key = "mlflow.log-model.history"
	return c.changeRun(in.ID, true, func(tx *sql.Tx, r *run) {
		list, before := []json.RawMessage{}, ""
		if one(tx, []any{&before}, "SELECT value FROM mlflow_tags WHERE run = ? AND key = ?", r.id, key) {
			_ = json.Unmarshal([]byte(before), &list) // a client may have set the tag
		}
		setTags(tx, r.id, labels{key: sqldb.JSON(append(list, json.RawMessage(in.Model)))})
	})
}

func searchDatasets(c *call, in *inExperiments) any {
	if n := len(in.Experiments); n == 0 || n > 20 {
		refuse("SearchDatasets request must specify at least one experiment_id. SearchDatasets request cannot specify more than 20 experiment_ids. Received %d.", n)
	}
	type summary struct {
		Experiment string `json:"experiment_id"`
		Name       string `json:"name"`
		Digest     string `json:"digest"`
		Context    string `json:"context,omitempty"`
	}
	for _, id := range in.Experiments {
		c.experimentOf(c.reader(), id, access.Read)
	}
	return object{"dataset_summaries": try.To(sqldb.List(c.reader(), func(s *summary) []any { return []any{&s.Experiment, &s.Name, &s.Digest, &s.Context} },
		"SELECT DISTINCT CAST(e.id AS TEXT), d.name, d.digest, coalesce(d.context, '') FROM "+runTables+` JOIN mlflow_inputs d ON d.run = r.id
			WHERE r.trashed IS NULL AND e.id IN (SELECT CAST(value AS INTEGER) FROM json_each(?)) ORDER BY 2, 3 LIMIT 1000`, sqldb.JSON(in.Experiments)))}
}
