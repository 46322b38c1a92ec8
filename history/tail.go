package history

import (
	"database/sql"
	"math"
	"os"
	"time"

	"drun/history/records"
	"drun/internal/sqldb"
)

// Cursor is a reader's position in a run's points; the zero value is at the beginning.
type Cursor struct {
	uid        string
	superseded int64
	seq        int64
}

// Tail calls fn with the points of some or all metrics that were recorded after the cursor, and returns a cursor
// behind the last of them. If what was read before no longer holds, because a later attempt has recorded it again,
// it first calls anew, then fn with all points. Everything it reads is from one moment.
func (db *DB) Tail(run int64, from Cursor, names Names, anew func(), fn func(*records.Point)) (to Cursor, err error) {
	err = sqldb.Read(db.sql, db.path, func(conn *sql.Conn) error {
		to = Cursor{}
		err := sqldb.Each(conn, func(rows *sql.Rows) error { return rows.Scan(&to.uid, &to.superseded) },
			"SELECT uid, (SELECT count(*) FROM metric_blocks WHERE run = id AND superseded = 1) FROM runs WHERE id = ?", run)
		if err != nil {
			return err
		}
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
