package history

import (
	"database/sql"
	"fmt"
	"time"

	"drun/internal/try"
)

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
	r, p := &Run{ID: id, db: db}, &Past{}
	err := db.write(func(tx *sql.Tx) (err error) {
		defer try.Caught(&err)
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
		try.To(tx.Exec(`UPDATE runs SET status = 'running', seconds = NULL, exit_code = NULL, error = '', recipe = ?, world_size = ?, backend = ?, seed = ?,
			threads = ?, version = ?, host = ?, pid = ?, dir = ?, command = ?, deterministic = ?, go_version = ?, numerics = ?, data_dirs = ?, project = ?, bits_key = NULL WHERE id = ?`,
			append(originOf(info), id)...))
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
func (t blocks) supersedeRepeated(tx *sql.Tx, r Repeat) error {
	type at struct{ metric, step int64 }
	repeated := map[at]bool{}
	err := t.points(!superseded, r.After, r.Before, func(p *numbered) {
		if p.rank == int64(r.Rank) {
			repeated[at{p.metric, p.step}] = true
		}
	})
	if err != nil {
		return err
	}
	return t.supersede(tx, 0, r.Older, func(p *numbered) bool { return p.rank == int64(r.Rank) && repeated[at{p.metric, p.step}] })
}
