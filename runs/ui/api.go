package ui

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/history"
	"drun/history/query"
	"drun/history/records"
	"drun/internal/exit"
	"drun/runs/report"
)

// answer computes the answer to a request, a value that is sent as JSON.
type answer func(db *history.DB, r *http.Request) (any, error)

// apiPath is the path of this version of the API.
const apiPath = "/api/v1/"

// routes adds the requests of the API; docs/ui.md describes them.
func (s *Server) routes(mux *http.ServeMux) {
	for path, a := range map[string]answer{
		"runs":                    s.runs,
		"names":                   names,
		"compare":                 compare,
		"curves":                  s.curves,
		"runs/{run}":              withRun(func(db *history.DB, id int64, _ url.Values) (any, error) { return db.Get(id) }),
		"runs/{run}/metrics":      withRun(metrics),
		"runs/{run}/logs":         withRun(logs),
		"runs/{run}/sources":      withRun(sources),
		"runs/{run}/sources/diff": withRun(sourceDiff),
		"runs/{run}/usage":        withRun(func(db *history.DB, id int64, _ url.Values) (any, error) { return db.Usage(id) }),
		"runs/{run}/checkpoints":  withRun(s.kept),
		"runs/{run}/histograms":   withRun(histogramsOf),
		"runs/{run}/artifacts":    withRun(func(db *history.DB, id int64, _ url.Values) (any, error) { return db.Artifacts(id) }),
	} {
		mux.Handle("GET "+apiPath+path, bounded(s.busy, func(w http.ResponseWriter, r *http.Request) error {
			db, err := s.history()
			var v any
			if err == nil {
				v, err = a(db, r)
			} else if none[path] != nil && errors.As(err, new(*history.ErrNone)) {
				v, err = none[path], nil // nothing has been run yet
			}
			if err != nil {
				return err
			}
			return answerJSON(w, v)
		}))
	}
	mux.Handle("GET "+apiPath+"runs/{run}/ranks", answers(s.ranks))
	mux.Handle("GET "+apiPath+"runs/{run}/checkpoints/{step}/safetensors", bounded(s.sends, s.safetensors))
	mux.Handle("GET "+apiPath+"runs/{run}/artifacts/{sha256}", bounded(s.sends, s.artifact))
	mux.Handle("GET "+apiPath+"events", answers(s.follow))
	mux.Handle("GET "+apiPath+"runs/{run}/events", answers(s.tell))
	mux.HandleFunc("GET /api/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, exit.WithHint(fmt.Errorf("there is no %s", r.URL.Path), "requests begin with "+apiPath+"; docs/ui.md lists them"))
	})
}

// takes lists the parameters of each request.
var takes = map[string][]string{
	"runs":                    {"where", "tag", "sort", "columns", "group", "trash", "limit", "offset"},
	"names":                   {"recent"},
	"compare":                 {"run"},
	"curves":                  {"run", "metric", "x", "points", "from", "to", "smooth", "group"},
	"runs/{run}":              {},
	"runs/{run}/metrics":      {"name", "points", "attempt", "lineage"},
	"runs/{run}/logs":         {"rank", "grep", "limit", "after"},
	"runs/{run}/sources":      {},
	"runs/{run}/sources/diff": {"with"},
	"runs/{run}/histograms":   {"name", "points"},
	"runs/{run}/usage":        {},
	"runs/{run}/ranks":        {},
	"runs/{run}/checkpoints":  {},
	"runs/{run}/events":       {"metric", "seen", "x", "points", "smooth", "show", "calls", "rank", "grep", "limit", "after"},
	"runs/{run}/checkpoints/{step}/safetensors": {"rank"},
	"runs/{run}/artifacts":                      {},
	"runs/{run}/artifacts/{sha256}":             {},
	"events":                                    {},
}

