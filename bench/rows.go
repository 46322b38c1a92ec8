package main

import "fmt"

// The groups of figures, in the order in which they are measured and printed.
const (
	groupStart     = "start"
	groupHistory   = "history"
	groupQueries   = "queries"
	groupLogging   = "logging"
	groupStates    = "checkpoints"
	groupAllReduce = "allreduce"
	groupBackends  = "backends"
	groupHelpers   = "helpers"
	groupOperators = "operators"
	groupLayers    = "layers"
	groupStreams   = "streams"
	groupTrain     = "train"
	groupLarge     = "gpt2"
	groupKernels   = "kernels"
)

var groups = []string{groupStart, groupHistory, groupQueries, groupLogging, groupStates, groupAllReduce, groupBackends, groupHelpers, groupOperators, groupTrain, groupLarge, groupLayers, groupStreams, groupKernels}

const (
	us  = 1e-6
	ms  = 1e-3
	mib = 1 << 20
)

// rows is the table: every figure of drun, with its bars.
var rows = buildRows()

func buildRows() []row {
	all := []row{
		{groupStart, "hello.star, 2 ranks, start to exit", []bar{atMost(0.1)}},
		{groupStart, "hello.star, 64 ranks, start to exit", []bar{atMost(0.25), atMost(0.2)}},
		{groupStart, "resident size of a rank", []bar{atMost(40)}},

		{groupHistory, "digits.star, 2 ranks, accuracy", []bar{atLeast(0.97)}},
		{groupHistory, "digits.star, 2 ranks, time", []bar{atMost(5)}},
		{groupHistory, "digits.star, rows that differ when repeated", []bar{atMost(0)}},
		{groupHistory, "digits.star, rows that differ with 2 threads", []bar{atMost(0)}},
	}
	for _, q := range []struct {
		name  string
		limit float64
	}{{"runs", 0.3}, {"runs --where --sort", 0.3}, {"show", 0.1}, {"metrics of a run", 0.1}, {"compare of 100 runs", 0.5}, {"plot of a million points", 0.5}} {
		all = append(all, row{groupQueries, "large history, " + q.name, []bar{atMost(q.limit)}})
	}
	all = append(all,
		row{groupLogging, "run.log, a value of five", []bar{atMost(2 * us)}},
		row{groupLogging, "16 runs at once, rows", []bar{atLeast(150_000)}},
		row{groupLogging, "16 runs at once, rows lost", []bar{atMost(0)}},
		row{groupLogging, "64 runs at once, rows", nil},
		row{groupLogging, "64 runs at once, rows lost", []bar{atMost(0)}},
	)
	for i, ranks := range []string{", 1 rank", ", 4 ranks"} {
		copied := bar{limit: 1.2, of: drunName, name: "copy of 256 MiB" + ranks}
		plain := bar{limit: 1 / 0.8, of: plainName, name: "durable save of 256 MiB"}
		all = append(all,
			row{groupStates, "durable save of 256 MiB" + ranks, []bar{plain}},
			row{groupStates, "wait for a save of 256 MiB" + ranks, []bar{copied}},
			row{groupStates, "copy of 256 MiB" + ranks, nil},
			row{groupStates, "restore of 256 MiB" + ranks, []bar{atMost(0.256 * 1.048576), atMost([]float64{0.1, 0.14}[i])}}, // 1 GB/s, and more
		)
	}
	all = append(all, row{groupStates, "agent beside 4 ranks of 256 MiB", []bar{atMost(1.2 * 256)}})
	for _, ranks := range []int{2, 4} {
		for _, size := range []int{4, 256, 4096, 65536, 1 << 20, 16 << 20, 64 << 20} {
			all = append(all, row{groupAllReduce, fmt.Sprintf("all_reduce %d B, %d ranks", size, ranks), allReduceBars(size, ranks)})
		}
		for _, size := range []int{1 << 20, 16 << 20, 64 << 20} {
			bars := allReduceBars(size, ranks)
			if size == mib && ranks == 2 {
				bars = append(bars, atMost(40*us))
			}
			all = append(all, row{groupAllReduce, fmt.Sprintf("all_reduce %d B%s, %d ranks", size, newTensors, ranks), bars})
		}
	}
	for _, ranks := range []int{2, 4} {
		for _, size := range []int{4, 256, 4096, 65536, 1 << 20, 16 << 20, 64 << 20} {
			limit := atMostOver(glooName, overGloo(size, ranks), 25*us)
			if size >= 65536 {
				limit = bar{limit: 1.15, of: glooName, name: overGloo(size, ranks)}
			}
			all = append(all, row{groupBackends, fmt.Sprintf("gloo plugin, all_reduce %d B, %d ranks", size, ranks), []bar{limit}})
		}
	}
	all = append(all,
		row{groupBackends, "plugin hop, 1 rank", []bar{atMost(10 * us)}},
		row{groupBackends, "plugin hop, 2 ranks", []bar{atMost(25 * us)}},
		row{groupBackends, "with a plugin, hello.star, 2 ranks, start to exit", []bar{atMostOver(drunName, "hello.star, 2 ranks, start to exit beside it", 0.15)}},
	)
	all = append(all,
		row{groupHelpers, "barrier, 2 ranks", []bar{atMost(3 * us)}},
		row{groupHelpers, "average_metrics of 3, 2 ranks", []bar{atMost(8 * us), atMost(3 * us)}},
		row{groupHelpers, "all_gather of a small dict, 2 ranks", []bar{atMost(30 * us), atMost(6 * us)}},
		row{groupHelpers, "sync_grad of 100 x 10000, 2 ranks", []bar{atMost(0.6 * ms)}},

		row{groupOperators, "comparison of two numbers", []bar{atMost(0.15 * us)}},
		row{groupOperators, "addition of 16 elements", []bar{atMost(0.4 * us)}},
		row{groupOperators, "addition of 16 elements with backward", []bar{atMost(1.5 * us)}},
	)
	for _, m := range models {
		bars := []bar{atMostOf(bestName, m.one)}
		if m.name == "gpt" {
			bars = append(bars, bar{limit: 1.25, of: drunName, name: gptProducts})
		}
		all = append(all, row{groupTrain, m.name + " step, 1 rank", bars})
	}
	for _, m := range models {
		all = append(all, row{groupTrain, m.name + " step, 2 ranks", []bar{atMostOf(bestName, m.two)}})
	}
	for _, m := range models {
		if m.both > 0 {
			faster := bar{limit: 1 / 1.6, of: drunName, name: m.name + " step, 1 rank"}
			bars := []bar{atMostOf(bestName, m.both), faster}
			if m.name == "gpt" {
				bars = append(bars, bar{limit: 1.25, of: drunName, name: gptProducts + ", 2 threads"})
			}
			all = append(all, row{groupTrain, m.name + " step, 1 rank, 2 threads", bars})
		}
	}
	for _, s := range shares {
		all = append(all, row{groupTrain, s.name(), []bar{atLeast(s.least)}})
	}
	for _, m := range models {
		all = append(all, row{groupTrain, m.name + " loss, 1 rank", []bar{sameLoss}})
	}
	all = append(all,
		row{groupTrain, gptProducts, nil},
		row{groupTrain, gptProducts + ", 2 threads", nil},
		row{groupTrain, firstStep, []bar{atMost(0.15)}},
		row{groupLarge, "gpt2 step, 1 rank", []bar{atMostOf(llmcName, 0.9), atMostOf(bestName, 0.75)}},
		row{groupLarge, "gpt2 step, 1 rank, 2 threads", []bar{atMostOf(llmcName, 0.9), atMostOf(bestName, 0.75)}},
		row{groupLarge, "gpt2 memory, 1 rank", []bar{atMostOf(torchName, 1)}},
		row{groupLarge, "gpt2 loss, 1 rank", []bar{sameLoss}},
	)
	for _, layer := range []string{"lstm", "conv1d", "group_norm", "conv_transpose2d", "bf16 matmul", "autocast"} {
		all = append(all, row{groupLayers, layer + " step", []bar{atMostOf(bestName, 0.8)}})
	}
	all = append(all, row{groupStreams, "streaming loader step", []bar{atMostOf(bestName, 0.8)}})
	for _, shape := range gemmShapes {
		all = append(all, row{groupKernels, shape.String(), []bar{atLeastOf(openBLASName, shape.least)}})
	}
	for _, k := range rowKernels {
		for _, size := range kernelSizes {
			all = append(all, row{groupKernels, rowKernelName(k.name, k.rows, size.count, size.name), []bar{atMostOf(bestName, 1)}})
		}
	}
	return all
}

