package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
)

// Differences says why two runs differ.
type Differences struct {
	Inputs    []Input     `json:"inputs"`    // inputs that are not the same
	First     *Divergence `json:"first"`     // nil: neither metrics nor parameters differ
	Operation *Operation  `json:"operation"` // nil: none differs, or it was not asked for
}

// Input is an input of two runs that differs, with both values.
type Input struct {
	What string `json:"what"`
	A    any    `json:"a"` // nil: none
	B    any    `json:"b"`
}

// Operation is the first operation of the recipe whose result differs between two runs.
type Operation struct {
	Line  string `json:"line"` // in the first run; "" if that has no more operations
	Op    string `json:"op"`
	Rank  int    `json:"rank"`
	LineB string `json:"line_b"` // in the second run
	OpB   string `json:"op_b"`
}

// Diff finds why two runs differ: their inputs, and the first differing point of a metric. With trace, both runs
// are repeated from the nearest state they had in common up to that point, and the results of all operations are
// compared. If that cannot be done, the rest is returned with the error.
func Diff(o run.Options, db *history.DB, home string, a, b int64, trace bool, secrets []engine.Param) (_ *Differences, err error) {
	defer try.Caught(&err)
	d := &Differences{Inputs: []Input{}}
	c := try.To(db.Compare([]int64{a, b}))
	others := false // whether inputs that decide the bits, other than data, differ
	for _, diff := range c.Differences {
		what := diff.Name
		switch {
		case diff.Kind == "metric", diff.Kind == "run" && (what == "status" || what == "tags"), diff.Kind == "recipe" && what == "path":
			continue
		case diff.Kind == "parameter":
			what = "params." + what
		case diff.Kind == "run" && what == "ranks":
			what = "world_size"
		case diff.Kind == "data":
			what = "data " + what
		}
		others = others || diff.Kind == "parameter" || diff.Kind == "run" || diff.Kind == "recipe"
		in := Input{what, diff.Values[0], diff.Values[1]}
		if what == "seed" || what == "world_size" {
			in.A, in.B = json.Number(fmt.Sprint(in.A)), json.Number(fmt.Sprint(in.B))
		}
		d.Inputs = append(d.Inputs, in)
	}
	pair := [2]*past{}
	whole := true
	for i, id := range []int64{a, b} {
		pair[i] = try.To(newPast(db, home, id, secrets, !trace))
		whole = whole && pair[i].detail.Status == history.Done
	}
	if d.First, err = firstDifference(db, a, b, whole); err != nil || !trace {
		return d, err
	}
	if changed := append(pair[0].changed(), pair[1].changed()...); len(changed) > 0 {
		if d.Operation = reader(pair); d.Operation != nil && !others {
			return d, nil
		}
		return d, exit.WithHint(exit.Errorf(exit.Usage, "the operations cannot be traced: %s", changed[0]),
			"without --trace what went in is compared; put the file back to trace")
	}
	d.Operation, err = firstOperation(o, pair, d.First)
	return d, err
}

// firstDifference returns the first differing point of a metric or, if all are the same, the first differing update.
func firstDifference(db *history.DB, a, b int64, whole bool) (_ *Divergence, err error) {
	defer try.Caught(&err)
	var all [2]*series
	var digests [2][]map[int64][records.DigestSize]byte
	for i, id := range []int64{a, b} {
		all[i] = newSeries(try.To(db.Points(id)))
		digests[i] = try.To(db.Digests(id))
	}
	if d := all[0].first(all[1], whole); d != nil {
		return d, nil
	}
	return differentUpdate(digests[0], digests[1], 0), nil
}

// reader returns the first call that read a file whose content differs between the runs.
func reader(pair [2]*past) *Operation {
	of := func(p *past, path string) (found *records.DataFile, sums string) {
		for i, f := range p.detail.DataFiles {
			if f.Path == path {
				sums += f.SHA256
				found = &p.detail.DataFiles[i]
			}
		}
		return found, sums
	}
	var first *Operation
	for _, f := range pair[0].detail.DataFiles {
		other, sums := of(pair[1], f.Path)
		_, own := of(pair[0], f.Path)
		if other == nil || sums == own || f.Position == "" {
			continue
		}
		if op := (&Operation{Line: f.Position, LineB: other.Position}); first == nil || before(op.Line, first.Line) {
			op.Op, op.OpB = pair[0].replay.Bundle.Operation(op.Line), pair[1].replay.Bundle.Operation(op.LineB)
			first = op
		}
	}
	return first
}

// before orders positions by file, line and column.
func before(a, b string) bool {
	if len(a) != len(b) && a[:strings.IndexByte(a+":", ':')] == b[:strings.IndexByte(b+":", ':')] {
		return len(a) < len(b)
	}
	return a < b
}

// firstOperation repeats both runs and returns the first operation whose result differs.
func firstOperation(o run.Options, pair [2]*past, first *Divergence) (_ *Operation, err error) {
	defer try.Caught(&err)
	pair[1].replay.ID, pair[1].replay.Name = pair[0].replay.ID, pair[0].replay.Name // which a recipe may use
	until := int64(-1)
	for _, p := range pair {
		until = max(until, try.To(p.updatesAt(first)))
	}
	if until >= 0 {
		for _, p := range pair {
			p.replay.Target = &engine.Target{Updates: until, Quit: true}
		}
		try.Ok(fromCommonState(pair, until))
	}
	dir := try.To(scratch.Make("diff-"))
	defer dir.Remove()
	var failed error
	for i, p := range pair {
		home := fmt.Sprintf("%s/%d", dir.Path, i)
		p.replay.Trace = home + "-trace"
		try.Ok(os.Mkdir(p.replay.Trace, 0o700))
		// They are traced as one attempt: the last one, which did not fail.
		n := len(p.detail.Attempts)
		p.replay.Starts, p.detail.Attempts = max(0, n-1), p.detail.Attempts[:min(n, 1)]
		result := try.To(p.run(o, home))
		if result.Failure != nil && p.detail.Status == history.Done && failed == nil {
			failed = p.failed(result)
		}
	}
	op, err := compareTraces(pair, min(pair[0].detail.WorldSize, pair[1].detail.WorldSize), failed == nil)
	if op != nil || err != nil {
		return op, err
	}
	return nil, failed // a rank that has come to the end may have left others behind
}

