package doctor

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"drun/engine/record"
	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/scratch"
	"drun/internal/try"
	"drun/kernel"
)

//go:embed nodes.star
var nodesRecipe []byte

// Nodes is what [ExamineNodes] found.
type Nodes struct {
	Nodes    []Node   `json:"nodes"`
	Links    []Link   `json:"links"` // two for every pair of nodes, one each way
	Problems []string `json:"problems"`
}

// Node is one machine.
type Node struct {
	Facts
	Compute float64 `json:"gflops"`        // of float32 products, on all threads
	Clock   float64 `json:"clock_seconds"` // ahead of node 0's, to about a millisecond
}

// Facts are what a node knows by itself.
type Facts struct {
	Host    string  `json:"host"`
	Cores   int     `json:"cores"`
	Memory  uint64  `json:"memory"` // bytes
	Free    uint64  `json:"memory_free"`
	Kernels string  `json:"kernels"`
	Disk    uint64  `json:"disk_free"`  // bytes that are free where the home is
	Write   float64 `json:"disk_write"` // bytes/s that reach that disk; 0: nothing can be written there
}

// Link is the connection from one node to another.
type Link struct {
	From      int     `json:"from"`
	To        int     `json:"to"`
	Seconds   float64 `json:"seconds"`   // half of a round trip of a small message
	Bandwidth float64 `json:"bandwidth"` // bytes/s of large messages
}

// ExamineNodes measures all nodes of a run, of which o says how this process joins it, and the connections between
// them. It runs on every node; only node 0 gets the report. home is the folder whose disk is measured.
func ExamineNodes(o run.Options, home string) (_ *Nodes, err error) {
	defer try.Caught(&err)
	temp := try.To(scratch.Make("doctor-"))
	defer temp.Remove()
	o.Recipe = filepath.Join(temp.Path, "nodes.star")
	try.Ok(os.WriteFile(o.Recipe, nodesRecipe, 0o600))
	facts := try.To(json.Marshal(factsOf(home)))
	try.Ok(os.WriteFile(filepath.Join(temp.Path, "facts.json"), facts, 0o600))
	var out bytes.Buffer
	o.Nproc, o.Output.Stdout, o.History = 1, &out, record.History{Home: filepath.Join(temp.Path, "home")}
	result := try.To(run.Run(o))
	switch {
	case result.Failure != nil:
		return nil, result.Failure.Err()
	case o.Join.Index != 0:
		return nil, nil
	}
	r := &Nodes{}
	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(line, "] ") // the rank's number
		var part struct {
			Nodes   []Facts
			Compute []float64
			Links   []Link
		}
		try.Ok(json.Unmarshal([]byte(text), &part))
		for _, f := range part.Nodes {
			r.Nodes = append(r.Nodes, Node{Facts: f})
		}
		for i, c := range part.Compute {
			r.Nodes[i].Compute = c
		}
		r.Links = append(r.Links, part.Links...)
	}
	slices.SortFunc(r.Links, func(a, b Link) int { return (a.From-b.From)*len(r.Nodes) + a.To - b.To })
	try.Ok(r.clocks(o.Home, result.ID))
	r.judge()
	return r, nil
}

func factsOf(home string) Facts {
	f := Facts{Cores: runtime.NumCPU(), Kernels: kernel.Path()}
	f.Host, _ = os.Hostname() // only shown
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if m, err := fs.Meminfo(); err == nil && m.MemTotal != nil && m.MemAvailable != nil {
			f.Memory, f.Free = *m.MemTotal<<10, *m.MemAvailable<<10
		}
	}
	dir := home
	for dir != "." && dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) == nil {
		f.Disk = disk.Bavail * uint64(disk.Bsize)
	}
	f.Write = writes(dir)
	return f
}

// writes measures bytes/s of a file that is written to the disk; 0: none can be.
func writes(dir string) float64 {
	file, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return 0
	}
	defer os.Remove(file.Name())
	defer file.Close()
	block := bytes.Repeat([]byte("drun"), 1<<20)
	start := time.Now()
	for range 8 {
		if _, err := file.Write(block); err != nil {
			return 0
		}
	}
	if file.Sync() != nil {
		return 0
	}
	return float64(8*len(block)) / time.Since(start).Seconds()
}

