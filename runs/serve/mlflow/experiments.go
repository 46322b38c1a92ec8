package mlflow

import (
	"database/sql"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"drun/history"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// experiment is a row of mlflow_experiments. Runs without a project are in the one with the id 0.
type experiment struct {
	ID       int64  `json:"experiment_id,string"`
	Name     string `json:"name"`
	Location string `json:"artifact_location"`
	Stage    string `json:"lifecycle_stage"`
	Updated  int64  `json:"last_update_time"`
	Created  int64  `json:"creation_time"`
	Tags     labels `json:"tags"`
}

const (
	location = "iif(e.location = '', 'mlflow-artifacts:/' || e.id, e.location)"
	deleted  = "deleted"
)

// stage is whether something is deleted.
func stage(column string) string { return "iif(" + column + " IS NULL, 'active', '" + deleted + "')" }

// experiments are those that the rest of a query selects.
func experiments(from sqldb.Queryer, tail string, args ...any) []experiment {
	return try.To(sqldb.List(from, func(e *experiment) []any {
		return []any{&e.ID, &e.Name, &e.Location, &e.Stage, &e.Updated, &e.Created, &e.Tags}
	}, "SELECT id, name, "+location+", "+stage("deleted")+", updated, created, tags FROM mlflow_experiments e"+tail, args...))
}

// inProject is the project of an experiment.
func (e *experiment) inProject() string {
	if e.ID == 0 {
		return ""
	}
	return e.Name
}

// experimentOf finds an experiment by its id, if the user has a role in it.
func (c *call) experimentOf(from sqldb.Queryer, id string, role access.Role) *experiment {
	found := experiments(from, " WHERE CAST(id AS TEXT) = ?", id)
	if len(found) == 0 {
		missing("No Experiment with id=%.100s exists", id)
	}
	try.Ok(c.user.Must(role, found[0].inProject()))
	return &found[0]
}

// active refuses an experiment that is deleted.
func (e *experiment) active() *experiment {
	if e.Stage == deleted {
		refuse("The experiment %d must be in the 'active' state. Current state is deleted.", e.ID)
	}
	return e
}

func now() int64 { return time.Now().UnixMilli() }

// mostName is how many characters the name of an experiment may have, as in MLflow.
const mostName = 500

func checkExperimentName(name string) {
	switch {
	case name == "":
		refuse("Invalid experiment name: ''")
	case utf8.RuneCountInString(name) > mostName:
		refuse("Experiment name exceeds the maximum length of %d characters", mostName)
	case history.CheckProject(name) != nil:
		refuse("Invalid experiment name: %v", history.CheckProject(name))
	}
}

func createExperiment(c *call, in *struct {
	Name     string `json:"name" need:""`
	Location string `json:"artifact_location"`
	Tags     labels `json:"tags"`
}) any {
	checkExperimentName(in.Name)
	checkTags(in.Tags)
	try.Ok(c.user.Must(access.Write, in.Name))
	if strings.Contains(in.Location, "#") || strings.Contains(in.Location, "/../") {
		refuse("'artifact_location' URL can't include fragments or ..")
	}
	var id int64
	c.update(func(tx *sql.Tx) {
		try.Ok(history.EnterExperiments(tx))
		if found := experiments(tx, " WHERE name = ?", in.Name); len(found) > 0 {
			fail("RESOURCE_ALREADY_EXISTS", "Experiment '%s' already exists%s.", in.Name, map[string]string{deleted: " in deleted state. You can restore the experiment, or permanently delete it to create a new one"}[found[0].Stage])
		}
		result := try.To(tx.Exec("INSERT INTO mlflow_experiments (name, location, created, updated, tags) VALUES (?, ?, ?4, ?4, ?3)", in.Name, in.Location, in.Tags, now()))
		id = try.To(result.LastInsertId())
	})
	c.user.Log(access.Event{Action: "enter", Project: in.Name, What: "experiment"})
	return object{"experiment_id": strconv.FormatInt(id, 10)}
}

type experimentID struct {
	ID string `json:"experiment_id" need:""`
}

func getExperiment(c *call, in *experimentID) any {
	return object{"experiment": c.experimentOf(c.reader(), in.ID, access.Read)}
}

func getExperimentByName(c *call, in *struct {
	Name string `json:"experiment_name" need:""`
}) any {
	c.enter()
	found := experiments(c.reader(), " WHERE name = ?", in.Name)
	if len(found) == 0 {
		missing("Could not find experiment with name '%.500s'", in.Name)
	}
	try.Ok(c.user.Must(access.Read, found[0].inProject()))
	return object{"experiment": found[0]}
}

// enter makes experiments of projects that have none yet.
func (c *call) enter() {
	if one(c.reader(), []any{new(int)}, "SELECT 1 FROM runs WHERE project_name IS NOT NULL AND project_name NOT IN (SELECT name FROM mlflow_experiments) LIMIT 1") {
		c.update(func(tx *sql.Tx) { try.Ok(history.EnterExperiments(tx)) })
	}
}

const mostResults = 50_000

func searchExperiments(c *call, in *struct {
	pages
	Filter string          `json:"filter"`
	Order  []string        `json:"order_by"`
	View   json.RawMessage `json:"view_type"`
}) any {
	c.enter()
	q := c.query(experimentFields, "nullif(e.name, 'Default')", in.Filter, in.Order)
	q.view(in.View, "e.deleted")
	if len(in.Order) == 0 {
		q.orders = append(q.orders, "e.created DESC")
	}
	from, most := in.part(1000, mostResults)
	tail, args := q.tail(from, most, "e.id DESC")
	return page("experiments", experiments(c.reader(), tail, args...), from, most)
}

// changeExperiment changes an experiment in a transaction.
func (c *call) changeExperiment(id, what string, fn func(tx *sql.Tx, e *experiment)) any {
	var project string
	c.update(func(tx *sql.Tx) {
		e := c.experimentOf(tx, id, access.Write)
		project = e.inProject()
		fn(tx, e)
		try.To(tx.Exec("UPDATE mlflow_experiments SET updated = ?, tags = ? WHERE id = ?", now(), e.Tags, e.ID))
	})
	c.user.Log(access.Event{Action: "change", Project: project, What: what})
	return nothing{}
}

// setDeleted moves an experiment with its runs to the trash, or out of it.
func (c *call) setDeleted(id, to string) any {
	return c.changeExperiment(id, "experiment "+to, func(tx *sql.Tx, e *experiment) {
		if e.ID == 0 {
			refuse("Cannot delete the default experiment: it has the runs without a project")
		}
		if e.Stage == to {
			refuse("The experiment %d is %s already", e.ID, to)
		}
		try.To(tx.Exec("UPDATE mlflow_experiments SET deleted = iif(?, ?, NULL) WHERE id = ?", to == deleted, now(), e.ID))
		c.setTrashed(tx, to == deleted, "project_name = ?", e.Name)
	})
}

// setTrashed moves the runs that a condition selects to the trash, or out of it.
func (c *call) setTrashed(tx *sql.Tx, trashed bool, where string, args ...any) {
	if trashed {
		try.Ok(history.MoveToTrash(tx, c.user.Name, where, args...))
	} else {
		try.Ok(history.TakeFromTrash(tx, where, args...))
	}
}

func deleteExperiment(c *call, in *experimentID) any  { return c.setDeleted(in.ID, deleted) }
func restoreExperiment(c *call, in *experimentID) any { return c.setDeleted(in.ID, "active") }

func updateExperiment(c *call, in *struct {
	experimentID
	Name string `json:"new_name"`
}) any {
	if in.Name == "" {
		return nothing{}
	}
	checkExperimentName(in.Name)
	try.Ok(c.user.Must(access.Write, in.Name))
	return c.changeExperiment(in.ID, "experiment renamed "+in.Name, func(tx *sql.Tx, e *experiment) {
		if e.active().ID == 0 {
			refuse("Cannot rename the default experiment: it has the runs without a project")
		}
		if len(experiments(tx, " WHERE name = ? AND id <> ?", in.Name, e.ID)) > 0 {
			fail("RESOURCE_ALREADY_EXISTS", "Experiment '%s' already exists.", in.Name)
		}
		for _, of := range []string{"mlflow_experiments SET name = ? WHERE name", "runs SET project_name = ? WHERE project_name", "mlflow_models SET project = ? WHERE project"} {
			try.To(tx.Exec("UPDATE "+of+" = ?", in.Name, e.Name))
		}
	})
}

func setExperimentTag(c *call, in *struct {
	experimentID
	pair
}) any {
	checkTags(labels{in.Key: in.Value})
	return c.changeExperiment(in.ID, "tag "+in.Key, func(_ *sql.Tx, e *experiment) { e.active().Tags[in.Key] = in.Value })
}

func deleteExperimentTag(c *call, in *struct {
	experimentID
	pair
}) any {
	return c.changeExperiment(in.ID, "tag "+in.Key, func(_ *sql.Tx, e *experiment) {
		if _, has := e.active().Tags[in.Key]; !has {
			missing("No tag with name: %s in experiment with id %s", in.Key, in.ID)
		}
		delete(e.Tags, in.Key)
	})
}
