package mlflow

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/runs/serve/access"
)

// A batch that is sent again is entered once, whether the answer was lost, the server was started again, or much came in between.
func TestRetriedBatches(t *testing.T) {
	home := t.TempDir()
	s := serve(t, home)
	run := s.begin("0")
	batch := func(from, n int) {
		s.Helper()
		s.post("runs/log-batch", object{"run_id": run, "metrics": metrics(from, n)})
	}
	batch(0, 1000)
	batch(0, 1000)
	batch(500, 1000)
	s.stop()
	s = serve(t, home)
	batch(500, 1000)
	for from := 1500; from < 6500; from += 1000 {
		batch(from, 1000)
	}
	batch(0, 1000)
	batch(5500, 1000)
	s.post("runs/log-batch", object{"run_id": run, "metrics": append(metrics(7000, 1), metrics(7000, 1)...)})
	if n := s.points(run); n != 6501 {
		t.Errorf("there are %d points, want 6501", n)
	}
	// Other values and other times are other points.
	s.post("runs/log-metric", object{"run_id": run, "key": "loss", "value": 5, "timestamp": 5000, "step": 0})
	s.post("runs/log-metric", object{"run_id": run, "key": "loss", "value": 0, "timestamp": 5001, "step": 0})
	if n := s.points(run); n != 6503 {
		t.Errorf("there are %d points, want 6503", n)
	}
}

// A batch is entered whole or not at all, and one that failed leaves nothing that would be taken for it.
func TestBatchIsWhole(t *testing.T) {
	s := serve(t, t.TempDir())
	run := s.begin("0")
	s.post("runs/log-batch", object{"run_id": run, "params": []object{{"key": "a", "value": "1"}}})
	with := func(value string) object {
		return object{"run_id": run, "metrics": metrics(0, 3), "params": []object{{"key": "b", "value": "2"}, {"key": "a", "value": value}}, "tags": []object{{"key": "t", "value": "u"}}}
	}
	s.refused("POST", "/api/2.0/mlflow/runs/log-batch", with("9"), "INVALID_PARAMETER_VALUE", "Changing param values is not allowed")
	if n := s.points(run); n != 0 {
		t.Errorf("a batch that was refused left %d points", n)
	}
	got := fmt.Sprint(s.get("runs/get?run_id=" + run)["run"].(object)["data"])
	if strings.Contains(got, "b") || strings.Contains(got, "t:u") {
		t.Errorf("a batch that was refused left %s", got)
	}
	s.post("runs/log-batch", with("1"))
	if n := s.points(run); n != 3 {
		t.Errorf("there are %d points", n)
	}
}

