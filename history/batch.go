package history

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

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
	Progress  []records.Progress `cbor:"Loops" table:"progress" or:"REPLACE"` // Progress in a spool of an older drun is no list
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

// execute executes a statement for each item, with its column values.
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
	if _, err := tx.Exec("UPDATE runs SET status = ?, exit_code = ?, error = ?, seconds = ? WHERE id = ?",
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
func (r *Run) setAside() error {
	if r.lock == nil || !r.db.Replaced() { // without a lock, the run is another agent's, see unspool
		return nil
	}
	home := filepath.Join(r.db.home, "replaced", r.UID)
	lock, err := (&DB{home: home}).lockRun(r.ID)
	if err != nil {
		return err
	}
	fresh, err := r.db.saveIn(home)
	if err != nil {
		dropLock(lock)
		return err
	}
	gone := r.db.path
	r.db.Close()
	dropLock(r.lock)
	*r.db, r.lock = *fresh, lock
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
