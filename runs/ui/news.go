package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/report"
)

// The page of a running run is told what is new, in one event at a time: only what differs from the previous event,
// and only what the page shows. The server takes its processor time from the run that it watches.
const (
	newsEvery   = 800 * time.Millisecond // a point is then shown within a second
	ranksEvery  = time.Second            // how often the ranks are asked if nothing was written
	ranksWithin = 100 * time.Millisecond // a later answer goes into the next event
	slowEvery   = 3 * time.Second        // for sections that are read as a whole and rarely change
)

// slowSections are what a page can show of a run besides the run, its curves, logs and ranks, and how they are read.
var slowSections = map[string]func(n *news, db *history.DB, id int64) (any, error){
	"usage":       func(_ *news, db *history.DB, id int64) (any, error) { return db.Usage(id) },
	"artifacts":   func(_ *news, db *history.DB, id int64) (any, error) { return db.Artifacts(id) },
	"checkpoints": func(n *news, db *history.DB, id int64) (any, error) { return n.s.kept(db, id, nil) },
}

// news is what a page has been told of a run.
type news struct {
	s       *Server
	request *request
	view    view
	metrics []told
	shows   []string
	sent    map[string][sha256.Size]byte // of the JSON of each section
	slow    time.Time                    // when the slow sections were last read
	asked   bool                         // the ranks were asked and have not answered yet
	ranks   chan *report.Ranks
}

// told is how much of a metric the page has.
type told struct {
	metric string
	seen   state
	drawn  int // roughly how many points the chart shows
}

func (s *Server) newsOf(r *request) (*news, error) {
	n := &news{s: s, request: r, shows: r.values["show"], sent: map[string][sha256.Size]byte{}, ranks: make(chan *report.Ranks, 1)}
	n.view = try.To(viewOf(r))
	metrics, seen := r.values["metric"], r.values["seen"]
	if len(seen) != len(metrics) || len(metrics) > maxRuns {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "want at most %d metrics, with as many seen", maxRuns), "the seen of the curves that are there; - for none")
	}
	for i, metric := range metrics {
		n.metrics = append(n.metrics, told{metric, stateOf(seen[i]), n.view.points})
	}
	for _, section := range n.shows {
		if section != "logs" && section != "ranks" && slowSections[section] == nil {
			return nil, exit.Errorf(exit.Usage, "show=%s: want logs, ranks, usage, artifacts or checkpoints", section)
		}
	}
	if slices.Contains(n.shows, "logs") {
		logFilter(r)
	}
	_, _, err := s.find(r)
	return n, err
}

// tell tells a page what is new in a run, until the page or the server ends, or something cannot be read: the page
// then asks for it, and gets the error.
func (s *Server) tell(w http.ResponseWriter, r *request) error {
	n := try.To(s.newsOf(r))
	quiet := againAfter
	if slices.Contains(n.shows, "ranks") {
		quiet = ranksEvery
	}
	return s.stream(w, func(send func(event, data string) error) error {
		return s.watch(r.Context(), quiet, func(bool) error {
			data, err := n.next(r.Context())
			if err != nil || data == nil {
				return err
			}
			return send("news", string(data))
		})
	})
}