// Runs of recipes are there for MLflow's clients, with their ranks' points and what they have kept.
func TestRunsOfRecipes(t *testing.T) {
	home := t.TempDir()
	db, err := history.Open(home)
	ok(t, err)
	r, err := db.Begin(history.RunInfo{Name: "calm-otter", Recipe: "spiral.star", WorldSize: 2, Backend: "shm"})
	ok(t, err)
	batch := &history.Batch{Params: []history.Param{{Name: "lr", Value: 1e6}, {Name: "sizes", Value: history.List("[64,64]")}}}
	batch.Tags = []string{"baseline", "team=a", "team=b"}
	for i := range 3 {
		for rank := range 2 {
			batch.Points = append(batch.Points, records.Point{Name: "loss", Step: int64(i), Rank: rank, Value: float64(10*rank + i), Exact: true, Time: time.UnixMilli(int64(i))})
		}
	}
	step := int64(7)
	batch.Artifacts = []records.Artifact{{Name: "sample", Step: &step, Kind: "image", Data: []byte("PNG"), Time: time.Now()}, {Name: "notes", Kind: "text", Data: []byte("hi"), Time: time.Now()}}
	batch.End = &history.End{Status: history.Interrupted, Seconds: 2}
	ok(t, r.Write(batch))
	ok(t, db.Close())
	s := serve(t, home)
	found := s.post("runs/search", object{"experiment_ids": []string{"0"}, "filter": "params.lr = '1000000.0' and tags.team LIKE 'a%' and attributes.status = 'KILLED' and metrics.loss = 2"})
	if got := dig(found, "runs", 0, "info", "run_id"); got != r.UID {
		t.Fatalf("found %v", found)
	}
	text := fmt.Sprint(dig(found, "runs", 0, "data"))
	for _, part := range []string{"key:lr value:1000000.0", "key:sizes value:[64,64]", "key:baseline value:", "key:team value:a, b", "key:mlflow.source.name value:spiral.star", "key:mlflow.runName value:calm-otter"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s", part, text)
		}
	}
	for key, want := range map[string]string{"loss": "[0 1 2]", "loss/rank1": "[10 11 12]", "none": "[]"} {
		values := []any{}
		for _, m := range dig(s.get("metrics/get-history?metric_key="+key+"&run_id="+r.UID), "metrics").([]any) {
			values = append(values, dig(m, "value"))
		}
		if fmt.Sprint(values) != want {
			t.Errorf("%s has the values %v, want %s", key, values, want)
		}
	}
	list := fmt.Sprint(s.get("artifacts/list?run_id=" + r.UID)["files"])
	if !strings.Contains(list, "path:notes.txt") || !strings.Contains(list, "is_dir:true path:sample") {
		t.Errorf("artifacts are %s", list)
	}
	if _, out := s.ask("GET", "/api/2.0/mlflow-artifacts/artifacts/0/"+r.UID+"/artifacts/sample/step-7.png", nil); out["text"] != "PNG" {
		t.Errorf("the artifact is %v", out)
	}
	s.refused("POST", "/api/2.0/mlflow/runs/log-metric", object{"run_id": r.UID, "key": "loss", "value": 1, "timestamp": 1}, "INVALID_PARAMETER_VALUE", "was made by drun")
	s.refused("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/"+r.UID+"/artifacts/x", "x", "INVALID_PARAMETER_VALUE", "was made by drun")
	s.post("runs/set-tag", object{"run_id": r.UID, "key": "reviewed", "value": "yes"})
	if d, err := s.db.Get(r.ID); err != nil || !strings.Contains(fmt.Sprint(d.Tags), "reviewed=yes") {
		t.Errorf("tags are %v, %v", d.Tags, err)
	}
}

func TestAccess(t *testing.T) {
	home := t.TempDir()
	s := serve(t, home)
	secret, open := s.experiment("secret"), s.experiment("open")
	hidden, shown := s.begin(secret), s.begin(open)
	s.stop()
	s = serve(t, home, access.Grant{Role: access.Read, Project: "open"})
	if runs := s.post("runs/search", object{"experiment_ids": []string{secret, open, "0"}}); len(dig(runs, "runs").([]any)) != 1 || dig(runs, "runs", 0, "info", "run_id") != shown {
		t.Errorf("a reader of one project finds %v", runs)
	}
	if all := fmt.Sprint(s.post("experiments/search", object{"max_results": 100})); strings.Contains(all, "secret") || !strings.Contains(all, "open") {
		t.Errorf("a reader of one project sees %s", all)
	}
	const api = "/api/2.0/mlflow/"
	for _, r := range []struct {
		method, path string
		in           any
	}{
		{"GET", api + "runs/get?run_id=" + hidden, nil},
		{"GET", api + "experiments/get?experiment_id=" + secret, nil},
		{"GET", api + "experiments/get-by-name?experiment_name=secret", nil},
		{"GET", api + "metrics/get-history?metric_key=a&run_id=" + hidden, nil},
		{"GET", api + "artifacts/list?run_id=" + hidden, nil},
		{"GET", "/api/2.0/mlflow-artifacts/artifacts/" + secret + "/" + hidden + "/artifacts/a", nil},
		{"PUT", "/api/2.0/mlflow-artifacts/artifacts/" + open + "/" + shown + "/artifacts/a", "x"},
		{"DELETE", "/api/2.0/mlflow-artifacts/artifacts/" + open + "/" + shown + "/artifacts/a", nil},
		{"POST", api + "runs/create", object{"experiment_id": open}},
		{"POST", api + "runs/create", object{"experiment_id": secret}},
		{"POST", api + "runs/log-metric", object{"run_id": shown, "key": "a", "value": 1, "timestamp": 1}},
		{"POST", api + "runs/log-batch", object{"run_id": shown}},
		{"POST", api + "runs/log-parameter", object{"run_id": shown, "key": "a", "value": "1"}},
		{"POST", api + "runs/set-tag", object{"run_id": shown, "key": "a", "value": "1"}},
		{"POST", api + "runs/delete-tag", object{"run_id": shown, "key": "mlflow.runName"}},
		{"POST", api + "runs/update", object{"run_id": shown, "status": "FINISHED"}},
		{"POST", api + "runs/delete", object{"run_id": shown}},
		{"POST", api + "runs/restore", object{"run_id": shown}},
		{"POST", api + "runs/log-inputs", object{"run_id": shown}},
		{"POST", api + "runs/outputs", object{"run_id": shown}},
		{"POST", api + "experiments/create", object{"name": "mine"}},
		{"POST", api + "experiments/delete", object{"experiment_id": open}},
		{"POST", api + "experiments/update", object{"experiment_id": open, "new_name": "mine"}},
		{"POST", api + "experiments/set-experiment-tag", object{"experiment_id": open, "key": "a", "value": "b"}},
		{"POST", api + "logged-models", object{"experiment_id": open}},
	} {
		s.refused(r.method, r.path, r.in, "PERMISSION_DENIED", "ann may not")
	}
}

