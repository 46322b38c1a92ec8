package mlflow

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"drun/history"
)

// python is the interpreter that make exchange installs MLflow for; a test without it is skipped.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../../bin/exchange/bin/python")
	ok(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Skip("MLflow is not installed: make bin/exchange")
	}
	return path
}

// client runs a Python program with MLflow's client.
func client(t *testing.T, arguments ...string) string {
	t.Helper()
	program := exec.Command(python(t), arguments...)
	program.Env = append(os.Environ(), "MLFLOW_DISABLE_TELEMETRY=true", "DO_NOT_TRACK=true", "GIT_PYTHON_REFRESH=quiet", "MLFLOW_HTTP_REQUEST_MAX_RETRIES=2")
	program.Dir = t.TempDir()
	text, err := program.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return string(text)
}

// MLflow's client of today logs and reads; make mlflow compares what it finds with what MLflow's own store finds.
func TestClient(t *testing.T) {
	python(t)
	s := serve(t, t.TempDir())
	program, err := filepath.Abs("testdata/client.py")
	ok(t, err)
	t.Log(client(t, program, s.url, t.TempDir(), map[bool]string{true: "long"}[os.Getenv("DRUN_TEST_MLFLOW") != ""]))
}

// The example of docs/mlflow.md does what stands there.
func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../../../docs/mlflow.md")
	ok(t, err)
	example := regexp.MustCompile("(?s)```python\n(.*?)```").FindStringSubmatch(string(page))
	python(t)
	s := serve(t, t.TempDir())
	client(t, "-c", strings.Replace(example[1], "http://localhost:7878", s.url, 1))
	id, err := s.db.Find("logistic")
	ok(t, err)
	d, err := s.db.Get(id)
	ok(t, err)
	if d.ProjectName != "digits" || d.Status != history.Done || d.Params["C"] != 0.1 || d.Metrics["training_accuracy_score"].Last < 0.9 {
		t.Errorf("the run is in %q, %s, with %v", d.ProjectName, d.Status, d.Params)
	}
}

// PyTorch Lightning's autologging, where make mlflow has installed it.
func TestLightning(t *testing.T) {
	if os.Getenv("DRUN_TEST_MLFLOW") == "" {
		t.Skip("make mlflow runs this")
	}
	s := serve(t, t.TempDir())
	program, err := filepath.Abs("testdata/lightning_autolog.py")
	ok(t, err)
	torch, err := filepath.Glob("../../../bin/peers/lib/python3*/site-packages")
	ok(t, err)
	for i := range torch {
		torch[i], err = filepath.Abs(torch[i])
		ok(t, err)
	}
	t.Log(client(t, append([]string{program, s.url}, torch...)...))
}

// MLflow's own tests of its client, in the checkout that DRUN_TEST_MLFLOW names: docs/mlflow.md says how many pass.
func TestMLflowsTests(t *testing.T) {
	checkout := os.Getenv("DRUN_TEST_MLFLOW")
	if checkout == "" || checkout == "-" {
		t.Skip("make mlflow SOURCE=CHECKOUT, with a checkout of MLflow, runs its tests")
	}
	// Each test asks for a server of its own, since it looks at all that there is.
	fresh := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(serve(t, t.TempDir()).url)
	}))
	defer fresh.Close()
	plugin, err := filepath.Abs("testdata")
	ok(t, err)
	arguments := []string{"-m", "pytest", "-p", "drun_server", "-q", "--timeout=120", "-o", "addopts=", "-rfE", "--tb=short", "-k", cmp.Or(os.Getenv("DRUN_TEST_MLFLOW_ONLY"), "sqlalchemy"), "tests/tracking/test_rest_tracking.py"}
	program := exec.Command(python(t), arguments...)
	program.Dir = checkout
	program.Env = append(os.Environ(), "PYTHONPATH="+plugin, "DRUN_FRESH="+fresh.URL, "MLFLOW_DISABLE_TELEMETRY=true", "GIT_PYTHON_REFRESH=quiet")
	program.Stdout, program.Stderr = os.Stdout, os.Stderr
	if err := program.Run(); err != nil {
		t.Error(err)
	}
}
