package history

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// A run goes from one history to another as rows: Extract makes a history that contains it alone, Admit adds it to a
// history. Both take the tables from the schema, so that a new table goes along.

// tables lists the tables that have a column, with their columns, in order.
func tables(from sqldb.Queryer, with string) (names []string, columns map[string][]string, err error) {
	columns = map[string][]string{}
	err = sqldb.Each(from, func(rows *sql.Rows) error {
		var table, column string
		err := rows.Scan(&table, &column)
		if columns[table] == nil {
			names = append(names, table)
		}
		columns[table] = append(columns[table], column)
		return err
	}, `SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'
		AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) WHERE name = ?) ORDER BY t.name, c.cid`, with)
	return names, columns, err
}

// copyRows copies the rows that a condition selects, in the order of their columns, after change has changed them.
func copyRows(from sqldb.Queryer, to *sql.Tx, table string, columns []string, change func(row map[string]*any) error, where string, args ...any) (err error) {
	defer try.Caught(&err)
	row, into, named := make([]any, len(columns)), make([]any, len(columns)), map[string]*any{}
	for i, c := range columns {
		into[i], named[c] = &row[i], &row[i]
	}
	list := "`" + strings.Join(columns, "`, `") + "`"
	insert := try.To(to.Prepare("INSERT INTO " + table + " (" + list + ") VALUES (" + strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ") + ")"))
	defer insert.Close()
	order := make([]string, min(len(columns), 4)) // the columns of every primary key come first
	for i := range order {
		order[i] = fmt.Sprint(i + 1)
	}
	return sqldb.Each(from, func(rows *sql.Rows) (err error) {
		try.Ok(rows.Scan(into...))
		if change != nil {
			try.Ok(change(named))
		}
		_, err = insert.Exec(row...)
		return err
	}, "SELECT "+list+" FROM "+table+" WHERE "+where+" ORDER BY "+strings.Join(order, ", "), args...)
}

// ofSnapshots are the tables whose rows belong to a run by its snapshots.
var ofSnapshots = []string{"snapshot_ranks", "snapshot_calls"}

// ofHome are the tables with what concerns a run only in its home.
var ofHome = []string{"follows", "jobs"}

// Extract writes a history, folder/history.db, that contains one run, and of the runs that it was resumed from only what
// they were. The same run gives the same bytes.
func (db *DB) Extract(id int64, folder string) (err error) {
	defer try.Caught(&err)
	out := file(folder)
	final := out.Path
	out.Path += ".raw"
	to := try.To(sqldb.Open(out))
	defer func() {
		err = errors.Join(err, to.Close())
		for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
			_ = os.Remove(out.Path + suffix) // some are not there
		}
	}()
	err = sqldb.Read(db.sql, db.path, func(from *sql.Conn) error {
		return sqldb.Write(to, out.Path, func(tx *sql.Tx) (err error) {
			_, all := try.To2(tables(from, "id"))
			line := try.To(sqldb.Column[int64](from, `WITH RECURSIVE line (id) AS (SELECT ?1 UNION SELECT parent FROM runs JOIN line USING (id) WHERE parent IS NOT NULL)
				SELECT id FROM line WHERE id IN (SELECT id FROM runs)`, id))
			try.Ok(copyRows(from, tx, "runs", all["runs"], func(row map[string]*any) error {
				if *row["status"] == string(Running) { // its agent is gone, which nobody could note
					*row["status"] = string(Lost)
				}
				*row["trashed"], *row["owner"], *row["leased"], *row["clock"] = nil, nil, nil, nil
				return nil
			}, "id IN (SELECT value FROM json_each(?))", sqldb.JSON(line)))
			try.To(tx.Exec("UPDATE runs SET parent = NULL WHERE parent NOT IN (SELECT id FROM runs)"))
			_, sums := try.To2(tables(from, "sha256"))
			try.Ok(copyRows(from, tx, "sources", sums["sources"], nil, "sha256 IN (SELECT sha256 FROM run_sources WHERE run = ?)", id))
			try.Ok(copyRows(from, tx, "contents", sums["contents"], nil, "sha256 IN (SELECT sha256 FROM artifacts WHERE run = ?)", id))
			try.Ok(copyRows(from, tx, "metric_names", all["metric_names"], nil, "name IN (SELECT name FROM points WHERE run = ?)", id))
			names, columns := try.To2(tables(from, "run"))
			names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(ofHome, name) })
			for _, name := range names {
				if name != "replays" { // which are not what the run was
					try.Ok(copyRows(from, tx, name, columns[name], nil, "run = ?", id))
				}
			}
			for _, name := range ofSnapshots {
				_, of := try.To2(tables(from, "snapshot"))
				try.Ok(copyRows(from, tx, name, of[name], nil, "snapshot IN (SELECT id FROM snapshots WHERE run = ?)", id))
			}
			return nil
		})
	})
	try.Ok(sqldb.Wrap(db.path, err))
	fresh, err := os.OpenFile(final, os.O_CREATE|os.O_EXCL|os.O_WRONLY, sqldb.FileMode)
	try.Ok(sqldb.Wrap(final, err))
	fresh.Close()
	_, err = to.Exec("VACUUM INTO ?", final)
	return sqldb.Wrap(final, err)
}