// overGloo names the figure of raw Gloo with which a row of the gloo plugin is compared.
func overGloo(size, ranks int) string { return fmt.Sprintf("all_reduce %d B, %d ranks", size, ranks) }

func allReduceBars(size, ranks int) []bar {
	var bars []bar
	if ranks == 2 && size == 4 {
		bars = append(bars, atMost(1*us))
	}
	if ranks == 2 && size == 64*mib {
		bars = append(bars, atMost(float64(size)/8e9)) // 8 GB/s
	}
	switch {
	case ranks == 2 && size <= 256:
		return append(bars, atMost(0.5*us))
	case ranks == 2 && size == 4096:
		return append(bars, atMostOf(mpiName, 1), atMost(0.9*us))
	case ranks == 2 && size >= mib:
		return append(bars, atMostOf(mpiName, 1.0/3))
	}
	return append(bars, atMostOf(mpiName, 1))
}

// sameLoss: after ten steps from the same weights, programs that do the same work differ by rounding alone.
var sameLoss = bar{limit: 0.001, near: true}

// models are the reference models: steps per measurement, and the bars relative to the best peer's time on one rank, on
// two, and on one with two threads; the last is 0 of models that are too small for a second thread.
var models = []struct {
	name           string
	steps          int
	one, two, both float64
}{
	{"tiny", 2000, 0.3, 0.015, 0},
	{"mlp", 300, 0.8, 0.12, 0},
	{"cnn", 20, 0.6, 0.55, 0.7},
	{"gpt", 15, 0.75, 0.75, 0.7},
}