func TestHostileArtifacts(t *testing.T) {
	s := serve(t, t.TempDir())
	run, other := s.begin("0"), s.experiment("other")
	const at = "/api/2.0/mlflow-artifacts/artifacts/"
	if status, out := s.ask("PUT", at+"0/"+run+"/artifacts/model/weights.bin", "1234"); status != 200 {
		t.Fatal(out)
	}
	for _, path := range []string{"0/" + run + "/artifacts/%2e%2e/%2e%2e/x", "0/" + run + "/artifacts/a%5c..%5cb", "0/" + run + "/artifacts/a%00b", "0/" + run + "/artifacts", "0/" + run + "/x",
		"x", "%2fetc/passwd", other + "/" + run + "/artifacts/x", "0/" + run + "/artifacts/%0a", "0/" + run + "/artifacts/.drun-part-x", "0/models/x", "0/" + run + "/artifacts/" + strings.Repeat("a", 300)} {
		for _, method := range []string{"PUT", "GET", "DELETE"} {
			if method != "PUT" && path == "0/"+run+"/artifacts" {
				continue // the folder is one
			}
			status, out := s.ask(method, at+path, "x")
			if status < 300 || status >= 500 {
				t.Errorf("%s %s: %d %v", method, path, status, out)
			}
		}
	}
	s.refused("GET", at+"0/"+run+"/artifacts/none", nil, "RESOURCE_DOES_NOT_EXIST", "No such artifact")
	list := s.get("artifacts/list?run_id=" + run + "&path=model")
	if got := fmt.Sprint(list["files"]); got != "[map[file_size:4 is_dir:false path:model/weights.bin]]" {
		t.Errorf("files are %s", got)
	}
	if status, _ := s.ask("DELETE", at+"0/"+run+"/artifacts/model", nil); status != 200 {
		t.Error("the folder is not removed")
	}
	if got := fmt.Sprint(s.get("artifacts/list?run_id=" + run)["files"]); got != "[]" {
		t.Errorf("files are %s", got)
	}
}

// A request that is cut off leaves no artifact.
func TestCutOff(t *testing.T) {
	s := serve(t, t.TempDir())
	run := s.begin("0")
	body, w := io.Pipe()
	go func() { _, _ = w.Write([]byte("12")); w.CloseWithError(io.ErrUnexpectedEOF) }()
	r, err := http.NewRequest("PUT", s.url+"/api/2.0/mlflow-artifacts/artifacts/0/"+run+"/artifacts/half", body)
	ok(t, err)
	r.ContentLength = 4
	if _, err := http.DefaultClient.Do(r); err == nil {
		t.Error("it was accepted")
	}
	if got := fmt.Sprint(s.get("artifacts/list?run_id=" + run)["files"]); got != "[]" {
		t.Errorf("files are %s", got)
	}
}

