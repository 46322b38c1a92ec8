// Package mlflow answers MLflow's REST API over a history, so that MLflow's clients log runs to it and read from it: theirs and
// those of recipes alike. An experiment is a project, an id of a run its uid. The server of a team (runs/serve) mounts it.
package mlflow

import (
	"database/sql"
	"database/sql/driver"
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

// fail ends a call with an error of a code, refuse with the most frequent one.
func fail(code, format string, args ...any) { try.Ok(&Error{code, fmt.Sprintf(format, args...)}) }

func refuse(format string, args ...any) { fail("INVALID_PARAMETER_VALUE", format, args...) }

func missing(format string, args ...any) { fail("RESOURCE_DOES_NOT_EXIST", format, args...) }

// lacks is the error of a request without a value that it needs.
func lacks(what string) {
	refuse("Missing value for required parameter '%s'. See the API docs for more information about request parameters.", what)
}

// statuses are those that MLflow's server gives with its codes; clients try again after 429 and from 500, but for 501.
var statuses = map[string]int{"INVALID_PARAMETER_VALUE": 400, "BAD_REQUEST": 400, "RESOURCE_ALREADY_EXISTS": 400, "PERMISSION_DENIED": 403, "RESOURCE_DOES_NOT_EXIST": 404,
	"ENDPOINT_NOT_FOUND": 404, "INTERNAL_ERROR": 500, "NOT_IMPLEMENTED": 501, "TEMPORARILY_UNAVAILABLE": 503}

// writeError answers with an error in MLflow's form.
func writeError(w http.ResponseWriter, err error) {
	e := &Error{"INTERNAL_ERROR", err.Error()}
	switch {
	case errors.As(err, &e):
	case access.IsDenied(err):
		e.Code = "PERMISSION_DENIED"
	case sqldb.IsLocked(err), errors.As(err, new(*objects.Unavailable)):
		e.Code = "TEMPORARILY_UNAVAILABLE"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(statuses[e.Code])
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

type (
	object  = map[string]any
	nothing struct{}
)

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
	"registered-models": "model registry", "model-versions": "model registry", "traces": "traces", "get-online-trace-details": "traces", "unified-traces": "traces",
	"scorers": "scorers", "datasets": "evaluation data sets", "webhooks": "webhooks", "gateway": "gateway", "workspaces": "workspaces", "prompt-optimization": "prompts",
	"jobs": "jobs", "issues": "issues", "label-schemas": "label schemas", "review-queues": "review queues", "assessments": "assessments",
}

// ServeHTTP answers paths that begin with one of Prefixes.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// answer carries out an endpoint.
func (h *Handler) answer(fn endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := func() (text []byte, err error) {
			defer try.Caught(&err)
			if result := fn(&call{h, w, r, access.Of(r.Context())}); result != nil {
				text, err = records.Marshal(result)
			}
			return text, err
		}()
		if err != nil {
			writeError(w, err)
		} else if text != nil {
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
		for _, version := range Prefixes[:4] {
			for _, path := range []string{version + first, version + first + "/"} {
				mux.HandleFunc(path, h.answer(func(*call) any {
					fail("NOT_IMPLEMENTED", "drun serve has no %s: its MLflow API is about experiments, runs, artifacts and logged models", what)
					return nil
				}))
			}
		}
	}
	const artifacts = "/api/2.0/mlflow-artifacts/artifacts"
	mux.HandleFunc("GET "+artifacts, h.answer(takes(listArtifacts)))
	mux.HandleFunc("GET "+artifacts+"/{path...}", h.answer(getArtifact))
	mux.HandleFunc("PUT "+artifacts+"/{path...}", h.answer(putArtifact))
	mux.HandleFunc("DELETE "+artifacts+"/{path...}", h.answer(deleteArtifact))
	mux.HandleFunc("/", h.answer(func(c *call) any {
		fail("ENDPOINT_NOT_FOUND", "there is no %s %s", c.r.Method, c.r.URL.Path)
		return nil
	}))
	return mux
}

// mostBody is how many bytes a request may have, but for artifacts.
const mostBody = 20 << 20

// decode reads the parameters of a request into a struct: those in its path, and in its query or its JSON. A parameter may have a
// former name (the tag or). One that lacks a value although its field has the tag need, or has one of another type, is an error that
// names it.
func (c *call) decode(into any) {
	given := map[string]json.RawMessage{}
	query := c.r.URL.Query()
	if c.r.Method != http.MethodGet {
		query = nil
		text, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, mostBody))
		if err != nil {
			fail("BAD_REQUEST", "the request could not be read: %v", err)
		}
		if err := json.Unmarshal(text, &given); err != nil && len(text) > 0 {
			fail("BAD_REQUEST", "the request is not a JSON object: %v", err)
		}
	}
	v := reflect.ValueOf(into).Elem()
	value := func(name string, field any) json.RawMessage {
		if text := c.r.PathValue(name); text != "" {
			return quote(text)
		}
		if values := query[name]; len(values) > 0 {
			switch field.(type) {
			case []string:
				return json.RawMessage(sqldb.JSON(values))
			case bool:
				return json.RawMessage(values[0])
			}
			return quote(values[0])
		}
		if raw := given[name]; string(raw) != "null" {
			return raw
		}
		return nil
	}
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Anonymous {
			continue
		}
		field, name := v.FieldByIndex(f.Index), f.Tag.Get("json")
		raw := value(name, field.Interface())
		if raw == nil {
			raw = value(f.Tag.Get("or"), field.Interface())
		}
		if _, must := f.Tag.Lookup("need"); raw == nil && must {
			lacks(name)
		}
		if raw == nil {
			continue
		}
		if err := json.Unmarshal(raw, field.Addr().Interface()); err != nil {
			refuse("Invalid value %.500s for parameter '%s' supplied: %v", raw, name, err)
		}
	}
}

