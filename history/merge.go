package history

import (
	"cmp"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"time"

	"drun/history/records"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Arrival says how a run arrives in a history.
type Arrival struct {
	Owner   string        // the user of the server; "": there is no server
	Project string        // of a run that is not there yet
	Lease   time.Duration // for how long a running run counts as such unless more of it arrives
	Again   bool          // also if it was removed here for good
}

// Moved is the error of a Delta that does not begin where the history ends: it was entered before, or another comes first.
type Moved struct{ Extent }

func (e *Moved) Error() string {
	return fmt.Sprintf("run %s has %d points and %d lines there meanwhile: what was sent does not follow", e.Name, e.Points, e.Lines)
}

func (e *Moved) ExitCode() exit.Code { return exit.Recipe }

// Diverged is the error of a run that is in both histories, but not the same.
type Diverged struct{ Name, Why string }

func (e *Diverged) Error() string {
	return fmt.Sprintf("run %s is there with the same uid, but another course: %s", e.Name, e.Why)
}

func (e *Diverged) Hint() string {
	return "it went on in two places, and neither is entered into the other; to have both, export one, or remove the other with drun rm and drun gc"
}

func (e *Diverged) ExitCode() exit.Code { return exit.Recipe }

// Gone is the error of a run that was removed here for good, which only Arrival.Again brings back.
type Gone struct {
	Name string `json:"name"`
	By   string `json:"by"`
	At   string `json:"at"`
}

func (e *Gone) Error() string {
	return fmt.Sprintf("run %s was removed from the receiving home by %s at %.19sZ", e.Name, e.By, e.At)
}
func (e *Gone) Hint() string        { return "--again copies it nevertheless" }
func (e *Gone) ExitCode() exit.Code { return exit.Recipe }

// Misshapen is the error of a Delta that no drun has made.
type Misshapen struct{ Why string }

func (e *Misshapen) Error() string       { return "what was sent is no part of a run: " + e.Why }
func (e *Misshapen) ExitCode() exit.Code { return exit.Recipe }

// Lacking returns which of these contents of artifacts, by SHA-256, the history does not have.
func (db *DB) Lacking(sums []string) ([]string, error) {
	return listColumn[string](db, "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT sha256 FROM contents)", sqldb.JSON(sums))
}

// Merge enters a Delta, and returns the run's id and name here. The error is a *Moved if the Delta does not follow
// what is here, a *Diverged if the run here has another course, and a *Misshapen if it is not what Since returns.
func (db *DB) Merge(d *Delta, how Arrival) (id int64, name string, err error) {
	defer try.Caught(&err)
	points := try.To(d.check())
	err = db.write(func(tx *sql.Tx) (err error) {
		try.Ok(db.stillKnown(tx))
		var batch int64
		var led, pending bool // by a process of this home; a job was to begin it elsewhere
		try.Ok(sqldb.Each(tx, func(rows *sql.Rows) error { return rows.Scan(&id, &name, &batch, &led, &pending) },
			"SELECT id, name, batch, status = 'running' AND leased IS NULL, status = 'pending' FROM runs WHERE uid = ?", d.UID))
		if pending {
			try.To(tx.Exec("UPDATE runs SET owner = ? WHERE id = ?", how.Owner, id))
		}
		fresh := id == 0
		if fresh {
			id, name = try.To2(enterRun(tx, d, how))
		}
		try.Ok(d.follows(tx, id, name, batch))
		if !fresh && (d.Batch.Number < batch || led) {
			return nil // what is here is newer
		}
		if !fresh && d.Copied && d.Batch.Number == batch {
			return (&Run{ID: id, db: db}).putLabels(tx, &d.Batch) // its own home may say more of it
		}
		return db.mergeInto(tx, &Run{ID: id, UID: d.UID, db: db}, d, points, how)
	})
	return id, name, err
}

// enterRun makes the row of a run that is new here.
func enterRun(tx *sql.Tx, d *Delta, how Arrival) (id int64, name string, err error) {
	defer try.Caught(&err)
	try.Ok(sqldb.Each(tx, func(rows *sql.Rows) error {
		gone := &Gone{}
		if err := rows.Scan(&gone.Name, &gone.By, &gone.At); err != nil || how.Again {
			return err
		}
		return gone
	}, "SELECT name, who, time FROM removed WHERE uid = ?", d.UID))
	try.To(tx.Exec("DELETE FROM removed WHERE uid = ?", d.UID))
	name = try.To(NearName(tx, d.Name))
	try.Ok(insert(tx, "", "runs", reflect.ValueOf([]copiedRun{d.Row}), columnsOf(reflect.TypeFor[copiedRun]()), "uid, name, owner, project_name, parent, parent_uid, ",
		d.UID, name, how.Owner, textOrNull(cmp.Or(d.Project, how.Project)), nil, nil))
	try.Ok(tx.QueryRow("SELECT id FROM runs WHERE uid = ?", d.UID).Scan(&id))
	if d.ParentUID != "" {
		try.To(tx.Exec("UPDATE runs SET parent_uid = ?1, parent = (SELECT id FROM runs WHERE uid = ?1) WHERE id = ?2", d.ParentUID, id))
	}
	if d.Row.PID == 0 { // a tool logged it, whose files belong to an experiment
		try.Ok(EnterExperiments(tx))
	}
	_, err = tx.Exec("UPDATE runs SET parent = ?1 WHERE parent IS NULL AND parent_uid = ?2", id, d.UID)
	return id, name, err
}

// follows compares a Delta with what is here.
func (d *Delta) follows(tx *sql.Tx, id int64, name string, batch int64) (err error) {
	defer try.Caught(&err)
	began := try.To(sqldb.Column[string](tx, "SELECT started FROM attempts WHERE run = ? ORDER BY attempt", id))
	for i, at := range began {
		switch {
		case i < len(d.Attempts) && formatTime(d.Attempts[i].Started) != at:
			return &Diverged{name, fmt.Sprintf("attempt %d began at %s there, at %s here", i, at, formatTime(d.Attempts[i].Started))}
		case i >= len(d.Attempts) && d.Batch.Number > batch:
			return &Diverged{name, fmt.Sprintf("it has %d attempts there, %d here", len(began), len(d.Attempts))}
		}
	}
	if d.Batch.Number < batch {
		return nil
	}
	next, _ := try.To2(blocks{tx, id}.next())
	points := next - 1
	lines, snapshots := d.From.Lines, d.From.Snapshots
	if len(d.Batch.Lines) > 0 {
		try.Ok(tx.QueryRow("SELECT count(*) FROM logs WHERE run = ?", id).Scan(&lines))
	}
	if len(d.Batch.Snapshots) > 0 {
		try.Ok(tx.QueryRow("SELECT count(*) FROM snapshots WHERE run = ?", id).Scan(&snapshots))
	}
	if points != d.From.Points || lines != d.From.Lines || snapshots != d.From.Snapshots {
		return &Moved{try.To(extent(tx, d.UID))}
	}
	return nil
}

func (db *DB) mergeInto(tx *sql.Tx, r *Run, d *Delta, points []records.Point, how Arrival) (err error) {
	defer try.Caught(&err)
	b := d.Batch
	b.Points = points
	b.Params = slices.DeleteFunc(slices.Clone(b.Params), func(p Param) bool { return p.Value == (Secret{}) }) // a value that is here stays
	try.Ok(r.putParams(tx, &b))
	for _, p := range d.Batch.Params {
		if p.Value == (Secret{}) {
			columns := try.To(encodeParams([]Param{p}))
			try.Ok(insertAll(tx, "IGNORE", "params", columns, "run, ", r.ID))
		}
	}
	b.Artifacts = try.To(d.artifacts(tx))
	if d.Whole {
		try.Ok(d.Tool.put(tx, r.ID, r.UID))
		try.To(tx.Exec("DELETE FROM progress WHERE run = ?", r.ID))
	}
	try.Ok(r.putLabels(tx, &b))
	b.Notes, b.Tags = nil, nil
	for _, write := range []func(*sql.Tx, *Batch) error{r.putArtifacts, r.putSnapshots, r.putPoints, r.putRows} {
		try.Ok(write(tx, &b))
	}
	try.Ok(d.supersede(tx, r.ID))
	try.Ok(insertAll(tx, "REPLACE", "attempts", d.Attempts, "run, ", r.ID))
	for _, s := range d.Sources {
		try.To(tx.Exec("INSERT OR IGNORE INTO sources VALUES (?, ?)", s.SHA256, append([]byte{}, s.Content...)))
		try.To(tx.Exec("INSERT OR REPLACE INTO run_sources VALUES (?, ?, ?, ?)", r.ID, s.Path, s.SHA256, s.Role))
	}
	row, leased, clock := d.Row, any(nil), any(nil)
	if d.More && row.Status != Running { // its end is not here yet
		row.Status, row.Seconds, row.ExitCode = Running, nil, nil
	}
	if row.Status == Running {
		leased, clock = formatTime(time.Now().Add(how.Lease)), d.Now.Sub(time.Now()).Seconds()
	}
	columns, values := columnsOf(reflect.TypeFor[copiedRun]()), []any{}
	for _, c := range columns {
		values = append(values, c.value(reflect.ValueOf(row)))
	}
	list := names(columns) + ", leased, clock"
	values = append(values, leased, clock)
	if !d.More {
		list, values = list+", batch", append(values, d.Batch.Number)
	}
	_, err = tx.Exec("UPDATE runs SET ("+list+") = ("+places(list)+") WHERE id = ?", append(values, r.ID)...)
	return err
}

// putLabels adds tags and notes, of which each history may have its own, too.
func (r *Run) putLabels(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	for _, tag := range b.Tags {
		try.To(tx.Exec("INSERT OR IGNORE INTO tags VALUES (?, ?)", r.ID, tag))
	}
	for _, n := range b.Notes {
		try.To(tx.Exec("INSERT INTO notes (run, time, text) SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM notes WHERE run = ?1 AND time = ?2 AND text = ?3)", r.ID, formatTime(n.Time), n.Text))
	}
	return nil
}

// artifacts are those of a Delta with their contents, which came with it or are here.
func (d *Delta) artifacts(tx *sql.Tx) (list []records.Artifact, err error) {
	defer try.Caught(&err)
	for _, a := range d.Batch.Artifacts {
		data, came := d.Contents[a.SHA256]
		if !came {
			err := tx.QueryRow("SELECT data FROM contents WHERE sha256 = ?", a.SHA256).Scan(&data)
			if errors.Is(err, sql.ErrNoRows) {
				return nil, &Misshapen{fmt.Sprintf("the content of the artifact %q is missing", a.Name)}
			}
			try.Ok(err)
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != a.SHA256 || int64(len(data)) != a.Bytes {
			return nil, &Misshapen{fmt.Sprintf("the content of the artifact %q does not have its SHA-256", a.Name)}
		}
		a.Data = data
		list = append(list, a)
	}
	return list, nil
}

// supersede marks the points that are superseded where the run was recorded.
func (d *Delta) supersede(tx *sql.Tx, id int64) error {
	if len(d.Superseded) == 0 {
		return nil
	}
	last := d.Superseded[len(d.Superseded)-1].Last
	return blocks{tx, id}.supersede(tx, 0, last, func(p *numbered) bool {
		_, found := slices.BinarySearchFunc(d.Superseded, p.seq, func(r Range, seq int64) int {
			if r.Last < seq {
				return -1
			} else if r.First > seq {
				return 1
			}
			return 0
		})
		return found
	})
}

var (
	uidForm     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{8,64}$`) })
	projectForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[^\x00-\x1f\x7f]{1,500}$`) }) // as MLflow's experiments
)