func TestBadRequests(t *testing.T) {
	s := serve(t, t.TempDir())
	run := s.begin("0")
	const invalid, api = "INVALID_PARAMETER_VALUE", "/api/2.0/mlflow/"
	long := strings.Repeat("a", 251)
	for _, r := range []struct {
		path       string
		in         any
		code, says string
	}{
		{"runs/log-metric", object{"run_id": 31, "key": "a", "value": 1, "timestamp": 1}, invalid, "Invalid value 31 for parameter 'run_id' supplied"},
		{"runs/log-metric", object{"run_id": run, "value": 1, "timestamp": 1}, invalid, "Missing value for required parameter 'key'"},
		{"runs/log-metric", object{"run_id": run, "key": nil, "value": 1, "timestamp": 1}, invalid, "Missing value for required parameter 'key'"},
		{"runs/log-metric", object{"run_id": run, "key": "a", "value": "x", "timestamp": 1}, invalid, `Invalid value "x" for parameter 'value'`},
		{"runs/log-metric", object{"run_id": run, "key": "a", "value": 1, "timestamp": "x"}, invalid, `Invalid value "x" for parameter 'timestamp'`},
		{"runs/log-metric", object{"run_id": run, "key": "a", "value": 1, "timestamp": 1, "step": 1.5}, invalid, "for parameter 'step'"},
		{"runs/log-metric", object{"run_id": run, "key": "a", "value": 1, "timestamp": int64(1) << 62}, invalid, "years 1 to 9999"},
		{"runs/log-metric", object{"run_id": run, "key": long, "value": 1, "timestamp": 1}, invalid, "length limit of 250"},
		{"runs/log-metric", object{"run_id": run, "key": "../a", "value": 1, "timestamp": 1}, invalid, "must not resolve to other names"},
		{"runs/log-metric", object{"run_id": run, "key": "a#b", "value": 1, "timestamp": 1}, invalid, "Names may only contain"},
		{"runs/log-metric", object{"run_id": "none", "key": "a", "value": 1, "timestamp": 1}, "RESOURCE_DOES_NOT_EXIST", "Run with id=none not found"},
		{"runs/log-metric", object{"key": "a", "value": 1, "timestamp": 1}, invalid, "Missing value for required parameter 'run_id'"},
		{"runs/log-parameter", object{"run_id": run, "key": "a", "value": strings.Repeat("x", 6001)}, invalid, "length limit of 6000"},
		{"runs/set-tag", object{"run_id": run, "key": "a", "value": strings.Repeat("x", 8001)}, invalid, "length limit of 8000"},
		{"runs/log-batch", object{"run_id": run, "metrics": metrics(0, 1001)}, invalid, "at most 1000 metrics"},
		{"runs/log-batch", object{"run_id": run, "params": make([]object, 101)}, invalid, "at most 100 params"},
		{"runs/log-batch", object{"run_id": run, "tags": make([]object, 101)}, invalid, "at most 100 tags"},
		{"runs/log-batch", object{"run_id": run, "metrics": metrics(0, 950), "tags": make([]object, 51)}, invalid, "at most 1000 metrics, params, and tags"},
		{"runs/log-batch", object{"run_id": run, "params": []object{{"key": "a", "value": "1"}, {"key": "a", "value": "2"}}}, invalid, "Duplicate parameter keys"},
		{"runs/log-batch", object{"run_id": run, "metrics": []object{{"key": "a", "value": 1}}}, invalid, "'metrics[0].timestamp'"},
		{"runs/log-batch", "[1]", "BAD_REQUEST", "not a JSON object"},
		{"runs/log-batch", "{", "BAD_REQUEST", "not a JSON object"},
		{"runs/log-batch", `{"run_id": "` + strings.Repeat("x", mostBody) + `"}`, "BAD_REQUEST", "too large"},
		{"runs/create", object{"experiment_id": "77"}, "RESOURCE_DOES_NOT_EXIST", "No Experiment with id=77"},
		{"runs/create", object{"run_name": "a", "tags": []object{{"key": "mlflow.runName", "value": "b"}}}, invalid, "different values"},
		{"runs/update", object{"run_id": run, "status": "DONE"}, invalid, "for parameter 'status'"},
		{"runs/search", object{"experiment_ids": []string{"0"}, "max_results": 50001}, invalid, "max_results"},
		{"runs/search", object{"experiment_ids": []string{"0"}, "page_token": "x"}, invalid, "page token"},
		{"runs/search", object{"experiment_ids": []string{"0"}, "order_by": []string{"metrics.a SIDEWAYS"}}, invalid, "order_by"},
		{"experiments/create", object{"name": 123}, invalid, "Invalid value 123 for parameter 'name'"},
		{"experiments/create", object{"name": "a\nb"}, invalid, "control character"},
		{"experiments/create", object{}, invalid, "Missing value for required parameter 'name'"},
		{"experiments/create", object{"name": "Default"}, "RESOURCE_ALREADY_EXISTS", "already exists"},
		{"experiments/delete", object{"experiment_id": "0"}, invalid, "default experiment"},
		{"registered-models/create", object{"name": "a"}, "NOT_IMPLEMENTED", "no model registry"},
		{"traces", object{}, "NOT_IMPLEMENTED", "no traces"},
		{"runs/nothing", object{}, "ENDPOINT_NOT_FOUND", "there is no POST"},
	} {
		s.refused("POST", api+r.path, r.in, r.code, r.says)
	}
	for _, filter := range []string{"metrics.a", "metrics.a >", "metrics.a > 'x'", "params.a = 5", "params.a > '5'", "metrics.a = 1 OR metrics.b = 2", "metrics.a = 1 AND", "color.a = 'x'", "attributes.size = 'x'",
		"run_id IN ()", "run_id IN 'a'", "status IN ('a')", "tags.a = 'x' tags.b = 'y'", "metrics.a = 1; DROP TABLE runs", "datasets.size = 'x'", "AND", strings.Repeat("a", 10_001)} {
		s.refused("POST", api+"runs/search", object{"experiment_ids": []string{"0"}, "filter": filter}, invalid, "")
	}
	if n := s.points(run); n != 0 {
		t.Errorf("%d points of bad requests are there", n)
	}
}

