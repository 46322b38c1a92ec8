package main

import (
	"slices"
	"testing"
)

func TestParseFigures(t *testing.T) {
	got := parseFigures("starting\n[0] tiny step: 0.25000 ms\nall_reduce 4 B: 1.5 us\nnot a: figure here\ngemm 8x8x8: 10 GFLOPS\nx: 3 parsecs\n")
	want := []figure{{"tiny step", 0.25e-3, "s"}, {"all_reduce 4 B", 1.5e-6, "s"}, {"gemm 8x8x8", 10, "GFLOPS"}}
	if !slices.EqualFunc(got, want, func(a, b figure) bool {
		return a.name == b.name && a.unit == b.unit && a.value > b.value*0.999 && a.value < b.value*1.001
	}) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFigureString(t *testing.T) {
	for want, f := range map[string]figure{
		"0.250 µs":    {value: 0.25e-6, unit: "s"},
		"12.3 ms":     {value: 12.345e-3, unit: "s"},
		"1.50 s":      {value: 1.5, unit: "s"},
		"1234 GFLOPS": {value: 1234, unit: "GFLOPS"},
		"0.970":       {value: 0.97},
		"0":           {value: 0},
	} {
		if got := f.String(); got != want {
			t.Errorf("%v prints as %q, want %q", f.value, got, want)
		}
	}
}

func TestMedian(t *testing.T) {
	all := func(values ...float64) (figures []figure) {
		for _, v := range values {
			figures = append(figures, figure{value: v})
		}
		return figures
	}
	if got := median(all(9, 1, 3)).value; got != 3 {
		t.Errorf("of three: %v", got)
	}
	if got := median(all(4, 1, 100, 2)).value; got != 3 {
		t.Errorf("of four: %v", got)
	}
}

func TestPeakResident(t *testing.T) {
	if got := peakResident("Name:\tdrun\nVmPeak:\t  999999 kB\nVmHWM:\t   20480 kB\nVmRSS:\t 1 kB\n"); got != 20 {
		t.Errorf("got %v MiB, want 20", got)
	}
	if got := peakResident("Name:\tzombie\n"); got != 0 {
		t.Errorf("a process without memory has %v MiB", got)
	}
}