// CheckProject returns an error unless a project can have this name.
func CheckProject(name string) error {
	if !projectForm().MatchString(name) {
		return exit.Errorf(exit.Usage, "project %q: the name of a project has 1 to 500 characters, none of them a control character", name)
	}
	return nil
}

// check refuses what no run of drun has, before it is among other runs: whoever reads these would fail at it.
func (d *Delta) check() (points []records.Point, err error) {
	defer try.Caught(&err)
	bad := func(wrong bool, why string) {
		if wrong {
			try.Ok(&Misshapen{why})
		}
	}
	row, b := &d.Row, &d.Batch
	bad(!uidForm().MatchString(d.UID) || d.ParentUID != "" && !uidForm().MatchString(d.ParentUID), "its uid")
	bad(CheckName(d.Name) != nil, "its name")
	bad(d.Project != "" && CheckProject(d.Project) != nil, "its project")
	bad(row.WorldSize < 1 || row.WorldSize > 65536, "its number of ranks")
	if row.Status == "killed" { // an older drun's word
		row.Status = Failed
	}
	bad(!row.Status.Known() || row.Status == Pending, "its status")
	var command []string
	bad(json.Unmarshal([]byte(row.Command), &command) != nil, "its command")
	bad(row.DataDirs != nil && json.Unmarshal([]byte(*row.DataDirs), &command) != nil, "its folders of data")
	bad(row.Sweep != nil && json.Unmarshal([]byte(*row.Sweep), &records.Sweep{}) != nil, "its sweep")
	bad(b.Number < 0 || b.Inputs != nil || b.Git != nil || b.End != nil || len(b.Points)+len(b.AttemptBegins)+len(b.AttemptEnds)+len(b.Supersedes)+len(b.Repeats)+len(b.Removed)+len(b.Checkpoints) > 0, "it has records that are not sent")
	for i, a := range d.Attempts {
		bad(a.Attempt != i || a.Points < 0, "its attempts")
	}
	for _, m := range b.Marks {
		bad(m.Count < 1 || m.Count > 1e9 || math.Abs(float64(m.Step)) > 1e15 || math.Abs(float64(m.StepBy)) > 1e9 || m.Updates < 0 || m.Updates > 1e15 || m.UpdatesBy < 0 || m.UpdatesBy > 1e9, "its marks")
	}
	for _, u := range b.Updates {
		bad(u.Rank < 0 || u.First < 1 || u.First > 1e15 || len(u.Digests)%records.DigestSize != 0, "its digests")
	}
	for _, input := range d.Tool.Inputs {
		bad(!json.Valid([]byte(input.Input)), "its data sets")
	}
	for _, m := range d.Tool.Models {
		params := map[string]string{}
		bad(!uidForm().MatchString(m.ID) || json.Unmarshal([]byte(m.Params), &params) != nil || json.Unmarshal([]byte(m.Tags), &params) != nil, "its models")
	}
	for _, p := range d.Tool.Points {
		_, is := p.Value.(float64)
		bad(!is && p.Value != "NaN", "the metrics of its models")
	}
	for _, tag := range b.Tags {
		bad(CheckTag(tag) != nil, "its tags")
	}
	for _, s := range d.Sources {
		bad(records.NewSource("", "", s.Content).SHA256 != s.SHA256, "a source does not have its SHA-256")
	}
	for i, r := range d.Superseded {
		bad(r.First < 1 || r.Last < r.First || i > 0 && r.First <= d.Superseded[i-1].Last, "its superseded points")
	}
	for _, l := range b.Lines {
		bad(l.Rank < -1 || l.Stream != "stdout" && l.Stream != "stderr", "its lines")
	}
	points, err = d.Series.points()
	bad(err != nil, "its points")
	for _, name := range d.Series.Names {
		bad(len(name) > 1000, "the name of a metric")
	}
	for i := range points {
		year := points[i].Time.UTC().Year()
		bad(points[i].Rank < 0 || year < 1970 || year > 9999, "a point's rank or time")
	}
	bad(!timely(reflect.ValueOf(d.Row)) || !timely(reflect.ValueOf(d.Attempts)) || !timely(reflect.ValueOf(*b)), "one of its times")
	return points, nil
}