// check refuses parameters that a request does not take: the answer would not be what was asked for.
func check(r *http.Request) error {
	values, err := parameters(r)
	if err != nil {
		return err
	}
	request := strings.TrimPrefix(r.Pattern, "GET "+apiPath)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if all := takes[request]; !slices.Contains(all, name) {
			hint := "it takes none"
			if len(all) > 0 {
				hint = "it takes " + strings.Join(all, ", ")
			}
			return exit.WithHint(exit.Errorf(exit.Usage, "%s takes no parameter %q", request, name), hint)
		}
	}
	return nil
}

// none has the answers if there is no history.
var none = map[string]any{
	"runs":  &listing{Runs: []any{}, Notes: []string{}},
	"names": &known{Fields: query.Fields(), Params: []string{}, Metrics: []string{}, Metric: query.MetricValues(), RecentParams: []string{}, RecentMetrics: []string{}},
}

func answerJSON(w http.ResponseWriter, v any) error {
	var out bytes.Buffer // buffered, so that an encoding error sends no partial answer
	if err := report.JSON(&out, v, ""); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(out.Bytes())
	return nil
}

// bounded limits how many requests of a kind are answered at a time, since they take memory.
func bounded(slots chan struct{}, fn func(http.ResponseWriter, *http.Request) error) http.Handler {
	next := answers(fn)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-r.Context().Done():
			return
		case <-time.After(answerWithin):
			err := exit.WithHint(&tooMany{"the server answers other requests"}, "try again")
			fail(w, statusOf(err), err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answers sends fn's error as the answer; a panic counts as an error.
func answers(fn func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				fail(w, http.StatusInternalServerError, fmt.Errorf("a fault of drun: %v\n%s", p, debug.Stack()))
			}
		}()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWithin))
		err := check(r)
		if err == nil {
			err = fn(w, r)
		}
		if err != nil {
			fail(w, statusOf(err), err)
		}
	})
}

// withRun finds the run that the path names.
func withRun(fn func(db *history.DB, id int64, values url.Values) (any, error)) answer {
	return func(db *history.DB, r *http.Request) (any, error) {
		id, err := db.Find(r.PathValue("run"))
		if err != nil {
			return nil, err
		}
		values, err := parameters(r)
		if err != nil {
			return nil, err
		}
		return fn(db, id, values)
	}
}

// find returns the run that a request names, and the history that has it.
func (s *Server) find(r *http.Request) (*history.DB, int64, error) {
	db, err := s.history()
	if err != nil {
		return nil, 0, err
	}
	id, err := db.Find(r.PathValue("run"))
	return db, id, err
}

func parameters(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "the address: %v", err)
	}
	return values, nil
}

