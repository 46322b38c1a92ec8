package doctor

import (
	"strings"
	"testing"
	"time"

	"drun/history/records"
)

// What is slow is named, and only that: a node instead of all of its connections.
func TestJudge(t *testing.T) {
	four := func(change func(r *Nodes)) *Nodes {
		r := &Nodes{}
		for i, host := range []string{"a", "b", "c", "d"} {
			r.Nodes = append(r.Nodes, Node{Facts: Facts{Host: host, Disk: 1 << 40, Write: 1e9}, Compute: 100 - float64(i)})
			for j := range 4 {
				if j != i {
					r.Links = append(r.Links, Link{From: i, To: j, Seconds: 50e-6, Bandwidth: 1e9})
				}
			}
		}
		change(r)
		r.judge()
		return r
	}
	of := func(r *Nodes, from, to int) *Link {
		for i, l := range r.Links {
			if l.From == from && l.To == to {
				return &r.Links[i]
			}
		}
		return nil
	}
	for name, test := range map[string]struct {
		change func(r *Nodes)
		want   string
	}{
		"nothing":   {func(*Nodes) {}, ""},
		"differing": {func(r *Nodes) { r.Nodes[1].Compute, of(r, 0, 1).Bandwidth, of(r, 0, 1).Seconds = 71, 0.41e9, 99e-6 }, ""},
		"compute":   {func(r *Nodes) { r.Nodes[2].Compute = 60 }, "node 2 (c) computes at 60 GFLOP/s, the median is 99"},
		"clock":     {func(r *Nodes) { r.Nodes[3].Clock = -2 }, "node 3 (d): its clock is -2.0 s ahead of node 0's"},
		"disk":      {func(r *Nodes) { r.Nodes[0].Write = 0 }, "node 0 (a): the folder of the home cannot be written"},
		"full":      {func(r *Nodes) { r.Nodes[1].Disk = 5e8 }, "node 1 (b): the disk of the home has 0.5 GB left and takes 1000 MB/s"},
		"slow disk": {func(r *Nodes) { r.Nodes[1].Write = 1e7 }, "node 1 (b): the disk of the home has 1099.5 GB left and takes 10 MB/s"},
		"one way":   {func(r *Nodes) { of(r, 1, 2).Bandwidth = 1e8 }, "from node 1 (b) to node 2 (c): 100 MB/s and 50 µs, the medians are 1000 and 50"},
		"latency":   {func(r *Nodes) { of(r, 3, 0).Seconds = 151e-6 }, "from node 3 (d) to node 0 (a): 1000 MB/s and 151 µs, the medians are 1000 and 50"},
		"a node": {func(r *Nodes) {
			for i := range r.Links {
				if l := &r.Links[i]; l.From == 2 || l.To == 2 && l.From != 0 {
					l.Bandwidth = 1e8
				}
			}
		}, "node 2 (c): 5 of its 6 connections are slow"},
		"many": {func(r *Nodes) {
			for i := range r.Nodes { // of 56, a fifth, at most two of a node
				r.Nodes = append(r.Nodes, r.Nodes[i])
			}
			r.Links = nil
			for i := range 8 {
				for j := range 8 {
					if l := (Link{From: i, To: j, Seconds: 1e-3, Bandwidth: 1e9}); i != j {
						if j == (i+1)%8 || j == i+4 {
							l.Bandwidth = 1e8
						}
						r.Links = append(r.Links, l)
					}
				}
			}
		}, "4 more connections are slow"},
	} {
		if got := strings.Join(four(test.change).Problems, "\n"); got != test.want && !(name == "many" && strings.HasSuffix(got, "\n"+test.want) && strings.Count(got, "\n") == 8) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A clock's offset is the median of those of the steps.
func TestClocks(t *testing.T) {
	at := func(rank int, step int64, seconds float64) records.Point {
		return records.Point{Rank: rank, Step: step, Time: time.Unix(1e9, 0).Add(time.Duration(seconds * 1e9))}
	}
	got := aheadOfFirst([]records.Point{at(1, 0, 12), at(1, 1, 15), at(1, 2, 90), at(0, 0, 10), at(0, 1, 12), at(0, 2, 14), at(2, 0, 8), at(2, 1, 10), at(2, 2, 12)})
	if got[0] != 0 || got[1] != 3 || got[2] != -2 {
		t.Errorf("%v", got)
	}
}
