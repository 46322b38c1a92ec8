// Package mlflow answers MLflow's REST API over a history, so that MLflow's clients log runs to it and read from it: theirs and
// those of recipes alike. An experiment is a project, an id of a run its uid. The server of a team (runs/serve) mounts it.
package mlflow

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"drun/history"
	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
	"drun/runs/serve/objects"
)

// Handler answers requests whose users runs/serve/access knows.
type Handler struct {
	read, write *history.DB
	files       objects.Store
	mux         *http.ServeMux

	mu     sync.Mutex // held while points are written
	recent map[int64]*history.Recent
}

// New makes a handler of a history that is open for reading and for writing; files keeps the artifacts.
func New(read, write *history.DB, files objects.Store) *Handler {
	h := &Handler{read: read, write: write, files: files, recent: map[int64]*history.Recent{}}
	h.mux = h.routes()
	return h
}

// Prefixes are the paths that the handler answers.
var Prefixes = []string{"/api/2.0/mlflow/", "/api/3.0/mlflow/", "/ajax-api/2.0/mlflow/", "/ajax-api/3.0/mlflow/", "/api/2.0/mlflow-artifacts/"}

// Error is an error as MLflow's clients read it.
type Error struct {
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

func errorf(code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return errorf("INVALID_PARAMETER_VALUE", format, args...)
}

func missing(format string, args ...any) error {
	return errorf("RESOURCE_DOES_NOT_EXIST", format, args...)
}

// statuses are those that MLflow's server gives with its codes; clients try again after 429 and from 500, but for 501.
var statuses = map[string]int{"INVALID_PARAMETER_VALUE": 400, "BAD_REQUEST": 400, "RESOURCE_ALREADY_EXISTS": 400, "PERMISSION_DENIED": 403,
	"UNAUTHENTICATED": 401, "RESOURCE_DOES_NOT_EXIST": 404, "ENDPOINT_NOT_FOUND": 404, "NOT_IMPLEMENTED": 501, "TEMPORARILY_UNAVAILABLE": 503}

// WriteError answers with an error in MLflow's form.
func WriteError(w http.ResponseWriter, err error) {
	e := &Error{"INTERNAL_ERROR", err.Error()}
	switch {
	case errors.As(err, &e):
	case access.IsDenied(err):
		e.Code = "PERMISSION_DENIED"
	case sqldb.IsLocked(err), errors.As(err, new(*objects.Unavailable)):
		e.Code = "TEMPORARILY_UNAVAILABLE"
	}
	status := statuses[e.Code]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(e)
}

// call is a request on its way.
type call struct {
	*Handler
	w    http.ResponseWriter
	r    *http.Request
	user *access.User
}

// endpoint answers a call with what becomes JSON; nil: it has answered itself.
type endpoint func(*call) any

// takes makes an endpoint of a function with the request's parameters.
func takes[T any](fn func(*call, *T) any) endpoint {
	return func(c *call) any {
		var in T
		c.decode(&in)
		return fn(c, &in)
	}
}

type nothing struct{}

var endpoints = map[string]endpoint{
	"POST experiments/create":                            takes(createExperiment),
	"GET experiments/get":                                takes(getExperiment),
	"GET experiments/get-by-name":                        takes(getExperimentByName),
	"GET experiments/search":                             takes(searchExperiments),
	"POST experiments/search":                            takes(searchExperiments),
	"POST experiments/delete":                            takes(deleteExperiment),
	"POST experiments/restore":                           takes(restoreExperiment),
	"POST experiments/update":                            takes(updateExperiment),
	"POST experiments/set-experiment-tag":                takes(setExperimentTag),
	"POST experiments/delete-experiment-tag":             takes(deleteExperimentTag),
	"POST experiments/search-datasets":                   takes(searchDatasets),
	"POST runs/create":                                   takes(createRun),
	"GET runs/get":                                       takes(getRun),
	"POST runs/update":                                   takes(updateRun),
	"POST runs/delete":                                   takes(deleteRun),
	"POST runs/restore":                                  takes(restoreRun),
	"POST runs/search":                                   takes(searchRuns),
	"POST runs/log-metric":                               takes(logMetric),
	"POST runs/log-batch":                                takes(logBatch),
	"POST runs/log-parameter":                            takes(logParameter),
	"POST runs/set-tag":                                  takes(setTag),
	"POST runs/delete-tag":                               takes(deleteTag),
	"POST runs/log-inputs":                               takes(logInputs),
	"POST runs/outputs":                                  takes(logOutputs),
	"POST runs/log-model":                                takes(logModel),
	"GET metrics/get-history":                            takes(getHistory),
	"GET metrics/get-history-bulk-interval":              takes(getHistoryBulkInterval),
	"GET artifacts/list":                                 takes(listRunArtifacts),
	"POST logged-models":                                 takes(createModel),
	"POST logged-models/search":                          takes(searchModels),
	"GET logged-models/{model_id}":                       takes(getModel),
	"PATCH logged-models/{model_id}":                     takes(finalizeModel),
	"DELETE logged-models/{model_id}":                    takes(deleteModel),
	"PATCH logged-models/{model_id}/tags":                takes(setModelTags),
	"POST logged-models/{model_id}/params":               takes(logModelParams),
	"GET logged-models/{model_id}/artifacts/directories": takes(listModelArtifacts),
	"DELETE logged-models/{model_id}/tags/{tag_key}":     takes(deleteModelTag),
}

// elsewhere are what MLflow's own server has and this one has not, by the beginnings of their paths.
var elsewhere = map[string]string{
	"registered-models": "a model registry", "model-versions": "a model registry", "traces": "traces", "get-online-trace-details": "traces", "unified-traces": "traces",
	"scorers": "scorers", "datasets": "evaluation data sets", "webhooks": "webhooks", "gateway": "a gateway", "workspaces": "workspaces", "prompt-optimization": "prompts",
	"jobs": "jobs", "issues": "issues", "label-schemas": "label schemas", "review-queues": "review queues", "assessments": "assessments",
}

// ServeHTTP answers paths that begin with one of Prefixes.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// answer carries out an endpoint.
func (h *Handler) answer(fn endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{h, w, r, access.Of(r.Context())}
		result, err := func() (result any, err error) {
			defer try.Caught(&err)
			return fn(c), nil
		}()
		switch {
		case err != nil:
			WriteError(w, err)
		case result != nil:
			text, err := records.Marshal(result)
			if err != nil {
				WriteError(w, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text)
		}
	}
}

// routes are the endpoints, with the methods and paths of MLflow's.
func (h *Handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, fn := range endpoints {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /api/2.0/mlflow/"+path, h.answer(fn))
		mux.HandleFunc(method+" /ajax-api/2.0/mlflow/"+path, h.answer(fn))
	}
	for first, what := range elsewhere {
		refuse := h.answer(func(*call) any {
			try.Ok(errorf("NOT_IMPLEMENTED", "drun serve has no %s: its MLflow API is about experiments, runs, artifacts and logged models", strings.TrimPrefix(what, "a ")))
			return nil
		})
		for _, version := range Prefixes[:4] {
			mux.HandleFunc(version+first, refuse)
			mux.HandleFunc(version+first+"/", refuse)
		}
	}
	const artifacts = "/api/2.0/mlflow-artifacts/artifacts"
	mux.HandleFunc("GET "+artifacts, h.answer(takes(listArtifacts)))
	mux.HandleFunc("GET "+artifacts+"/{path...}", h.answer(getArtifact))
	mux.HandleFunc("PUT "+artifacts+"/{path...}", h.answer(putArtifact))
	mux.HandleFunc("DELETE "+artifacts+"/{path...}", h.answer(deleteArtifact))
	mux.HandleFunc("/", h.answer(func(c *call) any {
		try.Ok(errorf("ENDPOINT_NOT_FOUND", "there is no %s %s", c.r.Method, c.r.URL.Path))
		return nil
	}))
	return mux
}

// mostBody is how many bytes a request may have, but for artifacts.
const mostBody = 20 << 20

// decode reads the parameters of a request into a struct: those in its path, and in its query or its JSON. A parameter that lacks
// a value although its field has the tag need, or has one of another type, is an error that names it.
func (c *call) decode(into any) {
	given := map[string]json.RawMessage{}
	query := c.r.URL.Query()
	if c.r.Method != http.MethodGet {
		text, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, mostBody))
		if err != nil {
			try.Ok(errorf("BAD_REQUEST", "the request could not be read: %v", err))
		}
		if len(text) > 0 {
			if err := json.Unmarshal(text, &given); err != nil {
				try.Ok(errorf("BAD_REQUEST", "the request is not a JSON object: %v", err))
			}
		}
	}
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		field, name := v.Field(i), v.Type().Field(i).Tag.Get("json")
		raw := given[name]
		if value := c.r.PathValue(name); value != "" {
			raw = quote(value)
		} else if values := query[name]; c.r.Method == http.MethodGet && len(values) > 0 {
			switch field.Interface().(type) {
			case []string:
				raw, _ = json.Marshal(values)
			case bool:
				raw = json.RawMessage(values[0])
			default:
				raw = quote(values[0])
			}
		}
		if raw == nil || string(raw) == "null" {
			if _, must := v.Type().Field(i).Tag.Lookup("need"); must {
				try.Ok(invalid("Missing value for required parameter '%s'. See the API docs for more information about request parameters.", name))
			}
			continue
		}
		if err := json.Unmarshal(raw, field.Addr().Interface()); err != nil {
			if e := (*Error)(nil); errors.As(err, &e) {
				try.Ok(err)
			}
			try.Ok(invalid("Invalid value %.500s for parameter '%s' supplied: %v", raw, name, err))
		}
	}
}

