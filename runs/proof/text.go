package proof

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/replay"
)

// The members of a pack that are made from its history.
const (
	historyName = "history.db"
	chainName   = "chain.txt"
	logsName    = "logs.txt"
	metricsName = "metrics.csv"
	runName     = "run.json"
)

//go:embed README.txt
var readme string

// link is a boundary between two segments of a run: a checkpoint, or the end.
type link struct {
	Step    int64 // of the checkpoint
	Updates int64 // that the run had made by then
	Points  int64 // that the run had recorded by then
	State   string
	Kept    bool // the pack contains the checkpoint itself
	End     bool
}

// chain are the boundaries of a run in their order, and before them, if the run was resumed, where it came from.
type chain struct {
	Origin *link
	Links  []link
}

func checkpointName(step int64) string { return fmt.Sprintf("checkpoints/%d.safetensors", step) }

// kept are the steps of the checkpoints in the pack.
func (c *chain) kept() []int64 {
	steps := []int64{}
	for _, l := range c.Links {
		if l.Kept {
			steps = append(steps, l.Step)
		}
	}
	return steps
}

const originName = "origin.safetensors"

// made is what a run's history says of its segments.
type made struct {
	db      *history.DB
	id      int64
	detail  *history.Detail
	marks   []records.Mark
	digests []map[int64][records.DigestSize]byte
	updated [][]int64 // by rank, the updates that have digests, in order
	points  []numbered
}

type numbered struct {
	seq int64
	records.Point
}

func madeBy(db *history.DB, id int64) (_ *made, err error) {
	defer try.Caught(&err)
	m := &made{db: db, id: id, detail: try.To(db.Get(id)), marks: try.To(db.Marks(id)), digests: try.To(db.Digests(id))}
	for _, of := range m.digests {
		m.updated = append(m.updated, slices.Sorted(maps.Keys(of)))
	}
	try.Ok(db.EachPoint(id, func(seq int64, p *records.Point) { m.points = append(m.points, numbered{seq, *p}) }))
	return m, nil
}

// links lists the boundaries: the run's checkpoints for which state knows a sum, and the end.
func (m *made) links(state func(step int64) (sum string, kept bool)) (all []link, err error) {
	defer try.Caught(&err)
	updates := replay.SavedAt(m.marks)
	points := try.To(m.db.PointsBefore(m.id))
	for _, c := range m.detail.Checkpoints {
		u, marked := updates[c.Step]
		n, counted := points[c.Step]
		if !marked || !counted {
			continue // a very old drun saved it
		}
		if sum, kept := state(c.Step); sum != "" {
			all = append(all, link{Step: c.Step, Updates: u, Points: n, State: sum, Kept: kept})
		}
	}
	slices.SortStableFunc(all, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.Updates, b.Updates), cmp.Compare(a.Points, b.Points), cmp.Compare(a.Step, b.Step))
	})
	end, last := link{End: true}, link{Updates: -1}
	if len(m.updated) > 0 && len(m.updated[0]) > 0 {
		end.Updates = m.updated[0][len(m.updated[0])-1]
	}
	if n := len(m.points); n > 0 {
		end.Points = m.points[n-1].seq
	}
	if n := len(all); n > 0 {
		last = all[n-1]
	}
	if last.Updates < end.Updates || last.Points < end.Points || m.detail.Status == history.Done {
		end.Updates, end.Points = max(end.Updates, last.Updates), max(end.Points, last.Points)
		all = append(all, end)
	}
	return all, nil
}

// within are those of a sorted list whose numbers are above one and up to another.
func within[E any](list []E, after, upTo int64, number func(E) int64) []E {
	find := func(n int64) int {
		i, _ := slices.BinarySearchFunc(list, n, func(e E, n int64) int { return cmp.Or(cmp.Compare(number(e), n), -1) })
		return i
	}
	to := find(upTo)
	return list[min(find(after), to):to]
}

// recorded are the points between two boundaries.
func (m *made) recorded(after, upTo link) []numbered {
	return within(m.points, after.Points, upTo.Points, func(p numbered) int64 { return p.seq })
}

// text writes the chain. Each link is a SHA-256 over the link before it, the digests of the updates and the points in
// between, and the state that they led to.
func (c *chain) text(m *made) []byte {
	var out strings.Builder
	before := sha256.Sum256([]byte("drun chain 1\n"))
	if o := c.Origin; o != nil {
		fmt.Fprintf(&out, "origin %d state %s weights %t\n", o.Step, o.State, o.Kept)
		before = sha256.Sum256([]byte(out.String()))
	}
	last := link{}
	for _, l := range c.Links {
		sum := sha256.New()
		sum.Write(before[:])
		w := bufio.NewWriter(sum)
		for rank, updated := range m.updated {
			for _, n := range within(updated, last.Updates, l.Updates, func(n int64) int64 { return n }) {
				fmt.Fprintf(w, "%d %d %x\n", rank, n, m.digests[rank][n])
			}
		}
		for _, p := range m.recorded(last, l) {
			fmt.Fprintf(w, "%q %d %d %t %016x\n", p.Name, p.Step, p.Rank, p.Exact, math.Float64bits(p.Value))
		}
		what := fmt.Sprintf("checkpoint %d updates %d points %d state %s weights %t", l.Step, l.Updates, l.Points, l.State, l.Kept)
		if l.End {
			what = fmt.Sprintf("end updates %d points %d", l.Updates, l.Points)
		}
		_, _ = w.WriteString(what)
		_ = w.Flush() // a hash takes everything
		before = [sha256.Size]byte(sum.Sum(nil))
		fmt.Fprintf(&out, "%s link %x\n", what, before)
		last = l
	}
	return []byte(out.String())
}