// Deleted runs and experiments are in drun's trash, and come out of it.
func TestTrash(t *testing.T) {
	s := serve(t, t.TempDir())
	in := s.experiment("a")
	run := s.begin(in)
	id, err := s.db.Known(run)
	ok(t, err)
	trashed := func() bool {
		d, err := s.db.Get(id)
		ok(t, err)
		return d.Trashed != nil
	}
	s.post("runs/delete", object{"run_id": run})
	s.refused("POST", "/api/2.0/mlflow/runs/log-metric", object{"run_id": run, "key": "a", "value": 1, "timestamp": 1}, "INVALID_PARAMETER_VALUE", "Current state is deleted")
	if got := dig(s.get("runs/get?run_id="+run), "run", "info", "lifecycle_stage"); got != "deleted" || !trashed() {
		t.Errorf("it is %v", got)
	}
	if runs := s.post("runs/search", object{"experiment_ids": []string{in}}); len(dig(runs, "runs").([]any)) != 0 {
		t.Error("a search finds it")
	}
	s.post("runs/restore", object{"run_id": run})
	s.post("experiments/delete", object{"experiment_id": in})
	if !trashed() {
		t.Error("the experiment's run is not deleted with it")
	}
	s.refused("POST", "/api/2.0/mlflow/runs/create", object{"experiment_id": in}, "INVALID_PARAMETER_VALUE", "must be in the 'active' state")
	s.refused("POST", "/api/2.0/mlflow/experiments/create", object{"name": "a"}, "RESOURCE_ALREADY_EXISTS", "in deleted state")
	s.post("experiments/restore", object{"experiment_id": in})
	if trashed() {
		t.Error("the experiment's run is not restored with it")
	}
	s.post("experiments/update", object{"experiment_id": in, "new_name": "b"})
	if got := dig(s.get("runs/get?run_id="+run), "run", "info", "experiment_id"); got != in {
		t.Errorf("after the experiment was renamed, the run is in %v", got)
	}
}

// A run that MLflow's clients log stays running when the server starts again, and can be logged to after its end.
func TestRunning(t *testing.T) {
	home := t.TempDir()
	s := serve(t, home)
	run := s.begin("0")
	s.stop()
	s = serve(t, home)
	if got := dig(s.get("runs/get?run_id="+run), "run", "info", "status"); got != "RUNNING" {
		t.Errorf("it is %v", got)
	}
	s.post("runs/update", object{"run_id": run, "status": "FAILED", "end_time": 2000})
	s.post("runs/log-batch", object{"run_id": run, "metrics": metrics(0, 2)})
	s.post("runs/update", object{"run_id": run, "status": "RUNNING"})
	if got := dig(s.get("runs/get?run_id="+run), "run", "info"); dig(got, "status") != "RUNNING" || dig(got, "end_time") != nil {
		t.Errorf("it is %v", got)
	}
}

// Many writers at once lose nothing.
func TestWriters(t *testing.T) {
	s := serve(t, t.TempDir())
	var writers sync.WaitGroup
	runs := make([]string, 8)
	for i := range runs {
		runs[i] = s.begin("0")
		writers.Go(func() {
			for from := 0; from < 1000; from += 100 {
				s.post("runs/log-batch", object{"run_id": runs[i], "metrics": metrics(from, 100)})
			}
		})
	}
	writers.Wait()
	for _, run := range runs {
		if n := s.points(run); n != 1000 {
			t.Errorf("run %s has %d points", run, n)
		}
	}
}
