package history

import (
	"database/sql"
	"fmt"
	"math"
	"testing"
	"time"

	"drun/history/records"
)

// logged begins a run that another tool logs.
func logged(t *testing.T, db *DB, name string) (id int64, uid string) {
	t.Helper()
	ok(t, db.Update(func(tx *sql.Tx) (err error) {
		id, _, uid, err = (&Logged{Name: name, Tool: "MLflow", Started: time.Unix(1, 0)}).Begin(tx)
		return err
	}))
	return id, uid
}

// A point of the same metric, step, time and value is entered once: whether it is among the latest, older than those that are
// remembered, or the history was opened anew.
func TestAddPoints(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	id, _ := logged(t, db, "trial")
	known := &Recent{}
	add := func(from, n int) {
		t.Helper()
		points := []records.Point{}
		for i := from; i < from+n; i++ {
			points = append(points, records.Point{Name: fmt.Sprint("m", i%3), Step: int64(i % 7), Value: float64(i / 5), Time: time.UnixMilli(int64(i / 2))})
		}
		ok(t, db.Update(func(tx *sql.Tx) error { return AddPoints(tx, id, points, known) }))
	}
	count := func() int {
		t.Helper()
		all, err := db.Points(id)
		ok(t, err)
		return len(all)
	}
	add(0, 500)
	want := count()
	add(0, 500)
	if got := count(); got != want || want < 400 {
		t.Fatalf("%d points became %d", want, got)
	}
	for from := 500; from < 5500; from += 500 {
		add(from, 500)
	}
	want = count()
	for _, from := range []int{0, 2600, 5000} {
		add(from, 500)
	}
	known = &Recent{}
	add(1000, 500)
	add(4900, 600)
	if got := count(); got != want {
		t.Errorf("%d points became %d", want, got)
	}
	// What a transaction that was given up remembers is not taken for what is there.
	bad := fmt.Errorf("given up")
	err := db.Update(func(tx *sql.Tx) error {
		if err := AddPoints(tx, id, []records.Point{{Name: "x", Step: 1, Value: 1, Time: time.Unix(9, 0)}}, known); err != nil {
			return err
		}
		return bad
	})
	if err != bad {
		t.Fatal(err)
	}
	for range 2 {
		ok(t, db.Update(func(tx *sql.Tx) error {
			return AddPoints(tx, id, []records.Point{{Name: "x", Step: 1, Value: 1, Time: time.Unix(9, 0)}, {Name: "x", Step: 1, Value: math.NaN(), Time: time.Unix(9, 0)}}, known)
		}))
	}
	if got := count(); got != want+2 {
		t.Errorf("there are %d points, want %d", got, want+2)
	}
}

// Names of other tools become names of drun, and none is taken twice.
func TestNearName(t *testing.T) {
	db := open(t, t.TempDir())
	got := []string{}
	for _, name := range []string{"trial", "my trial", "7up", "größe", "a/b:c"} {
		id, _ := logged(t, db, name)
		d, err := db.Get(id)
		ok(t, err)
		got = append(got, d.Name)
	}
	if want := "[trial my-trial up gr--e a-b-c]"; fmt.Sprint(got) != want {
		t.Errorf("names are %v, want %s", got, want)
	}
	names := map[string]bool{}
	for _, name := range []string{"trial", "trial", "trial", "", "last", "-", "7"} {
		id, _ := logged(t, db, name)
		d, err := db.Get(id)
		ok(t, err)
		if names[d.Name] || CheckName(d.Name) != nil {
			t.Errorf("%q became %q", name, d.Name)
		}
		names[d.Name] = true
	}
}