// updatesAt returns how many updates had been made when the runs first differed; -1: unknown.
func (p *past) updatesAt(first *Divergence) (int64, error) {
	switch {
	case first == nil:
		return -1, nil
	case first.Metric == Parameters:
		return first.Step, nil
	}
	marks, err := p.db.Marks(p.detail.ID)
	return updatesWith(marks, first.Metric, first.Step), err
}

// fromCommonState makes the replays start from the newest checkpoint, before that number of updates, with which the
// runs were the same.
func fromCommonState(pair [2]*past, until int64) (err error) {
	defer try.Caught(&err)
	if pair[0].detail.WorldSize != pair[1].detail.WorldSize || !pair[0].replay.Bundle.Names("restore") || !pair[1].replay.Bundle.Names("restore") {
		return nil
	}
	store := try.To(checkpoints.OpenIfAny(pair[0].replay.Home))
	defer store.Close()
	kept := try.To(store.List(pair[0].detail.UID))
	steps := savedSteps(try.To(pair[0].db.Marks(pair[0].detail.ID)))
	slices.SortFunc(steps, func(a, b saved) int { return cmp.Compare(b.updates, a.updates) })
	for _, s := range steps {
		if s.updates >= until || !slices.ContainsFunc(kept, func(c checkpoints.Info) bool { return c.Step == s.step }) {
			continue
		}
		if try.To(sameState(store, pair, s.step)) {
			for _, p := range pair {
				p.replay.From, p.replay.Own = fmt.Sprintf("%d@%d", p.detail.ID, s.step), true
			}
			return nil
		}
	}
	return nil
}

// sameState reports whether two runs have the same checkpoint of a step, bit for bit.
func sameState(store *checkpoints.Store, pair [2]*past, step int64) (_ bool, err error) {
	defer try.Caught(&err)
	for rank := range pair[0].detail.WorldSize {
		var states [2][]checkpoints.Entry
		for i, p := range pair {
			_, entries, err := store.Load(p.detail.UID, checkpoints.Step(step), rank)
			if errors.As(err, new(*checkpoints.ErrNone)) {
				return false, nil
			}
			try.Ok(err)
			states[i] = entries
		}
		if !slices.EqualFunc(states[0], states[1], sameEntry) {
			return false, nil
		}
	}
	return true, nil
}

// sameEntry reports whether two entries of checkpoints are the same, bit for bit.
func sameEntry(a, b checkpoints.Entry) bool {
	return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && bytes.Equal(a.Data, b.Data)
}

// compareTraces returns the first operation whose result differs between two replays, of the rank that reached it
// first. ended: both replays ended as expected, so a difference in length counts.
func compareTraces(pair [2]*past, ranks int, ended bool) (first *Operation, err error) {
	defer try.Caught(&err)
	at := -1
	for rank := range ranks {
		var traces [2]*trace
		for i, p := range pair {
			if traces[i] = try.To(openTrace(p.replay.Trace, rank)); traces[i] != nil {
				defer traces[i].file.Close()
			}
		}
		if traces[0] == nil || traces[1] == nil {
			continue
		}
		for n := 0; at < 0 || n < at; n++ {
			a, endA := traces[0].next()
			b, endB := traces[1].next()
			try.Ok(errors.Join(damaged(endA), damaged(endB)))
			if endA != nil && endB != nil || (endA != nil || endB != nil) && !ended {
				break
			}
			if endA != nil || endB != nil || a.op != b.op || a.sum != b.sum {
				at, first = n, &Operation{Line: a.line, Op: a.op, Rank: rank, LineB: b.line, OpB: b.op}
				break
			}
		}
	}
	return first, nil
}

// damaged is the error for an invalid record. The last record may be cut short.
func damaged(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// trace reads the values that a rank has computed.
type trace struct {
	file  *os.File
	in    *bufio.Reader
	sites []computed
}

// openTrace opens a rank's trace in a folder; nil: the replay did not get that far.
func openTrace(folder string, rank int) (*trace, error) {
	file, err := os.Open(filepath.Join(folder, engine.TraceFile(rank)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &trace{file: file, in: bufio.NewReaderSize(file, 1<<16)}, err
}

// computed is a value computed at a place in the recipe.
type computed struct {
	op, line string
	sum      [8]byte
}

func (t *trace) next() (c computed, err error) {
	defer try.Caught(&err)
	n := try.To(binary.ReadUvarint(t.in))
	if n == uint64(len(t.sites)) {
		length := try.To(binary.ReadUvarint(t.in))
		text := make([]byte, min(length, 1<<20))
		try.To(io.ReadFull(t.in, text))
		op, line, _ := strings.Cut(string(text), "\x00")
		t.sites = append(t.sites, computed{op: op, line: line})
	}
	if n >= uint64(len(t.sites)) {
		return c, exit.Errorf(exit.Storage, "a trace of a replay is damaged")
	}
	c = t.sites[n]
	_, err = io.ReadFull(t.in, c.sum[:])
	return c, err
}
