package main

// share is how much of what the cores could do at most a step's products need.
type share struct {
	step, peak string  // figures of drun
	work       float64 // operations of a step
	least      float64 // the bar, in per cent
}

var shares = []share{
	{"mlp step, 1 rank", "peak of 1 core", workOfMLP(), 75},
	{"gpt step, 1 rank", "peak of 1 core", workOfGPT(), 70},
	{"gpt step, 1 rank, 2 threads", "peak of 2 cores", workOfGPT(), 65},
}

func (s share) name() string { return s.step + ", share of the peak" }

// addShares computes each round's shares, from the step and the peak of the same round.
func addShares(all samples) {
	for _, s := range shares {
		steps, peaks := all[measured{drunName, s.step}], all[measured{drunName, s.peak}]
		for i := range min(len(steps), len(peaks)) {
			all.add(drunName, figure{s.name(), 100 * s.work / steps[i].value / (peaks[i].value * 1e9), percent})
		}
	}
}
