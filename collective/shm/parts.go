package shm

import "drun/collective"

// parts says where in a buffer the ranks' parts lie, in bytes.
type parts struct {
	each   int   // if all are equal
	bounds []int // else: where each begins, and the last ends
}

// parts returns those of a call; mine is this rank's part.
func (r *run) parts(mine collective.Buffer) parts {
	if r.call.Counts == nil {
		return parts{each: len(mine.Data)}
	}
	return cut(r.call.Counts, mine.DType.Size())
}

func cut(counts []int, elem int) parts {
	p := parts{bounds: make([]int, 1, len(counts)+1)}
	for i, n := range counts {
		p.bounds = append(p.bounds, p.bounds[i]+n*elem)
	}
	return p
}

// of is rank's part of data.
func (p parts) of(data []byte, rank int) []byte {
	if p.bounds == nil {
		return data[rank*p.each : (rank+1)*p.each]
	}
	return data[p.bounds[rank]:p.bounds[rank+1]]
}

func (p parts) largest() int {
	n := p.each
	for i := 1; i < len(p.bounds); i++ {
		n = max(n, p.bounds[i]-p.bounds[i-1])
	}
	return n
}

// clip is data[from:to], as far as it exists.
func clip(data []byte, from, to int) []byte {
	return data[min(from, len(data)):min(to, len(data))]
}
