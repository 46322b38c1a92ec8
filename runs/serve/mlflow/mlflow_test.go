package mlflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/history"
	"drun/history/historytest"
	"drun/history/records"
	"drun/runs/serve/access"
	"drun/runs/serve/objects"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server serves a home to one user.
type server struct {
	*testing.T
	home string
	url  string
	db   *history.DB
	stop func()
}

func serve(t *testing.T, home string, grants ...access.Grant) *server {
	t.Helper()
	if grants == nil {
		grants = []access.Grant{{Role: access.Write}}
	}
	write, err := history.Open(home)
	ok(t, err)
	read, err := history.OpenReadOnly(home)
	ok(t, err)
	h := New(read, write, objects.In(home))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.User{Name: "ann", Grants: grants}, nil)))
	}))
	s := &server{t, home, web.URL, read, sync.OnceFunc(func() { web.Close(); read.Close(); write.Close() })}
	t.Cleanup(s.stop)
	return s
}

// ask sends a request, and reads the answer's JSON.
func (s *server) ask(method, path string, in any) (status int, out map[string]any) {
	s.Helper()
	body, err := json.Marshal(in)
	ok(s.T, err)
	if text, is := in.(string); is {
		body = []byte(text)
	}
	r, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	ok(s.T, err)
	a, err := http.DefaultClient.Do(r)
	ok(s.T, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	ok(s.T, err)
	if err := json.Unmarshal(text, &out); err != nil {
		out = map[string]any{"text": string(text)}
	}
	return a.StatusCode, out
}

// post is a request to MLflow's API that must succeed.
func (s *server) post(path string, in object) object {
	s.Helper()
	status, out := s.ask("POST", "/api/2.0/mlflow/"+path, in)
	if status != 200 {
		s.Fatalf("%s: %d %v", path, status, out)
	}
	return out
}

func (s *server) get(path string) object {
	s.Helper()
	status, out := s.ask("GET", "/api/2.0/mlflow/"+path, nil)
	if status != 200 {
		s.Fatalf("%s: %d %v", path, status, out)
	}
	return out
}

// refused is a request that must fail with a code, and say something.
func (s *server) refused(method, path string, in any, code, says string) {
	s.Helper()
	status, out := s.ask(method, path, in)
	if out["error_code"] != code || !strings.Contains(fmt.Sprint(out["message"]), says) || status < 400 || status != statuses[code] {
		s.Errorf("%s %s: %d %v, want %s that says %q", method, path, status, out, code, says)
	}
}

func dig(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			list, _ := v.([]any)
			if p >= len(list) {
				return nil
			}
			v = list[p]
		}
	}
	return v
}

func (s *server) begin(experiment string) string {
	s.Helper()
	return dig(s.post("runs/create", object{"experiment_id": experiment, "start_time": 1000, "run_name": "trial"}), "run", "info", "run_id").(string)
}

func (s *server) experiment(name string) string {
	s.Helper()
	return s.post("experiments/create", object{"name": name})["experiment_id"].(string)
}

// metrics are n points from a step on.
func metrics(from, n int) (list []object) {
	for i := range n {
		list = append(list, object{"key": "loss", "value": float64(from+i) / 8, "timestamp": 5000 + from + i, "step": from + i})
	}
	return list
}

func (s *server) points(run string) int {
	s.Helper()
	id, err := s.db.Known(run)
	ok(s.T, err)
	points, err := s.db.Points(id)
	ok(s.T, err)
	return len(points)
}

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