// OpenExtracted opens a history that Extract has made and that may come from anywhere: anything but drun's own tables
// in it is refused. It returns the run, the only one that was not only resumed from.
func OpenExtracted(folder string) (_ *DB, id int64, err error) {
	defer try.Caught(&err)
	f := file(folder)
	f.Exact = true
	handle := try.To(sqldb.Open(f))
	db := &DB{sql: handle, home: folder, path: f.Path, live: true, close: handle.Close}
	defer try.CaughtOr(&err, func() { db.Close() })
	db.known = try.To(f.Latest())
	var verdict string
	try.Ok(sqldb.Wrap(f.Path, handle.QueryRow("PRAGMA integrity_check(1)").Scan(&verdict)))
	if verdict != "ok" {
		return nil, 0, &sqldb.Error{Path: f.Path, What: "is damaged", Err: errors.New(verdict)}
	}
	ids := try.To(listColumn[int64](db, "SELECT id FROM runs WHERE id NOT IN (SELECT parent FROM runs WHERE parent IS NOT NULL)"))
	if len(ids) != 1 {
		return nil, 0, &sqldb.Error{Path: f.Path, What: fmt.Sprintf("should contain one run, but contains %d", len(ids))}
	}
	// What is multiplied or counted up to is limited before anything does that.
	var bad bool
	try.Ok(sqldb.Wrap(f.Path, handle.QueryRow(`SELECT EXISTS (SELECT 1 FROM runs WHERE typeof(world_size) <> 'integer' OR world_size NOT BETWEEN 1 AND 65536 OR status = 'running')
		OR EXISTS (SELECT 1 FROM step_marks WHERE count NOT BETWEEN 1 AND 1000000000 OR abs(step) > 1e15 OR abs(step_by) > 1e9 OR updates NOT BETWEEN 0 AND 1e15 OR updates_by NOT BETWEEN 0 AND 1e9)
		OR (SELECT coalesce(sum(count), 0) FROM step_marks) > 100000000 OR EXISTS (SELECT 1 FROM updates WHERE rank < 0 OR first NOT BETWEEN 1 AND 1e15)`).Scan(&bad)))
	if bad {
		return nil, 0, &sqldb.Error{Path: f.Path, What: "has numbers that no run of drun has"}
	}
	return db, ids[0], nil
}

// Known finds the run with this UID; 0: there is none.
func (db *DB) Known(uid string) (int64, error) {
	ids, err := listColumn[int64](db, "SELECT id FROM runs WHERE uid = ?", uid)
	return append(ids, 0)[0], err
}

// Admit adds the run of an extracted history, under a free id and, if its name is taken, under that name with a number.
// kept are the steps of the checkpoints that are entered, too. The run's UID must not be known.
func (db *DB) Admit(from *DB, id int64, kept []int64) (entered int64, name string, err error) {
	defer try.Caught(&err)
	parent := try.To(parentUID(from, id))
	err = db.write(func(tx *sql.Tx) (err error) {
		try.Ok(db.stillKnown(tx))
		names, columns := try.To2(tables(tx, "run"))
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(ofHome, name) })
		_, all := try.To2(tables(tx, "id"))
		_, snapshot := try.To2(tables(tx, "snapshot"))
		_, sums := try.To2(tables(tx, "sha256"))
		try.Ok(copyRows(from.sql, tx, "runs", all["runs"], func(row map[string]*any) error {
			wanted, _ := (*row["name"]).(string)
			if name, err = NearName(tx, wanted); err != nil {
				return err
			}
			*row["owner"], *row["leased"], *row["clock"] = "", nil, nil
			if parent != "" {
				*row["parent_uid"] = parent
			}
			*row["id"], *row["name"] = nil, name
			// The run that it was resumed from, if that is here.
			parents, err := sqldb.Column[int64](tx, "SELECT id FROM runs WHERE uid = ?", parent)
			if *row["parent"] = nil; len(parents) == 1 {
				*row["parent"] = parents[0]
			}
			return err
		}, "id = ?", id))
		try.Ok(tx.QueryRow("SELECT id FROM runs WHERE name = ?", name).Scan(&entered))
		for table, of := range map[string]string{"sources": "run_sources", "contents": "artifacts"} {
			var known []string
			known = try.To(sqldb.Column[string](tx, "SELECT sha256 FROM "+table))
			try.Ok(copyRows(from.sql, tx, table, sums[table], nil, "sha256 IN (SELECT sha256 FROM "+of+") AND sha256 NOT IN (SELECT value FROM json_each(?))", sqldb.JSON(known)))
		}
		at := int64(0) // the newest id of snapshots, before those of this run
		try.Ok(tx.QueryRow("SELECT coalesce(max(id), 0) FROM snapshots").Scan(&at))
		first := int64(0)
		try.Ok(sqldb.Each(from.sql, func(rows *sql.Rows) error { return rows.Scan(&first) }, "SELECT coalesce(min(id), 1) FROM snapshots"))
		moved := func(id *any) { *id = (*id).(int64) - first + 1 + at }
		for _, table := range names {
			if table == "metric_blocks" || table == "run_metrics" {
				continue // with numbers of metrics, which are others here
			}
			where, args := "run = ?", []any{id}
			if table == "checkpoints" {
				where, args = where+" AND step IN (SELECT value FROM json_each(?))", append(args, sqldb.JSON(kept))
			}
			try.Ok(copyRows(from.sql, tx, table, columns[table], func(row map[string]*any) error {
				*row["run"] = entered
				if _, numbered := all[table]; numbered && table == "snapshots" {
					moved(row["id"])
				} else if numbered {
					*row["id"] = nil
				}
				return nil
			}, where, args...))
		}
		for _, table := range ofSnapshots {
			try.Ok(copyRows(from.sql, tx, table, snapshot[table], func(row map[string]*any) error { moved(row["snapshot"]); return nil }, "TRUE"))
		}
		return enterPoints(tx, blocks{from.sql, id}, blocks{tx, entered})
	})
	return entered, name, err
}

