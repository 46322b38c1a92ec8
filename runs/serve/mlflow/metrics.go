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
	"drun/internal/each"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// ofRank matches a metric's name as drun export writes it for MLflow: that of a rank other than 0 is NAME/rankN.
var ofRank = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(.+)/rank(\d+)$`) })

// points are those of a metric in the order of recording: of a run on several ranks those of rank 0, unless the name says which.
func (c *call) points(uid, key string) []metricJSON {
	r := c.runOf(c.reader(), uid, access.Read)
	named := func(name string, rank int) (points, first []records.Point) {
		points, err := c.read.Points(r.id, name)
		if !errors.As(err, new(*history.NotFound)) {
			try.Ok(err)
		}
		return points, slices.DeleteFunc(slices.Clone(points), func(p records.Point) bool { return p.Rank != rank })
	}
	points, first := named(key, 0)
	if len(first) > 0 {
		points = first
	} else if found := ofRank().FindStringSubmatch(key); found != nil && len(points) == 0 {
		rank, _ := strconv.Atoi(found[2])
		_, points = named(found[1], rank)
	}
	return each.Of(points, func(p records.Point) metricJSON {
		return metricJSON{Key: key, Value: records.Float(p.Value), Timestamp: p.Time.UnixMilli(), Step: p.Step, Run: uid}
	})
}

func getHistory(c *call, in *struct {
	ofRun
	pages
	Key string `json:"metric_key" need:""`
}) any {
	points := c.points(in.ID, in.Key)
	from, most := in.part(max(len(points), 1), math.MaxInt32)
	return page("metrics", points[min(from, len(points)):], from, most)
}

// Limits of MLflow's server for charts.
const (
	mostChartRuns   = 100
	mostChartPoints = 2500
)

// getHistoryBulkInterval thins out the points of several runs for a chart, alike: at the same steps.
func getHistoryBulkInterval(c *call, in *struct {
	pages
	IDs   []string `json:"run_ids" need:""`
	Key   string   `json:"metric_key" need:""`
	Start *whole   `json:"start_step"`
	End   *whole   `json:"end_step"`
}) any {
	switch {
	case len(in.IDs) > mostChartRuns:
		refuse("GetMetricHistoryBulkInterval request must specify at most %d run_ids. Received %d run_ids.", mostChartRuns, len(in.IDs))
	case (in.Start == nil) != (in.End == nil):
		refuse("If either start step or end step are specified, both must be specified.")
	case in.Start != nil && *in.Start > *in.End:
		refuse("end_step must be greater than start_step. Found start_step=%d and end_step=%d.", *in.Start, *in.End)
	}
	_, most := in.part(mostChartPoints, mostChartPoints)
	all, steps := []metricJSON{}, []int64{}
	for _, uid := range in.IDs {
		own := slices.DeleteFunc(c.points(uid, in.Key), func(m metricJSON) bool {
			return in.Start != nil && (m.Step < int64(*in.Start) || m.Step > int64(*in.End))
		})
		slices.SortStableFunc(own, func(a, b metricJSON) int {
			return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Timestamp, b.Timestamp))
		})
		all = append(all, own...)
		steps = append(steps, each.Of(own, func(m metricJSON) int64 { return m.Step })...)
	}
	slices.Sort(steps)
	steps = slices.Compact(steps)
	chosen := map[int64]bool{}
	for i := range min(most, len(steps)) {
		chosen[steps[i*len(steps)/min(most, len(steps))]] = true
		chosen[steps[len(steps)-1]] = true
	}
	return object{"metrics": slices.DeleteFunc(all, func(m metricJSON) bool { return !chosen[m.Step] })}
}
