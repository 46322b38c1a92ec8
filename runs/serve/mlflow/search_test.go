package mlflow

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"drun/history"
	"drun/history/historytest"
	"drun/runs/serve/objects"
)

// What has been logged is there, to the last bit, for MLflow's clients and for drun.
func TestOneTable(t *testing.T) {
	s := serve(t, t.TempDir())
	in := s.experiment("vision")
	run := s.begin(in)
	params := map[string]string{"lr": "0.05", "depth": "12", "big": "1000000.0", "wide": "1.5e+300", "tiny": "1e-05", "odd": "1e-5", "name": "tree", "on": "True", "none": "None",
		"nan": "nan", "inf": "-inf", "zero": "007", "list": "[64, 64]", "empty": "", "minus": "-2500000.5", "text": "ä'\"\\\n"}
	for key, value := range params {
		s.post("runs/log-parameter", object{"run_id": run, "key": key, "value": value})
		s.post("runs/log-parameter", object{"run_id": run, "key": key, "value": value})
	}
	values := []any{"NaN", "Infinity", "-Infinity", -0.0, math.Nextafter(0.1, 1), math.MaxFloat64}
	for i, v := range values {
		s.post("runs/log-metric", object{"run_id": run, "key": fmt.Sprint("m", i), "value": v, "timestamp": fmt.Sprint(7000 + i), "step": -i})
	}
	s.post("runs/log-metric", object{"run_id": run, "key": "late", "value": 2, "timestamp": 8000, "step": 9})
	s.post("runs/log-metric", object{"run_id": run, "key": "late", "value": 1, "timestamp": 9000, "step": 3})
	s.post("runs/set-tag", object{"run_id": run, "key": "team", "value": "a"})
	s.post("runs/set-tag", object{"run_id": run, "key": "team", "value": "b=c"})
	s.post("runs/set-tag", object{"run_id": run, "key": "long", "value": strings.Repeat("x", 5000)})
	s.post("runs/set-tag", object{"run_id": run, "key": "word", "value": ""})
	s.post("runs/update", object{"run_id": run, "status": "FINISHED", "end_time": 4500})

	data := s.get("runs/get?run_id=" + run)["run"].(object)
	got := map[string]string{}
	for _, p := range dig(data, "data", "params").([]any) {
		got[dig(p, "key").(string)] = dig(p, "value").(string)
	}
	if fmt.Sprint(got) != fmt.Sprint(params) {
		t.Errorf("parameters are\n%v, want\n%v", got, params)
	}
	last := map[string]any{}
	for _, m := range dig(data, "data", "metrics").([]any) {
		last[dig(m, "key").(string)] = []any{dig(m, "value"), dig(m, "step"), dig(m, "timestamp")}
	}
	want := map[string]any{"late": []any{2.0, 9.0, 8000.0}}
	for i, v := range values {
		want[fmt.Sprint("m", i)] = []any{v, float64(-i), float64(7000 + i)}
	}
	if fmt.Sprint(last) != fmt.Sprint(want) {
		t.Errorf("metrics are\n%v, want\n%v", last, want)
	}
	tags := map[string]string{}
	for _, p := range dig(data, "data", "tags").([]any) {
		tags[dig(p, "key").(string)] = dig(p, "value").(string)
	}
	if wanted := map[string]string{"team": "b=c", "long": strings.Repeat("x", 5000), "word": "", "mlflow.runName": "trial"}; fmt.Sprint(tags) != fmt.Sprint(wanted) {
		t.Errorf("tags are %v", tags)
	}
	if info := dig(data, "info"); dig(info, "status") != "FINISHED" || dig(info, "start_time") != 1000.0 || dig(info, "end_time") != 4500.0 || dig(info, "experiment_id") != in {
		t.Errorf("info is %v", info)
	}

	id, err := s.db.Find("trial")
	ok(t, err)
	d, err := s.db.Get(id)
	ok(t, err)
	if d.Params["lr"] != 0.05 || d.Params["depth"] != int64(12) || d.Params["on"] != true || d.Params["odd"] != "1e-5" || d.Params["big"] != 1e6 {
		t.Errorf("drun's parameters are %#v", d.Params)
	}
	if d.Status != history.Done || *d.Seconds != 3.5 || fmt.Sprint(d.Tags) != "[team=b=c word]" || d.Metrics["late"].Last != 2 || d.Metrics["late"].Count != 2 {
		t.Errorf("drun has %s after %v s, tags %v, %v", d.Status, *d.Seconds, d.Tags, d.Metrics["late"])
	}
	holds, err := s.db.SummariesHold(id)
	ok(t, err)
	if !holds {
		t.Error("the summaries are not those of the points")
	}
}

