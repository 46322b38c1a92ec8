package distributed

// A turn is one piece of a stage's work in a step of a pipeline: the forward or the backward pass of
// one micro-batch.
type turn struct {
	backward bool
	micro    int
}

// Schedules are the orders in which a pipeline's stages take their turns. All do the backward passes
// in the order of the micro-batches, so that gradients are added in the order in which one process
// would add them.
//
//   - gpipe does all forward passes, then all backward passes (Huang et al. 2019).
//   - 1f1b begins with as many forward passes as there are stages after this one, then does a forward
//     and a backward pass in turn (Narayanan et al. 2019): a stage holds what backward needs of at
//     most as many micro-batches as there are stages from it to the end.
//
// If all stages take equally long, both leave a stage idle for (p-1)/(m+p-1) of a step of m micro-batches and p stages.
var schedules = map[string]func(stage, stages, micros int) []turn{
	"gpipe": func(_, _, micros int) []turn { return turns(micros, micros) },
	"1f1b":  func(stage, stages, micros int) []turn { return turns(stages-1-stage, micros) },
}

// turns are those of a stage that does ahead forward passes before it starts alternating.
func turns(ahead, micros int) []turn {
	var list []turn
	next := 0 // the next backward pass
	for micro := range micros {
		list = append(list, turn{micro: micro})
		if micro >= ahead {
			list = append(list, turn{true, next})
			next++
		}
	}
	for ; next < micros; next++ {
		list = append(list, turn{true, next})
	}
	return list
}

// bubble is the share of a step in which a stage is idle, if all take equally long.
func bubble(stages, micros int) float64 { return float64(stages-1) / float64(micros+stages-1) }
