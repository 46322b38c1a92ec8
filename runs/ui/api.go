package ui

import (
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
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/report"
	"drun/runs/serve/access"
)

// route is a kind of request. It has either answer or send.
type route struct {
	takes  []string                                                 // its parameters
	answer func(s *Server, db *history.DB, r *request) (any, error) // gives a value that is sent as JSON
	send   func(s *Server, w http.ResponseWriter, r *request) error
	slots  func(s *Server) chan struct{} // limits how many are answered at a time, since they take memory; nil: nothing does
	none   any                           // the answer if there is no history
}

const apiPath = "/api/v1/"

func busy(s *Server) chan struct{}  { return s.busy }
func sends(s *Server) chan struct{} { return s.sends }

// routes are the requests of the API; docs/ui.md describes them.
var routes = map[string]route{
	"runs": {takes: []string{"where", "tag", "sort", "columns", "group", "trash", "limit", "offset"}, answer: (*Server).runs, slots: busy,
		none: &listing{Runs: []any{}, Notes: []string{}}},
	"names": {takes: []string{"recent", "run"}, answer: func(_ *Server, db *history.DB, r *request) (any, error) {
		if r.values.Has("run") {
			return metricsOf(db, try.To(findRuns(db, r.values)))
		}
		return namesOf(db, r.values.Get("recent") == "", 4)
	}, slots: busy,
		none: &known{Fields: query.Fields, Params: []string{}, Metrics: []string{}, Metric: query.MetricValues, RecentParams: []string{}, RecentMetrics: []string{}}},
	"compare":                 {takes: []string{"run"}, answer: compare, slots: busy},
	"curves":                  {takes: []string{"run", "metric", "x", "points", "from", "to", "smooth", "group"}, answer: (*Server).curves, slots: busy},
	"events":                  {send: (*Server).follow},
	"sweeps":                  {answer: sweeps, slots: busy, none: []any{}},
	"pages":                   {answer: (*Server).pages, none: &pages{Views: map[string]string{}}},
	"runs/{run}":              {answer: ofRun(func(db *history.DB, id int64, _ *request) (any, error) { return db.Get(id) }), slots: busy},
	"runs/{run}/metrics":      {takes: []string{"name", "points", "attempt", "lineage"}, answer: ofRun(metrics), slots: busy},
	"runs/{run}/logs":         {takes: []string{"rank", "grep", "limit", "after"}, answer: ofRun(logs), slots: busy},
	"runs/{run}/sources":      {answer: ofRun(sources), slots: busy},
	"runs/{run}/sources/diff": {takes: []string{"with"}, answer: ofRun(sourceDiff), slots: busy},
	"runs/{run}/first":        {takes: []string{"with"}, answer: (*Server).firstDifference, slots: busy},
	"runs/{run}/usage":        {answer: ofRun(usage), slots: busy},
	"runs/{run}/ranks":        {answer: ofRun(ranks)}, // a stopped run makes it wait for seconds, but it reads little
	"runs/{run}/checkpoints":  {answer: func(s *Server, db *history.DB, r *request) (any, error) { return ofRun(s.kept)(s, db, r) }, slots: busy},
	"runs/{run}/histograms":   {takes: []string{"name", "points"}, answer: ofRun(histogramsOf), slots: busy},
	"runs/{run}/artifacts":    {answer: ofRun(func(db *history.DB, id int64, _ *request) (any, error) { return db.Artifacts(id) }), slots: busy},
	"runs/{run}/events": {takes: []string{"metric", "seen", "x", "points", "smooth", "show", "calls", "rank", "grep", "limit", "after"},
		send: (*Server).tell},
	"runs/{run}/checkpoints/{step}/safetensors": {takes: []string{"rank"}, send: (*Server).safetensors, slots: sends},
	"runs/{run}/artifacts/{sha256}":             {send: (*Server).artifact, slots: sends},
}

type request struct {
	*http.Request
	values url.Values
}

// number reads a parameter that is a whole number from least to most; another ends the request with an error.
func (r *request) number(name string, otherwise, least, most int64) int64 {
	text := r.values.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		try.Ok(exit.Errorf(exit.Usage, "%s=%s: want a whole number from %d to %d", name, text, least, most))
	}
	return n
}

// ofRun finds the run that the path names.
func ofRun(fn func(db *history.DB, id int64, r *request) (any, error)) func(*Server, *history.DB, *request) (any, error) {
	return func(_ *Server, db *history.DB, r *request) (any, error) {
		return fn(db, try.To(db.Find(r.PathValue("run"))), r)
	}
}

