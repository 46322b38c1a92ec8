package main

import (
	"strings"
	"testing"
)

var someMedians = map[measured]figure{
	{drunName, "step"}:              {"step", 2 * ms, "s"},
	{torchName, "step"}:             {"step", 4 * ms, "s"},
	{mpiName, "step"}:               {"step", 1 * ms, "s"},
	{drunName, "step, new tensors"}: {"step, new tensors", 3 * ms, "s"},
	{drunName, "step, 2 threads"}:   {"step, 2 threads", 1 * ms, "s"},
	{drunName, "gemm"}:              {"gemm", 95, "GFLOPS"},
	{openBLASName, "gemm"}:          {"gemm", 100, rate},
	{drunName, "narrow"}:            {"narrow", 95, rate},
	{openBLASName, "narrow"}:        {"narrow", 100, rate},
	{openBLASWideName, "narrow"}:    {"narrow", 190, rate},
	{drunName, "exp"}:               {"exp", 3 * ms, "s"},
	{torchName, "exp"}:              {"exp", 4 * ms, "s"},
	{jaxName, "exp"}:                {"exp", 2 * ms, "s"},
	{drunName, "loss"}:              {"loss", 2.5, ""},
	{torchName, "loss"}:             {"loss", 2.5001, ""},
	{jaxName, "loss"}:               {"loss", 2.4999, ""},
	{drunName, "other loss"}:        {"other loss", 2.5, ""},
	{torchName, "other loss"}:       {"other loss", 2.5, ""},
	{jaxName, "other loss"}:         {"other loss", 2.49, ""},
}

func TestCells(t *testing.T) {
	for _, c := range []struct {
		row  row
		want []string
	}{
		{row{"g", "step", []bar{atMost(1 * ms)}}, []string{"2.00 ms", "Open MPI 1.00 ms, PyTorch 4.00 ms", "2.00", "≤ 1.00 ms", "no"}},
		{row{"g", "step", []bar{atMost(3 * ms), atMostOf(mpiName, 1)}},
			[]string{"2.00 ms", "Open MPI 1.00 ms, PyTorch 4.00 ms", "2.00", "≤ 3.00 ms, ≤ 1.00 × Open MPI", "yes, no"}},
		{row{"g", "gemm", []bar{atLeastOf(openBLASName, 0.95)}}, []string{"95.0 GFLOPS", "OpenBLAS 100 GFLOPS", "0.950", "≥ 0.950 × OpenBLAS", "yes"}},
		{row{"g", "gemm", []bar{atLeastOf(openBLASName, 0.96)}}, []string{"95.0 GFLOPS", "OpenBLAS 100 GFLOPS", "0.950", "≥ 0.960 × OpenBLAS", "no"}},
		{row{"g", "step", []bar{atMostOf(glooName, 1)}}, []string{"2.00 ms", "Open MPI 1.00 ms, PyTorch 4.00 ms", "2.00", "≤ 1.00 × Gloo", "?"}},
		{row{"g", "step, 2 threads", []bar{{limit: 0.625, of: drunName, name: "step"}}}, []string{"1.00 ms", "", "", "≤ 0.625 × step", "yes"}},
		{row{"g", "step, new tensors", []bar{atMostOf(mpiName, 2)}}, []string{"3.00 ms", "Open MPI 1.00 ms, PyTorch 4.00 ms", "3.00", "≤ 2.00 × Open MPI", "no"}},
		{row{"g", "narrow", []bar{atLeastOf(openBLASName, 0.95)}}, // the best of a peer's variants sets the bar
			[]string{"95.0 GFLOPS", "OpenBLAS for AVX-512 190 GFLOPS, OpenBLAS 100 GFLOPS", "0.500", "≥ 0.950 × OpenBLAS", "no"}},
		{row{"g", "exp", []bar{atMostOf(bestName, 1)}}, []string{"3.00 ms", "JAX 2.00 ms, PyTorch 4.00 ms", "1.50", "≤ 1.00 × best peer", "no"}},
		{row{"g", "loss", []bar{sameLoss}}, []string{"2.50", "JAX 2.50, PyTorch 2.50", "1.00", "each peer ± 0.100 %", "yes"}},
		{row{"g", "other loss", []bar{sameLoss}}, []string{"2.50", "JAX 2.49, PyTorch 2.50", "1.00", "each peer ± 0.100 %", "no"}},
		{row{"g", "step, 2 threads", []bar{sameLoss}}, []string{"1.00 ms", "", "", "each peer ± 0.100 %", "?"}},
		{row{"g", "nothing", []bar{atMost(1)}}, []string{"not measured", "", "", "", ""}},
	} {
		got := c.row.cells(someMedians, nil)
		if strings.Join(got, "|") != c.row.name+"|"+strings.Join(c.want, "|") {
			t.Errorf("%+v\n got %q\nwant %q", c.row, got[1:], c.want)
		}
	}
}

// What is compared has its spread over the rounds beside it.
func TestSpread(t *testing.T) {
	all := samples{}
	for _, v := range [][2]float64{{3, 4}, {1, 2}, {2, 2}} {
		all.add(drunName, figure{"step", v[0] * ms, "s"})
		all.add(torchName, figure{"step", v[1] * ms, "s"})
		all.add(drunName, figure{"alone", v[0] * ms, "s"})
	}
	for name, want := range map[string]string{
		"step":  "step|2.00 ms|PyTorch 2.00 ms|1.00 (0.500 to 1.00)",
		"alone": "alone|2.00 ms (1.00 ms to 3.00 ms)||",
	} {
		if got := strings.Join(row{"g", name, nil}.cells(all.medians(), all)[:4], "|"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	all.add(drunName, figure{"step", ms, "s"}) // a round in which the peer failed
	if got := (row{"g", "step", nil}).cells(all.medians(), all)[3]; got != "0.750" {
		t.Errorf("got %q", got)
	}
}

// A share is that of the step and the peak of the same round.
func TestShares(t *testing.T) {
	all := samples{}
	for _, v := range [][2]float64{{50, 100}, {25, 80}} { // milliseconds, GFLOPS
		all.add(drunName, figure{"gpt step, 1 rank", v[0] * ms, "s"})
		all.add(drunName, figure{"peak of 1 core", v[1], rate})
	}
	addShares(all)
	const name = "gpt step, 1 rank, share of the peak"
	got := (row{"g", name, []bar{atLeast(70)}}).cells(all.medians(), all)
	if want := name + "|133 % (76.3 % to 191 %)|||≥ 70.0 %|yes"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if work := workOfGPT(); work < 3.80e9 || work > 3.82e9 {
		t.Errorf("a step of gpt needs %v operations", work)
	}
}

func TestPrintTable(t *testing.T) {
	var out strings.Builder
	printTable(&out, []row{{"g", "step", []bar{atMost(3 * ms)}}}, someMedians, nil)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[2], "≤ 3.00 ms") {
		t.Fatalf("got\n%s", out.String())
	}
	for _, line := range lines {
		if len([]rune(line)) != len([]rune(lines[0])) {
			t.Errorf("the columns are not aligned:\n%s", out.String())
		}
	}
}
