package history

import (
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"drun/internal/sqldb"
	"drun/internal/try"
)

// Extent is how much of a run a history has.
type Extent struct {
	UID         string    `json:"uid"`
	ID          int64     `json:"id"` // 0: the history does not have the run
	Name        string    `json:"name"`
	Project     string    `json:"project"`
	Status      Status    `json:"status"`
	Batch       int64     `json:"batch"` // number of the last that is there completely
	Points      int64     `json:"points"`
	Superseded  int64     `json:"superseded"` // of these points
	Lines       int64     `json:"lines"`
	Snapshots   int64     `json:"snapshots"`
	Reached     []Reached `json:"reached"`
	Checkpoints []int64   `json:"checkpoints"` // their steps
}

// Reached is how many rows of a table there are of an attempt and a rank, and which is the last. Of artifacts, which may be
// replaced, it has a checksum instead of their number.
type Reached struct {
	Table   string `json:"table"`
	Attempt int    `json:"attempt"`
	Rank    int    `json:"rank"`
	At      int64  `json:"at"` // of the last
	Rows    int64  `json:"rows"`
}

// ordered are tables with an order of their own, of each attempt and rank where they have these.
var ordered = map[string]string{
	"updates":    "SELECT attempt, rank, max(first), count(*) FROM updates WHERE run = ? GROUP BY 1, 2",
	"rank_usage": "SELECT attempt, rank, max(time), count(*) FROM rank_usage WHERE run = ? GROUP BY 1, 2",
	"step_marks": "SELECT attempt, 0, max(seq), count(*) FROM step_marks WHERE run = ? GROUP BY 1",
}

func (e *Extent) reached(table string, attempt, rank int) (at, rows int64) {
	for _, r := range e.Reached {
		if r.Table == table && r.Attempt == attempt && r.Rank == rank {
			return r.At, r.Rows
		}
	}
	return math.MinInt64, 0
}

// Extent examines a run. A history without it has an empty extent.
func (db *DB) Extent(uid string) (e Extent, err error) {
	err = sqldb.Read(db.sql, db.path, func(conn *sql.Conn) error {
		e, err = extent(conn, uid)
		return err
	})
	return e, err
}

func extent(in sqldb.Queryer, uid string) (e Extent, err error) {
	defer try.Caught(&err)
	e = Extent{UID: uid, Reached: []Reached{}, Checkpoints: []int64{}}
	try.Ok(sqldb.Each(in, func(rows *sql.Rows) error {
		return rows.Scan(&e.ID, &e.Name, &e.Project, &e.Status, &e.Batch, &e.Lines, &e.Snapshots)
	}, `SELECT id, name, coalesce(project_name, ''), status, batch,
		(SELECT count(*) FROM logs l WHERE l.run = runs.id), (SELECT count(*) FROM snapshots s WHERE s.run = runs.id) FROM runs WHERE uid = ?`, uid))
	if e.ID == 0 {
		return e, nil
	}
	t := blocks{in, e.ID}
	next, _ := try.To2(t.next())
	e.Points = next - 1
	try.Ok(t.each(superseded, 0, math.MaxInt64, func(b *block) error { e.Superseded += int64(len(b.points)); return nil }))
	for table, query := range ordered {
		try.Ok(sqldb.Each(in, func(rows *sql.Rows) error {
			r := Reached{Table: table}
			err := rows.Scan(&r.Attempt, &r.Rank, &r.At, &r.Rows)
			e.Reached = append(e.Reached, r)
			return err
		}, query, e.ID))
	}
	if list, sums := try.To2(artifactsByTime(in, e.ID)); len(list) > 0 {
		last := len(list) - 1
		e.Reached = append(e.Reached, Reached{"artifacts", 0, 0, list[last].Time.UnixMicro(), sums[last]})
	}
	e.Checkpoints = try.To(sqldb.Column[int64](in, "SELECT step FROM checkpoints WHERE run = ? ORDER BY step", e.ID))
	return e, nil
}

