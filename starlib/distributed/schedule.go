package distributed

import "slices"

// A turn is one piece of a rank's work in a step of a pipeline: a pass of one micro-batch through one of its chunks,
// which are stages that follow each other.
type turn struct {
	pass  pass
	chunk int
	micro int
}

type pass int

const (
	forward  pass = iota
	backward      // the whole backward pass or, if the schedule has weights, the first half: the gradient of the input
	weights       // the second half: the gradients of the parameters
)

// A schedule is the order in which the ranks of a pipeline take their turns. All do the backward passes of a chunk in the
// order of the micro-batches, so that gradients are added in the order in which one process would add them.
type schedule struct {
	interleaved bool // rank r has stages r, r + p, r + 2p …, each a chunk of its own
	halves      bool // backward passes are done in two halves
	turns       func(rank, ranks, chunks, micros int) []turn
	bubble      func(p, v, m float64) float64 // the share of a step in which a rank is idle, if all turns take equally long
}

// Schedules are those of a pipeline, by name, for p ranks, v chunks on each and m micro-batches.
//
//   - gpipe does all forward passes, then all backward passes (Huang et al. 2019).
//   - 1f1b begins with as many forward passes as there are ranks after this one, then does a forward
//     and a backward pass in turn (Narayanan et al. 2019): a rank holds what backward needs of at
//     most as many micro-batches as there are ranks from it to the end.
//   - interleaved gives each rank v chunks that do not follow each other, and takes its turns for p micro-batches
//     through each chunk after another (Narayanan et al. 2021): the bubble is v times smaller, and v times as much is sent.
//   - zero_bubble is 1f1b whose backward passes are done in two halves (Qi et al. 2023, ZB-H1): what the other ranks wait
//     for comes first, and the gradients of the parameters fill the time in which a rank would be idle.
var schedules = map[string]schedule{
	"gpipe": {
		turns:  func(_, _, _, micros int) []turn { return alternating(micros, micros) },
		bubble: func(p, _, m float64) float64 { return (p - 1) / (m + p - 1) },
	},
	"1f1b": {
		turns:  func(rank, ranks, _, micros int) []turn { return alternating(ranks-1-rank, micros) },
		bubble: func(p, _, m float64) float64 { return (p - 1) / (m + p - 1) },
	},
	"interleaved": {
		interleaved: true,
		turns:       interleavedTurns,
		bubble:      func(p, v, m float64) float64 { return (p - 1) / (v*m + p - 1) },
	},
	"zero_bubble": {
		halves: true,
		turns:  zeroBubbleTurns,
		bubble: func(p, _, m float64) float64 { return (p - 1) / (3*m + p - 1) },
	},
}

// alternating returns the turns of a rank that does ahead forward passes before it starts alternating.
func alternating(ahead, micros int) []turn {
	var list []turn
	next := 0 // the next backward pass
	for micro := range micros {
		list = append(list, turn{micro: micro})
		if micro >= ahead {
			list = append(list, turn{pass: backward, micro: next})
			next++
		}
	}
	for ; next < micros; next++ {
		list = append(list, turn{pass: backward, micro: next})
	}
	return list
}

// interleavedTurns alternates as 1f1b does, with passes in the order of groups of as many micro-batches as there are ranks,
// each group through all chunks.
func interleavedTurns(rank, ranks, chunks, micros int) []turn {
	var passes [2][]turn // forward and backward
	for from := 0; from < micros; from += ranks {
		for chunk := range chunks {
			for micro := from; micro < from+ranks; micro++ {
				passes[0] = append(passes[0], turn{forward, chunk, micro})
				passes[1] = append(passes[1], turn{backward, chunks - 1 - chunk, micro})
			}
		}
	}
	list := alternating(2*(ranks-1-rank)+(chunks-1)*ranks, len(passes[0]))
	for i, t := range list {
		list[i] = passes[t.pass][t.micro]
	}
	return slices.DeleteFunc(list, func(t turn) bool { return t.micro >= micros }) // the last group may not be full
}

// zeroBubbleTurns puts the second halves of backward passes off by as many micro-batches as there are ranks before this
// one, which wait for the first halves. No more activations are held than by the first rank of 1f1b.
func zeroBubbleTurns(rank, ranks, _, micros int) []turn {
	var list []turn
	next := 0 // the next second half
	for _, t := range alternating(ranks-1-rank, micros) {
		list = append(list, t)
		if t.pass == backward && t.micro >= rank {
			list = append(list, turn{pass: weights, micro: next})
			next++
		}
	}
	for ; next < micros; next++ {
		list = append(list, turn{pass: weights, micro: next})
	}
	return list
}
