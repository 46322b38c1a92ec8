package history

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/mattn/go-sqlite3"

	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// MetricSummary summarizes a metric. Min and Max ignore NaN, and are NaN if all values are.
type MetricSummary struct {
	First records.Float `json:"first"`
	Last  records.Float `json:"last"` // as First, of the lowest rank that recorded the metric, in the order of recording
	Min   records.Float `json:"min"`
	Max   records.Float `json:"max"`
	Count int64         `json:"count"`
}

func (s *MetricSummary) add(v float64) {
	f := records.Float(v)
	s.Count++
	if f < s.Min || math.IsNaN(float64(s.Min)) {
		s.Min = f
	}
	if f > s.Max || math.IsNaN(float64(s.Max)) {
		s.Max = f
	}
}

// Params maps names to values as in Param.
type Params map[string]any

// MarshalJSON writes the values as they are stored: a float that happens to be whole stays 1.0.
func (p Params) MarshalJSON() ([]byte, error) {
	raw := map[string]json.RawMessage{}
	for name := range p {
		raw[name] = json.RawMessage(p.Text(name))
	}
	return records.Marshal(raw)
}

// Text is the JSON form of one value.
func (p Params) Text(name string) string {
	_, text, err := encodeParam(p[name])
	if err != nil {
		return "null"
	}
	return text
}

// HasSecret reports whether the value of some parameter was not kept.
func (p Params) HasSecret() bool {
	for _, value := range p {
		if value == (Secret{}) {
			return true
		}
	}
	return false
}

// Summary is a run as "drun runs" lists it. Its JSON form is documented in docs/history-tables.md.
type Summary struct {
	ID          int64                    `json:"id"`
	Name        string                   `json:"name"`
	Recipe      string                   `json:"recipe"`
	Status      Status                   `json:"status"`
	WorldSize   int                      `json:"world_size"`
	Backend     string                   `json:"backend"`
	Seed        int64                    `json:"seed"`
	Params      Params                   `json:"params" db:"-"`
	Metrics     map[string]MetricSummary `json:"metrics" db:"-"`
	Started     time.Time                `json:"started"`
	Seconds     *float64                 `json:"seconds"` // of a running run: so far; nil when lost
	ExitCode    *int                     `json:"exit_code"`
	Error       string                   `json:"error"`
	Tags        []string                 `json:"tags" db:"-"`
	Checkpoints []Checkpoint             `json:"checkpoints" db:"-"`
	Parent      *Parent                  `json:"parent" db:"resumed,json"` // nil: not resumed
	Trashed     *time.Time               `json:"trashed,omitempty"`        // nil: not in the trash
	Sweep       *records.Sweep           `json:"sweep,omitempty" db:",json"`
	EndedEarly  string                   `json:"-" db:"ended_early,null"` // why a sweep ended it; "": it did not
	UID         string                   `json:"-" db:"uid"`
	ProjectName string                   `json:"project_name,omitempty" db:",null"` // of a team
	Owner       string                   `json:"owner,omitempty" db:",null"`        // the user of the server who entered it
	Clock       float64                  `json:"-" db:"clock,null"`                 // by how many seconds its machine's clock is ahead, if it is led from elsewhere
}

// Checkpoint is a checkpoint in the catalog.
type Checkpoint struct {
	Step  int64          `json:"step"`
	Bytes int64          `json:"bytes"`
	Score *records.Float `json:"score"`
	Time  time.Time      `json:"time"`
	// Points is how many points of the run were recorded before it; set only for writing.
	Points int64 `json:"-" cbor:"points" db:"points"`
}

// Names selects parameters or metrics; the zero value selects none.
type Names struct {
	All  bool
	Some []string // unless All
}

// Selection says which runs Select reads, and what of them.
type Selection struct {
	IDs             []int64 // nil: all runs
	Limit           int     // at most this many, the newest; 0: all
	Trashed         bool    // those in the trash instead of the others
	Params, Metrics Names
	Tags            bool
	Checkpoints     bool
}

// fully selects everything that a Summary can hold.
var fully = Selection{Params: Names{All: true}, Metrics: Names{All: true}, Tags: true, Checkpoints: true}

