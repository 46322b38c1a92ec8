package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"drun/history/historytest"
	"drun/internal/programs"
)

// TestRecipes runs every probe of drun with very few repetitions, and checks that the printed figures are the
// rows of the table: a row without a figure would go unnoticed.
func TestRecipes(t *testing.T) {
	t.Chdir("..")
	folder := t.TempDir()
	drun, err := programs.Path("drun")
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(folder, "home")
	var got []string
	run := func(suffix string, args ...string) {
		t.Helper()
		output, _, err := command{append([]string{drun, "run", "--home", home}, args...), 0}.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		figures := parseFigures(output)
		if len(figures) == 0 {
			t.Errorf("%v prints no figures: %s", args, output)
		}
		for _, f := range figures {
			got = append(got, strings.Replace(f.name, " of 4 MiB", " of 256 MiB", 1)+suffix) // a state as large takes seconds
		}
	}
	for _, m := range models {
		run(", 1 rank", "bench/"+m.name+".star", "-p", "steps=1")
		run(", 2 ranks", "bench/"+m.name+".star", "-p", "steps=1", "-n", "2")
	}
	// The same recipe as for 124 million parameters, which takes minutes here.
	small := training{home: home, recipe: func(path string, ranks, threads int, more ...string) []string {
		return append([]string{drun, "run", path, "--home", home, "-n", strconv.Itoa(ranks), "--threads", strconv.Itoa(threads)}, more...)
	}, peers: &peers{}}
	larges := small.largeProbes("-p", "layers=1", "-p", "width=64", "-p", "vocabulary=100")
	large, err := larges[0].run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range large {
		got = append(got, f.name+larges[0].suffix)
	}
	run(", 2 ranks", "bench/allreduce.star", "-p", "scale=0", "-n", "2")
	run(", 2 ranks", "bench/helpers.star", "-p", "scale=0", "-n", "2")
	run("", "bench/operators.star", "-p", "scale=0")
	run("", "bench/layers.star", "-p", "scale=0")
	run("", "bench/streams.star", "-p", "scale=0", "--data", "examples/data")
	run("", "bench/log.star", "-p", "steps=100")
	run(", 1 rank", "bench/checkpoints.star", "-p", "rounds=1", "-p", "mib=4")
	var products strings.Builder
	measureProducts(t.Context(), nil, &products)
	for _, f := range parseFigures(products.String()) {
		got = append(got, f.name)
	}

	for _, special := range []func() ([]figure, error){
		func() ([]figure, error) {
			return onlySize("resident size of a rank", []string{drun, "run", "--home", home, "bench/resident.star", "-n", "2"}, largestChild)(t.Context())
		},
		func() ([]figure, error) {
			return onlySize("agent beside 4 ranks of 256 MiB", []string{drun, "run", "--home", home, "bench/checkpoints.star", "-n", "4", "-p", "rounds=1", "-p", "mib=4"}, ownSize)(t.Context())
		},
		func() ([]figure, error) { return digitsHistory(drun, folder)(t.Context()) },
		func() ([]figure, error) {
			figures, err := queries(drun, folder, historytest.Shape{Runs: 100, Params: 5, Metrics: 5, Points: 5})(t.Context())
			return slices.CompactFunc(figures, func(a, b figure) bool { return a.name == b.name }), err
		},
		func() ([]figure, error) { return logging(drun, folder, 16, time.Second)(t.Context()) },
		func() ([]figure, error) { return logging(drun, folder, 64, 0)(t.Context()) },
	} {
		figures, err := special()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range figures {
			got = append(got, f.name)
			if (strings.Contains(f.name, "differ") || strings.Contains(f.name, "lost")) && f.value != 0 {
				t.Errorf("%s: %v", f.name, f.value)
			}
		}
	}

	var want []string
	for _, r := range rows {
		other := strings.HasSuffix(r.name, "4 ranks") || strings.HasSuffix(r.name, "rank, 2 threads") && r.group == groupTrain
		other = other || strings.HasSuffix(r.name, "start to exit") || r.group == groupLarge && strings.HasSuffix(r.name, "threads")
		other = other || slices.ContainsFunc(shares, func(s share) bool { return s.name() == r.name })
		if r.group != groupKernels && r.group != groupBackends && !other {
			want = append(want, r.name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("printed and tabled differ:\nprinted %q\n tabled %q", got, want)
	}
}

// TestDifferenceQuery: a history that differs in one row, and one that does not.
func TestDifferenceQuery(t *testing.T) {
	query := differenceQuery(1, 2)
	for _, part := range []string{"run = 1", "run = 2", "bits", "exact"} {
		if !strings.Contains(query, part) {
			t.Errorf("%q lacks %q", query, part)
		}
	}
	if strings.Count(query, "except") != 2 {
		t.Errorf("%q compares one way only", query)
	}
}

// TestMissingPeers: without any peer there is still a table, and a line for each that says how to install it.
func TestMissingPeers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := os.Chdir(".."); err != nil {
		t.Fatal(err)
	}
	defer os.Chdir("bench")
	p := &peers{folder: t.TempDir(), lacks: map[string]error{}}
	for _, who := range peerNames {
		p.lacks[who] = exec.ErrNotFound
	}
	for _, each := range probes("drun", p.folder, p, time.Second) {
		if each.who != drunName {
			t.Errorf("%s would be measured though it is missing", each.who)
		}
	}
	lines := p.missing()
	if len(lines) != len(peerNames) {
		t.Errorf("got %q", lines)
	}
	for i, line := range lines {
		if who := peerNames[i]; !strings.HasPrefix(line, who+" is not installed") || install[who] == "" && who != plainName {
			t.Errorf("got %q", line)
		}
	}
}