// timely reports whether all times in a value have a year of four digits: others do not sort, and cannot be read.
func timely(v reflect.Value) bool {
	if at, is := v.Interface().(time.Time); is {
		return at.IsZero() || at.UTC().Year() >= 1 && at.UTC().Year() <= 9999
	}
	switch v.Kind() {
	case reflect.Struct:
		return !slices.ContainsFunc(each.UpTo(v.NumField(), v.Field), func(f reflect.Value) bool { return !timely(f) })
	case reflect.Slice:
		if k := v.Type().Elem().Kind(); k != reflect.Struct {
			return true
		}
		for i := range v.Len() {
			if !timely(v.Index(i)) {
				return false
			}
		}
	case reflect.Pointer:
		return v.IsNil() || timely(v.Elem())
	}
	return true
}

// ListCheckpoint enters a checkpoint of a run that is in the store now.
func (db *DB) ListCheckpoint(run int64, c Checkpoint) error {
	return db.change([]int64{run}, func(tx *sql.Tx) error {
		return insertAll(tx, "REPLACE", "checkpoints", []Checkpoint{c}, "run, ", run)
	})
}

// NoteServer notes that a server lacks something of a run, or that it has all of it.
func (db *DB) NoteServer(uid, server string, lacks bool) error {
	if !lacks {
		return db.exec("DELETE FROM follows WHERE server = ? AND run = (SELECT id FROM runs WHERE uid = ?)", server, uid)
	}
	return db.exec("INSERT OR IGNORE INTO follows SELECT id, ? FROM runs WHERE uid = ?", server, uid)
}

// NotedFor lists the runs that have ended and that a server lacks something of.
func (db *DB) NotedFor(server string) (_ []string, err error) {
	defer try.Caught(&err)
	lost := try.To(db.findLost())
	return listColumn[string](db, `SELECT uid FROM runs JOIN follows ON run = id WHERE server = ?
		AND (status <> 'running' OR id IN (SELECT value FROM json_each(?))) ORDER BY id`, server, sqldb.JSON(lost))
}
