package mlflow

import (
	"cmp"
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"drun/history"
	"drun/history/records"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// ofRank matches a metric's name as drun export writes it for MLflow: that of a rank other than 0 is NAME/rankN.
var ofRank = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(.+)/rank(\d+)$`) })

// points are those of a metric in the order of recording: of a run on several ranks those of rank 0, unless the name says which.
func (c *call) points(r *run, key string) []records.Point {
	db := c.read
	named := func(name string) []records.Point {
		points, err := db.Points(r.id, name)
		if errors.As(err, new(*history.NotFound)) {
			return nil
		}
		return try.To(points, err)
	}
	points := named(key)
	of := func(rank int) []records.Point {
		return slices.DeleteFunc(slices.Clone(points), func(p records.Point) bool { return p.Rank != rank })
	}
	if len(points) > 0 {
		if first := of(0); len(first) > 0 {
			return first
		}
		return points
	}
	if found := ofRank().FindStringSubmatch(key); found != nil {
		rank, _ := strconv.Atoi(found[2])
		points = named(found[1])
		return of(rank)
	}
	return nil
}

func pointJSON(r *run, key string, p records.Point) metricJSON {
	return metricJSON{Key: key, Value: records.Float(p.Value), Timestamp: p.Time.UnixMilli(), Step: p.Step, Run: r.uid}
}

type metricsAnswer struct {
	Metrics []metricJSON `json:"metrics"`
	Next    string       `json:"next_page_token,omitempty"`
}

func getHistory(c *call, in *struct {
	ID    string `json:"run_id"`
	UUID  string `json:"run_uuid"`
	Key   string `json:"metric_key" need:""`
	Token string `json:"page_token"`
	Most  whole  `json:"max_results"`
}) any {
	r := c.runOf(c.reader(), either(in.ID, in.UUID), access.Read)
	points := c.points(r, in.Key)
	from := min(offset(in.Token), len(points))
	upTo := min(from+limited(in.Most, len(points)+1, math.MaxInt32), len(points))
	out := metricsAnswer{Metrics: []metricJSON{}}
	for _, p := range points[from:upTo] {
		out.Metrics = append(out.Metrics, pointJSON(r, in.Key, p))
	}
	if upTo < len(points) {
		out.Next = strconv.Itoa(upTo)
	}
	return out
}

// Limits of MLflow's server for charts.
const (
	mostChartRuns   = 100
	mostChartPoints = 2500
)

// getHistoryBulkInterval thins out the points of several runs for a chart, alike: at the same steps.
func getHistoryBulkInterval(c *call, in *struct {
	IDs   []string `json:"run_ids" need:""`
	Key   string   `json:"metric_key" need:""`
	Start *whole   `json:"start_step"`
	End   *whole   `json:"end_step"`
	Most  whole    `json:"max_results"`
}) any {
	switch {
	case len(in.IDs) > mostChartRuns:
		try.Ok(invalid("GetMetricHistoryBulkInterval request must specify at most %d run_ids. Received %d run_ids.", mostChartRuns, len(in.IDs)))
	case (in.Start == nil) != (in.End == nil):
		try.Ok(invalid("If either start step or end step are specified, both must be specified."))
	case in.Start != nil && *in.Start > *in.End:
		try.Ok(invalid("end_step must be greater than start_step. Found start_step=%d and end_step=%d.", *in.Start, *in.End))
	}
	most := limited(in.Most, mostChartPoints, mostChartPoints)
	all, steps := map[string][]metricJSON{}, []int64{}
	for _, uid := range in.IDs {
		r := c.runOf(c.reader(), uid, access.Read)
		for _, p := range c.points(r, in.Key) {
			if in.Start == nil || p.Step >= int64(*in.Start) && p.Step <= int64(*in.End) {
				all[uid] = append(all[uid], pointJSON(r, in.Key, p))
				steps = append(steps, p.Step)
			}
		}
	}
	slices.Sort(steps)
	steps = slices.Compact(steps)
	chosen := map[int64]bool{}
	for i := range min(most, len(steps)) {
		chosen[steps[i*len(steps)/min(most, len(steps))]] = true
	}
	if len(steps) > 0 {
		chosen[steps[len(steps)-1]] = true
	}
	out := metricsAnswer{Metrics: []metricJSON{}}
	for _, uid := range in.IDs {
		own := all[uid]
		slices.SortStableFunc(own, func(a, b metricJSON) int {
			return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Timestamp, b.Timestamp))
		})
		for _, m := range own {
			if chosen[m.Step] {
				out.Metrics = append(out.Metrics, m)
			}
		}
	}
	return out
}
