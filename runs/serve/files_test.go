package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/history"
	"drun/runs/transfer"
)

// mlflow sends a request as MLflow's client does, and returns what is at a path of the answer.
func (s *team) mlflow(t *testing.T, method, path string, in any, at ...string) string {
	t.Helper()
	body, is := in.([]byte)
	if !is {
		var err error
		body, err = json.Marshal(in)
		ok(t, err)
	}
	r, err := http.NewRequest(method, s.URL+"/api/2.0/"+path, bytes.NewReader(body))
	ok(t, err)
	r.Header.Set("Authorization", "Bearer "+s.tokens["writer"])
	answer, err := http.DefaultClient.Do(r)
	ok(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	ok(t, err)
	if answer.StatusCode != 200 {
		t.Fatalf("%s: %s", path, text)
	}
	var v any
	if json.Unmarshal(text, &v) != nil || len(at) == 0 {
		return string(text)
	}
	for _, key := range at {
		v = v.(map[string]any)[key]
	}
	return fmt.Sprint(v)
}

// A run that MLflow's client has logged goes from one server by a home to another, with its artifacts and its model, and there MLflow's
// client finds them.
func TestModelsTravel(t *testing.T) {
	a, b := newTeam(t), newTeam(t)
	type object = map[string]any
	b.mlflow(t, "POST", "mlflow/experiments/create", object{"name": "other"}) // so that the numbers of experiments differ
	vision := a.mlflow(t, "POST", "mlflow/experiments/create", object{"name": "vision"}, "experiment_id")
	uid := a.mlflow(t, "POST", "mlflow/runs/create", object{"experiment_id": vision, "run_name": "trial"}, "run", "info", "run_id")
	model := a.mlflow(t, "POST", "mlflow/logged-models", object{"experiment_id": vision, "name": "tree", "source_run_id": uid, "params": []object{{"key": "depth", "value": "3"}}}, "model", "info", "model_id")
	a.mlflow(t, "POST", "mlflow/runs/outputs", object{"run_id": uid, "models": []object{{"model_id": model, "step": 1}}})
	a.mlflow(t, "POST", "mlflow/runs/log-batch", object{"run_id": uid, "metrics": []object{{"key": "acc", "value": 0.5, "timestamp": 1, "step": 1, "model_id": model}}})
	large := make([]byte, 20<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(large)
	put := func(s *team, name string, content []byte) {
		t.Helper()
		s.mlflow(t, "PUT", "mlflow-artifacts/artifacts/"+name, content)
	}
	put(a, vision+"/"+uid+"/artifacts/plots/a.txt", []byte("one"))
	put(a, vision+"/"+uid+"/artifacts/empty", nil)
	put(a, vision+"/models/"+model+"/artifacts/weights.bin", large)

	path := t.TempDir()
	home, err := transfer.OpenHome(path, true)
	ok(t, err)
	t.Cleanup(func() { home.Close() })
	pass := func(from, to transfer.Side, quick bool) *transfer.Result {
		t.Helper()
		result, err := transfer.Copy(transfer.Local(t.Context()), from, to, []transfer.Found{{UID: uid, Name: "trial"}}, transfer.Options{Weights: "all", Quick: quick, Say: func(string) {}})
		ok(t, err)
		return result
	}
	look := func(s *team) {
		t.Helper()
		in := s.mlflow(t, "GET", "mlflow/experiments/get-by-name?experiment_name=vision", nil, "experiment", "experiment_id")
		if got := s.mlflow(t, "GET", "mlflow-artifacts/artifacts/"+in+"/models/"+model+"/artifacts/weights.bin", nil); got != string(large) {
			t.Errorf("the weights differ: there are %d bytes", len(got))
		}
		if got := s.mlflow(t, "GET", "mlflow-artifacts/artifacts/"+in+"/"+uid+"/artifacts/plots/a.txt", nil); got != "one" {
			t.Errorf("the artifact is %q", got)
		}
		if got := s.mlflow(t, "GET", "mlflow/artifacts/list?run_id="+uid, nil); !strings.Contains(got, `"empty"`) {
			t.Errorf("artifacts are %s", got)
		}
		if got := s.mlflow(t, "GET", "mlflow/logged-models/"+model, nil); !strings.Contains(got, `"depth"`) || !strings.Contains(got, `"acc"`) || !strings.Contains(got, "mlflow-artifacts:/"+in+"/models/") {
			t.Errorf("the model is %s", got)
		}
		if got := s.mlflow(t, "GET", "mlflow/runs/get?run_id="+uid, nil, "run", "outputs"); !strings.Contains(got, model) {
			t.Errorf("the run's outputs are %s", got)
		}
	}
	pass(a.as(t, "writer"), home, false)
	if r := pass(home, b.as(t, "writer"), false); r.Sent < int64(len(large)) {
		t.Errorf("sent %d bytes", r.Sent)
	}
	look(b)
	for _, quick := range []bool{false, true} {
		if r := pass(home, b.as(t, "writer"), quick); r.Changed != 0 || r.There < int64(len(large)) {
			t.Errorf("what was there is sent again: %+v", r)
		}
	}

	// What one of them changes goes along; what an older copy has does not come back in its place.
	put(a, vision+"/"+uid+"/artifacts/plots/a.txt", []byte("two"))
	pass(a.as(t, "writer"), b.as(t, "writer"), true)
	pass(home, b.as(t, "writer"), false)
	in := b.mlflow(t, "GET", "mlflow/experiments/get-by-name?experiment_name=vision", nil, "experiment", "experiment_id")
	if got := b.mlflow(t, "GET", "mlflow-artifacts/artifacts/"+in+"/"+uid+"/artifacts/plots/a.txt", nil); got != "two" {
		t.Errorf("the artifact is %q", got)
	}
}

// breaks lets no request of a name pass after the first n.
type breaks struct {
	name string
	n    int
	sent int64
}

func (b *breaks) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, b.name) {
		if b.n--; b.n < 0 {
			return nil, errors.New("broken")
		}
		b.sent += r.ContentLength
	}
	return http.DefaultTransport.RoundTrip(r)
}