func quote(text string) json.RawMessage {
	raw, _ := json.Marshal(text)
	return raw
}

// whole is a number that JSON may have as a text.
type whole int64

func (n *whole) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 64)
	if f, failed := strconv.ParseFloat(strings.Trim(string(text), `"`), 64); err != nil && failed == nil && f == float64(int64(f)) {
		v, err = int64(f), nil // 3.0
	}
	if err != nil {
		return errors.New("want a whole number")
	}
	*n = whole(v)
	return nil
}

// float is a number that JSON may have as a text, such as "NaN".
type float float64

func (f *float) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return errors.New("want a number")
	}
	*f = float(v)
	return nil
}

// enum is one of several names, which may be given by its number.
func enum(raw json.RawMessage, name, otherwise string, names ...string) string {
	text := strings.Trim(string(raw), `"`)
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= len(names) {
		return names[n-1]
	}
	switch {
	case text == "" || text == "null":
		return otherwise
	case !slices.Contains(names, text):
		try.Ok(invalid("Invalid value %.100s for parameter '%s' supplied: want one of %s", raw, name, strings.Join(names, ", ")))
	}
	return text
}

// pair is a tag or a parameter.
type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// update writes in a transaction.
func (c *call) update(fn func(tx *sql.Tx)) {
	try.Ok(c.write.Update(func(tx *sql.Tx) (err error) {
		defer try.Caught(&err)
		fn(tx)
		return nil
	}))
}

// one reads a row of a transaction, or of the history; false: there is none.
func one(from sqldb.Queryer, into []any, query string, args ...any) (found bool) {
	try.Ok(sqldb.Each(from, func(rows *sql.Rows) error { found = true; return rows.Scan(into...) }, query, args...))
	return found
}

// page is the part of a list that a request asks for by a token; next is "" after the last.
func offset(token string) int {
	if token == "" {
		return 0
	}
	n, err := strconv.Atoi(token)
	if err != nil || n < 0 {
		try.Ok(invalid("Invalid page token: %.100q", token))
	}
	return n
}

// limited checks how many results a request asks for; 0: it does not say.
func limited(n whole, otherwise, most int) int {
	switch {
	case n == 0:
		return otherwise
	case n < 0 || int(n) > most:
		try.Ok(invalid("Invalid value %d for parameter 'max_results' supplied: It must be a positive integer no greater than %d", n, most))
	}
	return int(n)
}
