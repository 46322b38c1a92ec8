package mlflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"drun/history"
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
