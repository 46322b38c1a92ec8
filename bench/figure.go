package main

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
)

// figure is one measured value. Times are in seconds.
type figure struct {
	name  string
	value float64
	unit  string
}

// scales converts the units that programs print to those of figures.
var scales = map[string]struct {
	unit string
	by   float64
}{
	"us":   {"s", 1e-6},
	"ms":   {"s", 1e-3},
	"s":    {"s", 1},
	"MiB":  {"MiB", 1},
	"nats": {"", 1},
	rate:   {rate, 1},
}

// The units of which more is better.
const (
	rate      = "GFLOPS"
	perSecond = "a second"
	percent   = "%"
)

var figureLine = regexp.MustCompile(`(?m)^(?:\[\d+\] )?(.+): ([0-9.e+-]+) (\w+)$`)

// parseFigures finds the lines of the form NAME: VALUE UNIT, with or without the rank in front.
func parseFigures(output string) []figure {
	var found []figure
	for _, match := range figureLine.FindAllStringSubmatch(output, -1) {
		scale, known := scales[match[3]]
		value, err := strconv.ParseFloat(match[2], 64)
		if known && err == nil {
			found = append(found, figure{match[1], value * scale.by, scale.unit})
		}
	}
	return found
}

// String shows a value with three digits and a suitable unit.
func (f figure) String() string {
	value, unit := f.value, f.unit
	if unit == "s" {
		switch {
		case value < 1e-3:
			value, unit = value*1e6, "µs"
		case value < 1:
			value, unit = value*1e3, "ms"
		}
	}
	text := digits(value)
	if unit == "" {
		return text
	}
	return text + " " + unit
}

// digits shows a number with three significant digits, and all digits before the point.
func digits(value float64) string {
	if value == 0 || math.IsInf(value, 0) || math.IsNaN(value) {
		return fmt.Sprint(value)
	}
	places := max(0, 2-int(math.Floor(math.Log10(math.Abs(value)))))
	return strconv.FormatFloat(value, 'f', places, 64)
}

// measured names a figure of one program.
type measured struct{ who, name string }

// samples are the figures of all rounds.
type samples map[measured][]figure

func (s samples) add(who string, f figure) {
	key := measured{who, f.name}
	s[key] = append(s[key], f)
}

func (s samples) medians() map[measured]figure {
	medians := make(map[measured]figure, len(s))
	for key, figures := range s {
		medians[key] = median(figures)
	}
	return medians
}

// spread shows the smallest and the largest of a figure, or of its ratio to a peer's of the same round; "" of one round.
func (s samples) spread(own, peer measured) string {
	of, beside := s[own], s[peer]
	if len(of) < 2 || len(beside) > 0 && len(beside) != len(of) {
		return ""
	}
	values := slices.Clone(of)
	for i := range beside {
		values[i] = figure{value: of[i].value / beside[i].value}
	}
	by := func(a, b figure) int { return cmp.Compare(a.value, b.value) }
	return fmt.Sprintf(" (%v to %v)", slices.MinFunc(values, by), slices.MaxFunc(values, by))
}

// median is the middle value, or the mean of the two middle values.
func median(figures []figure) figure {
	sorted := slices.SortedFunc(slices.Values(figures), func(a, b figure) int { return cmp.Compare(a.value, b.value) })
	middle := sorted[len(sorted)/2]
	middle.value = (middle.value + sorted[(len(sorted)-1)/2].value) / 2
	return middle
}