// Digest is a SHA-256 over the first points and lines of a run, so that two histories can tell whether theirs are the same.
func (db *DB) Digest(uid string, points, lines int64) (sum []byte, err error) {
	err = sqldb.Read(db.sql, db.path, func(conn *sql.Conn) (err error) {
		h := sha256.New()
		id := append(try.To(sqldb.Column[int64](conn, "SELECT id FROM runs WHERE uid = ?", uid)), 0)[0]
		for from := int64(0); from < points; from += mostPoints {
			for _, p := range try.To(pointsIn(blocks{conn, id}, from, min(from+mostPoints, points))) {
				fmt.Fprintf(h, "%q %d %d %x %v %d\n", p.Name, p.Step, p.Rank, math.Float64bits(p.Value), p.Exact, p.Time.UnixMicro())
			}
		}
		err = sqldb.Each(conn, func(rows *sql.Rows) error {
			var rank int
			var stream, at, text string
			err := rows.Scan(&rank, &stream, &at, &text)
			fmt.Fprintf(h, "%d %s %s %q\n", rank, stream, at, text)
			return err
		}, "SELECT rank, stream, time, text FROM logs WHERE run = ? ORDER BY id LIMIT ?", id, lines)
		sum = h.Sum(nil)
		return err
	})
	return sum, err
}

// After is the extent that a history has once it has merged a delta.
func (e Extent) After(d *Delta) Extent {
	e.Points, e.Lines = d.From.Points+int64(len(d.Series.Name)), d.From.Lines+int64(len(d.Batch.Lines))
	e.Snapshots = d.From.Snapshots + int64(len(d.Batch.Snapshots))
	if d.Superseded != nil {
		e.Superseded = 0
		for _, r := range d.Superseded {
			e.Superseded += r.Last - r.First + 1
		}
	}
	with := &Delta{Reached: slices.Clone(e.Reached)}
	for _, r := range d.Reached {
		with.reach(r)
	}
	e.Reached = with.Reached
	return e
}

// State tells at a glance whether two histories have the same of a run.
type State struct {
	UID         string `json:"uid"`
	ID          int64  `json:"id"`
	Name        string `json:"name"`
	Project     string `json:"project"`
	Trashed     bool   `json:"trashed"`
	Foreign     bool   `json:"foreign"`     // another tool logged it
	Mark        string `json:"mark"`        // is the same if rows are, unless somebody has changed them by hand
	Labels      string `json:"labels"`      // tags and times of notes, as JSON
	Checkpoints string `json:"checkpoints"` // their steps as JSON
	// Bytes are those of artifacts, of the best checkpoint, and of all checkpoints.
	Bytes [3]int64 `json:"bytes"`
}

// Alike reports whether another history has the rows that this one has.
func (s *State) Alike(other *State) bool {
	var here, there []string
	if json.Unmarshal([]byte(s.Labels), &here) != nil || json.Unmarshal([]byte(other.Labels), &there) != nil {
		return false
	}
	return s.Mark == other.Mark && !slices.ContainsFunc(here, func(label string) bool { return !slices.Contains(there, label) })
}

// States returns the states of those of these runs that the history has.
func (db *DB) States(uids []string) ([]State, error) {
	return list(db, func(s *State) []any {
		return []any{&s.UID, &s.ID, &s.Name, &s.Project, &s.Trashed, &s.Foreign, &s.Mark, &s.Labels, &s.Checkpoints, &s.Bytes[0], &s.Bytes[1], &s.Bytes[2]}
	},
		`SELECT uid, id, name, coalesce(project_name, ''), trashed IS NOT NULL, pid = 0,
			json_array(batch, status, error, ended_early, parent_uid, (SELECT json_group_array(started) FROM (SELECT started FROM attempts WHERE run = r.id ORDER BY attempt))),
			(SELECT json_group_array(label) FROM (SELECT tag AS label FROM tags WHERE run = r.id UNION ALL SELECT time FROM notes WHERE run = r.id)),
			(SELECT json_group_array(step) FROM (SELECT step FROM checkpoints WHERE run = r.id ORDER BY step)),
			(SELECT coalesce(sum(bytes), 0) FROM artifacts WHERE run = r.id),
			coalesce((SELECT bytes FROM checkpoints WHERE run = r.id ORDER BY score IS NULL, score DESC, step DESC LIMIT 1), 0),
			(SELECT coalesce(sum(bytes), 0) FROM checkpoints WHERE run = r.id)
			FROM runs r WHERE uid IN (SELECT value FROM json_each(?)) ORDER BY id`, sqldb.JSON(uids))
}