// seenBy are the projects whose runs the user sees; nil: all.
func seenBy(r *http.Request) []string { return access.Of(r.Context()).Within(access.Read) }

// find returns the run that a request names, and the history that has it.
func (s *Server) find(r *request) (*history.DB, int64, error) {
	db := try.To(s.history()).Within(seenBy(r.Request))
	id, err := db.Find(r.PathValue("run"))
	return db, id, err
}

func (s *Server) handle(mux *http.ServeMux) {
	for path, to := range routes {
		mux.HandleFunc("GET "+apiPath+path, func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if p := recover(); p != nil {
					fail(w, http.StatusInternalServerError, fmt.Errorf("a bug in drun: %v\n%s", p, debug.Stack()))
				}
			}()
			if err := s.serve(w, r, path, to); err != nil {
				fail(w, statusOf(err), err)
			}
		})
	}
	mux.HandleFunc("GET /api/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, exit.WithHint(fmt.Errorf("there is no %s", r.URL.Path), "requests begin with "+apiPath+"; docs/ui.md lists them"))
	})
}

// serve answers a request, once the number of requests being answered allows it. Code that it calls needs no try.Caught.
func (s *Server) serve(w http.ResponseWriter, in *http.Request, path string, to route) (err error) {
	defer try.Caught(&err)
	if to.slots != nil {
		slots := to.slots(s)
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-in.Context().Done():
			return nil
		case <-time.After(answerWithin):
			return exit.WithHint(&tooMany{"the server answers other requests"}, "try again")
		}
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWithin))
	values, err := url.ParseQuery(in.URL.RawQuery)
	if err != nil {
		return exit.Errorf(exit.Usage, "the address: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(to.takes, name) { // the answer would not be what was asked for
			hint := "it takes none"
			if len(to.takes) > 0 {
				hint = "it takes " + strings.Join(to.takes, ", ")
			}
			return exit.WithHint(exit.Errorf(exit.Usage, "%s takes no parameter %q", path, name), hint)
		}
	}
	r := &request{Request: in, values: values}
	if to.send != nil {
		return to.send(s, w, r)
	}
	db, err := s.history()
	v := to.none // nothing has been run yet
	if err == nil {
		v, err = to.answer(s, db.Within(seenBy(in)), r)
	} else if v != nil && errors.As(err, new(*history.ErrNone)) {
		err = nil
	}
	try.Ok(err)
	text := try.To(marshal(v)) // as a whole, so that an error sends no partial answer
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(append(text, '\n'))
	return nil
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