// parentUID is the UID of the run that a run was resumed from; "": none.
func parentUID(db *DB, id int64) (string, error) {
	uids, err := listColumn[string](db, "SELECT p.uid FROM runs r JOIN runs p ON p.id = r.parent WHERE r.id = ?", id)
	return append(uids, "")[0], err
}

// enterPoints copies the points of a run, and sums them up anew.
func enterPoints(tx *sql.Tx, from, to blocks) (err error) {
	defer try.Caught(&err)
	numbers, names := map[int64]int64{}, try.To(sqldb.Map[int64, string](from.in, "SELECT id, name FROM metric_names"))
	for _, number := range slices.Sorted(maps.Keys(names)) {
		numbers[number] = try.To(metricNumber(tx, names[number]))
	}
	metrics := map[int64]bool{}
	for _, kind := range []bool{superseded, !superseded} {
		try.Ok(from.each(kind, 0, math.MaxInt64, func(b *block) error {
			points := slices.Clone(b.points)
			for i := range points {
				number, known := numbers[points[i].metric]
				if !known {
					return errDamagedBlock
				}
				points[i].metric = number
				metrics[number] = metrics[number] || !kind
			}
			return to.put(tx, kind, points)
		}))
	}
	for number, counts := range metrics {
		if !counts {
			delete(metrics, number)
		}
	}
	if len(metrics) == 0 {
		return nil
	}
	return to.summarise(tx, metrics)
}

// SummariesHold reports whether the summaries of a run's metrics are those of its points.
func (db *DB) SummariesHold(run int64) (_ bool, err error) {
	defer try.Caught(&err)
	d := try.To(db.Get(run))
	byStep := try.To(blocks{db.sql, run}.byStep())
	ranked := try.To(sqldb.Column[string](db.sql, "SELECT name FROM metric_names JOIN run_metrics ON id = metric WHERE run = ? AND rank IS NOT NULL", run))
	numbers, sums := map[string]int64{}, map[int64]*summary{}
	for _, p := range try.To(db.Points(run)) {
		if !slices.Contains(ranked, p.Name) {
			p.Rank = 0 // an older drun took the order of recording
		}
		if _, known := numbers[p.Name]; !known {
			numbers[p.Name] = int64(len(numbers))
		}
		add(sums, &numbered{metric: numbers[p.Name], rank: int64(p.Rank), step: p.Step, time: p.Time.UnixMicro(), value: p.Value}, byStep)
	}
	for name, s := range d.Metrics {
		n, known := numbers[name]
		if !known || fmt.Sprint(sums[n].MetricSummary) != fmt.Sprint(s) { // as text, NaN equals NaN
			return false, nil
		}
	}
	return len(d.Metrics) == len(numbers), nil
}

// PointsBefore returns how many points a run had recorded before each of its checkpoints, by step.
func (db *DB) PointsBefore(run int64) (map[int64]int64, error) {
	points, err := sqldb.Map[int64, int64](db.sql, "SELECT step, points FROM checkpoints WHERE run = ? AND points IS NOT NULL", run)
	return points, sqldb.Wrap(db.path, err)
}

// EachPoint calls fn with the points of a run that are not superseded, and their numbers, in order. fn must not keep the
// point.
func (db *DB) EachPoint(run int64, fn func(seq int64, p *records.Point)) error {
	return db.eachPoint(stretch{run, 0, math.MaxInt64}, !superseded, nil, fn)
}
