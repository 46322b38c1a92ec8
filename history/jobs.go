package history

import (
	"database/sql"
	"time"

	"drun/internal/try"
)

// Job is what drun submit has handed to a scheduler, or will.
type Job struct {
	ID        int64
	Run       int64 // that it runs; 0: the run was removed
	RunName   string
	RunStatus Status
	UID       string // of the run
	Target    string
	Handle    string // what the scheduler calls it; "": it does not have it yet
	State     Status
	Reason    string // of the state, for a person
	Code      *int   // drun's exit code; nil: not known
	Spec      string // JSON; runs/submit knows what it holds
	Submitted time.Time
	Asked     *time.Time // when its end was asked for
	Ended     *time.Time
}

// AddJob enters a job, and sets its ID.
func (db *DB) AddJob(j *Job) error {
	j.State = Pending
	return db.write(func(tx *sql.Tx) (err error) {
		result := try.To(tx.Exec("INSERT INTO jobs (run, target, handle, state, reason, spec, submitted) VALUES (?, ?, ?, ?, ?, ?, ?)",
			j.Run, j.Target, j.Handle, j.State, j.Reason, j.Spec, formatTime(j.Submitted)))
		j.ID, err = result.LastInsertId()
		return err
	})
}

// DropJobs removes jobs that could not be handed over, and the runs that they would have begun.
func (db *DB) DropJobs(jobs []*Job) error {
	return db.write(func(tx *sql.Tx) (err error) {
		for _, j := range jobs {
			try.To(tx.Exec("DELETE FROM jobs WHERE id = ?", j.ID))
			try.To(tx.Exec("DELETE FROM runs WHERE id = ? AND status = 'pending'", j.Run))
			try.To(tx.Exec("UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(id), 0) FROM runs) WHERE name = 'runs' AND seq = ?", j.Run))
		}
		return nil
	})
}

// Jobs lists the jobs that have not ended, or all of them, the oldest first.
func (db *DB) Jobs(all bool) ([]*Job, error) {
	where := ""
	if !all {
		where = " WHERE j.state IN ('pending', 'running')"
	}
	found, err := list(db, func(j *Job) []any {
		return []any{&j.ID, &j.Run, &j.RunName, &j.RunStatus, &j.UID, &j.Target, &j.Handle, &j.State, &j.Reason, &j.Code, &j.Spec, timeColumn{&j.Submitted}, timeOrNone{&j.Asked}, timeOrNone{&j.Ended}}
	}, `SELECT j.id, coalesce(j.run, 0), coalesce(r.name, ''), coalesce(r.status, ''), coalesce(r.uid, ''), j.target, j.handle, j.state, j.reason, j.code, j.spec, j.submitted, j.asked, j.ended
		FROM jobs j LEFT JOIN runs r ON r.id = j.run`+where+" ORDER BY j.id")
	jobs := make([]*Job, len(found))
	for i := range found {
		jobs[i] = &found[i]
	}
	return jobs, err
}

// SetJob records what has become of a job: its Handle, State, Reason, Code and Spec. A run that has not begun when its job
// ends never will, and takes the job's state. A job that has ended stays as it is.
func (db *DB) SetJob(j *Job) error {
	var ended any
	if j.State.Ended() {
		ended = formatTime(time.Now())
	}
	return db.write(func(tx *sql.Tx) (err error) {
		try.To(tx.Exec("UPDATE jobs SET handle = ?, state = ?, reason = ?, code = ?, spec = ?, ended = ? WHERE id = ? AND ended IS NULL",
			j.Handle, j.State, j.Reason, j.Code, j.Spec, ended, j.ID))
		if ended != nil {
			try.To(tx.Exec("UPDATE runs SET status = j.state, error = j.reason FROM jobs j WHERE j.id = ? AND runs.id = j.run AND runs.status = 'pending'", j.ID))
		}
		return nil
	})
}

// AskEnd notes whether a job is to end.
func (db *DB) AskEnd(id int64, asked bool) error {
	return db.exec("UPDATE jobs SET asked = iif(?, coalesce(asked, ?), NULL) WHERE id = ? AND ended IS NULL", asked, formatTime(time.Now()), id)
}

// FindUID is Find for a run's uid.
func (db *DB) FindUID(uid string) (id int64, err error) {
	err = db.read(func(rows *sql.Rows) error { return rows.Scan(&id) }, "SELECT id FROM runs WHERE uid = ? AND trashed IS NULL", uid)
	if err == nil && id == 0 {
		err = &NotFound{What: "there is no run " + uid}
	}
	return id, err
}