// List returns runs, newest first: at most limit, or all if limit is not positive.
func (db *DB) List(limit int) ([]Summary, error) {
	s := fully
	s.Limit = max(limit, 0)
	return db.Select(s)
}

// Summaries returns the runs with these ids, in that order; an id that no run has is skipped.
func (db *DB) Summaries(ids []int64) ([]Summary, error) {
	s := fully
	s.IDs = append([]int64{}, ids...) // an empty list, not nil, which would mean all
	found, err := db.Select(s)
	at := make(map[int64]int, len(ids))
	for i, id := range ids {
		at[id] = i
	}
	slices.SortStableFunc(found, func(a, b Summary) int { return at[a.ID] - at[b.ID] })
	return found, err
}

// Select returns runs, newest first, with what the selection asks for. It makes a few queries, however many runs
// there are, and reads no other parameters or metrics.
func (db *DB) Select(s Selection) ([]Summary, error) {
	clause, args := "", []any(nil)
	if s.IDs != nil {
		clause, args = "WHERE id IN (SELECT value FROM json_each(?)) ", []any{sqldb.JSON(s.IDs)}
	}
	if s.IDs == nil && s.Trashed {
		clause = "WHERE trashed IS NOT NULL "
	} else if s.IDs == nil {
		clause = "WHERE trashed IS NULL "
	}
	clause += "ORDER BY id DESC"
	if s.Limit > 0 {
		clause, args = clause+" LIMIT ?", append(args, s.Limit)
	}
	return db.summaries(&s, clause, args...)
}

func (db *DB) ParamNames() ([]string, error) {
	return listColumn[string](db, "SELECT DISTINCT name FROM params"+db.ofVisible()+" ORDER BY name")
}

func (db *DB) TagNames() ([]string, error) {
	return listColumn[string](db, "SELECT DISTINCT tag FROM tags"+db.ofVisible()+" ORDER BY tag")
}

func (db *DB) MetricNames() ([]string, error) {
	return listColumn[string](db, "SELECT DISTINCT name FROM metric_summaries"+db.ofVisible()+" ORDER BY name")
}

// runRows are the runs with the columns of a Detail.
func (db *DB) runRows() string {
	return `(SELECT *,
	CASE WHEN parent IS NOT NULL THEN json_object('id', parent, 'name', coalesce((SELECT name FROM runs p WHERE p.id = r.parent AND ` + db.visible() + `), ''), 'step', parent_step) END AS resumed,
	CASE WHEN parent IS NULL THEN parent_step END AS orphaned,
	CASE WHEN git_commit IS NOT NULL THEN json_object('commit', git_commit, 'dirty', json(iif(git_dirty, 'true', 'false'))) END AS git
	FROM runs r WHERE ` + db.visible() + `) `
}

// summaries reads the runs that the clause selects, with a fixed number of queries.
func (db *DB) summaries(what *Selection, clause string, args ...any) (_ []Summary, err error) {
	defer try.Caught(&err)
	lost := try.To(db.findLost())
	list, err := rows[Summary](db, db.runRows()+clause, args...)
	if err != nil || len(list) == 0 {
		return list, err
	}
	index := make(map[int64]*Summary, len(list))
	ids := make([]int64, len(list))
	for i := range list {
		s := &list[i]
		s.Params, s.Metrics, s.Tags, s.Checkpoints = Params{}, map[string]MetricSummary{}, []string{}, []Checkpoint{}
		index[s.ID], ids[i] = s, s.ID
		if s.Status == Running && slices.Contains(lost, s.ID) {
			s.Status = Lost
		}
		if s.Status == StoppedEarly {
			s.Error = s.EndedEarly
		}
		if s.Status == Running {
			elapsed := max(time.Since(s.Started).Seconds()+s.Clock, 0)
			s.Seconds = &elapsed
		}
	}
	return list, db.attach(what, index, ids)
}

