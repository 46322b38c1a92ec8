package history

import (
	"cmp"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"time"

	"drun/history/records"
	"drun/internal/secret"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// A run goes from one history to another while it goes on, or after: Extent says what a history has of it, Since takes
// what that lacks, as a Delta, and Merge (merge.go) enters it in one transaction. A run keeps its uid; its number is
// the history's own.
//
// Points, lines and snapshots are only ever added at the end, in the same order everywhere, so that their number says
// what is missing: a Delta that does not begin where the receiver ends is refused. So nothing is entered twice or left
// out, whatever is repeated, lost or overtaken on the way. All else that a run has can be entered again without harm.

// UIDs returns the uids of runs, those that were resumed from others after these; an id that no run has is skipped.
func (db *DB) UIDs(ids []int64) ([]string, error) {
	return listColumn[string](db, "SELECT uid FROM runs WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id", sqldb.JSON(ids))
}

// copiedRun is the row of a run as far as it is the same in every history.
type copiedRun struct {
	Recipe        string    `json:"recipe"`
	Status        Status    `json:"status"`
	WorldSize     int       `json:"world_size"`
	Backend       string    `json:"backend"`
	Seed          int64     `json:"seed"`
	Threads       int       `json:"threads"`
	Started       time.Time `json:"started"`
	Seconds       *float64  `json:"seconds"`
	ExitCode      *int      `json:"exit_code"`
	Error         string    `json:"error"`
	Version       string    `json:"version"`
	Host          string    `json:"host"`
	PID           int       `json:"pid"`
	Dir           string    `json:"dir"`
	Command       string    `json:"command"` // JSON
	ParentStep    *int64    `json:"parent_step"`
	ParentPoints  *int64    `json:"parent_points"`
	Deterministic *bool     `json:"deterministic"`
	GoVersion     *string   `json:"go_version"`
	Inputs        *string   `json:"inputs"`
	BitsKey       *string   `json:"bits_key"`
	Numerics      *int      `json:"numerics"`
	DataDirs      *string   `json:"data_dirs"` // JSON
	GitCommit     *string   `json:"git_commit"`
	GitDirty      *bool     `json:"git_dirty"`
	Project       *string   `json:"project"`
	Sweep         *string   `json:"sweep"` // JSON
	EndedEarly    *string   `json:"ended_early"`
}

type copiedAttempt struct {
	Attempt  int       `json:"attempt"`
	Started  time.Time `json:"started"`
	Seconds  *float64  `json:"seconds"`
	Status   Status    `json:"status"`
	Error    string    `json:"error"`
	Points   int64     `json:"points"`
	FromStep *int64    `json:"from_step"`
}

// Series are points by column, which takes a third of the bytes.
type Series struct {
	Names []string
	Name  []int // index of Names
	Step  []int64
	Rank  []int
	Value []float64
	Exact []bool
	Time  []int64 // microseconds since 1970
}

func seriesOf(points []records.Point) (s Series) {
	index := map[string]int{}
	for _, p := range points {
		n, known := index[p.Name]
		if !known {
			n = len(s.Names)
			index[p.Name], s.Names = n, append(s.Names, p.Name)
		}
		s.Name, s.Step, s.Rank = append(s.Name, n), append(s.Step, p.Step), append(s.Rank, p.Rank)
		s.Value, s.Exact, s.Time = append(s.Value, p.Value), append(s.Exact, p.Exact), append(s.Time, p.Time.UnixMicro())
	}
	return s
}

func (s *Series) points() (_ []records.Point, err error) {
	defer try.Caught(&err)
	n := len(s.Name)
	try.FailIf(len(s.Step) != n || len(s.Rank) != n || len(s.Value) != n || len(s.Exact) != n || len(s.Time) != n, "the columns of points have different lengths")
	list := make([]records.Point, n)
	for i := range list {
		try.FailIf(s.Name[i] < 0 || s.Name[i] >= len(s.Names), "a point has no name")
		list[i] = records.Point{Name: s.Names[s.Name[i]], Step: s.Step[i], Rank: s.Rank[i], Value: s.Value[i], Exact: s.Exact[i], Time: time.UnixMicro(s.Time[i])}
	}
	return list, nil
}

// Range are numbers of points, both ends included.
type Range struct{ First, Last int64 }

// Delta is what a history lacks of a run, or a part of that.
type Delta struct {
	UID, Name, Project string
	ParentUID          string // of the run that it was resumed from; "": none
	Copied             bool   // the sender has not recorded it, either
	Now                time.Time
	// From is the number of points, lines and snapshots that the receiver must have.
	From     struct{ Points, Lines, Snapshots int64 }
	Row      copiedRun
	Attempts []copiedAttempt
	Series   Series
	// Superseded are all of the points so far that are; nil: the same as before.
	Superseded []Range
	Whole      bool // Sources, and Batch except for lines, are here
	Sources    []records.Source
	Tool       ToolRecords
	Batch      Batch // other records; its number is that of the run's last batch. Artifacts lack their data
	// Contents are those of artifacts, by SHA-256, that the receiver lacks.
	Contents map[string][]byte
	Reached  []Reached
	More     bool // what is left follows in other deltas
}

// The size of a delta is limited, so that others get their turn.
const (
	mostPoints    = 16 << 10
	mostLines     = 8 << 10
	mostLineBytes = 2 << 20
	mostUpdates   = 4 << 10 // rows
	mostContents  = 16 << 20
)

// Source takes deltas of one run out of a history, one after another.
type Source struct {
	UID         string
	WithSecrets bool // also the values of parameters whose names suggest secrets, if the history has them
	Live        bool // what rarely changes is read less often, the longer that takes

	db         *DB
	line       int64 // id of the last line that was taken,
	lines      int64 // and its number
	blocks     int64 // of superseded points, when the last delta was taken
	superseded int64 // points in these
	whole      [sha256.Size]byte
	read       time.Time     // when what rarely changes was read last
	took       time.Duration // to read it
}

// SourceOf is the source of a run's deltas. After an error of the receiver, a new one is needed.
func (db *DB) SourceOf(uid string) *Source { return &Source{UID: uid, db: db, blocks: -1} }

// Since returns what a history with this extent of the run lacks, as of one moment. Without the run the error is a *NotFound.
func (s *Source) Since(have Extent) (d *Delta, err error) {
	err = sqldb.Read(s.db.sql, s.db.path, func(conn *sql.Conn) error {
		d, err = s.since(conn, have)
		return err
	})
	return d, err
}

func (s *Source) since(in sqldb.Queryer, have Extent) (_ *Delta, err error) {
	defer try.Caught(&err)
	d, r := &Delta{UID: s.UID, Now: time.Now()}, runningRun{}
	d.From.Points, d.From.Lines, d.From.Snapshots = have.Points, have.Lines, have.Snapshots
	try.Ok(sqldb.Each(in, func(rows *sql.Rows) error {
		return rows.Scan(&r.id, timeOrNone{&r.leased}, &d.Name, &d.Project, &d.Copied, &d.Batch.Number, &d.ParentUID)
	}, `SELECT id, leased, name, coalesce(project_name, ''), owner IS NOT NULL, batch, coalesce((SELECT p.uid FROM runs p WHERE p.id = r.parent), parent_uid, '') FROM runs r WHERE uid = ?`, s.UID))
	id := r.id
	if id == 0 {
		return nil, &NotFound{fmt.Sprintf("the run with the uid %.64s has been removed", s.UID), "drun runs lists those that are there"}
	}
	d.Row = try.To(rowsIn[copiedRun](in, "runs WHERE id = ?", id))[0]
	if !s.WithSecrets {
		try.Ok(d.Row.redact())
	}
	d.Attempts = try.To(rowsIn[copiedAttempt](in, "attempts WHERE run = ? ORDER BY attempt", id))
	if d.Row.Status == Running && s.db.leaderGone(r) {
		d.Row.Status = Lost
		for i := range d.Attempts {
			if d.Attempts[i].Status == Running {
				d.Attempts[i].Status = Lost
			}
		}
	}
	try.Ok(s.points(in, id, have, d))
	try.Ok(s.newLines(in, id, d))
	if s.Live && d.Row.Status == Running && have.ID != 0 && time.Since(s.read) < max(time.Second, 20*s.took) {
		return d, nil
	}
	began := time.Now()
	try.Ok(s.rest(in, id, &have, d))
	s.read, s.took = time.Now(), time.Since(began)
	return d, nil
}

// points takes the next points, and says which of all so far are superseded, if that has changed.
func (s *Source) points(in sqldb.Queryer, id int64, have Extent, d *Delta) (err error) {
	defer try.Caught(&err)
	t := blocks{in, id}
	list := try.To(pointsIn(t, have.Points, have.Points+mostPoints))
	d.Series = seriesOf(list)
	d.More = len(list) == mostPoints
	var count int64
	try.Ok(sqldb.Each(in, func(rows *sql.Rows) error { return rows.Scan(&count) }, "SELECT count(*) FROM metric_blocks WHERE run = ? AND superseded = 1", id))
	if count == s.blocks && have.Superseded == s.superseded && len(list) == 0 || count == 0 {
		s.blocks = count
		return nil
	}
	end, n := have.Points+int64(len(list)), int64(0)
	ranges := []Range{}
	try.Ok(t.points(superseded, 0, end, func(p *numbered) {
		n++
		if last := len(ranges) - 1; last >= 0 && ranges[last].Last+1 == p.seq {
			ranges[last].Last = p.seq
		} else {
			ranges = append(ranges, Range{p.seq, p.seq})
		}
	}))
	if s.blocks, s.superseded = count, n; n != have.Superseded {
		slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
		d.Superseded = ranges
	}
	return nil
}

// pointsIn reads points by number, after one and up to another, whether or not they are superseded.
func pointsIn(t blocks, after, upTo int64) (list []records.Point, err error) {
	defer try.Caught(&err)
	var found []numbered
	used := map[int64]bool{}
	for _, kind := range []bool{superseded, !superseded} {
		try.Ok(t.points(kind, after, upTo, func(p *numbered) {
			found = append(found, *p)
			used[p.metric] = true
		}))
	}
	slices.SortFunc(found, func(a, b numbered) int { return cmp.Compare(a.seq, b.seq) })
	metrics := try.To(sqldb.Map[int64, string](t.in, "SELECT id, name FROM metric_names WHERE id IN (SELECT value FROM json_each(?))", sqldb.JSON(slices.Collect(maps.Keys(used)))))
	for i, p := range found {
		if p.seq != after+int64(i)+1 {
			return nil, errDamagedBlock // a point is missing, or there twice
		}
		list = append(list, records.Point{Name: metrics[p.metric], Step: p.step, Rank: int(p.rank), Value: p.value, Exact: p.exact, Time: time.UnixMicro(p.time)})
	}
	return list, nil
}

func (s *Source) newLines(in sqldb.Queryer, id int64, d *Delta) error {
	offset := int64(0)
	if s.lines != d.From.Lines {
		s.line, offset = 0, d.From.Lines
	}
	bytes := 0
	err := sqldb.Each(in, func(rows *sql.Rows) error {
		var l LogLine
		err := rows.Scan(&l.ID, &l.Rank, &l.Stream, timeColumn{&l.Time}, &l.Text)
		if bytes > mostLineBytes {
			d.More = true
			return err
		}
		bytes += len(l.Text)
		s.line = l.ID
		d.Batch.Lines = append(d.Batch.Lines, l)
		return err
	}, "SELECT id, rank, stream, time, text FROM logs WHERE run = ? AND id > ? ORDER BY id LIMIT ? OFFSET ?", id, s.line, mostLines, offset)
	s.lines = d.From.Lines + int64(len(d.Batch.Lines))
	d.More = d.More || len(d.Batch.Lines) == mostLines
	return err
}

// rest takes what a run has besides points and lines, unless the last delta had the same.
func (s *Source) rest(in sqldb.Queryer, id int64, have *Extent, d *Delta) (err error) {
	defer try.Caught(&err)
	b := &d.Batch
	b.Params = try.To(paramsIn(in, id))
	for i, p := range b.Params {
		if _, is := p.Value.(bool); !is && !s.WithSecrets && secret.Named(p.Name) {
			b.Params[i].Value = Secret{}
		}
	}
	b.Plugins = try.To(rowsIn[records.Plugin](in, "plugins WHERE run = ? ORDER BY name", id))
	b.Ranks = try.To(rowsIn[records.RankPlace](in, "ranks WHERE run = ? ORDER BY rank", id))
	b.DataFiles = try.To(rowsIn[records.DataFile](in, "data_files WHERE run = ? ORDER BY path, sha256", id))
	b.Copies = try.To(rowsIn[records.Copies](in, "device_copies WHERE run = ? ORDER BY attempt, rank, position, call", id))
	b.Notes = try.To(rowsIn[records.Note](in, "notes WHERE run = ? ORDER BY id", id))
	b.Tags = try.To(sqldb.Column[string](in, "SELECT tag FROM tags WHERE run = ? ORDER BY tag", id))
	b.Progress = try.To(rowsIn[records.Progress](in, "progress WHERE run = ?", id))
	all := try.To(snapshotsIn(in, id))
	b.Snapshots = all[min(d.From.Snapshots, int64(len(all))):]
	d.Sources = try.To(sourcesIn(in, id))
	d.Tool = try.To(toolIn(in, id))
	for _, attempt := range try.To(sqldb.Column[int](in, "SELECT DISTINCT attempt FROM step_marks WHERE run = ? ORDER BY attempt", id)) {
		at, _ := have.reached("step_marks", attempt, 0)
		b.Marks = append(b.Marks, try.To(rowsIn[records.Mark](in, "step_marks WHERE run = ? AND attempt = ? AND seq >= ? ORDER BY seq", id, attempt, at))...)
	}
	try.Ok(ofRanks(in, "updates", id, have, d, updatesSince))
	try.Ok(ofRanks(in, "rank_usage", id, have, d, usageSince))
	try.Ok(artifactsSince(in, id, have, d))
	for _, m := range b.Marks {
		d.reach(Reached{"step_marks", m.Attempt, 0, int64(m.Seq), 0})
	}
	text := try.To(spoolEncoder.Marshal([]any{b.Params, b.Plugins, b.Ranks, b.DataFiles, b.Copies, b.Notes, b.Tags, b.Progress, b.Snapshots, d.Sources, d.Tool, b.Marks, b.Updates, b.Usage, b.Artifacts}))
	if sum := sha256.Sum256(text); sum != s.whole || have.ID == 0 {
		s.whole, d.Whole = sum, true
		return nil
	}
	d.Batch, d.Sources, d.Tool = Batch{Number: b.Number, Lines: b.Lines}, nil, ToolRecords{}
	return nil
}

// reach notes up to where a table will be.
func (d *Delta) reach(r Reached) {
	for i, was := range d.Reached {
		if was.Table == r.Table && was.Attempt == r.Attempt && was.Rank == r.Rank {
			d.Reached[i] = r
			return
		}
	}
	d.Reached = append(d.Reached, r)
}

// ofRanks calls take for each attempt and rank of which a table has rows: it looks these up one after another, without reading the rows.
func ofRanks(in sqldb.Queryer, table string, id int64, have *Extent, d *Delta, take func(sqldb.Queryer, int64, int, int, *Extent, *Delta) error) error {
	const first, bits = " ORDER BY attempt, rank LIMIT 1)", 32
	next := "(SELECT attempt << 32 | rank FROM " + table + " WHERE run = ?1"
	groups, err := sqldb.Column[int64](in, "WITH RECURSIVE g(k) AS (SELECT "+next+first+" UNION ALL SELECT "+next+" AND (attempt, rank) > (k >> 32, k & 4294967295)"+first+" FROM g WHERE k IS NOT NULL) SELECT k FROM g WHERE k IS NOT NULL", id)
	for _, g := range groups {
		if err == nil {
			err = take(in, id, int(g>>bits), int(g&(1<<bits-1)), have, d)
		}
	}
	return err
}

// updatesSince takes a rank's digests: the last row that is there, too, since it may have grown.
func updatesSince(in sqldb.Queryer, id int64, attempt, rank int, have *Extent, d *Delta) (err error) {
	defer try.Caught(&err)
	at, _ := have.reached("updates", attempt, rank)
	left := mostUpdates - len(d.Batch.Updates)
	list := try.To(rowsIn[records.Updates](in, "updates WHERE run = ? AND attempt = ? AND rank = ? AND first >= ? ORDER BY first LIMIT ?", id, attempt, rank, at, left))
	d.More = d.More || len(list) == left
	if n := len(list); n > 0 {
		d.Batch.Updates = append(d.Batch.Updates, list...)
		d.reach(Reached{"updates", attempt, rank, list[n-1].First, 0})
	}
	return nil
}

// usageSince takes a rank's newest samples: all of them, if the receiver lacks some that are older, as after a clock was set back.
func usageSince(in sqldb.Queryer, id int64, attempt, rank int, have *Extent, d *Delta) (err error) {
	defer try.Caught(&err)
	at, rows := have.reached("rank_usage", attempt, rank)
	const of = "rank_usage WHERE run = ? AND attempt = ? AND rank = ? AND time "
	if before := try.To(sqldb.Column[int64](in, "SELECT count(*) FROM "+of+"<= ?", id, attempt, rank, at))[0]; before != rows {
		at, rows = math.MinInt64, 0
	}
	list := try.To(rowsIn[records.Usage](in, of+"> ? ORDER BY time", id, attempt, rank, at))
	if n := len(list); n > 0 {
		d.Batch.Usage = append(d.Batch.Usage, list...)
		d.reach(Reached{"rank_usage", attempt, rank, list[n-1].Time.UnixMicro(), rows + int64(n)})
	}
	return nil
}

// artifactsByTime lists artifacts, the oldest first, with a checksum of all up to each.
func artifactsByTime(in sqldb.Queryer, id int64) (list []records.Artifact, sums []int64, err error) {
	list, err = artifactsIn(in, id)
	slices.SortStableFunc(list, func(a, b records.Artifact) int { return a.Time.Compare(b.Time) })
	sum := fnv.New64a()
	for i := range list {
		a := &list[i]
		fmt.Fprintf(sum, "%q %d %s %s %d\n", a.Name, stepOf(a), a.Kind, a.SHA256, a.Time.UnixMicro())
		sums = append(sums, int64(sum.Sum64()))
	}
	return list, sums, err
}

// artifactsSince takes the newest artifacts, without their contents: all of them, if the older ones are not the same there.
func artifactsSince(in sqldb.Queryer, id int64, have *Extent, d *Delta) (err error) {
	defer try.Caught(&err)
	list, sums := try.To2(artifactsByTime(in, id))
	at, sum := have.reached("artifacts", 0, 0)
	before := 0
	for before < len(list) && list[before].Time.UnixMicro() <= at {
		before++
	}
	if before > 0 && sums[before-1] != sum {
		before = 0
	}
	bytes := int64(0)
	for i, a := range list[before:] {
		if bytes > mostContents && a.Time.After(list[before+i-1].Time) {
			d.More = true
			break
		}
		bytes += a.Bytes
		d.Batch.Artifacts = append(d.Batch.Artifacts, a)
		d.reach(Reached{"artifacts", 0, 0, a.Time.UnixMicro(), sums[before+i]})
	}
	return nil
}

// redact removes from the command the values of parameters whose names suggest secrets.
func (r *copiedRun) redact() error {
	var command []string
	err := json.Unmarshal([]byte(r.Command), &command)
	r.Command = sqldb.JSON(secret.Arguments(command))
	return err
}