// number parses a parameter that is a whole number from least to most.
func number(values url.Values, name string, otherwise, least, most int64) (int64, error) {
	text := values.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, exit.Errorf(exit.Usage, "%s=%s: want a whole number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// maxRuns is how many runs one request may name.
const maxRuns = 500

func findRuns(db *history.DB, values url.Values) ([]int64, error) {
	refs := values["run"]
	if len(refs) == 0 || len(refs) > maxRuns {
		return nil, exit.Errorf(exit.Usage, "want 1 to %d runs, as run=ID&run=ID", maxRuns)
	}
	return report.Find(refs, db.Find)
}

// listing is a part of the selected runs.
type listing struct {
	Runs  any      `json:"runs"`
	Total int      `json:"total"` // of selected runs
	Notes []string `json:"notes"` // names that no run has

	Groups []*group `json:"groups,omitempty"` // of all selected runs, which are in group order
}

// chosen remembers the latest selection of runs, of which a page shows one part after another.
type chosen struct {
	by    string
	at    history.Stamp
	taken time.Time
	listing
	ids []int64
}

func (s *Server) runs(db *history.DB, r *http.Request) (any, error) {
	values, err := parameters(r)
	if err != nil {
		return nil, err
	}
	limit, err := number(values, "limit", 20, 1, 1_000_000)
	if err != nil {
		return nil, err
	}
	offset, err := number(values, "offset", 0, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	columns := []*query.Expr(nil)
	if text := values.Get("columns"); text != "" {
		if columns, err = query.ParseList("columns", text); err != nil {
			return nil, err
		}
	}
	all, err := s.choose(db, values, columns)
	if err != nil {
		return nil, err
	}
	list, ids := &all.listing, all.ids
	ids = ids[min(offset, int64(len(ids))):]
	ids = ids[:min(limit, int64(len(ids)))]
	if columns != nil {
		list.Runs, err = query.Table(db, ids, columns)
	} else {
		list.Runs, err = db.Summaries(ids)
	}
	return list, err
}

// choose selects the runs that a request asks for, and divides them into groups.
func (s *Server) choose(db *history.DB, values url.Values, columns []*query.Expr) (chosen, error) {
	by := url.Values{"where": values["where"], "tag": values["tag"], "sort": values["sort"], "trash": values["trash"], "group": values["group"]}
	grouped, err := grouping(values)
	if err != nil {
		return chosen{}, err
	}
	if grouped != nil {
		by["columns"] = values["columns"]
	}
	now, taken := history.StampOf(s.home), time.Now()
	s.mu.Lock()
	latest := s.chosen
	s.mu.Unlock()
	if latest.by == by.Encode() && latest.at == now && now.Settled(latest.taken) && taken.Sub(latest.taken) < time.Minute {
		return latest, nil
	}
	where, keys, err := query.ParseSelection("", values["where"], values["tag"], values["sort"])
	if err != nil {
		return chosen{}, err
	}
	if grouped != nil {
		keys = append([]query.Key{{Expr: grouped}}, keys...)
	}
	found := chosen{by: by.Encode(), at: now, taken: taken}
	if found.ids, found.Notes, err = query.Choose(db, values.Get("trash") != "", where, keys); err != nil {
		return chosen{}, err
	}
	if found.Notes == nil {
		found.Notes = []string{}
	}
	if grouped != nil {
		if found.Groups, err = groups(db, found.ids, grouped, columns); err != nil {
			return chosen{}, err
		}
		found.ids = nil // values that sort as equal, such as 1 and True, are separate groups
		for _, g := range found.Groups {
			found.ids = append(found.ids, g.IDs...)
		}
	}
	found.Total = len(found.ids)
	s.mu.Lock()
	s.chosen = found
	s.mu.Unlock()
	return found, nil
}

// known lists the names that expressions may use, and those that the newest runs have; with recent=1 only the
// latter, which is fast for a history of any size.
type known struct {
	Fields        []string `json:"fields"`
	Params        []string `json:"params"`
	Metrics       []string `json:"metrics"`
	Metric        []string `json:"metric"`        // the values of each metric
	RecentParams  []string `json:"recent_params"` // of those common among the newest runs; those that differ come first
	RecentMetrics []string `json:"recent_metrics"`
}

func names(db *history.DB, r *http.Request) (any, error) {
	return namesOf(db, r.URL.Query().Get("recent") == "", 4)
}

// newestRuns is how many of the newest runs stand for all in listing names.
const newestRuns = 20

// namesOf lists the names; of the newest runs, only the common ones.
func namesOf(db *history.DB, all bool, share int) (*known, error) {
	k := &known{Fields: query.Fields(), Params: []string{}, Metrics: []string{}, Metric: query.MetricValues()}
	var err error
	if all {
		if k.Params, err = db.ParamNames(); err != nil {
			return nil, err
		}
		if k.Metrics, err = db.MetricNames(); err != nil {
			return nil, err
		}
	}
	newest, err := db.List(newestRuns)
	params, metrics := map[string]int{}, map[string]int{}
	for _, r := range newest {
		for name := range r.Params {
			params[name]++
		}
		for name := range r.Metrics {
			metrics[name]++
		}
	}
	k.RecentParams, k.RecentMetrics = paramsOf(newest, common(params, share)), common(metrics, share)
	return k, err
}

// common lists names that at least one share-th as many runs have as the most common one: in a table of runs of
// many recipes, the column for a rarer one would be mostly empty.
func common(counts map[string]int, share int) []string {
	most := 0
	for _, n := range counts {
		most = max(most, n)
	}
	names := []string{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if share*counts[name] >= most {
			names = append(names, name)
		}
	}
	return names
}

// paramsOf sorts names of parameters: first those to which runs of one recipe were given different values, so that
// a table with room for a few tells the runs apart.
func paramsOf(runs []history.Summary, names []string) []string {
	type of struct{ recipe, name string }
	values, differ := map[of]string{}, map[string]bool{}
	for _, r := range runs {
		for name, v := range r.Params {
			k, text := of{r.Recipe, name}, fmt.Sprintf("%T %v", v, v)
			was, seen := values[k]
			values[k], differ[name] = text, differ[name] || seen && was != text
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		if differ[a] == differ[b] {
			return 0
		}
		if differ[a] {
			return -1
		}
		return 1
	})
	return names
}

func compare(db *history.DB, r *http.Request) (any, error) {
	values, err := parameters(r)
	if err != nil {
		return nil, err
	}
	ids, err := findRuns(db, values)
	if err != nil {
		return nil, err
	}
	return report.Compare(db, ids)
}

func metrics(db *history.DB, id int64, values url.Values) (any, error) {
	most, err := number(values, "points", 0, history.MinDownsample, 1_000_000_000)
	if err != nil {
		return nil, err
	}
	attempt, err := number(values, "attempt", -1, 0, 1<<31)
	if err != nil {
		return nil, err
	}
	var list []records.Point
	switch names := values["name"]; {
	case values.Get("lineage") != "":
		list, err = db.LineagePoints(id, names...)
	case attempt >= 0:
		list, err = db.AttemptPoints(id, int(attempt), names...)
	default:
		list, err = db.Points(id, names...)
	}
	if most > 0 {
		list = history.Downsample(list, int(most))
	}
	return list, err
}

// logTail is the end of a run's output.
type logTail struct {
	Lines   []history.LogLine `json:"lines"`
	Last    int64             `json:"last"`    // to pass as after, to get what follows
	Skipped int64             `json:"skipped"` // number of earlier lines that the filter matches
}

func logFilter(values url.Values) (f history.LogFilter, err error) {
	if f.After, err = number(values, "after", 0, 0, 1<<62); err != nil {
		return f, err
	}
	if values.Get("rank") != "" {
		rank, err := number(values, "rank", 0, -1, 1<<31)
		if err != nil {
			return f, err
		}
		whole := int(rank)
		f.Rank = &whole
	}
	if text := values.Get("grep"); text != "" {
		if f.Grep, err = regexp.Compile(text); err != nil {
			return f, exit.WithHint(exit.Errorf(exit.Usage, "the filter: %v", err), "the syntax is RE2's, as in Go")
		}
	}
	return f, nil
}

func logs(db *history.DB, id int64, values url.Values) (any, error) {
	limit, err := number(values, "limit", 1000, 1, 100_000)
	if err != nil {
		return nil, err
	}
	f, err := logFilter(values)
	if err != nil {
		return nil, err
	}
	tail := &logTail{Lines: []history.LogLine{}}
	tail.Last, err = db.Logs(id, f, func(l history.LogLine) error {
		if tail.Lines = append(tail.Lines, l); int64(len(tail.Lines)) >= 2*limit {
			n := copy(tail.Lines, tail.Lines[limit:])
			tail.Lines, tail.Skipped = tail.Lines[:n], tail.Skipped+limit
		}
		return nil
	})
	if more := int64(len(tail.Lines)) - limit; more > 0 {
		tail.Lines, tail.Skipped = tail.Lines[more:], tail.Skipped+more
	}
	return tail, err
}

func sources(db *history.DB, id int64, _ url.Values) (any, error) {
	list, err := db.Sources(id)
	return report.Files(list), err
}

func sourceDiff(db *history.DB, id int64, values url.Values) (any, error) {
	other, err := db.Find(values.Get("with"))
	if err != nil {
		return nil, err
	}
	text, err := report.SourceDiff(db, id, other)
	return map[string]string{"diff": text}, err
}

func (s *Server) kept(db *history.DB, id int64, _ url.Values) (any, error) {
	store, err := s.checkpoints()
	if err != nil {
		return nil, err
	}
	return report.Checkpoints(db, store, strconv.FormatInt(id, 10))
}