// attach adds what other tables hold about the runs.
func (db *DB) attach(what *Selection, index map[int64]*Summary, ids []int64) (err error) {
	var stray *int64 // a run that was not asked for, which a damaged index may return
	of := func(run int64) *Summary {
		if s := index[run]; s != nil {
			return s
		}
		stray = &run
		return &Summary{Params: Params{}, Metrics: map[string]MetricSummary{}}
	}
	read := func(columns, order string, scan func(*sql.Rows) error, args ...any) {
		if err == nil {
			err = db.read(scan, "SELECT run, "+columns+" WHERE run IN (SELECT value FROM json_each(?)) "+order, append([]any{sqldb.JSON(ids)}, args...)...)
		}
	}
	named := func(columns, chosenBy string, names Names, scan func(*sql.Rows) error) {
		if names.All {
			read(columns, "", scan)
			return
		}
		if len(names.Some) > 0 {
			read(columns, "AND "+chosenBy, scan, sqldb.JSON(names.Some))
		}
	}
	const these = "(SELECT value FROM json_each(?))"
	named("name, type, value FROM params", "name IN "+these, what.Params, func(rows *sql.Rows) error {
		var run int64
		var name, kind, text string
		if err := rows.Scan(&run, &name, &kind, &text); err != nil {
			return err
		}
		value, err := decodeParam(kind, text)
		of(run).Params[name] = value
		return err
	})
	named("(SELECT name FROM metric_names WHERE id = metric), first, last, min, max, count FROM run_metrics",
		"metric IN (SELECT id FROM metric_names WHERE name IN "+these+")", what.Metrics, func(rows *sql.Rows) error {
			var run, count int64
			var name string
			var v [4]sql.NullFloat64
			if err := rows.Scan(&run, &name, &v[0], &v[1], &v[2], &v[3], &count); err != nil {
				return err
			}
			f := func(i int) records.Float {
				if !v[i].Valid {
					return records.Float(math.NaN())
				}
				return records.Float(v[i].Float64)
			}
			of(run).Metrics[name] = MetricSummary{f(0), f(1), f(2), f(3), count}
			return nil
		})
	if what.Tags {
		read("tag FROM tags", "ORDER BY tag", func(rows *sql.Rows) error {
			var run int64
			var tag string
			err := rows.Scan(&run, &tag)
			of(run).Tags = append(of(run).Tags, tag)
			return err
		})
	}
	if what.Checkpoints {
		read("step, bytes, score, time FROM checkpoints", "ORDER BY step", func(rows *sql.Rows) error {
			var run int64
			var c Checkpoint
			err := rows.Scan(&run, &c.Step, &c.Bytes, &c.Score, timeColumn{&c.Time})
			of(run).Checkpoints = append(of(run).Checkpoints, c)
			return err
		})
	}
	if err == nil && stray != nil {
		err = sqldb.Wrap(db.path, fmt.Errorf("run %d: %w", *stray, sqlite3.Error{Code: sqlite3.ErrCorrupt}))
	}
	return err
}

// Detail is one run in full: the columns of its row and what belongs to it, as drun show --json prints them.
type Detail struct {
	Summary
	Deterministic *bool               `json:"deterministic"` // nil: the run was made by an older drun
	Ranks         []records.RankPlace `json:"ranks" db:"-"`  // the ranks that have started
	DataFiles     []records.DataFile  `json:"data_files" db:"-"`
	Attempts      []Attempt           `json:"attempts" db:"-"`
	// Orphaned is the step of the checkpoint that the run was resumed from, if that one's run has been removed.
	Orphaned  *int64             `json:"-" db:"orphaned"`
	Sources   []records.Source   `json:"sources" db:"-"`
	Plugins   []records.Plugin   `json:"plugins" db:"-"`
	Copies    []records.Copies   `json:"device_copies" db:"-"`
	Notes     []records.Note     `json:"notes" db:"-"`
	Replays   []Replay           `json:"replays" db:"-"`   // oldest first
	Usage     []RankUsage        `json:"usage" db:"-"`     // by rank
	Snapshots []records.Snapshot `json:"snapshots" db:"-"` // oldest first
	Progress  *records.Progress  `json:"progress" db:"-"`  // of a running run; nil: none
	Threads   int                `json:"threads"`
	GoVersion *string            `json:"go_version"`                   // nil likewise
	Numerics  *int               `json:"numerics"`                     // version of drun's arithmetic; nil likewise
	Inputs    string             `json:"inputs" db:",null"`            // key of what decides the bits, without the data; "": unknown
	Key       string             `json:"key" db:"bits_key,null"`       // key of what decides the bits; "": unknown, or not known yet
	Git       *Git               `json:"git" db:",json"`               // of the recipe's folder; nil: none
	DataDirs  []string           `json:"data_dirs" db:",json"`         // of --data; nil: unknown
	Project   string             `json:"project,omitempty" db:",null"` // the recipe's folder beneath its project's root
	Host      string             `json:"host"`
	PID       int                `json:"pid"`
	Dir       string             `json:"dir"`
	records.Given
}

