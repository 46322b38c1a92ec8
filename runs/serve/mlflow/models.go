package mlflow

import (
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"drun/history/records"
	"drun/internal/each"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// model is a row of mlflow_models: a logged model, whose files are artifacts.
type model struct {
	id, project, name, kind, status string
	experiment                      int64
	location                        string
	run                             string // uid of the run that made it; "": none
	created, updated                int64
	deleted                         bool
	params, tags                    map[string]string
	metrics                         []metricJSON
}

const modelColumns = `m.id, coalesce(m.project, ''), e.id, e.location, m.source, m.name, m.type, m.status, m.created, m.updated,
	m.deleted IS NOT NULL, m.params, m.tags`

const modelTables = "mlflow_models m JOIN mlflow_experiments e ON e.name = coalesce(m.project, 'Default')"

// models are those that a condition selects, with their metrics.
func models(from sqldb.Queryer, tail string, args ...any) []model {
	list := try.To(sqldb.List(from, func(m *model) []any {
		return []any{&m.id, &m.project, &m.experiment, &m.location, &m.run, &m.name, &m.kind, &m.status, &m.created, &m.updated, &m.deleted, asJSON{&m.params}, asJSON{&m.tags}}
	}, "SELECT "+modelColumns+" FROM "+modelTables+tail, args...))
	at := map[string]*model{}
	for i := range list {
		at[list[i].id] = &list[i]
	}
	ids := each.Of(list, func(m model) string { return m.id })
	try.Ok(sqldb.Each(from, func(rows *sql.Rows) error {
		var m metricJSON
		var value any
		err := rows.Scan(&m.Model, &m.Run, &m.Key, &m.Step, &m.Timestamp, &value, &m.Dataset, &m.Digest)
		var n float
		if err == nil {
			err = n.UnmarshalJSON(fmt.Append(nil, value))
		}
		m.Value = records.Float(n)
		at[m.Model].metrics = append(at[m.Model].metrics, m)
		return err
	}, `SELECT p.model, r.uid, p.name, p.step, p.time, p.value, p.dataset, p.digest FROM mlflow_model_points p JOIN runs r ON r.id = p.run
		WHERE p.model IN (SELECT value FROM json_each(?)) ORDER BY p.model, p.name, p.step, p.time`, sqldb.JSON(ids)))
	return list
}

func (c *call) modelOf(from sqldb.Queryer, id string, role access.Role) *model {
	found := models(from, " WHERE m.id = ? AND m.deleted IS NULL", id)
	if len(found) == 0 {
		try.Ok(missing("Logged model with ID '%.100s' not found.", id))
	}
	try.Ok(c.user.Must(role, found[0].project))
	return &found[0]
}

func (m *model) root() string {
	e := experiment{id: m.experiment, location: m.location}
	return e.at() + "/models/" + m.id + "/artifacts"
}

type modelJSON struct {
	Info struct {
		ID         string `json:"model_id"`
		Experiment string `json:"experiment_id"`
		Name       string `json:"name"`
		Created    int64  `json:"creation_timestamp_ms"`
		Updated    int64  `json:"last_updated_timestamp_ms"`
		Root       string `json:"artifact_uri"`
		Status     string `json:"status"`
		Kind       string `json:"model_type,omitempty"`
		Run        string `json:"source_run_id,omitempty"`
		Tags       []pair `json:"tags,omitempty"`
	} `json:"info"`
	Data struct {
		Params  []pair       `json:"params,omitempty"`
		Metrics []metricJSON `json:"metrics,omitempty"`
	} `json:"data"`
}

func (m model) json() *modelJSON {
	out := &modelJSON{}
	i := &out.Info
	i.ID, i.Experiment, i.Name, i.Created, i.Updated, i.Root = m.id, fmt.Sprint(m.experiment), m.name, m.created, m.updated, m.root()
	i.Status, i.Kind, i.Run, i.Tags = m.status, m.kind, m.run, pairs(m.tags)
	out.Data.Params, out.Data.Metrics = pairs(m.params), m.metrics
	return out
}

type modelAnswer struct {
	Model *modelJSON `json:"model"`
}

type modelID struct {
	ID string `json:"model_id" need:""`
}

func createModel(c *call, in *struct {
	Experiment string `json:"experiment_id" need:""`
	Name       string `json:"name"`
	Kind       string `json:"model_type"`
	Run        string `json:"source_run_id"`
	Params     []pair `json:"params"`
	Tags       []pair `json:"tags"`
}) any {
	checkTags(in.Tags)
	checkModelParams(in.Params)
	if strings.ContainsAny(in.Name, `/:.%"'`) || len(in.Name) > 500 {
		try.Ok(invalid("Invalid model name (%.100q): Model name must be a non-empty string and cannot contain the following characters: '/', ':', '.', '%%', '\"', \"'\"", in.Name))
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	id := "m-" + hex.EncodeToString(random)
	if in.Name == "" {
		in.Name = id
	}
	c.update(func(tx *sql.Tx) {
		e := c.experimentOf(tx, in.Experiment, access.Write).active()
		try.To(tx.Exec("INSERT INTO mlflow_models VALUES (?, nullif(?, ''), ?, ?, ?, 'LOGGED_MODEL_PENDING', ?6, ?6, NULL, ?, ?)",
			id, e.inProject(), in.Run, in.Name, in.Kind, now(), asText(ofPairs(in.Params)), asText(ofPairs(in.Tags))))
	})
	c.user.Log(access.Event{Action: "enter", UID: in.Run, What: "model " + id})
	return modelAnswer{c.modelOf(c.reader(), id, access.Read).json()}
}

func checkModelParams(params []pair) {
	for _, p := range params {
		checkKey("param", p.Key)
		checkLength("param value", p.Value, mostParam)
	}
}

func getModel(c *call, in *modelID) any {
	return modelAnswer{c.modelOf(c.reader(), in.ID, access.Read).json()}
}

// changeModel changes columns of a model.
func (c *call) changeModel(id string, fn func(m *model) (set string, value any)) any {
	c.update(func(tx *sql.Tx) {
		set, value := fn(c.modelOf(tx, id, access.Write))
		try.To(tx.Exec("UPDATE mlflow_models SET updated = ?, "+set+" = ? WHERE id = ?", now(), value, id))
	})
	if found := models(c.reader(), " WHERE m.id = ?", id); len(found) > 0 {
		return modelAnswer{found[0].json()}
	}
	return nothing{}
}

func finalizeModel(c *call, in *struct {
	ID     string          `json:"model_id" need:""`
	Status json.RawMessage `json:"status" need:""`
}) any {
	status := enum(in.Status, "status", "", "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED")
	if status == "LOGGED_MODEL_PENDING" {
		try.Ok(invalid("Invalid model status: a model that is finalized is not pending"))
	}
	return c.changeModel(in.ID, func(*model) (string, any) { return "status", status })
}

func deleteModel(c *call, in *modelID) any {
	c.changeModel(in.ID, func(*model) (string, any) { return "deleted", now() })
	return nothing{}
}

func setModelTags(c *call, in *struct {
	ID   string `json:"model_id" need:""`
	Tags []pair `json:"tags"`
}) any {
	checkTags(in.Tags)
	return c.changeModel(in.ID, func(m *model) (string, any) {
		for _, tag := range in.Tags {
			m.tags[tag.Key] = tag.Value
		}
		return "tags", asText(m.tags)
	})
}

func deleteModelTag(c *call, in *struct {
	ID  string `json:"model_id" need:""`
	Key string `json:"tag_key" need:""`
}) any {
	c.changeModel(in.ID, func(m *model) (string, any) {
		if _, has := m.tags[in.Key]; !has {
			try.Ok(missing("No tag with key %s found for model with ID %s", in.Key, in.ID))
		}
		delete(m.tags, in.Key)
		return "tags", asText(m.tags)
	})
	return nothing{}
}

func logModelParams(c *call, in *struct {
	ID     string `json:"model_id" need:""`
	Params []pair `json:"params"`
}) any {
	checkModelParams(in.Params)
	c.changeModel(in.ID, func(m *model) (string, any) {
		for _, p := range in.Params {
			if was, has := m.params[p.Key]; has && was != p.Value {
				try.Ok(invalid("Changing param values is not allowed. Param with key='%s' was already logged with value='%s' for model ID='%s'. Attempted logging new value '%s'.", p.Key, was, in.ID, p.Value))
			}
			m.params[p.Key] = p.Value
		}
		return "params", asText(m.params)
	})
	return nothing{}
}

// modelFields are what models can be searched by. A metric is the latest of its name, of the data set that a search names or of any.
var modelFields = &fields{
	attributes: map[string]attribute{"name": {sql: "m.name", in: true}, "model_id": {sql: "m.id", in: true}, "model_type": {sql: "m.type", in: true}, "status": {sql: "replace(m.status, 'LOGGED_MODEL_', '')", in: true},
		"source_run_id":      {sql: "m.source", in: true},
		"creation_timestamp": {sql: "m.created", numeric: true}, "creation_time": {sql: "m.created", numeric: true},
		"last_updated_timestamp": {sql: "m.updated", numeric: true}, "last_updated_time": {sql: "m.updated", numeric: true}},
	kinds: map[string]kind{
		"metric":    {sql: "p.value", numeric: true, exists: "EXISTS (SELECT 1 FROM mlflow_model_points p WHERE p.model = m.id AND p.name = ? AND p.value <> 'NaN' AND OFDATASET AND %s)"},
		"parameter": {sql: "SELECT value FROM json_each(m.params) WHERE key = ?"},
		"tag":       {sql: "SELECT value FROM json_each(m.tags) WHERE key = ?"},
	},
	order: []string{"name", "model_id", "model_type", "status", "source_run_id", "creation_timestamp", "creation_time", "last_updated_timestamp", "last_updated_time"},
}

const mostModels = 50

func searchModels(c *call, in *struct {
	Experiments []string `json:"experiment_ids"`
	Filter      string   `json:"filter"`
	Datasets    []struct {
		Name   string `json:"dataset_name"`
		Digest string `json:"dataset_digest"`
	} `json:"datasets"`
	Order []struct {
		Field     string `json:"field_name"`
		Ascending *bool  `json:"ascending"`
		Dataset   string `json:"dataset_name"`
		Digest    string `json:"dataset_digest"`
	} `json:"order_by"`
	Most  whole  `json:"max_results"`
	Token string `json:"page_token"`
}) any {
	c.enter()
	q := &query{fields: modelFields}
	q.where("m.deleted IS NULL AND e.id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))", sqldb.JSON(in.Experiments))
	if within := c.user.Within(access.Read); within != nil {
		q.where("m.project IN (SELECT value FROM json_each(?))", sqldb.JSON(within))
	}
	q.filter(in.Filter)
	of := "TRUE"
	if len(in.Datasets) > 0 {
		of = "(p.dataset, p.digest) IN (SELECT value ->> 0, CASE WHEN value ->> 1 = '' THEN p.digest ELSE value ->> 1 END FROM json_each(" + literal(each.Of(in.Datasets, func(d struct {
			Name   string `json:"dataset_name"`
			Digest string `json:"dataset_digest"`
		}) []string {
			return []string{d.Name, d.Digest}
		})) + "))"
	}
	if len(in.Datasets) > 0 {
		q.where("EXISTS (SELECT 1 FROM mlflow_model_points p WHERE p.model = m.id AND OFDATASET)")
	}
	for i := range q.wheres {
		q.wheres[i] = strings.ReplaceAll(q.wheres[i], "OFDATASET", of)
	}
	for _, o := range in.Order {
		if o.Field == "" {
			try.Ok(invalid("order_by has no field_name"))
		}
		direction := " ASC"
		if o.Ascending != nil && !*o.Ascending {
			direction = " DESC"
		}
		if what, key := modelFields.identifier(o.Field); what == "metric" {
			latest := "(SELECT value FROM mlflow_model_points WHERE model = m.id AND name = ? AND ? IN ('', dataset) AND ? IN ('', digest) ORDER BY time DESC, step DESC LIMIT 1)"
			q.orders = append(q.orders, latest+" IS NULL", latest+direction)
			q.orderA = append(q.orderA, key, o.Dataset, o.Digest, key, o.Dataset, o.Digest)
			continue
		}
		q.order([]string{o.Field + direction})
	}
	from, most := offset(in.Token), limited(in.Most, mostModels, mostModels)
	order := strings.Join(append(slices.Clone(q.orders), "m.created DESC", "m.id"), ", ")
	found := models(c.reader(), q.tables+" WHERE "+q.conditions()+" ORDER BY "+order+" LIMIT ? OFFSET ?", append(q.args(), most+1, from)...)
	return struct {
		Models []*modelJSON `json:"models"`
		Next   string       `json:"next_page_token,omitempty"`
	}{each.Of(found[:min(most, len(found))], model.json), next(len(found), from, most)}
}

// literal is JSON as a text of SQL.
func literal(v any) string {
	text, _ := json.Marshal(v)
	return "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
}

// dataset is a data set that a run used, with what it was used for.
type dataset struct {
	Tags    []pair `json:"tags"`
	Dataset struct {
		Name       string `json:"name"`
		Digest     string `json:"digest"`
		SourceType string `json:"source_type"`
		Source     string `json:"source"`
		Schema     string `json:"schema,omitempty"`
		Profile    string `json:"profile,omitempty"`
	} `json:"dataset"`
}

func logInputs(c *call, in *struct {
	ID       string      `json:"run_id" need:""`
	Datasets []dataset   `json:"datasets"`
	Models   []modelLink `json:"models"`
}) any {
	c.update(func(tx *sql.Tx) {
		r := c.runOf(tx, in.ID, access.Write).logged()
		for i := range in.Datasets {
			d := &in.Datasets[i]
			if d.Dataset.Name == "" || d.Dataset.Digest == "" || d.Dataset.SourceType == "" {
				try.Ok(invalid("Missing value for required parameter 'datasets[%d].dataset': it has a name, a digest and a source_type", i))
			}
			context := any(nil)
			if text, has := ofPairs(d.Tags)["mlflow.data.context"]; has {
				context = text
			}
			text := try.To(records.Marshal(d))
			try.To(tx.Exec("INSERT OR IGNORE INTO mlflow_inputs VALUES (?, ?, ?, ?, ?)", r.id, d.Dataset.Name, d.Dataset.Digest, context, string(text)))
		}
		link(tx, r, 0, in.Models)
		touch(tx, r.id)
	})
	return nothing{}
}

func logOutputs(c *call, in *struct {
	ID     string      `json:"run_id" need:""`
	Models []modelLink `json:"models"`
}) any {
	c.update(func(tx *sql.Tx) { link(tx, c.runOf(tx, in.ID, access.Write).logged(), 1, in.Models) })
	return nothing{}
}

func link(tx *sql.Tx, r *run, output int, models []modelLink) {
	for _, m := range models {
		try.To(tx.Exec("INSERT OR IGNORE INTO mlflow_links VALUES (?, ?, ?, ?)", r.id, output, m.Model, m.Step))
	}
}

// logModel records a model in the way of clients before MLflow 3, in a tag.
func logModel(c *call, in *struct {
	ID    string `json:"run_id"`
	Model string `json:"model_json"`
}) any {
	var described struct {
		Path    string         `json:"artifact_path"`
		Created string         `json:"utc_time_created"`
		Flavors map[string]any `json:"flavors"`
	}
	switch err := json.Unmarshal([]byte(in.Model), &described); {
	case in.Model == "":
		try.Ok(invalid("Missing value for required parameter 'model_json'. See the API docs for more information about request parameters."))
	case err != nil:
		try.Ok(invalid("Malformed model info. \n %.200s \n not a valid JSON", in.Model))
	case described.Path == "" || described.Created == "" || described.Flavors == nil:
		try.Ok(invalid("Model json is missing mandatory fields: artifact_path, utc_time_created, flavors"))
	}
	const key = "mlflow.log-model.history"
	c.update(func(tx *sql.Tx) {
		r := c.runOf(tx, in.ID, access.Write).logged()
		list, before := []json.RawMessage{}, ""
		if one(tx, []any{&before}, "SELECT value FROM mlflow_tags WHERE run = ? AND key = ?", r.id, key) {
			_ = json.Unmarshal([]byte(before), &list) // a client may have set the tag
		}
		text := try.To(json.Marshal(append(list, json.RawMessage(in.Model))))
		setTags(tx, r.id, []pair{{key, string(text)}})
	})
	return nothing{}
}

func searchDatasets(c *call, in *struct {
	Experiments []string `json:"experiment_ids"`
}) any {
	if n := len(in.Experiments); n == 0 || n > 20 {
		try.Ok(invalid("SearchDatasets request must specify at least one experiment_id. SearchDatasets request cannot specify more than 20 experiment_ids. Received %d.", n))
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
	list := try.To(sqldb.List(c.reader(), func(s *summary) []any { return []any{&s.Experiment, &s.Name, &s.Digest, &s.Context} },
		"SELECT DISTINCT CAST(e.id AS TEXT), d.name, d.digest, coalesce(d.context, '') FROM "+runTables+` JOIN mlflow_inputs d ON d.run = r.id
			WHERE r.trashed IS NULL AND e.id IN (SELECT CAST(value AS INTEGER) FROM json_each(?)) ORDER BY 2, 3 LIMIT 1000`, sqldb.JSON(in.Experiments)))
	return struct {
		Summaries []summary `json:"dataset_summaries"`
	}{list}
}