// A file of which a part has arrived goes on where it was; one that is not what was announced is refused.
func TestFilesGoOn(t *testing.T) {
	s := newTeam(t)
	home, r, _ := run(t, "", 3)
	content := make([]byte, 20<<20)
	_, _ = rand.NewChaCha8([32]byte{8}).Read(content)
	folder := filepath.Join(home.Path(), "outputs", fmt.Sprint(r.ID), "deep")
	ok(t, os.MkdirAll(folder, 0o700))
	ok(t, os.WriteFile(filepath.Join(folder, "w.bin"), content, 0o600))
	ok(t, os.WriteFile(filepath.Join(folder, ".w.bin.part"), content, 0o600))
	way := &breaks{name: "put-file", n: 2} // asks how much is there, and sends 8 MiB
	to := transfer.NewRemote(&http.Client{Transport: way}, s.URL, s.tokens["writer"])
	to.Patience = 0
	if err := copyTo(t, home, r, to); err == nil {
		t.Error("it was not broken off")
	}
	way.n, way.sent = 100, 0
	ok(t, copyTo(t, home, r, to))
	if way.sent > 13<<20 {
		t.Errorf("%d bytes were sent again", way.sent)
	}
	there := filepath.Join(s.home, "outputs", "1", "deep")
	if got, err := os.ReadFile(filepath.Join(there, "w.bin")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("there are %d bytes, %v", len(got), err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.home, "incoming", "*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if _, err := os.Stat(filepath.Join(there, ".w.bin.part")); err == nil {
		t.Error("a part of a file that is being written was copied")
	}
	for _, c := range []struct{ name, sum, says string }{
		{"outputs/x", strings.Repeat("a", 64), "does not have its SHA-256"}, {"outputs/x", "../../x", "is no SHA-256"}, {"outputs/../../x", strings.Repeat("a", 64), "is no path of a file"},
		{"artifacts/x", strings.Repeat("a", 64), "has no place for the file"}, {"models/m/x", strings.Repeat("a", 64), "has no place for the file"},
	} {
		_, err := transfer.PutFile(t.Context(), s.as(t, "writer"), transfer.FilePart{UID: r.UID, File: transfer.File{Name: c.name, Bytes: 3, SHA256: c.sum}, Data: []byte("abc")})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v", c.name, c.sum, err)
		}
	}
	part := transfer.FilePart{UID: r.UID, File: transfer.File{Name: "outputs/y", Bytes: 3, SHA256: strings.Repeat("b", 64)}, Data: []byte("abc")}
	if _, err := transfer.PutFile(t.Context(), s.as(t, "reader"), part); err == nil || !strings.Contains(err.Error(), "reader may not write") {
		t.Errorf("a reader: %v", err)
	}
	if _, err := transfer.Files(t.Context(), s.as(t, "vision"), transfer.FilesOf{UID: r.UID}); err == nil || !strings.Contains(err.Error(), "vision may not read") {
		t.Errorf("somebody of another project: %v", err)
	}
}

// A run that was removed for good says so to whoever sends it, also while it goes on.
func TestRemovedForGood(t *testing.T) {
	s := newTeam(t)
	home, r, _ := run(t, "", 3)
	ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Done}}))
	ok(t, copyTo(t, home, r, s.as(t, "writer")))
	db, err := history.Open(s.home)
	ok(t, err)
	defer db.Close()
	db.Who = "eve"
	id, err := db.Known(r.UID)
	ok(t, err)
	ok(t, db.Trash([]int64{id}))
	_, err = db.Purge(id, func() (bool, error) { return false, nil })
	ok(t, err)
	gone := (*history.Gone)(nil)
	if err := copyTo(t, home, r, s.as(t, "writer")); !errors.As(err, &gone) || gone.By != "eve" || gone.Name != r.Name || gone.At == "" {
		t.Errorf("it says %v", err)
	}
	if n := s.points(t, r.UID); n != 0 {
		t.Errorf("%d points have come back", n)
	}
	told := ""
	found := []transfer.Found{{ID: r.ID, UID: r.UID, Name: r.Name}}
	all := transfer.Options{Weights: "all", Quick: true, Say: func(text string) { told += text }}
	_, err = transfer.Copy(transfer.Local(t.Context()), home, s.as(t, "writer"), found, all)
	ok(t, err)
	if !strings.Contains(told, "was removed from the receiving home by eve") {
		t.Errorf("it is told %q", told)
	}
	all.Again = true
	for range 2 { // then it is a run as any other
		_, err = transfer.Copy(transfer.Local(t.Context()), home, s.as(t, "writer"), found, all)
		ok(t, err)
		all.Again = false
	}
	if n := s.points(t, r.UID); n != 3 {
		t.Errorf("%d points have come back", n)
	}
}
