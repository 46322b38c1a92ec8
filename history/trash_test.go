package history

import (
	"errors"
	"testing"
	"time"

	"drun/history/records"
)

// While gc removes a run's checkpoints nobody takes the run out of the trash, and one that it keeps can be.
func TestPurgeAndRestoreAtOnce(t *testing.T) {
	home := t.TempDir()
	db, other := open(t, home), open(t, home)
	for _, stays := range []bool{false, true} {
		r := begin(t, db, RunInfo{})
		ok(t, r.Write(&Batch{End: &End{Status: Done}}))
		ok(t, db.Trash([]int64{r.ID}))
		restored := make(chan error, 1)
		was, err := db.Purge(r.ID, func() (bool, error) {
			go func() { restored <- other.Restore([]int64{r.ID}) }()
			select {
			case err := <-restored:
				t.Fatalf("taken out of the trash meanwhile: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			return stays, nil
		})
		if err != nil || !was {
			t.Errorf("%v, %v", was, err)
		}
		err = <-restored
		if stays != (err == nil) || !stays && !errors.As(err, new(*NotFound)) {
			t.Errorf("stays: %v, Restore: %v", stays, err)
		}
		if _, err := db.Find(r.Name); stays != (err == nil) {
			t.Errorf("stays: %v, Find: %v", stays, err)
		}
		if !stays {
			for _, err := range []error{db.Trash([]int64{r.ID}), db.Label(r.ID, []string{"x"}, nil), db.AddNote(r.ID, "x")} {
				if !errors.As(err, new(*NotFound)) {
					t.Error(err)
				}
			}
		}
	}
}

// What a purged run alone had kept takes no more room; what others have too stays.
func TestPurgeLeavesNothing(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	for i, own := range []string{"first", "second"} {
		r := begin(t, db, RunInfo{})
		ok(t, r.AddSources([]records.Source{records.NewSource("a.star", "recipe", []byte(own)), records.NewSource("lib.star", "load", []byte("lib"))}))
		step := int64(i)
		ok(t, r.Write(&Batch{End: &End{Status: Done}, Batch: records.Batch{
			Points:    []records.Point{{Name: "loss", Value: 1, Time: time.Now()}},
			Artifacts: []records.Artifact{{Name: "both", Kind: "text", Data: []byte("the same")}, {Name: "own", Step: &step, Kind: "text", Data: []byte(own)}},
			Notes:     []records.Note{{Text: own, Time: time.Now()}},
			Tags:      []string{own},
		}}))
	}
	left := func(query string) (n int64) {
		t.Helper()
		ok(t, db.sql.QueryRow(query).Scan(&n))
		return n
	}
	tables, err := listColumn[string](db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'metric_names'")
	ok(t, err)
	count := func() map[string]int64 {
		all := map[string]int64{}
		for _, table := range tables {
			all[table] = left("SELECT count(*) FROM " + table)
		}
		return all
	}
	for _, want := range []struct{ contents, sources int64 }{{3, 3}, {2, 2}, {0, 0}} {
		if c, s := left("SELECT count(*) FROM contents"), left("SELECT count(*) FROM sources"); c != want.contents || s != want.sources {
			t.Errorf("there are %d contents of artifacts and %d of files, want %d and %d", c, s, want.contents, want.sources)
		}
		if want.contents == 0 {
			break
		}
		id, err := db.Find("last")
		ok(t, err)
		ok(t, db.Trash([]int64{id}))
		if was, err := db.Purge(id, func() (bool, error) { return false, nil }); err != nil || !was {
			t.Error(was, err)
		}
	}
	for table, n := range count() {
		if empty := n == 0; !empty && left("SELECT count(*) FROM pragma_table_info('"+table+"') WHERE name = 'run'") > 0 {
			t.Errorf("table %s still has %d rows of runs that are gone", table, n)
		}
	}
}