// next returns what is new, as JSON; nil: nothing.
func (n *news) next(ctx context.Context) (_ []byte, err error) {
	defer try.Caught(&err)
	db, id := try.To2(n.s.find(n.request))
	ranks := slices.Contains(n.shows, "ranks")
	if ranks && !n.asked {
		n.asked = true
		go func() {
			doing, err := report.Doing(ctx, db, id)
			if err != nil {
				doing = &report.Ranks{Problem: err.Error(), Hint: exit.HintOf(err)}
			}
			n.ranks <- doing
		}()
	}
	all := map[string]any{}
	try.Ok(n.read(ctx, db, id, all))
	if ranks {
		select {
		case doing := <-n.ranks:
			if doing.Snapshot != nil && n.request.values.Get("calls") == "" {
				short := *doing.Snapshot
				short.Ranks = slices.Clone(short.Ranks)
				for i := range short.Ranks {
					short.Ranks[i].Recent = nil
				}
				doing.Snapshot = &short
			}
			n.asked, all["ranks"] = false, doing
		case <-time.After(ranksWithin):
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return marshal(all)
}

func (n *news) read(ctx context.Context, db *history.DB, id int64, all map[string]any) (err error) {
	defer try.Caught(&err)
	select {
	case n.s.busy <- struct{}{}:
		defer func() { <-n.s.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	run := try.To(db.Get(id)) // first, so that everything written before the run's end is told
	if members := try.To(n.changed(run)); len(members) > 0 {
		all["run"] = members
	}
	if curves := try.To(n.curves(db, run)); len(curves) > 0 {
		all["curves"] = curves
	}
	slow := time.Since(n.slow) >= slowEvery
	if slow {
		n.slow = time.Now()
	}
	for _, section := range n.shows {
		if section == "logs" {
			tail := try.To(logs(db, id, n.request)).(*logTail)
			n.request.values.Set("after", strconv.FormatInt(tail.Last, 10))
			if len(tail.Lines) > 0 {
				all[section] = tail
			}
		}
		if read := slowSections[section]; read != nil && slow {
			if text := try.To(marshal(try.To(read(n, db, id)))); n.differs(section, text) {
				all[section] = json.RawMessage(text)
			}
		}
	}
	return nil
}

// differs reports whether a section differs from what was sent, and records that it is sent now.
func (n *news) differs(section string, text []byte) bool {
	sum := sha256.Sum256(text)
	was, ok := n.sent[section]
	n.sent[section] = sum
	return !ok || was != sum
}

// changed returns the members of the run that differ from what was sent.
func (n *news) changed(run *history.Detail) (_ map[string]json.RawMessage, err error) {
	defer try.Caught(&err)
	text := try.To(marshal(run))
	members := map[string]json.RawMessage{}
	try.Ok(json.Unmarshal(text, &members))
	maps.DeleteFunc(members, func(name string, text json.RawMessage) bool { return !n.differs("run."+name, text) })
	return members, nil
}

// curves returns the new points of the metrics shown, or a whole curve if points cannot be added.
func (n *news) curves(db *history.DB, run *history.Detail) (map[string]*curve, error) {
	all := map[string]*curve{}
	for i := range n.metrics {
		t := &n.metrics[i]
		v := try.To(n.s.ofRun(db, n.view, run.ID))
		try.Ok(n.s.cache.with(db, n.s.home, run.ID, t.metric, func(points *series) {
			if points == nil || t.seen.reading == points.reading && t.seen.points == len(points.step) {
				return
			}
			var c *curve
			if t.drawn <= n.view.points*3/2 {
				c = v.after(t.seen, points, &run.Summary)
			}
			if c == nil {
				c, t.drawn = v.of(points, &run.Summary), 0
			}
			t.seen, t.drawn = stateOf(c.Seen), t.drawn+len(c.X)
			all[t.metric] = c
		}))
	}
	return all, nil
}

// marshal encodes JSON for the pages, in one line.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	err := report.JSON(&out, v, "")
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// How often the history is checked while a page is open, and how often pages check again even if nothing was
// written: the end of an agent that was killed writes nothing.
const (
	lookEvery  = 200 * time.Millisecond
	againAfter = 5 * time.Second
)

// follow tells a page when the history has changed, until the page or the server ends.
func (s *Server) follow(w http.ResponseWriter, r *request) error {
	return s.stream(w, func(send func(event, data string) error) error {
		return s.watch(r.Context(), againAfter, func(written bool) error { return send("change", fmt.Sprintf(`{"written":%t}`, written)) })
	})
}

// stream keeps a request open, on which fn sends events until the page or the server ends.
func (s *Server) stream(w http.ResponseWriter, fn func(send func(event, data string) error) error) error {
	select {
	case s.events <- struct{}{}:
		defer func() { <-s.events }()
	default:
		return exit.WithHint(&tooMany{fmt.Sprintf("%d pages are open", eventsAtMost)}, "close some")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	send := func(event, data string) error {
		_ = control.SetWriteDeadline(time.Now().Add(answerWithin))
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data); err != nil {
			return err
		}
		return control.Flush()
	}
	_ = fn(send) // the page sees the stream end, and asks why
	return nil
}

// watch calls look at once, after each change of the history, and when quiet has passed without one, until ctx ends or
// look fails. If look takes long, it is called less often.
func (s *Server) watch(ctx context.Context, quiet time.Duration, look func(written bool) error) error {
	last, taken := history.StampOf(s.home), time.Now()
	looked := time.Time{}
	for {
		wait := lookEvery
		now, at := history.StampOf(s.home), time.Now()
		if written := now != last || !last.Settled(taken); written || at.Sub(looked) >= quiet {
			last, taken, looked = now, at, at
			if err := look(written); err != nil {
				return err
			}
			wait = min(againAfter, max(newsEvery, 20*time.Since(at)))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