// clocks compares the times of points that the nodes recorded at the same moments.
func (r *Nodes) clocks(home string, id int64) (err error) {
	defer try.Caught(&err)
	db := try.To(history.OpenReadOnly(home))
	defer db.Close()
	for rank, ahead := range aheadOfFirst(try.To(db.Points(id, "clock"))) {
		r.Nodes[rank].Clock = ahead
	}
	return nil
}

// aheadOfFirst returns by how many seconds each rank's points were later than those of rank 0 at the same steps: the median.
func aheadOfFirst(points []records.Point) map[int]float64 {
	first, ahead := map[int64]time.Time{}, map[int][]float64{}
	for _, p := range points {
		if p.Rank == 0 {
			first[p.Step] = p.Time
		}
	}
	for _, p := range points {
		ahead[p.Rank] = append(ahead[p.Rank], p.Time.Sub(first[p.Step]).Seconds())
	}
	out := map[int]float64{}
	for rank, values := range ahead {
		out[rank] = median(values)
	}
	return out
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// What is a problem, beside the median of all nodes or links.
const (
	slowCompute   = 0.7 // of the speed
	slowBandwidth = 0.4 // of the bandwidth
	slowLatency   = 3.0 // times the latency, and
	leastLatency  = 100e-6
	mostSlow      = 8       // connections that are named
	clockApart    = 1.0     // seconds
	littleDisk    = 1 << 30 // bytes
	slowDisk      = 20e6    // bytes/s
)

// judge names the nodes and links that are much slower than the others.
func (r *Nodes) judge() {
	say := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	r.Problems = []string{}
	typical := median(each.Of(r.Nodes, func(n Node) float64 { return n.Compute }))
	for i, n := range r.Nodes {
		switch {
		case n.Compute < slowCompute*typical:
			say("node %d (%s) computes at %.0f GFLOP/s, the median is %.0f", i, n.Host, n.Compute, typical)
		case n.Clock > clockApart || n.Clock < -clockApart:
			say("node %d (%s): its clock is %.1f s ahead of node 0's", i, n.Host, n.Clock)
		}
		switch {
		case n.Write == 0:
			say("node %d (%s): the folder of the home cannot be written", i, n.Host)
		case n.Disk < littleDisk || n.Write < slowDisk:
			say("node %d (%s): the disk of the home has %.1f GB left and takes %.0f MB/s", i, n.Host, float64(n.Disk)/1e9, n.Write/1e6)
		}
	}
	if len(r.Links) == 0 {
		return
	}
	bandwidth, latency := r.Typical()
	slow := func(l Link) bool {
		return l.Bandwidth < slowBandwidth*bandwidth || l.Seconds > slowLatency*latency && l.Seconds > leastLatency
	}
	// A node most of whose links are slow is told instead of them.
	bad := map[int]bool{}
	for i := range r.Nodes {
		own, count := 0, 0
		for _, l := range r.Links {
			if l.From == i || l.To == i {
				own++
				if slow(l) {
					count++
				}
			}
		}
		if len(r.Nodes) > 2 && 2*count > own {
			bad[i] = true
			say("node %d (%s): %d of its %d connections are slow", i, r.Nodes[i].Host, count, own)
		}
	}
	alone := 0
	for _, l := range r.Links {
		if !slow(l) || bad[l.From] || bad[l.To] {
			continue
		}
		if alone++; alone <= mostSlow {
			say("from node %d (%s) to node %d (%s): %.0f MB/s and %.0f µs, the medians are %.0f and %.0f", l.From, r.Nodes[l.From].Host, l.To, r.Nodes[l.To].Host,
				l.Bandwidth/1e6, l.Seconds*1e6, bandwidth/1e6, latency*1e6)
		}
	}
	if alone > mostSlow {
		say("%d more connections are slow", alone-mostSlow)
	}
}

// Typical returns the medians of all links: bytes/s, and seconds.
func (r *Nodes) Typical() (bandwidth, latency float64) {
	return median(each.Of(r.Links, func(l Link) float64 { return l.Bandwidth })), median(each.Of(r.Links, func(l Link) float64 { return l.Seconds }))
}
