package history

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Batch is a group of a run's records that are written in one transaction, in the order of the fields. A run's
// batches are numbered, and each is written only once, however often it is tried: see Write.
type Batch struct {
	Number    int64 // from 1; 0: not numbered yet
	Params    []Param
	Inputs    *string // key of the inputs; "": there is none
	WorldSize int     // of the attempts from now on; 0: unchanged
	Git       *Git
	Progress  []records.Progress `cbor:"Loops" table:"progress" or:"REPLACE"` // Progress in a spool of an older drun is not a list
	Snapshots []records.Snapshot
	records.Batch
	// In the order in which they are written.
	AttemptBegins []AttemptBegin
	AttemptEnds   []AttemptEnd
	Supersedes    []Supersede
	Repeats       []Repeat
	Lines         []LogLine    `table:"logs"`
	Removed       []int64      // steps whose checkpoints are gone
	Checkpoints   []Checkpoint `table:"checkpoints" or:"REPLACE"`
	End           *End
}

// End is how a run ended.
type End struct {
	Status   Status
	ExitCode int
	Error    string
	Seconds  float64 // since the run began
}

// Number gives the batch the run's next number. Write and Spool number a batch that has none.
func (r *Run) Number(b *Batch) {
	if b.Number == 0 {
		b.Number = r.numbered.Add(1)
	}
}

// Write records a batch after the previous ones. It skips a batch that is in the history already, so that one whose
// fate is unknown can be tried again. The end of the run releases its lock.
func (r *Run) Write(b *Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Number(b)
	write := func() error { return r.db.write(func(tx *sql.Tx) error { return r.put(tx, b) }) }
	err := write()
	if b.End != nil && sqldb.IsFull(err) && r.giveReserve() {
		err = write()
	}
	if err == nil {
		err = r.setAside()
	}
	if err == nil && b.End != nil {
		r.unlock()
	}
	return err
}

// Leave releases the run's lock although its end could not be written. The next process that opens the history
// writes the spool; without one, the run is lost.
func (r *Run) Leave() { r.unlock() }

// put writes a batch unless the history has it.
func (r *Run) put(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	try.Ok(r.db.stillKnown(tx))
	result := try.To(tx.Exec("UPDATE runs SET batch = ? WHERE id = ? AND batch < ?", b.Number, r.ID, b.Number))
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return err
	}
	for _, write := range []func(*sql.Tx, *Batch) error{
		r.putParams, r.putArtifacts, r.putSnapshots, r.putPoints, r.putAttempts, r.putRemoved, r.putRows, r.putEnd, r.putKeys,
	} {
		try.Ok(write(tx, b))
	}
	return nil
}

func execute[T any](tx *sql.Tx, statement string, items []T, values func(*T) []any) (err error) {
	defer try.Caught(&err)
	if len(items) == 0 {
		return nil
	}
	prepared := try.To(tx.Prepare(statement))
	defer prepared.Close()
	for i := range items {
		try.To(prepared.Exec(values(&items[i])...))
	}
	return nil
}

// putRemoved precedes putRows: a step may be saved again.
func (r *Run) putRemoved(tx *sql.Tx, b *Batch) error {
	return execute(tx, "DELETE FROM checkpoints WHERE run = ? AND step = ?", b.Removed,
		func(step *int64) []any { return []any{r.ID, *step} })
}

// putEnd sets the final status. A running attempt ends with the run.
func (r *Run) putEnd(tx *sql.Tx, b *Batch) error {
	e := b.End
	if e == nil {
		return nil
	}
	if _, err := tx.Exec("UPDATE runs SET status = iif(?1 = 'interrupted' AND ended_early IS NOT NULL, 'stopped early', ?1), exit_code = ?2, error = ?3, seconds = ?4 WHERE id = ?5",
		e.Status, e.ExitCode, e.Error, e.Seconds, r.ID); err != nil {
		return err
	}
	_, err := tx.Exec(`UPDATE attempts SET status = ?1, error = ?2, seconds = ?3 + (SELECT julianday(r.started) - julianday(attempts.started) FROM runs r WHERE r.id = ?4) * 86400
		WHERE run = ?4 AND status = 'running'`, e.Status, e.Error, e.Seconds, r.ID)
	return err
}

// OnReplaced registers fn to be called, from within Write, if the history was deleted or replaced during the run.
func (r *Run) OnReplaced(fn func(what string)) { r.replaced = fn }

// setAside checks whether the history has lost its name. SQLite goes on with the open file, which would vanish with
// this process: so it saves all of it in a home of its own, in which the run goes on. It does not touch what has
// the name now.
func (r *Run) setAside() (err error) {
	defer try.Caught(&err)
	if r.lock == nil || !r.db.Replaced() { // without a lock, the run is another agent's, see unspool
		return nil
	}
	home := filepath.Join(r.db.home, "replaced", r.UID)
	lock := try.To((&DB{home: home}).lockRun(r.ID))
	fresh, err := r.db.saveIn(home)
	if err != nil {
		dropLock(lock)
		return err
	}
	gone := r.db.path
	r.db.Close()
	dropLock(r.lock)
	r.moving.Lock()
	*r.db, r.lock = *fresh, lock
	r.moving.Unlock()
	if r.replaced != nil {
		r.replaced(fmt.Sprintf("%s was deleted or replaced while the run was on: what it held, and all that this run records, is in %s instead (drun show %s --home %s)", gone, fresh.path, r.Name, home))
	}
	return nil
}

