package history

import (
	"errors"
	"testing"
	"time"
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
