package replay

import (
	"testing"
	"time"

	"drun/history/records"
)

// Many points of the same step are told apart, in linear time.
func TestManyPointsOfAStep(t *testing.T) {
	list := make([]records.Point, 200_000)
	for i := range list {
		list[i] = records.Point{Name: "x", Value: float64(i), Exact: true}
	}
	began := time.Now()
	a, b := newSeries(list), newSeries(list[:len(list)-1])
	if d := a.first(b, true); d == nil || d.A != records.Float(len(list)-1) || d.B != nil {
		t.Errorf("%+v", d)
	}
	if d := a.first(newSeries(list), true); d != nil {
		t.Errorf("%+v", d)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}