// saveIn writes the open history into a new home, and opens that.
func (db *DB) saveIn(home string) (*DB, error) {
	path := file(home).Path
	empty, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, sqldb.FileMode) // SQLite's own mode would let other users read it
	if err != nil {
		return nil, sqldb.Wrap(path, err)
	}
	empty.Close()
	if _, err := db.sql.Exec("VACUUM INTO ?", path); err != nil {
		return nil, sqldb.Wrap(path, err)
	}
	return Open(home)
}

// AttemptBegin is a start of a run's ranks. Attempts are numbered from 0.
type AttemptBegin struct {
	Attempt int
	Started time.Time
	Points  int64 // points of the run recorded before it
}

// AttemptEnd is how an attempt ended that another follows. The last one ends with the run.
type AttemptEnd struct {
	Attempt int
	Status  Status
	Seconds float64 // since it began
	Error   string
}

// Supersede says from which state an attempt goes on: the points recorded between that state and the attempt move
// from the metrics to superseded_metrics.
type Supersede struct {
	Attempt  int
	FromStep *int64 // step of the checkpoint; nil: the attempt began anew
	After    int64  // points of the run that belong to that state
	Before   int64  // points of the run before the attempt
}

// Repeat says that a rank's points from After to Before, recorded before the rank restored its state, repeat those
// of the same name and step among the run's first Older points, which are superseded too.
type Repeat struct {
	Rank                 int
	Older, After, Before int64
}

// Repeat adds what a rank repeats, merging it with the rank's previous entry.
func (b *Batch) Repeat(p Repeat) {
	for i := range b.Repeats {
		if last := &b.Repeats[i]; last.Rank == p.Rank && last.Older == p.Older {
			last.Before = p.Before // other ranks' points in between do not matter
			return
		}
	}
	b.Repeats = append(b.Repeats, p)
}

const beginAttempt = "INSERT INTO attempts (run, attempt, started, status, points) VALUES (?, ?, ?, 'running', ?)"

// BeginAttempt records the first start of the ranks.
func (r *Run) BeginAttempt() error {
	return r.db.exec(beginAttempt, r.ID, 0, formatTime(time.Now()), 0)
}

// Past is what a continued run has recorded before.
type Past struct {
	Attempts int   // number of attempts
	Points   int64 // number of points
	Started  time.Time
}

// Reopen continues a run that has ended: its next attempt follows. If the run has not ended, the error is a usage
// error.
func (db *DB) Reopen(id int64, info RunInfo) (*Run, *Past, error) {
	if err := db.settle(id); err != nil {
		return nil, nil, err
	}
	r, p := &Run{ID: id, db: db}, &Past{}
	err := db.write(func(tx *sql.Tx) (err error) {
		try.Ok(info.enter())
		var status Status
		var batch int64
		try.Ok(tx.QueryRow("SELECT uid, name, status, batch, started, (SELECT count(*) FROM attempts WHERE run = ?1) FROM runs WHERE id = ?1", id).
			Scan(&r.UID, &r.Name, &status, &batch, timeColumn{&p.Started}, &p.Attempts))
		next, _ := try.To2(blocks{tx, id}.next())
		p.Points = next - 1
		if status == Running || status == Done {
			return &NotFound{fmt.Sprintf("run %d %s is %s", id, r.Name, status), "another process has taken it up"}
		}
		r.numbered.Store(batch)
		try.To(tx.Exec("UPDATE runs SET status = 'running', seconds = NULL, exit_code = NULL, error = '', bits_key = NULL, ended_early = NULL, owner = NULL, leased = NULL, clock = NULL, sweep = coalesce(?, sweep), project_name = coalesce(?, project_name), ("+origin+") = ("+places(origin)+") WHERE id = ?",
			append(append([]any{sweepOf(info), textOrNull(info.ProjectName)}, originOf(info)...), id)...))
		try.To(tx.Exec(beginAttempt, id, p.Attempts, formatTime(time.Now()), p.Points))
		r.lock, err = db.lockRun(id)
		return err
	})
	if err != nil {
		r.unlock()
		return nil, nil, err
	}
	return r, p, nil
}

func (r *Run) putAttempts(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	t := blocks{tx, r.ID}
	try.Ok(execute(tx, beginAttempt, b.AttemptBegins, func(a *AttemptBegin) []any { return []any{r.ID, a.Attempt, formatTime(a.Started), a.Points} }))
	// After the beginnings, since an attempt may be over before it was written.
	try.Ok(execute(tx, "UPDATE attempts SET status = ?, seconds = ?, error = ? WHERE run = ? AND attempt = ?", b.AttemptEnds,
		func(e *AttemptEnd) []any { return []any{e.Status, e.Seconds, e.Error, r.ID, e.Attempt} }))
	try.Ok(execute(tx, "UPDATE attempts SET from_step = ? WHERE run = ? AND attempt = ?", b.Supersedes,
		func(s *Supersede) []any { return []any{s.FromStep, r.ID, s.Attempt} }))
	for _, s := range b.Supersedes {
		try.Ok(t.supersede(tx, s.After, s.Before, func(*numbered) bool { return true }))
	}
	for _, p := range b.Repeats {
		try.Ok(t.supersedeRepeated(tx, p))
	}
	return nil
}

// supersedeRepeated supersedes the older points that some of a rank's points repeat.
func (t blocks) supersedeRepeated(tx *sql.Tx, r Repeat) (err error) {
	defer try.Caught(&err)
	type at struct{ metric, step int64 }
	repeated := map[at]bool{}
	try.Ok(t.points(!superseded, r.After, r.Before, func(p *numbered) {
		if p.rank == int64(r.Rank) {
			repeated[at{p.metric, p.step}] = true
		}
	}))
	return t.supersede(tx, 0, r.Older, func(p *numbered) bool { return p.rank == int64(r.Rank) && repeated[at{p.metric, p.step}] })
}