// Artifacts stay as long as their run and their model are there, in the trash too.
func TestSweep(t *testing.T) {
	home := t.TempDir()
	s := serve(t, home)
	kept, gone := s.begin("0"), s.begin("0")
	model := dig(s.post("logged-models", object{"experiment_id": "0", "name": "m"}), "model", "info", "model_id").(string)
	names := []string{"0/" + kept + "/artifacts/a", "0/" + gone + "/artifacts/a", "0/models/" + model + "/artifacts/a", "0/models/m-none/artifacts/a"}
	files := objects.In(home)
	for _, name := range names {
		ok(t, files.Put(t.Context(), name, strings.NewReader("x"), 1))
	}
	for _, run := range []string{kept, gone} {
		s.post("runs/delete", object{"run_id": run})
	}
	db, err := history.Open(home)
	ok(t, err)
	id, err := db.Known(gone)
	ok(t, err)
	if was, err := db.Purge(id, func() (bool, error) { return false, nil }); err != nil || !was {
		t.Fatalf("it was not removed: %v", err)
	}
	ok(t, Sweep(t.Context(), db, files))
	ok(t, db.Close())
	for i, name := range names {
		content, _, err := files.Get(t.Context(), name)
		if there := err == nil; there != (i%2 == 0) {
			t.Errorf("%s is there: %v, %v", name, there, err)
		} else if there {
			content.Close()
		}
	}
}

// Searches find what MLflow's store finds (make mlflow compares many more with it): case counts for LIKE alone, what has no value comes last in
// either order, and pages have all runs, each once.
func TestSearches(t *testing.T) {
	s := serve(t, t.TempDir())
	in := s.experiment("a")
	name := map[any]string{}
	for i, model := range []string{"Tree", "tree_1", "net%", "a*b"} {
		run := s.begin(in)
		name[run] = model
		batch := object{"run_id": run, "params": []object{{"key": "model", "value": model}}}
		if i > 0 {
			batch["metrics"] = []object{{"key": "acc", "value": []any{0, "NaN", 0.5, -1}[i], "timestamp": 1}}
		}
		s.post("runs/log-batch", batch)
	}
	find := func(in object) (found []string, token any) {
		t.Helper()
		out := s.post("runs/search", in)
		for _, r := range out["runs"].([]any) {
			found = append(found, name[dig(r, "info", "run_id")])
		}
		return found, out["next_page_token"]
	}
	for filter, want := range map[string]string{"params.model LIKE 'tree%'": "[tree_1]", "params.model ILIKE 'tree%'": "[Tree tree_1]", "params.model LIKE 'a*b'": "[a*b]", "params.model LIKE 'tree__'": "[tree_1]", "params.model = 'net%'": "[net%]",
		"params.model != 'Tree'": "[a*b net% tree_1]", "metrics.acc > 0": "[net%]", "metrics.acc != 0.5": "[a*b tree_1]", "metrics.acc <= +0.5 AND params.model != 'a*b'": "[net%]"} {
		found, _ := find(object{"experiment_ids": []string{in}, "filter": filter})
		slices.Sort(found)
		if fmt.Sprint(found) != want {
			t.Errorf("%s finds %v, want %s", filter, found, want)
		}
	}
	for order, want := range map[string]string{"metrics.acc": "[a*b net% tree_1 Tree]", "metrics.acc DESC": "[net% a*b tree_1 Tree]", "params.model DESC": "[tree_1 net% a*b Tree]"} {
		if found, _ := find(object{"experiment_ids": []string{in}, "order_by": []string{order}}); fmt.Sprint(found) != want {
			t.Errorf("sorted by %s they are %v, want %s", order, found, want)
		}
	}
	all, token := []string{}, any("")
	for n := 0; token != nil; n++ {
		page, next := find(object{"experiment_ids": []string{in}, "max_results": 3, "page_token": token, "order_by": []string{"params.model"}})
		if all, token = append(all, page...), next; n > 1 {
			t.Fatal("the pages have no end")
		}
	}
	if fmt.Sprint(all) != "[Tree a*b net% tree_1]" {
		t.Errorf("the pages have %v", all)
	}
	history := s.get("metrics/get-history?metric_key=acc&max_results=5&run_id=" + dig(s.post("runs/search", object{"experiment_ids": []string{in}, "filter": "metrics.acc = 0.5"}), "runs", 0, "info", "run_id").(string))
	if len(history["metrics"].([]any)) != 1 || history["next_page_token"] != nil {
		t.Errorf("the history is %v", history)
	}
}

// An answer with very many runs is written in parts, which are what an answer in pages has.
func TestManyRunsAtOnce(t *testing.T) {
	home := t.TempDir()
	const runs = 2*1000 + 1
	ok(t, historytest.Fill(home, historytest.Shape{Runs: runs, Params: 2, Metrics: 1, Points: 1}))
	s := serve(t, home)
	in := object{"experiment_ids": []string{"0"}, "max_results": runs - 1}
	once := s.post("runs/search", in)
	if once["next_page_token"] == nil {
		t.Error("there is no next page")
	}
	var paged []any
	for in["max_results"] = 500; len(paged) < runs-1; {
		answer := s.post("runs/search", in)
		paged, in["page_token"] = append(paged, answer["runs"].([]any)...), answer["next_page_token"]
	}
	if got := once["runs"].([]any); !reflect.DeepEqual(got, paged) {
		t.Errorf("%d runs at once are not the %d in pages", len(got), len(paged))
	}
}
