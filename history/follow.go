package history

import (
	"context"
	"database/sql"
	"math"
	"os"
	"regexp"
	"slices"
	"time"

	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// LogFilter selects lines; the zero value selects all.
type LogFilter struct {
	Rank *int
	Grep *regexp.Regexp
	// After skips lines up to this LogLine.ID.
	After int64
}

// Logs calls fn for the run's lines in the order of recording and returns the ID of the last one looked at (filter.After
// if there was none).
func (db *DB) Logs(run int64, filter LogFilter, fn func(LogLine) error) (int64, error) {
	last := filter.After
	err := db.read(func(rows *sql.Rows) error {
		var l LogLine
		try.Ok(rows.Scan(&l.ID, &l.Rank, &l.Stream, timeColumn{&l.Time}, &l.Text))
		last = l.ID
		if filter.Rank != nil && *filter.Rank != l.Rank || filter.Grep != nil && !filter.Grep.MatchString(l.Text) {
			return nil
		}
		return fn(l)
	}, "SELECT id, rank, stream, time, text FROM logs WHERE run = ? AND id > ? ORDER BY id", run, filter.After)
	return last, err
}

// Follow is like Logs, for several runs at once, and goes on with new lines until all runs, or ctx, have ended. Lines
// found together are ordered by time.
func (db *DB) Follow(ctx context.Context, runs []int64, filter LogFilter, fn func(run int64, l LogLine) error) (err error) {
	defer try.Caught(&err)
	const interval = 100 * time.Millisecond
	after := slices.Repeat([]int64{filter.After}, len(runs))
	for {
		type line struct {
			run int64
			LogLine
		}
		var found []line
		running := false
		for i, run := range runs {
			// The status first, so that all lines written before the end are seen.
			on := try.To(db.isRunning(run))
			running = running || on
			filter.After = after[i]
			after[i] = try.To(db.Logs(run, filter, func(l LogLine) error {
				if len(runs) == 1 {
					return fn(run, l)
				}
				found = append(found, line{run, l})
				return nil
			}))
		}
		slices.SortStableFunc(found, func(a, b line) int { return a.Time.Compare(b.Time) })
		for _, l := range found {
			try.Ok(fn(l.run, l.LogLine))
		}
		if !running || !db.live {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
	}
}

func (db *DB) isRunning(run int64) (bool, error) {
	status, job, r := "", false, runningRun{id: run}
	err := db.read(func(rows *sql.Rows) error { return rows.Scan(&status, &job, timeOrNone{&r.leased}) },
		"SELECT status, EXISTS (SELECT 1 FROM jobs WHERE run = runs.id AND ended IS NULL), "+leased+" FROM runs WHERE id = ?", run)
	// If the lock is free, the run has just finished or is lost; it has ended either way, unless its job will go on with it.
	return err == nil && (job || status == string(Running) && !db.leaderGone(r)), err
}

// LogLine is one line that a rank, or the agent (rank -1), printed.
type LogLine struct {
	ID     int64     `json:"-"` // order of recording; set when read
	Rank   int       `json:"rank"`
	Stream string    `json:"stream"` // "stdout" or "stderr"
	Time   time.Time `json:"time"`
	Text   string    `json:"text"` // without its line ending
}

// Cursor is a reader's position in a run's points; the zero value is at the beginning.
type Cursor struct {
	uid        string
	superseded int64
	seq        int64
}

// Tail calls fn with the points of some or all metrics that were recorded after the cursor, and returns a cursor after
// the last of them. If what was read before no longer holds, because a later attempt has recorded it again,
// it first calls anew, then fn with all points. Everything it reads is from one moment.
func (db *DB) Tail(run int64, from Cursor, names Names, anew func(), fn func(*records.Point)) (to Cursor, err error) {
	err = sqldb.Read(db.sql, db.path, func(conn *sql.Conn) error {
		to = Cursor{}
		try.Ok(sqldb.Each(conn, func(rows *sql.Rows) error { return rows.Scan(&to.uid, &to.superseded) },
			"SELECT uid, (SELECT count(*) FROM metric_blocks WHERE run = id AND superseded = 1) FROM runs WHERE id = ?", run))
		if to.seq = from.seq; to.uid != from.uid || to.superseded != from.superseded {
			to.seq = 0
			anew()
		}
		wanted := names.Some
		if names.All {
			wanted = nil
		} else if wanted == nil {
			wanted = []string{}
		}
		return blocks{conn, run}.named(!superseded, to.seq, math.MaxInt64, wanted, func(seq int64, p *records.Point) {
			if to.seq = seq; p != nil {
				fn(p)
			}
		})
	})
	return to, err
}

// Stamp is the state of a history's files at a moment; a write changes it.
type Stamp struct {
	sizes  [2]int64
	times  [2]time.Time
	latest time.Time
}

// StampOf examines the files of the history beneath home, without disturbing writers. Two writes within one tick of
// the file system's clock can leave the same stamp: see Settled.
func StampOf(home string) Stamp {
	var s Stamp
	path := file(home).Path
	for i, name := range []string{path, path + "-wal"} {
		if info, err := os.Stat(name); err == nil {
			s.sizes[i], s.times[i] = info.Size(), info.ModTime()
			if s.times[i].After(s.latest) {
				s.latest = s.times[i]
			}
		}
	}
	return s
}

// Settled reports whether any write since the stamp was taken, at that time, would have changed it.
func (s Stamp) Settled(taken time.Time) bool { return taken.Sub(s.latest) > 50*time.Millisecond }
