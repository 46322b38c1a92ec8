// Package historytest makes histories for tests and measurements: large ones, like a user's after months.
package historytest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/try"
)

// Shape is the size of a history.
type Shape struct {
	Runs    int
	Params  int // per run
	Metrics int // per run
	Points  int // per metric
}

// Large is the history against which drun's queries are measured: 10 million points.
var Large = Shape{Runs: 10_000, Params: 100, Metrics: 100, Points: 10}

// Start is when the first run began; each other began a minute after the previous one.
var Start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Fill enters runs into the history beneath home, the same ones each time. Run i, from 0, is called "run-i". Its
// first parameters are lr, hidden, act and momentum, followed by p4, …; its first metrics are loss, which falls,
// and acc, which rises, followed by m2, …: all of them are logged at each step. Every tenth run failed; every
// seventh has the tag "seventh", and all but the first were made by one of ten recipes.
func Fill(home string, s Shape) (err error) {
	defer try.Caught(&err)
	db := try.To(history.Open(home))
	for i := range s.Runs {
		if err := fill(db, s, i); err != nil {
			db.Close()
			return err
		}
	}
	return db.Close()
}

func fill(db *history.DB, s Shape, i int) (err error) {
	defer try.Caught(&err)
	random := rand.New(rand.NewPCG(uint64(i), 1))
	start := Start.Add(time.Duration(i) * time.Minute)
	recipe := fmt.Sprintf("recipe%d.star", i%10)
	r := try.To(db.Begin(history.RunInfo{Name: fmt.Sprint("run-", i), Recipe: recipe, WorldSize: 1 + i%4, Backend: "shm", Seed: int64(i % 3), Threads: 1,
		Given: records.Given{Version: "v1", Command: []string{"drun", "run", recipe}}, Started: start}))
	try.Ok(r.AddSources([]records.Source{records.NewSource(recipe, "recipe", fmt.Appendf(nil, "# Recipe %d.\n", i%10))}))
	try.Ok(r.BeginAttempt())
	lr := math.Pow(10, -1-3*random.Float64())
	b := &history.Batch{Params: []history.Param{{Name: "lr", Value: lr}, {Name: "hidden", Value: int64(32 << (i % 4))},
		{Name: "act", Value: []string{"relu", "gelu", "tanh"}[i%3]}, {Name: "momentum", Value: i%2 == 0}}}
	for k := len(b.Params); k < s.Params; k++ {
		b.Params = append(b.Params, history.Param{Name: fmt.Sprint("p", k), Value: random.Float64()})
	}
	b.Params = b.Params[:min(s.Params, len(b.Params))]
	best := 0.5 + 0.5*random.Float64()
	for step := range s.Points {
		done := float64(step+1) / float64(s.Points)
		at := start.Add(time.Duration(step)*time.Second + time.Duration(random.IntN(1e8)))
		for k := range s.Metrics {
			var name string
			var value float64
			switch k {
			case 0:
				name, value = "loss", math.Exp(-3*done*best)+0.01*random.NormFloat64()
			case 1:
				name, value = "acc", best*(1-math.Exp(-5*done))
			default:
				name, value = fmt.Sprint("m", k), random.NormFloat64()
			}
			b.Points = append(b.Points, records.Point{Name: name, Step: int64(step), Value: value, Exact: true, Time: at})
		}
	}
	b.Lines = []history.LogLine{{Rank: 0, Stream: "stdout", Time: start, Text: fmt.Sprintf("learning rate %g", lr)}}
	if i%7 == 0 {
		b.Tags = []string{"seventh"}
	}
	b.End = &history.End{Status: history.Done, Seconds: float64(s.Points) + random.Float64()}
	if i%10 == 9 {
		b.End = &history.End{Status: history.Failed, ExitCode: 1, Error: recipe + ":7:3: the loss is nan", Seconds: 1}
	}
	return r.Write(b)
}
