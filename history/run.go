package history

import (
	"cmp"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	petname "github.com/dustinkirkland/golang-petname"

	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// RunInfo is what is known about a run when it begins.
type RunInfo struct {
	Name        string // if "", a name is made up
	Recipe      string // path as given
	Project     string // the recipe's folder beneath its project's root, if it loads files from there
	ProjectName string // the project of a team that the run belongs to; "": none
	WorldSize   int
	Backend     string
	Seed        int64
	Threads     int // kernel threads per rank
	// Deterministic tells whether reductions add in rank order, with any backend.
	Deterministic bool
	records.Given
	Numerics int            // version of drun's arithmetic
	DataDirs []string       // of --data, absolute
	Started  time.Time      // zero: now
	Parent   *Parent        // nil: it was not resumed
	Sweep    *records.Sweep // nil: it is not a cell of a sweep
	UID      string         // that a job was given for the run; "": a new one
	// Enter, if set, is called once the run can be entered, just before it is; its error keeps the run out.
	Enter func() error
}

func (i *RunInfo) enter() error {
	if i.Enter == nil {
		return nil
	}
	return i.Enter()
}

// Parent is the checkpoint that a run was resumed from.
type Parent struct {
	ID   int64  `json:"id"`
	Name string `json:"name"` // set by reading
	Step int64  `json:"step"`
}

// Run writes the records of one run. Each method is one short transaction and may be called from any goroutine; batches
// are faster.
type Run struct {
	ID   int64
	UID  string // identifies the run outside this file, as for its checkpoints
	Name string

	mu        sync.Mutex // guards the following fields, and the order of batches
	db        *DB
	moving    sync.RWMutex // guards where the DB is, which Write may change during Spool
	lock      *os.File
	adopted   bool         // Enqueue had entered it
	numbered  atomic.Int64 // the latest batch number
	queue     spool
	replaced  func(what string) // see OnReplaced
	live      *live             // see Answer; nil: there is none
	debuggers func()            // ends AnswerDebuggers; nil: there is none
}

// NameError says why a run cannot have a name (a usage error).
type NameError struct{ Name, Why string }

func (e *NameError) Error() string       { return fmt.Sprintf("run name %q %s", e.Name, e.Why) }
func (e *NameError) ExitCode() exit.Code { return exit.Usage }

// A name must not look like an id, a step ("RUN@STEP") or a flag.
var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9._-]{0,99}$`) })

// CheckName returns an error unless a user may give a run this name.
func CheckName(name string) error {
	switch name {
	case "last":
		return &NameError{name, "is reserved: it means the newest run"}
	case "auto":
		return &NameError{name, "is reserved: --resume auto continues the run that --name names"}
	}
	if !nameForm().MatchString(name) {
		return &NameError{name, "must begin with a letter and hold only letters, digits and . _ - (at most 100)"}
	}
	return nil
}

// Begin enters a new run with status running and takes its lock, which this process keeps until the run's end is
// written, Discard, or its own end. The files follow with AddSources, everything else with Write. If the name is
// taken or malformed, the error is a *NameError.
func (db *DB) Begin(info RunInfo) (*Run, error) {
	if info.Name != "" {
		if err := CheckName(info.Name); err != nil {
			return nil, err
		}
	}
	if info.Started.IsZero() {
		info.Started = time.Now()
	}
	var parent, step any // NULL: none
	if info.Parent != nil {
		parent, step = info.Parent.ID, info.Parent.Step
	}
	r := &Run{UID: cmp.Or(info.UID, rand.Text()), db: db}
	err := db.write(func(tx *sql.Tx) (err error) {
		try.Ok(info.enter())
		if info.UID == "" || !try.To(r.adopt(tx, info, parent, step)) {
			try.Ok(r.enter(tx, info, Running, parent, step))
		}
		// Before the commit, so that a running run is never seen without its lock.
		r.lock, err = db.lockRun(r.ID)
		return err
	})
	if err != nil {
		r.unlock()
		return nil, err
	}
	return r, nil
}

// enter adds a run's row.
func (r *Run) enter(tx *sql.Tx, info RunInfo, status Status, parent, step any) (err error) {
	defer try.Caught(&err)
	r.Name, err = freeName(tx, info.Name)
	if taken := (*NameError)(nil); info.UID != "" && status == Running && errors.As(err, &taken) { // the job could not know
		r.Name, err = freeName(tx, info.Name+"-"+strings.ToLower(info.UID[:min(6, len(info.UID))]))
	}
	try.Ok(err)
	result := try.To(tx.Exec("INSERT INTO runs ("+origin+`, sweep, project_name, uid, name, status, started, parent, parent_step, parent_uid, parent_points)
		VALUES (`+places(origin)+`, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT uid FROM runs WHERE id = ?), (SELECT points FROM checkpoints WHERE run = ? AND step = ?))`,
		append(originOf(info), sweepOf(info), textOrNull(info.ProjectName), r.UID, r.Name, status, formatTime(info.Started), parent, step, parent, parent, step)...))
	r.ID = try.To(result.LastInsertId())
	return r.passOutputs(tx)
}

// adopt begins the run that Enqueue has entered under info.UID; there may be none.
func (r *Run) adopt(tx *sql.Tx, info RunInfo, parent, step any) (is bool, err error) {
	defer try.Caught(&err)
	var status Status
	if err := tx.QueryRow("SELECT id, name, status FROM runs WHERE uid = ?", info.UID).Scan(&r.ID, &r.Name, &status); errors.Is(err, sql.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if status != Pending {
		return false, &NotFound{fmt.Sprintf("run %d %s is %s", r.ID, r.Name, status), "its job was started twice"}
	}
	try.To(tx.Exec("UPDATE runs SET status = 'running', started = ?, project_name = coalesce(?, project_name), parent = ?, parent_step = ?, parent_uid = (SELECT uid FROM runs WHERE id = ?), parent_points = (SELECT points FROM checkpoints WHERE run = ? AND step = ?), sweep = coalesce(?, sweep), ("+origin+") = ("+places(origin)+") WHERE id = ?",
		append(append([]any{formatTime(info.Started), textOrNull(info.ProjectName), parent, step, parent, parent, step, sweepOf(info)}, originOf(info)...), r.ID)...))
	r.adopted = true
	return true, nil
}

// Enqueue enters a run that will begin later, perhaps in another process: with the same UID, Begin takes it up.
func (db *DB) Enqueue(info RunInfo) (id int64, name string, err error) {
	r := &Run{UID: info.UID, db: db}
	if info.Name != "" {
		if err := CheckName(info.Name); err != nil {
			return 0, "", err
		}
	}
	info.Started = time.Now()
	err = db.write(func(tx *sql.Tx) error { return r.enter(tx, info, Pending, nil, nil) })
	return r.ID, r.Name, err
}

// passOutputs gives the first run of a history an id after those of runs whose outputs are still in the home
// although their history is gone: its files would mix with theirs.
func (r *Run) passOutputs(tx *sql.Tx) error {
	if r.ID != 1 {
		return nil
	}
	folders, err := os.ReadDir(filepath.Join(r.db.home, "outputs"))
	if err != nil {
		return nil // there are none
	}
	last := int64(0)
	for _, f := range folders {
		if id, err := strconv.ParseInt(f.Name(), 10, 32); err == nil {
			last = max(last, id)
		}
	}
	if last == 0 {
		return nil
	}
	r.ID = last + 1
	if _, err := tx.Exec("UPDATE runs SET id = ? WHERE id = 1", r.ID); err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE sqlite_sequence SET seq = ? WHERE name = 'runs'", r.ID)
	return err
}

// origin are the columns for what started a run.
var (
	given  = columnsOf(reflect.TypeFor[records.Given]())
	origin = "recipe, world_size, backend, seed, threads, host, pid, dir, deterministic, go_version, numerics, data_dirs, project, " + names(given)
)

// places are a statement's question marks for these columns.
func places(columns string) string { return "?" + strings.Repeat(", ?", strings.Count(columns, ",")) }

func originOf(info RunInfo) []any {
	host, _ := os.Hostname()
	dir, _ := os.Getwd()
	if info.Command == nil {
		info.Command = []string{}
	}
	if info.DataDirs == nil {
		info.DataDirs = []string{}
	}
	values := []any{info.Recipe, info.WorldSize, info.Backend, info.Seed, info.Threads, host, os.Getpid(), dir,
		info.Deterministic, runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, info.Numerics, sqldb.JSON(info.DataDirs), info.Project}
	for _, c := range given {
		values = append(values, c.value(reflect.ValueOf(info.Given)))
	}
	return values
}

func textOrNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func sweepOf(info RunInfo) any {
	if info.Sweep == nil {
		return nil
	}
	text, _ := json.Marshal(info.Sweep) // strings and a number
	return string(text)
}

// freeName checks a given name, or makes one up: two words, with a number if they are taken.
func freeName(tx *sql.Tx, given string) (string, error) {
	name, words := given, ""
	for n := 1; ; n++ {
		if given == "" {
			if n%10 == 1 {
				words = petname.Generate(2, "-")
				name = words
			} else {
				name = words + "-" + strconv.Itoa(n)
			}
		}
		taken := nameTaken(tx, name)
		if given != "" || taken == nil || !errors.As(taken, new(*NameError)) {
			return name, taken
		}
	}
}

// CheckFree returns a *NameError if Begin could not enter a run of that name.
func (db *DB) CheckFree(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	err := nameTaken(db.sql, name)
	if errors.As(err, new(*NameError)) {
		return err
	}
	return sqldb.Wrap(db.path, err)
}

// nameTaken returns a *NameError if a run has that name.
func nameTaken(from interface {
	QueryRow(query string, args ...any) *sql.Row
}, name string) error {
	var id int64
	var trashed bool
	err := from.QueryRow("SELECT id, trashed IS NOT NULL FROM runs WHERE name = ?", name).Scan(&id, &trashed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	where := ""
	if trashed {
		where = ", which is in the trash (drun gc removes it)"
	}
	return &NameError{name, fmt.Sprintf("is taken by run %d%s", id, where)}
}

// Discard removes the run as if it had never begun, for a usage error that shows only once the recipe is read. Its
// id is reused.
func (r *Run) Discard() error {
	err := r.db.write(func(tx *sql.Tx) (err error) {
		if r.adopted { // its job will say why
			r.unlock()
			_, err = tx.Exec("UPDATE runs SET status = 'pending' WHERE id = ?", r.ID)
			return err
		}
		try.To(tx.Exec("DELETE FROM runs WHERE id = ?", r.ID))
		try.Ok(removeUnused(tx))
		_, err = tx.Exec("UPDATE sqlite_sequence SET seq = seq - 1 WHERE name = 'runs' AND seq = ?", r.ID)
		r.unlock() // before the commit, since the next run with this id locks the same file
		return err
	})
	r.unlock()
	return err
}

func (r *Run) unlock() {
	if r.live != nil {
		r.live.close()
		r.live = nil
	}
	if r.debuggers != nil {
		r.debuggers()
		r.debuggers = nil
	}
	if r.lock != nil {
		dropLock(r.lock)
		r.lock = nil
	}
}

// AddSources keeps the files that the run was made from; equal contents are stored once for all runs.
func (r *Run) AddSources(sources []records.Source) error {
	return r.db.write(func(tx *sql.Tx) (err error) {
		for _, s := range sources {
			content := s.Content
			if content == nil {
				content = []byte{}
			}
			try.To(tx.Exec("INSERT OR IGNORE INTO sources VALUES (?, ?)", s.SHA256, content))
			try.To(tx.Exec("INSERT OR REPLACE INTO run_sources VALUES (?, ?, ?, ?)", r.ID, s.Path, s.SHA256, s.Role))
		}
		return nil
	})
}

// Tag adds labels; existing ones are kept.
func (r *Run) Tag(tags ...string) error { return r.Write(&Batch{Batch: records.Batch{Tags: tags}}) }

// RemoveCheckpoints removes steps whose checkpoints are gone from a run's catalog.
func (db *DB) RemoveCheckpoints(id int64, steps []int64) error {
	return db.exec("DELETE FROM checkpoints WHERE run = ? AND step IN (SELECT value FROM json_each(?))", id, sqldb.JSON(steps))
}

func (db *DB) exec(query string, args ...any) error {
	return db.write(func(tx *sql.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
}

// Foreign is a run that another tool recorded.
type Foreign struct {
	// Mark is a label that identifies the run; a run whose mark is known is not entered again.
	Mark    string
	Name    string // if "", malformed or taken, a name is made up, and a note has this one
	Source  string // shown in place of a recipe's path
	Tool    string // shown in place of drun's version
	Status  Status
	Started time.Time
	Seconds float64
	Params  []Param
	Tags    []string
	Notes   []string
	Points  []records.Point
}

// Enter records a foreign run. id is 0 if the run is there already, perhaps in the trash.
func (db *DB) Enter(f *Foreign, command []string) (id int64, err error) {
	known := false
	err = db.read(func(rows *sql.Rows) error { known = true; return nil }, "SELECT 1 FROM tags WHERE tag = ?", f.Mark)
	if err != nil || known {
		return 0, err
	}
	info := RunInfo{Name: f.Name, Recipe: f.Source, WorldSize: 1, Backend: "none", Given: records.Given{Version: f.Tool, Command: command}, Started: f.Started}
	notes := f.Notes
	r, err := db.Begin(info)
	if _, bad := err.(*NameError); bad {
		info.Name, notes = "", append(notes, "called "+f.Name)
		r, err = db.Begin(info)
	}
	if err != nil {
		return 0, err
	}
	batch := &Batch{Params: f.Params, Batch: records.Batch{Tags: append([]string{f.Mark}, f.Tags...)}}
	for _, text := range notes {
		batch.Notes = append(batch.Notes, records.Note{Time: f.Started, Text: text})
	}
	const most = 50_000 // points per transaction, so that other writers get their turn
	for rest := f.Points; ; rest = rest[min(len(rest), most):] {
		batch.Points = rest[:min(len(rest), most)]
		if len(rest) <= most {
			batch.End = &End{Status: f.Status, Seconds: f.Seconds}
		}
		if err := r.Write(batch); err != nil {
			_ = r.Discard() // as if it had never begun, so that it can be tried again
			return 0, err
		}
		if batch.End != nil {
			return r.ID, nil
		}
		batch = &Batch{}
	}
}
