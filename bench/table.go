package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// row is a line of the table: a figure of drun, and its bars.
type row struct {
	group, name string
	bars        []bar
}

// newTensors marks a row that is compared with the peers' figures of the row without the mark, since for peers there is
// no such difference.
const newTensors = ", new tensors"

// peerName is the name of the peers' figures with which a row is compared.
func peerName(name string) string { return strings.Replace(name, newTensors, "", 1) }

// bar is a limit for a figure: a value or, if of is set, a multiple of that program's figure.
type bar struct {
	limit float64
	of    string // a program, whose figure the limit multiplies
	name  string // of that program's figure; by default the row's own
	least bool   // the limit is a lower one
	over  bool   // the limit is added to the other figure, not multiplied with it
	near  bool   // the limit is how far every peer's figure may be, relative to it
}

func atMost(limit float64) bar              { return bar{limit: limit} }
func atLeast(limit float64) bar             { return bar{limit: limit, least: true} }
func atMostOf(of string, limit float64) bar { return bar{limit: limit, of: of} }
func atMostOver(of, name string, limit float64) bar {
	return bar{limit: limit, of: of, name: name, over: true}
}
func atLeastOf(of string, limit float64) bar {
	return bar{limit: limit, of: of, least: true}
}

// reached reports whether a figure meets the bar; known is false if the peer's figure is missing.
func (b bar) reached(f figure, medians map[measured]figure) (reached, known bool) {
	if b.near {
		reached = true
		for _, who := range peerNames {
			if peer, ok := medians[measured{who, f.name}]; ok {
				known = true
				reached = reached && math.Abs(f.value-peer.value) <= b.limit*math.Abs(peer.value)
			}
		}
		return reached, known
	}
	limit := b.limit
	if b.of != "" {
		name := peerName(f.name)
		if b.name != "" {
			name = b.name
		}
		peer, ok := best(b.of, name, medians)
		if !ok {
			return false, false
		}
		if b.over {
			limit += peer.value
		} else {
			limit *= peer.value
		}
	}
	if b.least {
		return f.value >= limit, true
	}
	return f.value <= limit, true
}

func best(of, name string, medians map[measured]figure) (found figure, ok bool) {
	names := variants[of]
	if names == nil {
		names = []string{of}
	}
	for _, who := range names {
		f, measured := medians[measured{who, name}]
		if measured && (!ok || f.cost() < found.cost()) {
			found, ok = f, true
		}
	}
	return found, ok
}

// cost orders figures, the best first: it is smaller for larger rates, and for smaller values in other units.
func (f figure) cost() float64 {
	if f.unit == rate || f.unit == perSecond || f.unit == percent {
		return -f.value
	}
	return f.value
}

func (b bar) describe(unit string) string {
	sign := "≤ "
	if b.least {
		sign = "≥ "
	}
	switch {
	case b.near:
		return "each peer ± " + digits(100*b.limit) + " %"
	case b.over:
		return sign + b.beside() + " + " + figure{value: b.limit, unit: unit}.String()
	case b.of != "":
		return sign + digits(b.limit) + " × " + b.beside()
	}
	return sign + figure{value: b.limit, unit: unit}.String()
}

// cells are the row's columns: what, drun, peers (the best first), ratio to the best, bar, reached. What is compared, the ratio or
// drun's own figure, has its spread beside it.
func (r row) cells(medians map[measured]figure, all samples) []string {
	own, ok := medians[measured{drunName, r.name}]
	if !ok {
		return []string{r.name, "not measured", "", "", "", ""}
	}
	var limits, verdicts, beside []string
	names := slices.DeleteFunc(slices.Clone(peerNames), func(who string) bool { _, ok := medians[measured{who, r.beside(who)}]; return !ok })
	of := func(who string) figure { return medians[measured{who, r.beside(who)}] }
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(of(a).cost(), of(b).cost()) })
	for _, who := range names {
		beside = append(beside, who+" "+of(who).String())
	}
	shown, ratio := own.String(), ""
	if len(names) > 0 && of(names[0]).value != 0 {
		ratio = digits(own.value/of(names[0]).value) + all.spread(measured{drunName, r.name}, measured{names[0], r.beside(names[0])})
	} else {
		shown += all.spread(measured{drunName, r.name}, measured{})
	}
	for _, b := range r.bars {
		limits = append(limits, b.describe(own.unit))
		verdict := "no"
		if reached, known := b.reached(own, medians); !known {
			verdict = "?"
		} else if reached {
			verdict = "yes"
		}
		verdicts = append(verdicts, verdict)
	}
	return []string{r.name, shown, strings.Join(beside, ", "), ratio, strings.Join(limits, ", "), strings.Join(verdicts, ", ")}
}

// beside names the figure of a program that the row shows: that of its bar, or the one of the same name.
func (r row) beside(who string) string {
	for _, b := range r.bars {
		if b.of == who && b.name != "" {
			return b.name
		}
	}
	return peerName(r.name)
}

// printTable prints the rows as a Markdown table whose columns are aligned.
func printTable(w io.Writer, rows []row, medians map[measured]figure, all samples) {
	columns := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line := func(cells ...string) { fmt.Fprintln(columns, "| "+strings.Join(cells, "\t| ")+"\t|") }
	line("what", "drun", "peers", "ratio", "bar", "reached")
	line("---", "---", "---", "---", "---", "---")
	for _, r := range rows {
		line(r.cells(medians, all)...)
	}
	columns.Flush()
}

// beside is what the bar compares with: a program, or another figure of drun.
func (b bar) beside() string {
	if b.of == drunName {
		return b.name
	}
	return b.of
}
