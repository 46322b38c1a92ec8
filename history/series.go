package history

import "math"

// XY is a point of a curve.
type XY struct{ X, Y float64 }

// Columns reduces a curve to one value per column, for a chart of width columns (at least 2) that reaches from the
// smallest to the largest X shown. Each pair of columns shows the smallest and the largest value of its points, in
// their order, so that no spike is lost. Columns between points that lie further apart interpolate the line. NaN:
// there is no value, or it is not finite.
func Columns(points []XY, width int, from, to float64) []float64 {
	type extreme struct{ low, high XY }
	buckets := make([]*extreme, width/2)
	holes := make([]bool, len(buckets)) // buckets with non-finite values, which break the line
	scale := 0.0
	if to > from {
		scale = float64(len(buckets)) / (to - from)
	}
	for _, p := range points {
		if p.X < from || p.X > to {
			continue
		}
		b := min(int((p.X-from)*scale), len(buckets)-1)
		if math.IsNaN(p.Y) || math.IsInf(p.Y, 0) {
			holes[b] = true
			continue
		}
		switch e := buckets[b]; {
		case e == nil:
			buckets[b] = &extreme{p, p}
		case p.Y < e.low.Y:
			e.low = p
		case p.Y > e.high.Y:
			e.high = p
		}
	}
	columns := make([]float64, 2*len(buckets))
	last := -1 // latest bucket with points; -1: none, or a hole follows it
	for b, e := range buckets {
		columns[2*b], columns[2*b+1] = math.NaN(), math.NaN()
		if e == nil {
			if holes[b] {
				last = -1
			}
			continue
		}
		first, second := e.low, e.high
		if second.X < first.X {
			first, second = second, first
		}
		columns[2*b], columns[2*b+1] = first.Y, second.Y
		if last >= 0 {
			begin, end := columns[2*last+1], columns[2*b]
			for c := 2*last + 2; c < 2*b; c++ {
				part := float64(c-2*last-1) / float64(2*b-2*last-1)
				columns[c] = begin*(1-part) + end*part
			}
		}
		last = b
	}
	return columns
}
