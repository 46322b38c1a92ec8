package exchange

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// What TensorBoard reads is what was written, as 32-bit floats.
func TestWriteTensorBoard(t *testing.T) {
	db := recorded(t)
	dir := filepath.Join(t.TempDir(), "events")
	ok(t, WriteTensorBoard(dir, db, []int64{1, 2}))
	runs, notes, err := Read(dir)
	ok(t, err)
	want := "first done loss@0/0=0.10000000149011612 loss/rank1@1/0=NaN loss@2/0=+Inf loss/rank1@3/0=-Inf loss@4/0=-0 loss/rank1@5/0=0 loss@6/0=+Inf loss/rank1@7/0=1 =cmd(\"'\x1b\n,@0/0=2"
	if len(runs) != 2 || len(notes) != 0 || shown(&runs[0]) != want {
		t.Errorf("%q, %q", notes, shown(&runs[0]))
	}
	if err := WriteTensorBoard(dir, db, []int64{1}); err == nil {
		t.Error("a folder that is there was written to")
	}
	got := python(t, `
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1]); a.Reload()
print(sorted(a.Tags()["scalars"])[1:])
for e in a.Scalars("loss"): print(e.step, e.value, e.wall_time)
`, filepath.Join(dir, "second"))
	if got != "['loss', 'loss/rank1']\n0 0.10000000149011612 1767323045.123456\n4 inf 1767323045.123456\n8 -0.0 1767323045.123456\n12 inf 1767323045.123456\n" {
		t.Error(got)
	}
}

// What MLflow finds in its store is what was written, but for minus zero, which its column cannot hold; and it comes back.
func TestWriteMLflow(t *testing.T) {
	db := recorded(t)
	ok(t, db.Label(1, []string{"base", "team=a b", "team=c", "mlflow.runName=x"}, nil))
	store := filepath.Join(t.TempDir(), "ml.db")
	python(t, `
import sys, mlflow
mlflow.set_tracking_uri("sqlite:///" + sys.argv[1])
mlflow.search_experiments()
`, store)
	for range 2 { // the second time, anew
		ok(t, WriteMLflow(store, db, []int64{1, 2}))
	}
	got := python(t, `
import sys, mlflow, warnings; warnings.filterwarnings("ignore")
mlflow.set_tracking_uri("sqlite:///" + sys.argv[1])
c = mlflow.MlflowClient()
runs = mlflow.search_runs(experiment_names=["drun"], filter_string="params.lr = '0.5'", order_by=["tags.mlflow.runName"], output_format="list")
for r in runs:
    print(r.info.run_name, r.info.status, sorted(r.data.params.items()), r.data.tags.get("team"), r.data.tags.get("base"), r.info.end_time - r.info.start_time)
    print(r.data.metrics["loss"], r.data.metrics["loss/rank1"])
    print([(m.step, m.value) for m in sorted(c.get_metric_history(r.info.run_id, "loss"), key = lambda m: m.step)])
    print([(m.step, m.value) for m in sorted(c.get_metric_history(r.info.run_id, "loss/rank1"), key = lambda m: m.step)])
`, store)
	large := "1.7976931348623157e+308"
	want := ""
	for i, name := range []string{"first", "second"} {
		n, tags := i+1, []string{"a b, c ", "None None"}[i]
		want += fmt.Sprintf("%s FINISHED [('lr', '0.5'), ('n', '3')] %s 2000\n%s 1.0\n", name, tags, large)
		want += fmt.Sprintf("[(0, 0.1), (%d, %s), (%d, 0.0), (%d, %s)]\n", 2*n, large, 4*n, 6*n, large)
		want += fmt.Sprintf("[(%d, nan), (%d, -%s), (%d, 5e-324), (%d, 1.0)]\n", n, 3*n, large, 5*n, 7*n)
	}
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	runs, _, err := Read(store)
	ok(t, err)
	if len(runs) != 2 || !strings.Contains(shown(&runs[0]), "loss@0/0=0.1") {
		t.Errorf("%+v", runs)
	}
	if err := WriteMLflow(filepath.Join(t.TempDir(), "none.db"), db, []int64{1}); err == nil {
		t.Error("a store was made")
	}
}
