package history

import (
	"fmt"
	"os"
	"path/filepath"

	"drun/internal/sqldb"
)

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
