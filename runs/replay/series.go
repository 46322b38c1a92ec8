package replay

import (
	"math"

	"drun/history/records"
)

// Divergence is the first point at which two runs differ. For parameters, Step is the number of the update.
type Divergence struct {
	Step   int64  `json:"step"`
	Metric string `json:"metric"` // or Parameters, or Artifact
	Rank   int    `json:"rank"`
	A      any    `json:"a"` // nil: not recorded; a records.Float, or a digest
	B      any    `json:"b"`
	// Artifact and Kind are the name and kind of an artifact whose SHA-256 differs. Step is -1 if it has none.
	Artifact string `json:"artifact,omitempty"`
	Kind     string `json:"kind,omitempty"`
}

// Parameters replaces a metric's name if the digests of the parameters differ.
const Parameters = "(parameters)"

// Artifact replaces a metric's name if something that the recipe kept differs.
const Artifact = "(artifact)"

// series is the exact points of a run.
type series struct {
	points map[point]float64
	order  []point // in order of recording
}

type point struct {
	name string
	step int64
	rank int
	nth  int // among the points with the same name, step and rank
}

func newSeries(list []records.Point) *series {
	s := &series{points: map[point]float64{}}
	again := map[point]int{}
	for _, p := range list {
		if !p.Exact {
			continue
		}
		key := point{p.Name, p.Step, p.Rank, 0}
		nth := again[key]
		again[key]++
		key.nth = nth
		s.points[key] = p.Value
		s.order = append(s.order, key)
	}
	return s
}

// first returns the first point that other lacks with the same bits or, if whole, that only other has.
func (s *series) first(other *series, whole bool) *Divergence {
	for _, p := range s.order {
		got, is := other.points[p]
		want := s.points[p]
		switch {
		case !is:
			return &Divergence{Step: p.step, Metric: p.name, Rank: p.rank, A: records.Float(want)}
		case math.Float64bits(want) != math.Float64bits(got):
			return &Divergence{Step: p.step, Metric: p.name, Rank: p.rank, A: records.Float(want), B: records.Float(got)}
		}
	}
	for _, p := range other.order {
		if _, is := s.points[p]; whole && !is {
			return &Divergence{Step: p.step, Metric: p.name, Rank: p.rank, B: records.Float(other.points[p])}
		}
	}
	return nil
}