// Replay is a repetition of a run by drun replay.
type Replay struct {
	Time    time.Time `json:"time"`
	Host    string    `json:"host"`
	Version string    `json:"version"` // of drun
	Same    *bool     `json:"same"`    // nil: there was nothing to compare
	Result  string    `json:"result"`
}

// Attempt is one start of the ranks.
type Attempt struct {
	Attempt int       `json:"attempt"`
	Status  Status    `json:"status"`
	Started time.Time `json:"started"`
	Seconds *float64  `json:"seconds"`
	Error   string    `json:"error"`
	// FromStep is the step of the run's checkpoint that it started from; nil: it began anew.
	FromStep *int64 `json:"from_step"`
}

// Get returns everything about the run with this id except its points and logs.
func (db *DB) Get(id int64) (_ *Detail, err error) {
	defer try.Caught(&err)
	found := try.To(db.summaries(&fully, "WHERE id = ?", id))
	if len(found) == 0 {
		return nil, db.unknown(strconv.FormatInt(id, 10))
	}
	details, err := rows[Detail](db, db.runRows()+"WHERE id = ?", id)
	if err != nil || len(details) == 0 {
		return nil, cmp.Or(err, db.unknown(strconv.FormatInt(id, 10)))
	}
	d := &details[0]
	d.Summary = found[0]
	d.Snapshots = try.To(db.snapshots(id))
	d.Usage = try.To(db.rankUsage(id))
	err = cmp.Or(
		into(db, &d.Attempts, "attempts WHERE run = ? ORDER BY attempt", id),
		into(db, &d.Sources, "run_sources WHERE run = ? ORDER BY role = 'load', path", id),
		into(db, &d.Plugins, "plugins WHERE run = ? ORDER BY name", id),
		into(db, &d.Ranks, "ranks WHERE run = ? ORDER BY rank", id),
		into(db, &d.DataFiles, "data_files WHERE run = ? ORDER BY path, sha256", id),
		into(db, &d.Copies, "device_copies WHERE run = ? ORDER BY attempt, rank, position, call", id),
		into(db, &d.Notes, "notes WHERE run = ? ORDER BY id", id),
		into(db, &d.Replays, "replays WHERE run = ? ORDER BY id", id),
	)
	for i := range d.Attempts {
		if d.Attempts[i].Status == Running {
			d.Attempts[i].Status = d.Status
		}
	}
	if err == nil && d.Status == Running {
		d.Progress, err = db.Progress(id)
	}
	return d, err
}

// Backends names the run's backend, then those of its groups.
func (d *Detail) Backends() []string {
	names := []string{d.Backend}
	for _, p := range d.Plugins {
		if p.Name != d.Backend {
			names = append(names, p.Name)
		}
	}
	return names
}

// OwnOrder reports whether the backend added in an order of its own, not in that of the ranks.
func (d *Detail) OwnOrder() bool {
	return d.Deterministic != nil && !*d.Deterministic && slices.ContainsFunc(d.Plugins, func(p records.Plugin) bool { return p.Name == d.Backend })
}

// Progress is the progress of a running run; nil: none was reported.
func (db *DB) Progress(run int64) (*records.Progress, error) {
	found, err := rows[records.Progress](db, "progress WHERE run = ?", run)
	if len(found) == 0 || err != nil {
		return nil, err
	}
	return &found[0], nil
}
