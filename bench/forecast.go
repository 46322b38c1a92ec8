package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strconv"
	"strings"
)

// forecastCommand compares `drun forecast` with runs over network namespaces whose links are shaped: it takes root and the
// commands ip and tc.
const forecastCommand = "forecast"

// within is how far a forecast may be off.
const within = 0.2

func checkForecast(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(forecastCommand, flag.ContinueOnError)
	drun := flags.String("drun", "bin/drun", "the drun to measure")
	rate := flags.Float64("mbit", 200, "bandwidth of a link in Mbit/s")
	delay := flags.Float64("ms", 0, "latency of a link in milliseconds, one way; takes the kernel's netem")
	rounds := flags.Int("rounds", 2, "how often to run; the fastest counts, since whatever else runs here only adds time")
	perNode := flags.String("per-node", "1,2", "ranks on a node")
	if err := flags.Parse(args); err != nil {
		return err
	}
	sizes := []int{2, 4, 8}
	net, err := newNetwork(*drun, sizes[len(sizes)-1])
	defer net.close()
	if err != nil {
		return err
	}
	if err := net.shape(fmt.Sprintf("%gmbit", *rate), *delay); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\nLinks of %g Mbit/s and %g ms.\n\n| nodes × ranks | way | step | forecast | forecast/step |\n|---|---|---:|---:|---:|\n", machine(), *rate, *delay)
	worst := 0.0
	for _, text := range strings.Split(*perNode, ",") {
		ranks, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		for _, way := range []string{"sync_grad", "ddp"} {
			forecast, err := predicted(ctx, *drun, sizes, ranks, fmt.Sprintf("%gMbit,%gms", *rate, *delay), way)
			if err != nil {
				return err
			}
			for i, nodes := range sizes {
				step := math.Inf(1)
				for range *rounds {
					took, _, err := net.run(ctx, "bench/forecast.star", [2]int{nodes, ranks}, "", []string{"-p=sync=" + way})
					if err != nil {
						return err
					}
					step = min(step, took)
				}
				ratio := forecast[i] / step
				worst = max(worst, math.Abs(ratio-1))
				fmt.Fprintf(out, "| %d × %d | %s | %.1f ms | %.1f ms | %.2f |\n", nodes, ranks, way, step*1e3, forecast[i]*1e3, ratio)
			}
		}
	}
	if worst > within {
		return fmt.Errorf("a forecast is %.0f %% off; want at most %.0f %%", 100*worst, 100*within)
	}
	return nil
}

// predicted are the forecast seconds of a step.
func predicted(ctx context.Context, drun string, nodes []int, perNode int, link, way string) (steps []float64, err error) {
	var ranks []string
	for _, n := range nodes {
		ranks = append(ranks, strconv.Itoa(n*perNode))
	}
	text, err := exec.CommandContext(ctx, drun, "forecast", "bench/forecast.star", "-p", "sync="+way, "-p", "steps=30", "--threads", "1", "-n", "2", "--ranks", strings.Join(ranks, ","),
		"--per-node", strconv.Itoa(perNode), "--link", link, "--json").Output()
	if err != nil {
		return nil, err
	}
	var f struct {
		Forecast []struct{ Step float64 }
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	for _, row := range f.Forecast {
		steps = append(steps, row.Step)
	}
	return steps, nil
}