// parseChain reads the sums of the states in a chain; everything else follows from the history.
func parseChain(text string) (origin *link, states map[int64]string) {
	states = map[int64]string{}
	for line := range strings.Lines(text) {
		l := link{}
		if _, err := fmt.Sscanf(line, "origin %d state %64s", &l.Step, &l.State); err == nil {
			origin = &l
		} else if _, err := fmt.Sscanf(line, "checkpoint %d updates %d points %d state %64s", &l.Step, &l.Updates, &l.Points, &l.State); err == nil {
			states[l.Step] = l.State
		}
	}
	return origin, states
}

// derived are the members made from the history, by name.
func (m *made) derived(c *chain) (members map[string]func(io.Writer) error, err error) {
	defer try.Caught(&err)
	members = map[string]func(io.Writer) error{
		"README.txt": whole([]byte(readme)), chainName: whole(c.text(m)), runName: whole(m.summary()), logsName: m.writeLogs, metricsName: m.writeMetrics,
	}
	for _, s := range try.To(m.db.Sources(m.id)) {
		if sum := sha256.Sum256(s.Content); hex.EncodeToString(sum[:]) != s.SHA256 {
			return nil, &sqldb.Error{Path: historyName, What: fmt.Sprintf("has another content of %q than its SHA-256 says", s.Path)}
		}
		members["source/"+path.Join(m.detail.Project, s.Path)] = whole(s.Content)
	}
	return members, nil
}

// summary is the run in short. Its fields are part of the format.
func (m *made) summary() []byte {
	d := m.detail
	type dataFile struct {
		Path   string `json:"path"`
		SHA256 string `json:"sha256"`
		Bytes  int64  `json:"bytes"`
	}
	s := struct {
		Format        int                   `json:"format"`
		Name          string                `json:"name"`
		Recipe        string                `json:"recipe"`
		Status        history.Status        `json:"status"`
		Started       time.Time             `json:"started"`
		Seconds       *float64              `json:"seconds"`
		Params        history.Params        `json:"params"`
		Seed          int64                 `json:"seed"`
		WorldSize     int                   `json:"world_size"`
		Backend       string                `json:"backend"`
		Deterministic *bool                 `json:"deterministic"`
		Numerics      *int                  `json:"numerics"`
		Version       string                `json:"version"`
		Last          map[string]lastMetric `json:"metrics"`
		Data          []dataFile            `json:"data_files"`
	}{1, d.Name, d.Recipe, d.Status, d.Started, d.Seconds, d.Params, d.Seed, d.WorldSize, d.Backend, d.Deterministic, d.Numerics, d.Version, map[string]lastMetric{}, []dataFile{}}
	for name, metric := range d.Metrics {
		s.Last[name] = lastMetric{metric.Last, metric.Count}
	}
	for _, f := range d.DataFiles {
		s.Data = append(s.Data, dataFile{f.Path, f.SHA256, f.Bytes})
	}
	text, _ := json.MarshalIndent(s, "", "  ") // plain data: it cannot fail
	return append(text, '\n')
}

type lastMetric struct {
	Last  records.Float `json:"last"`
	Count int64         `json:"count"`
}

func (m *made) writeLogs(w io.Writer) error {
	_, err := m.db.Logs(m.id, history.LogFilter{}, func(l history.LogLine) error {
		_, err := fmt.Fprintf(w, "%s rank %d %s: %s\n", l.Time.UTC().Format(time.RFC3339Nano), l.Rank, l.Stream, l.Text)
		return err
	})
	return err
}

func (m *made) writeMetrics(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"metric", "step", "rank", "value", "exact", "time"}) // errors stay until the end
	for _, p := range m.points {
		_ = out.Write([]string{p.Name, strconv.FormatInt(p.Step, 10), strconv.Itoa(p.Rank), records.Float(p.Value).String(), strconv.FormatBool(p.Exact), p.Time.UTC().Format(time.RFC3339Nano)})
	}
	out.Flush()
	return out.Error()
}

// dataName is where a data file lies beneath the recipe's folder or beneath the --data folder that contained it.
func dataName(d *history.Detail, f *records.DataFile) (string, bool) {
	name := f.Path
	if filepath.IsAbs(name) {
		name = ""
		for _, dir := range d.DataDirs {
			if rel, is := strings.CutPrefix(f.Path, strings.TrimSuffix(dir, "/")+"/"); is {
				name = rel
				break
			}
		}
	}
	name = path.Clean(filepath.ToSlash(name))
	return name, validName("data/" + name)
}