func (s *Server) runs(db *history.DB, r *request) (_ any, err error) {
	limit, offset := r.number("limit", 20, 1, 1_000_000), r.number("offset", 0, 0, 1<<53)
	columns := []*query.Expr(nil)
	if text := r.values.Get("columns"); text != "" {
		columns = try.To(query.ParseList("columns", text))
	}
	all := try.To(s.choose(db, seenBy(r.Request), r.values, columns))
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
func (s *Server) choose(db *history.DB, projects []string, values url.Values, columns []*query.Expr) (_ chosen, err error) {
	defer try.Caught(&err)
	by := url.Values{"where": values["where"], "tag": values["tag"], "sort": values["sort"], "trash": values["trash"], "group": values["group"]}
	if projects != nil {
		by["within"] = append([]string{""}, projects...)
	}
	grouped := try.To(grouping(values))
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
	where, keys := try.To2(query.ParseSelection("", values["where"], values["tag"], values["sort"]))
	if grouped != nil {
		keys = append([]query.Key{{Expr: grouped}}, keys...)
	}
	found := chosen{by: by.Encode(), at: now, taken: taken}
	found.ids, found.Notes = try.To2(query.Choose(db, values.Get("trash") != "", where, keys))
	if found.Notes == nil {
		found.Notes = []string{}
	}
	if grouped != nil {
		found.Groups = try.To(groups(db, found.ids, grouped, columns))
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
	Differing     int      `json:"differing_params"` // how many of the recent parameters differ
	Objective     string   `json:"objective"`        // the metric by which the newest sweep among them judges; "": none
}

// metricsOf names the metrics of some runs.
func metricsOf(db *history.DB, ids []int64) (any, error) {
	runs, err := db.Select(history.Selection{IDs: ids, Metrics: history.Names{All: true}})
	names := map[string]bool{}
	for _, r := range runs {
		for name := range r.Metrics {
			names[name] = true
		}
	}
	return map[string][]string{"metrics": slices.AppendSeq([]string{}, maps.Keys(names))}, err
}

// newestRuns is how many of the newest runs stand for all in listing names.
const newestRuns = 20

// namesOf lists the names; of the newest runs, only the common ones.
func namesOf(db *history.DB, all bool, share int) (_ *known, err error) {
	defer try.Caught(&err)
	k := &known{Fields: query.Fields, Params: []string{}, Metrics: []string{}, Metric: query.MetricValues}
	if all {
		k.Params = try.To(db.ParamNames())
		k.Metrics = try.To(db.MetricNames())
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
	for _, r := range newest {
		if r.Sweep != nil && k.Objective == "" {
			k.Objective, _ = objective(r.Sweep.Command)
		}
	}
	k.RecentParams, k.Differing = paramsOf(newest, common(params, share))
	k.RecentMetrics = common(metrics, share)
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
// a table with room for a few tells the runs apart, and of these the ones with most values. It returns how many differ.
func paramsOf(runs []history.Summary, names []string) (_ []string, differing int) {
	type of struct{ recipe, name string }
	values, differ, kinds := map[of]string{}, map[string]bool{}, map[string]map[string]bool{}
	for _, r := range runs {
		for name, v := range r.Params {
			k, text := of{r.Recipe, name}, fmt.Sprintf("%T %v", v, v)
			was, seen := values[k]
			values[k], differ[name] = text, differ[name] || seen && was != text
			if kinds[name] == nil {
				kinds[name] = map[string]bool{}
			}
			kinds[name][text] = true
		}
	}
	same := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return differ[name] })
	those := slices.DeleteFunc(names, func(name string) bool { return !differ[name] })
	slices.SortStableFunc(those, func(a, b string) int { return len(kinds[b]) - len(kinds[a]) })
	return append(those, same...), len(those)
}

func compare(_ *Server, db *history.DB, r *request) (any, error) {
	return report.Compare(db, try.To(findRuns(db, r.values)))
}

func metrics(db *history.DB, id int64, r *request) (any, error) {
	most, attempt := r.number("points", 0, history.MinDownsample, 1_000_000_000), r.number("attempt", -1, 0, 1<<31)
	return report.Points(db, id, r.values["name"], r.values.Get("lineage") != "", int(attempt), int(most))
}

// logTail is the end of a run's output.
type logTail struct {
	Lines   []history.LogLine `json:"lines"`
	Last    int64             `json:"last"`    // to pass as after, to get what follows
	Skipped int64             `json:"skipped"` // number of earlier lines that the filter matches
}

func logFilter(r *request) (f history.LogFilter) {
	f.After = r.number("after", 0, 0, 1<<62)
	if r.values.Get("rank") != "" {
		rank := int(r.number("rank", 0, -1, 1<<31))
		f.Rank = &rank
	}
	if text := r.values.Get("grep"); text != "" {
		var err error
		if f.Grep, err = regexp.Compile(text); err != nil {
			try.Ok(exit.WithHint(exit.Errorf(exit.Usage, "the filter: %v", err), "the syntax is RE2's, as in Go"))
		}
	}
	return f
}

func logs(db *history.DB, id int64, r *request) (any, error) {
	limit := r.number("limit", 1000, 1, 100_000)
	tail := &logTail{Lines: []history.LogLine{}}
	last, err := db.Logs(id, logFilter(r), func(l history.LogLine) error {
		if tail.Lines = append(tail.Lines, l); int64(len(tail.Lines)) >= 2*limit {
			n := copy(tail.Lines, tail.Lines[limit:])
			tail.Lines, tail.Skipped = tail.Lines[:n], tail.Skipped+limit
		}
		return nil
	})
	tail.Last = last
	if more := int64(len(tail.Lines)) - limit; more > 0 {
		tail.Lines, tail.Skipped = tail.Lines[more:], tail.Skipped+more
	}
	return tail, err
}

func sources(db *history.DB, id int64, _ *request) (any, error) {
	list, err := db.Sources(id)
	return report.Files(list), err
}

func sourceDiff(db *history.DB, id int64, r *request) (any, error) {
	text, err := report.SourceDiff(db, id, try.To(db.Find(r.values.Get("with"))))
	return map[string]string{"diff": text}, err
}

func usage(db *history.DB, id int64, _ *request) (any, error) { return db.Usage(id) }

func ranks(db *history.DB, id int64, r *request) (any, error) {
	return report.Doing(r.Context(), db, id)
}

func (s *Server) kept(db *history.DB, id int64, _ *request) (any, error) {
	return report.Checkpoints(db, try.To(s.checkpoints()), strconv.FormatInt(id, 10))
}
