package mlflow

import (
	"database/sql"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"drun/history"
	"drun/internal/each"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// experiment is a row of mlflow_experiments. Runs without a project are in the one with the id 0.
type experiment struct {
	id               int64
	name, location   string
	created, updated int64
	deleted          bool
	tags             map[string]string
}

const experimentColumns = "id, name, location, created, updated, deleted IS NOT NULL, tags"

// enterProjects makes experiments of the projects that runs have come with.
const enterProjects = `INSERT OR IGNORE INTO mlflow_experiments (name, location, created, updated, tags)
	SELECT DISTINCT project_name, '', unixepoch() * 1000, unixepoch() * 1000, '{}' FROM runs WHERE project_name IS NOT NULL AND project_name NOT IN (SELECT name FROM mlflow_experiments)`

// experiments are those that a condition selects.
func experiments(from sqldb.Queryer, where string, args ...any) []experiment {
	return try.To(sqldb.List(from, func(e *experiment) []any {
		return []any{&e.id, &e.name, &e.location, &e.created, &e.updated, &e.deleted, asJSON{&e.tags}}
	}, "SELECT "+experimentColumns+" FROM mlflow_experiments e WHERE "+where, args...))
}

// asJSON reads a column with JSON.
type asJSON struct{ into any }

func (j asJSON) Scan(value any) error {
	text, _ := value.(string)
	return json.Unmarshal([]byte(text), j.into)
}

// inProject is the project of an experiment.
func (e *experiment) inProject() string {
	if e.id == 0 {
		return ""
	}
	return e.name
}

// experimentOf finds an experiment by its id, if the user has a role in it.
func (c *call) experimentOf(from sqldb.Queryer, id string, role access.Role) *experiment {
	n, err := strconv.ParseInt(id, 10, 64)
	found := []experiment{}
	if err == nil {
		found = experiments(from, "id = ?", n)
	}
	if len(found) == 0 {
		try.Ok(missing("No Experiment with id=%.100s exists", id))
	}
	try.Ok(c.user.Must(role, found[0].inProject()))
	return &found[0]
}

// active refuses an experiment that is deleted.
func (e *experiment) active() *experiment {
	if e.deleted {
		try.Ok(invalid("The experiment %d must be in the 'active' state. Current state is deleted.", e.id))
	}
	return e
}

type experimentJSON struct {
	ID       string `json:"experiment_id"`
	Name     string `json:"name"`
	Location string `json:"artifact_location"`
	Stage    string `json:"lifecycle_stage"`
	Updated  int64  `json:"last_update_time"`
	Created  int64  `json:"creation_time"`
	Tags     []pair `json:"tags"`
}

func stage(deleted bool) string {
	if deleted {
		return "deleted"
	}
	return "active"
}

func (e *experiment) at() string {
	if e.location != "" {
		return e.location
	}
	return "mlflow-artifacts:/" + strconv.FormatInt(e.id, 10)
}

func (e *experiment) json() *experimentJSON {
	return &experimentJSON{strconv.FormatInt(e.id, 10), e.name, e.at(), stage(e.deleted), e.updated, e.created, pairs(e.tags)}
}

// pairs lists a map's elements by key.
func pairs(m map[string]string) []pair {
	list := []pair{}
	for key, value := range m {
		list = append(list, pair{key, value})
	}
	slices.SortFunc(list, func(a, b pair) int { return strings.Compare(a.Key, b.Key) })
	return list
}

func ofPairs(list []pair) map[string]string {
	m := map[string]string{}
	for _, p := range list {
		m[p.Key] = p.Value
	}
	return m
}

func asText(m map[string]string) string {
	text, _ := json.Marshal(m) // texts
	return string(text)
}

func now() int64 { return time.Now().UnixMilli() }

// mostName is how many bytes the name of an experiment may have, as in MLflow.
const mostName = 500

func checkExperimentName(name string) {
	switch {
	case name == "":
		try.Ok(invalid("Invalid experiment name: ''"))
	case utf8.RuneCountInString(name) > mostName:
		try.Ok(invalid("Experiment name exceeds the maximum length of %d characters", mostName))
	case history.CheckProject(name) != nil:
		try.Ok(invalid("Invalid experiment name: %v", history.CheckProject(name)))
	}
}

func createExperiment(c *call, in *struct {
	Name     string `json:"name" need:""`
	Location string `json:"artifact_location"`
	Tags     []pair `json:"tags"`
}) any {
	checkExperimentName(in.Name)
	checkTags(in.Tags)
	try.Ok(c.user.Must(access.Write, in.Name))
	if strings.Contains(in.Location, "#") || strings.Contains(in.Location, "/../") {
		try.Ok(invalid("'artifact_location' URL can't include fragments or .."))
	}
	var id int64
	c.update(func(tx *sql.Tx) {
		try.To(tx.Exec(enterProjects))
		if found := experiments(tx, "name = ?", in.Name); len(found) > 0 {
			try.Ok(errorf("RESOURCE_ALREADY_EXISTS", "Experiment '%s' already exists%s.", in.Name, map[bool]string{true: " in deleted state. You can restore the experiment, or permanently delete it to create a new one"}[found[0].deleted]))
		}
		result := try.To(tx.Exec("INSERT INTO mlflow_experiments (name, location, created, updated, tags) VALUES (?, ?, ?4, ?4, ?3)", in.Name, in.Location, asText(ofPairs(in.Tags)), now()))
		id = try.To(result.LastInsertId())
	})
	c.user.Log(access.Event{Action: "enter", Project: in.Name, What: "experiment"})
	return map[string]string{"experiment_id": strconv.FormatInt(id, 10)}
}

type experimentID struct {
	ID string `json:"experiment_id" need:""`
}

type experimentAnswer struct {
	Experiment *experimentJSON `json:"experiment"`
}

// reader is the history for queries.
func (c *call) reader() sqldb.Queryer { return c.read.Reader() }

func getExperiment(c *call, in *experimentID) any {
	return experimentAnswer{c.experimentOf(c.reader(), in.ID, access.Read).json()}
}

func getExperimentByName(c *call, in *struct {
	Name string `json:"experiment_name" need:""`
}) any {
	c.enter()
	found := experiments(c.reader(), "name = ?", in.Name)
	if len(found) == 0 {
		try.Ok(missing("Could not find experiment with name '%.500s'", in.Name))
	}
	try.Ok(c.user.Must(access.Read, found[0].inProject()))
	return experimentAnswer{found[0].json()}
}

// enter makes experiments of projects that have none yet.
func (c *call) enter() {
	if one(c.reader(), []any{new(int)}, "SELECT 1 FROM runs WHERE project_name IS NOT NULL AND project_name NOT IN (SELECT name FROM mlflow_experiments) LIMIT 1") {
		c.update(func(tx *sql.Tx) { try.To(tx.Exec(enterProjects)) })
	}
}

const mostResults = 50_000

func searchExperiments(c *call, in *struct {
	Filter string          `json:"filter"`
	Order  []string        `json:"order_by"`
	Most   whole           `json:"max_results"`
	Token  string          `json:"page_token"`
	View   json.RawMessage `json:"view_type"`
}) any {
	c.enter()
	q := &query{fields: experimentFields}
	q.view(in.View, "e.deleted")
	if within := c.user.Within(access.Read); within != nil {
		q.where("e.id <> 0 AND e.name IN (SELECT value FROM json_each(?))", sqldb.JSON(within))
	}
	q.filter(in.Filter)
	q.order(in.Order)
	if len(in.Order) == 0 {
		q.orders = append(q.orders, "e.created DESC")
	}
	from, most := offset(in.Token), limited(in.Most, 1000, mostResults)
	found := experiments(c.reader(), q.conditions()+" ORDER BY "+strings.Join(append(q.orders, "e.id DESC"), ", ")+" LIMIT ? OFFSET ?", append(q.args(), most+1, from)...)
	out := struct {
		Experiments []*experimentJSON `json:"experiments"`
		Next        string            `json:"next_page_token,omitempty"`
	}{each.Of(found[:min(most, len(found))], func(e experiment) *experimentJSON { return e.json() }), next(len(found), from, most)}
	return out
}

// next is the token of the page after one of which one row more than its most was found; "": there is none.
func next(found, from, most int) string {
	if found <= most {
		return ""
	}
	return strconv.Itoa(from + most)
}

// changeExperiment changes an experiment in a transaction.
func (c *call) changeExperiment(id, what string, fn func(tx *sql.Tx, e *experiment)) any {
	var project string
	c.update(func(tx *sql.Tx) {
		e := c.experimentOf(tx, id, access.Write)
		project = e.inProject()
		fn(tx, e)
		try.To(tx.Exec("UPDATE mlflow_experiments SET updated = ? WHERE id = ?", now(), e.id))
	})
	c.user.Log(access.Event{Action: "change", Project: project, What: what})
	return nothing{}
}

// setDeleted moves an experiment with its runs to the trash, or out of it.
func (c *call) setDeleted(id string, deleted bool) any {
	return c.changeExperiment(id, map[bool]string{true: "experiment deleted", false: "experiment restored"}[deleted], func(tx *sql.Tx, e *experiment) {
		if e.id == 0 {
			try.Ok(invalid("Cannot delete the default experiment: it has the runs without a project"))
		}
		if e.deleted == deleted {
			try.Ok(invalid("The experiment %d is %s already", e.id, stage(deleted)))
		}
		try.To(tx.Exec("UPDATE mlflow_experiments SET deleted = iif(?, ?, NULL) WHERE id = ?", deleted, now(), e.id))
		state := "trashed = strftime('%Y-%m-%dT%H:%M:%f000Z') WHERE trashed IS NULL AND"
		if !deleted {
			state = "trashed = NULL WHERE"
		}
		try.To(tx.Exec("UPDATE runs SET "+state+" project_name = ?", e.name))
	})
}

func deleteExperiment(c *call, in *experimentID) any  { return c.setDeleted(in.ID, true) }
func restoreExperiment(c *call, in *experimentID) any { return c.setDeleted(in.ID, false) }

func updateExperiment(c *call, in *struct {
	ID   string `json:"experiment_id" need:""`
	Name string `json:"new_name"`
}) any {
	if in.Name == "" {
		return nothing{}
	}
	checkExperimentName(in.Name)
	try.Ok(c.user.Must(access.Write, in.Name))
	return c.changeExperiment(in.ID, "experiment renamed "+in.Name, func(tx *sql.Tx, e *experiment) {
		if e.active().id == 0 {
			try.Ok(invalid("Cannot rename the default experiment: it has the runs without a project"))
		}
		if len(experiments(tx, "name = ? AND id <> ?", in.Name, e.id)) > 0 {
			try.Ok(errorf("RESOURCE_ALREADY_EXISTS", "Experiment '%s' already exists.", in.Name))
		}
		try.To(tx.Exec("UPDATE mlflow_experiments SET name = ? WHERE id = ?", in.Name, e.id))
		for _, of := range []string{"runs SET project_name = ? WHERE project_name", "mlflow_models SET project = ? WHERE project"} {
			try.To(tx.Exec("UPDATE "+of+" = ?", in.Name, e.name))
		}
	})
}

type experimentTag struct {
	ID    string `json:"experiment_id" need:""`
	Key   string `json:"key" need:""`
	Value string `json:"value"`
}

func setExperimentTag(c *call, in *experimentTag) any {
	checkTags([]pair{{in.Key, in.Value}})
	return c.changeExperiment(in.ID, "tag "+in.Key, func(tx *sql.Tx, e *experiment) {
		e.active().tags[in.Key] = in.Value
		try.To(tx.Exec("UPDATE mlflow_experiments SET tags = ? WHERE id = ?", asText(e.tags), e.id))
	})
}

func deleteExperimentTag(c *call, in *experimentTag) any {
	return c.changeExperiment(in.ID, "tag "+in.Key, func(tx *sql.Tx, e *experiment) {
		if _, has := e.active().tags[in.Key]; !has {
			try.Ok(missing("No tag with name: %s in experiment with id %s", in.Key, in.ID))
		}
		delete(e.tags, in.Key)
		try.To(tx.Exec("UPDATE mlflow_experiments SET tags = ? WHERE id = ?", asText(e.tags), e.id))
	})
}