func quote(text string) json.RawMessage {
	raw, _ := json.Marshal(text)
	return raw
}

// whole and float are numbers that JSON may have as texts, such as "NaN".
type (
	whole int64
	float float64
)

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
	if text == "" {
		return otherwise
	}
	if !slices.Contains(names, text) {
		refuse("Invalid value %.100s for parameter '%s' supplied: want one of %s", raw, name, strings.Join(names, ", "))
	}
	return text
}

// pair is a tag or a parameter.
type pair struct {
	Key   string `json:"key" need:""`
	Value string `json:"value"`
}

// labels are texts by key: tags, and a model's parameters. A request and an answer have them as a list of pairs, a column as an
// object.
type labels map[string]string

func (l labels) pairs() []pair {
	list := []pair{}
	for key, value := range l {
		list = append(list, pair{key, value})
	}
	slices.SortFunc(list, func(a, b pair) int { return strings.Compare(a.Key, b.Key) })
	return list
}

func (l labels) MarshalJSON() ([]byte, error) { return records.Marshal(l.pairs()) }

func (l *labels) UnmarshalJSON(text []byte) error {
	var list []pair
	err := json.Unmarshal(text, &list)
	*l = labels{}
	for _, p := range list {
		(*l)[p.Key] = p.Value
	}
	return err
}

func (l *labels) Scan(value any) error {
	text, _ := value.(string)
	return json.Unmarshal([]byte(text), (*map[string]string)(l))
}

func (l labels) Value() (driver.Value, error) {
	text, err := json.Marshal(map[string]string(l))
	if l == nil {
		text = []byte("{}")
	}
	return string(text), err
}

// update writes in a transaction.
func (c *call) update(fn func(tx *sql.Tx)) {
	try.Ok(c.write.Update(func(tx *sql.Tx) (err error) {
		defer try.Caught(&err)
		fn(tx)
		return nil
	}))
}

// reader is the history for queries.
func (c *call) reader() sqldb.Queryer { return c.read.Reader() }

// one reads a row of a transaction, or of the history; false: there is none.
func one(from sqldb.Queryer, into []any, query string, args ...any) (found bool) {
	try.Ok(sqldb.Each(from, func(rows *sql.Rows) error { found = true; return rows.Scan(into...) }, query, args...))
	return found
}

// pages are the part of a list that a request asks for.
type pages struct {
	Most  whole  `json:"max_results"`
	Token string `json:"page_token"`
}

// part is where the part begins, and how much it has at most; otherwise: how much if the request does not say.
func (p *pages) part(otherwise, most int) (from, upTo int) {
	from, err := strconv.Atoi("0" + p.Token)
	switch {
	case err != nil:
		refuse("Invalid page token: %.100q", p.Token)
	case p.Most == 0:
		return from, otherwise
	case p.Most < 0 || int(p.Most) > most:
		refuse("Invalid value %d for parameter 'max_results' supplied: It must be a positive integer no greater than %d", p.Most, most)
	}
	return from, int(p.Most)
}

// page answers with a list of which one element more than the most was looked for, and with the token of what follows.
func page[T any](name string, found []T, from, most int) object {
	out := object{name: found[:min(most, len(found))]}
	if len(found) > most {
		out["next_page_token"] = strconv.Itoa(from + most)
	}
	return out
}