// A run of another tool is not lost, whoever opens the history; it can be moved to the trash and removed while it runs; and a copy has
// all that was said of it.
func TestLogged(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	id, uid := logged(t, db, "trial")
	known := &Recent{}
	ok(t, db.Update(func(tx *sql.Tx) error {
		for _, statement := range []string{"INSERT INTO mlflow_tags VALUES (?, 'mlflow.user', 'ada')", `INSERT INTO mlflow_inputs VALUES (?, 'iris', '12', 'train', '{"a":1}')`,
			`INSERT INTO mlflow_models SELECT 'm-12345678', project_name, uid, 'tree', 'sklearn', 'LOGGED_MODEL_READY', 1, 2, NULL, '{"depth":"3"}', '{}' FROM runs WHERE id = ?`,
			"INSERT INTO mlflow_model_points VALUES ('m-12345678', ?, 'loss', 9, 9000, 0.5, 'iris', '12')", "INSERT INTO mlflow_model_points VALUES ('m-12345678', ?, 'none', 0, 9000, 'NaN', '', '')",
			"INSERT INTO mlflow_links VALUES (?, 1, 'm-12345678', 4)"} {
			if _, err := tx.Exec(statement, id); err != nil {
				return err
			}
		}
		points := []records.Point{{Name: "loss", Step: 9, Value: 1, Time: time.Unix(9, 0)}, {Name: "loss", Step: 3, Value: 2, Time: time.Unix(10, 0)}, {Name: "loss", Step: 9, Value: 0.5, Time: time.Unix(9, 0)}}
		return AddPoints(tx, id, points, known)
	}))
	d, err := open(t, home).Get(id)
	ok(t, err)
	if d.Status != Running || d.Metrics["loss"].Last != 1 || d.Metrics["loss"].Count != 3 {
		t.Errorf("it is %s, with %v", d.Status, d.Metrics["loss"])
	}
	to := open(t, t.TempDir())
	bring(t, db, to, uid)
	copied, err := to.Known(uid)
	ok(t, err)
	for _, in := range []struct {
		db *DB
		id int64
	}{{db, id}, {to, copied}} {
		f, err := toolIn(in.db.sql, in.id)
		ok(t, err)
		if fmt.Sprint(f) != `{[{mlflow.user ada}] [{iris 12 train {"a":1}}] [{m-12345678 tree sklearn LOGGED_MODEL_READY 1 2 <nil> {"depth":"3"} {}}] [{m-12345678 loss 9 9000 0.5 iris 12} {m-12345678 none 0 9000 NaN  }] [{true m-12345678 4}]}` {
			t.Errorf("it is said %v", f)
		}
		if holds, err := in.db.SummariesHold(in.id); err != nil || !holds {
			t.Errorf("its summaries are not those of its points: %v", err)
		}
	}
	if d, err := to.Get(copied); err != nil || d.Metrics["loss"].Last != 1 {
		t.Errorf("the copy has %v, %v", d.Metrics["loss"], err)
	}
	ok(t, db.Trash([]int64{id}))
	if was, err := db.Purge(id, func() (bool, error) { return false, nil }); err != nil || !was {
		t.Errorf("it was not removed: %v, %v", was, err)
	}
}

// A run does not take the model of another by sending one with its id.
func TestModelOfAnother(t *testing.T) {
	from, to := open(t, t.TempDir()), open(t, t.TempDir())
	uids := []string{}
	for _, name := range []string{"tree", "stolen"} {
		id, uid := logged(t, from, name)
		uids = append(uids, uid)
		ok(t, from.exec("DELETE FROM mlflow_models"))
		ok(t, from.exec("INSERT INTO mlflow_models SELECT 'm-12345678', project_name, uid, ?, '', 'LOGGED_MODEL_READY', 1, 2, NULL, '{}', '{}' FROM runs WHERE id = ?", name, id))
		bring(t, from, to, uid)
	}
	models, err := listColumn[string](to, "SELECT source || ' ' || name FROM mlflow_models")
	ok(t, err)
	if fmt.Sprint(models) != fmt.Sprintf("[%s tree]", uids[0]) {
		t.Errorf("models are %v", models)
	}
}
