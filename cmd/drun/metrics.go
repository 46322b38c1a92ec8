package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"

	"drun/history"
	"drun/history/records"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
)

func newMetrics() *cobra.Command {
	var asCSV, lineage bool
	var points, attempt int
	cmd := &cobra.Command{
		Use:   "metrics RUN [METRIC…]",
		Short: "Print the points of a run's metrics",
		Long: `Print the points of a run's metrics, all of them or those named, in the order
in which they were recorded. Values are exact: they read back to the same bits.
In JSON, NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".`,
		Example: `  drun metrics last loss
  drun metrics calm-otter --csv > points.csv
  drun metrics 7 loss val/acc --points 200 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asCSV && wantsJSON(cmd) {
				return usage("", "--csv and --json exclude each other")
			}
			if cmd.Flags().Changed("points") && points < history.MinDownsample {
				return usage("without --points all are printed", "--points %d: must be at least %d", points, history.MinDownsample)
			}
			if cmd.Flags().Changed("attempt") && attempt < 0 {
				return usage("attempts are numbered from 0", "--attempt %d: there is none", attempt)
			}
			if lineage && cmd.Flags().Changed("attempt") {
				return usage("", "--attempt and --lineage exclude each other")
			}
			return withRun(cmd, args[0], func(db *history.DB, id int64) error {
				list := try.To(report.Points(db, id, args[1:], lineage, attempt, points))
				if asCSV {
					return printPointsCSV(cmd.OutOrStdout(), list)
				}
				return show(cmd, list, printPoints)
			})
		},
	}
	cmd.Flags().IntVar(&attempt, "attempt", -1, "print what attempt number `N` recorded, even if a later attempt recorded it again")
	cmd.Flags().BoolVar(&lineage, "lineage", false, "print also the points of the runs that this one was resumed from, up to the checkpoint")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print as CSV")
	cmd.Flags().IntVar(&points, "points", 0, "print at most `N` points per metric and rank; spikes are kept")
	return cmd
}

func cells(p records.Point) []string {
	return []string{p.Name, strconv.FormatInt(p.Step, 10), strconv.Itoa(p.Rank),
		records.Float(p.Value).String(), p.Time.Format(time.RFC3339Nano)}
}

func printPointsCSV(out io.Writer, list []records.Point) error {
	w := csv.NewWriter(out)
	try.Ok(w.Write([]string{"name", "step", "rank", "value", "time"}))
	for _, p := range list {
		line := cells(p)
		line[0] = terminal.Cell(line[0]) // the only text column
		if terminal.Is(out) {
			line[0] = terminal.Escape(line[0])
		}
		try.Ok(w.Write(line))
	}
	w.Flush()
	return w.Error()
}

func printPoints(out io.Writer, list []records.Point) error {
	return printList(out, list, []column[records.Point]{{[]string{"NAME", "STEP", "RANK", "VALUE", "TIME"}, func(p records.Point) any { return cells(p) }}})
}

// chart says how a plot looks.
type chart struct {
	metric        string
	width, height int
	log, time     bool
}

type curve struct {
	history.RunName
	metric  string
	started time.Time
	points  []history.XY
	omitted int // points that cannot be shown
}

func newPlot() *cobra.Command {
	var c chart
	var chosen conditions
	cmd := &cobra.Command{
		Use:   "plot [RUN…] METRIC",
		Short: "Draw a metric of one or several runs in the terminal",
		Long: `Draws a metric of one or several runs in one chart, over the steps. Every two columns show the smallest and the
largest value of their points, so that no spike is lost; values that are not finite leave a gap.
--where and --tag choose runs as in drun runs, instead of their names.
--json prints the points that the chart shows, as a list of {"run", "name", "x", "value"}.`,
		Example: `  drun plot last loss
  drun plot 3 7 calm-otter acc --height 20
  drun plot last loss --log --time
  drun plot --tag baseline loss`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.width != 0 && c.width < 20 || c.height < 3 || c.width > 10_000 || c.height > 1000 {
				return usage("", "a chart is at least 20 columns wide and 3 rows high, and at most 10000 and 1000")
			}
			if c.width == 0 {
				c.width = terminal.Width(cmd.OutOrStdout()) - 12 // minus the numbers on the left
			}
			c.metric = args[len(args)-1]
			return withChosen(cmd, &chosen, args[:len(args)-1], func(db *history.DB, ids []int64) error {
				curves := try.To(c.read(cmd.ErrOrStderr(), db, ids))
				return c.draw(cmd, curves)
			})
		},
	}
	f := cmd.Flags()
	chosen.addFlags(f)
	f.IntVar(&c.width, "width", 0, "columns of the chart (default: those of the terminal)")
	f.IntVar(&c.height, "height", 15, "rows of the chart")
	f.BoolVar(&c.log, "log", false, "a logarithmic scale")
	f.BoolVar(&c.time, "time", false, "over the seconds since the run began instead of steps")
	return cmd
}

// read reads the curves of the runs that have the metric; if none has it, the error is that of the first.
func (c *chart) read(errs io.Writer, db *history.DB, ids []int64) ([]curve, error) {
	runs := try.To(db.Select(history.Selection{IDs: ids}))
	var curves []curve
	var missing error
	for _, id := range ids {
		v := curve{RunName: history.RunName{ID: id}, metric: c.metric}
		for _, r := range runs {
			if r.ID == id {
				v.Name, v.started = r.Name, r.Started
			}
		}
		points, err := db.Points(id, c.metric)
		for _, p := range points {
			at := history.XY{X: float64(p.Step), Y: p.Value}
			if c.time {
				at.X = p.Time.Sub(v.started).Seconds()
			}
			if c.log {
				at.Y = math.Log10(at.Y) // NaN or infinite unless above 0
			}
			if math.IsNaN(at.Y) || math.IsInf(at.Y, 0) {
				v.omitted++
			}
			v.points = append(v.points, at)
		}
		if errors.As(err, new(*history.NotFound)) {
			if missing == nil {
				missing = err
			}
			if len(ids) > 1 {
				fmt.Fprintf(errs, "%s\n", terminal.Escape(err.Error()))
			}
			continue
		}
		try.Ok(err)
		curves = append(curves, v)
	}
	if len(curves) == 0 {
		return nil, missing
	}
	return curves, nil
}

// marks tell curves apart if there are no colours.
var marks = []string{"*", "+", "o", "x", "#", "@", "%", "&", "=", "~"}

var curveColours = []asciigraph.AnsiColor{asciigraph.Blue, asciigraph.Red, asciigraph.Green, asciigraph.Yellow,
	asciigraph.Magenta, asciigraph.Cyan, asciigraph.Orange, asciigraph.White}

func (c *chart) draw(cmd *cobra.Command, curves []curve) error {
	out := cmd.OutOrStdout()
	from, to := math.Inf(1), math.Inf(-1)
	for _, v := range curves {
		for _, p := range v.points {
			from, to = min(from, p.X), max(to, p.X)
		}
	}
	var series [][]float64
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range curves {
		columns := history.Columns(v.points, c.width, from, to)
		for _, y := range columns {
			if !math.IsNaN(y) {
				low, high = min(low, y), max(high, y)
			}
		}
		series = append(series, columns)
	}
	if wantsJSON(cmd) {
		return c.printPoints(out, curves, series, from, to)
	}
	if low > high {
		return usage("drun metrics prints all values", "no value of %q can be shown: none is finite%s", c.metric, map[bool]string{true: " and above 0"}[c.log])
	}
	// The library gets numbers from 0 to 1, since it cannot handle the largest and the smallest ones.
	for _, columns := range series {
		for i, y := range columns {
			switch span := high/2 - low/2; {
			case math.IsNaN(y):
			case span == 0:
				columns[i] = 0
			default:
				columns[i] = (y/2 - low/2) / span
			}
		}
	}
	between := func(a, b, fraction float64) float64 { return a*(1-fraction) + b*fraction }
	ticks := min(6, max(2, c.width/14))
	if !c.time {
		ticks = int(min(float64(ticks), max(2, to-from+1)))
	}
	coloured := bool(painterFor(out))
	options := []asciigraph.Option{asciigraph.Height(c.height), asciigraph.YAxisValueFormatter(func(fraction float64) string { return c.label(between(low, high, fraction)) }),
		asciigraph.XAxisRange(0, 1), asciigraph.XAxisTickCount(ticks), asciigraph.XAxisValueFormatter(func(fraction float64) string {
			if x := between(from, to, fraction); c.time {
				return strconv.FormatFloat(x, 'g', 4, 64)
			} else {
				return strconv.FormatFloat(math.Round(x), 'g', 9, 64)
			}
		})}
	legend := make([]string, len(curves))
	switch {
	case coloured:
		var colours []asciigraph.AnsiColor
		for i := range curves {
			colour := curveColours[i%len(curveColours)]
			colours = append(colours, colour)
			legend[i] = colour.String() + "■\x1b[0m "
		}
		options = append(options, asciigraph.SeriesColors(colours...))
	case len(curves) > 1:
		var sets []asciigraph.CharSet
		for i := range curves {
			sets = append(sets, asciigraph.CreateCharSet(marks[i%len(marks)]))
			legend[i] = marks[i%len(marks)] + " "
		}
		options = append(options, asciigraph.SeriesChars(sets...))
	}
	over := "step"
	if c.time {
		over = "seconds"
	}
	fmt.Fprintf(out, "%s over %s\n", terminal.Escape(c.metric), over)
	for line := range strings.Lines(asciigraph.PlotMany(series, options...)) {
		fmt.Fprintln(out, strings.TrimRight(line, " \n"))
	}
	fmt.Fprintln(out)
	for i, v := range curves {
		fmt.Fprintf(out, "%s%d %s: %s", legend[i], v.ID, terminal.Escape(v.Name), english.Plural(len(v.points), "point", ""))
		if v.omitted > 0 {
			fmt.Fprintf(out, ", %d of them not shown: not finite%s", v.omitted, map[bool]string{true: ", or not above 0"}[c.log])
		}
		fmt.Fprintln(out)
	}
	return nil
}

func (c *chart) label(y float64) string {
	if c.log {
		y = math.Pow(10, y)
	}
	return strconv.FormatFloat(y, 'g', 4, 64)
}

func (c *chart) printPoints(out io.Writer, curves []curve, series [][]float64, from, to float64) error {
	type shown struct {
		Run   int64         `json:"run"`
		Name  string        `json:"name"`
		X     records.Float `json:"x"`
		Value records.Float `json:"value"`
	}
	list := []shown{}
	for i, columns := range series {
		for k, y := range columns {
			if math.IsNaN(y) || k%2 == 1 && y == columns[k-1] {
				continue
			}
			if c.log {
				y = math.Pow(10, y)
			}
			x := from
			if len(columns) > 1 {
				x += (to - from) * float64(k) / float64(len(columns)-1)
			}
			list = append(list, shown{curves[i].ID, curves[i].metric, records.Float(x), records.Float(y)})
		}
	}
	return printJSON(out, list)
}
