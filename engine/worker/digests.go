package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"drun/engine"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/starlib"
	"drun/starlib/checkpoint"

	"github.com/zeebo/xxh3"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// digests records a digest of the rank's parameters after each update, and at how many updates the recipe saves and
// logs its steps, so that `drun at` can rebuild and prove the state of any step. An update is an optimizer's step,
// and the digest covers the optimizer's parameters. In a recipe that has made no optimizer, an update is the first
// call of run.log for a step, and the digest covers the tensors of the state last passed to checkpoint.save or
// restore.
type digests struct {
	worker *worker
	rank   *starlib.Rank

	seen  bool              // a step was logged
	step  int64             // the latest step logged
	state *checkpoint.State // nil: unknown

	target *target // of a replay; nil: no replay
	latest uint64  // digest

	every int64 // see engine.Job.KeepEach
	due   bool  // the state is kept as soon as it is one with which the recipe can go on

	mu    sync.Mutex
	kept  []records.Updates // not yet sent
	bytes int               // of the digests in kept
	sent  time.Time

	marks []records.Mark // guarded by the recorder's queue
	open  map[string]int
}

const (
	// maxMarks limits the marks of a recipe whose steps have no order.
	maxMarks = 10000
	// digestedAtOnce limits the cost of an update, to some 5 µs.
	digestedAtOnce = 64 << 10
	// keptFor is how long digests wait for a message to go with.
	keptFor = time.Second
)

// Holds notes which state the recipe has.
func (w *worker) Holds(state checkpoint.State) {
	if d := w.digests; !d.rank.Optimizer || d.target != nil || d.every > 0 { // otherwise the state may be freed
		d.state = &state
	}
}

var _ checkpoint.Keeper = (*worker)(nil)

func (d *digests) updated(thread *starlark.Thread, params []starlib.Memory, of *starlib.Replica, before bool) error {
	if before {
		d.worker.replicas.begin(of, params)
		return nil
	}
	if d.target == nil && d.every == 0 {
		d.state = nil // no longer needed
	}
	if disturb != nil && d.worker.job.Audit > 0 {
		for _, p := range params {
			disturb(d.rank.Rank, "update", false, p.Bytes(0, p.Len()))
		}
	}
	if t := d.worker.trace; t != nil {
		t.updated(thread, params)
	}
	err := d.add(params)
	if err == nil && of != nil {
		d.worker.replicas.stepped(of, params)
	}
	return err
}

func (d *digests) logged(thread *starlark.Thread, step int64) error {
	if d.rank.Optimizer || d.state == nil || d.seen && d.step == step {
		return nil
	}
	d.seen, d.step = true, step
	parts := d.state.Tensors()
	if len(parts) == 0 {
		return nil
	}
	return d.add(each.Of(parts, func(p []byte) starlib.Memory { return plain(p) }))
}

// plain is memory of the process.
type plain []byte

func (p plain) Len() int                  { return len(p) }
func (p plain) Bytes(from, to int) []byte { return p[from:to] }

func (d *digests) add(parts []starlib.Memory) error {
	if err := d.passing(); err != nil {
		return err
	}
	d.rank.Updates++
	n := d.rank.Updates
	var sum [records.DigestSize]byte
	d.latest = digestOf(parts, n)
	binary.BigEndian.PutUint64(sum[:], d.latest)
	if d.keep(n, sum[:]) {
		d.worker.record.queue.Flush()
	}
	d.worker.debug.Updated(d.latest)
	return d.reached()
}

// keep stores a digest and reports whether the stored ones must be sent by themselves instead of with the rank's
// next message. Where no core is idle, waking the agent costs more than many small steps.
func (d *digests) keep(n int64, sum []byte) (send bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last := len(d.kept) - 1; last >= 0 && d.kept[last].First+int64(len(d.kept[last].Digests)/len(sum)) == n {
		d.kept[last].Digests = append(d.kept[last].Digests, sum...)
	} else {
		d.kept = append(d.kept, records.Updates{First: n, Digests: append(make([]byte, 0, 64*len(sum)), sum...)})
	}
	d.bytes += len(sum)
	return d.bytes >= limits.At || time.Since(d.sent) > keptFor
}

// taken returns the digests to send.
func (d *digests) taken() []records.Updates {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := d.kept
	d.kept, d.bytes, d.sent = nil, 0, time.Now()
	return kept
}

// digestOf is the XXH3 hash of the parts after update number n. If they have more than digestedAtOnce bytes, it
// covers that many, the next ones after each update.
func digestOf(parts []starlib.Memory, n int64) uint64 {
	total := 0
	for _, p := range parts {
		total += p.Len()
	}
	from, to := 0, total
	if windows := (total + digestedAtOnce - 1) / digestedAtOnce; windows > 1 {
		from = int(n%int64(windows)) * digestedAtOnce
		to = min(total, from+digestedAtOnce)
	}
	sum, at := uint64(total), 0
	for _, p := range parts {
		if lo, hi := max(from-at, 0), min(to-at, p.Len()); lo < hi {
			sum = xxh3.HashSeed(p.Bytes(lo, hi), sum)
		}
		at += p.Len()
	}
	return sum
}

// mark notes, in a message to the agent, that the rank now saves (no name) or records a step.
func (r *recorder) mark(m *engine.ToAgent, name string, step int64) {
	d := r.digests
	if d == nil || d.rank.Rank != 0 {
		return
	}
	updates := d.rank.Updates
	at, known := d.open[name]
	if known {
		k := &d.marks[at]
		last, lastUpdates := k.Step+(k.Count-1)*k.StepBy, k.Updates+(k.Count-1)*k.UpdatesBy
		if k.Count == 1 {
			k.StepBy, k.UpdatesBy = step-last, updates-lastUpdates
		}
		known = last+k.StepBy == step && lastUpdates+k.UpdatesBy == updates
		if known {
			k.Count++
		}
	}
	if !known {
		if len(d.marks) == maxMarks {
			return
		}
		at = len(d.marks)
		d.marks = append(d.marks, records.Mark{Seq: at, Name: name, Step: step, Updates: updates, Count: 1})
		d.open[name] = at
	}
	marks := &m.Records.Marks
	if i := slices.IndexFunc(*marks, func(k records.Mark) bool { return k.Seq == at }); i >= 0 {
		(*marks)[i] = d.marks[at]
	} else {
		*marks = append(*marks, d.marks[at])
	}
}

// target is where a replay hands over the rank's state. If it names a step, that is when the recipe saves the step.
// If it names a number of updates, the state is the one that the recipe would have passed to checkpoint.save where
// it last decided whether to save (lang.SavePoint) before the next update. In a recipe that does not decide, it is
// the state when a loader was asked for the next batch or, without a loader, right after the update.
type target struct {
	engine.Target
	taken   []checkpoint.Item // the state after the updates; nil: they have not been made yet
	asked   bool              // taken was captured when a loader was asked
	decided []syntax.Position // where the recipe has decided since then
	done    bool              // handed over
}

// errHandedOver ends the recipe of a rank that has handed over its state.
var errHandedOver = errors.New("the state has been handed over")

// reached notes that an update has been made.
func (d *digests) reached() (err error) {
	d.due = d.every > 0 && d.rank.Updates%d.every == 0
	if t := d.target; t != nil && t.Save == nil && !t.Quit && t.Updates == d.rank.Updates {
		t.taken, err = d.take()
	}
	return err
}

// passing notes that the next update has been made but not counted yet.
func (d *digests) passing() error {
	switch t := d.target; {
	case t == nil:
	case t.Quit && t.Updates == d.rank.Updates:
		t.done = true
		return errHandedOver
	case t.taken != nil:
		return d.handOver(t.taken, nil)
	}
	return nil
}

// keepState saves the state that is due, under a step that no recipe uses.
func (d *digests) keepState() (err error) {
	if !d.due || d.state == nil {
		return nil
	}
	d.due = false
	items, err := d.state.Items()
	if err == nil {
		err = d.worker.Save(engine.TargetStep+d.rank.Updates, nil, false, items)
	}
	return err
}

func (d *digests) asked() (err error) {
	if d.target == nil {
		return d.keepState()
	}
	if t := d.target; t.taken != nil && !t.asked && len(t.decided) == 0 {
		t.asked = true
		t.taken, err = d.take()
	}
	return err
}

// deciding is called when the recipe decides whether to save. If it reaches the same place again before the next
// update, as a recipe that accumulates gradients does, it is in its next step.
func (d *digests) deciding(thread *starlark.Thread, _ *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) (_ starlark.Value, err error) {
	if d.target == nil {
		return starlark.None, d.keepState()
	}
	if t := d.target; t.taken != nil {
		at := thread.CallFrame(1).Pos
		if slices.Contains(t.decided, at) {
			return nil, d.handOver(t.taken, nil)
		}
		t.decided = append(t.decided, at)
		t.taken, err = d.take()
	}
	return starlark.None, err
}

func (d *digests) saving(step int64, score *float64, part []checkpoint.Item) error {
	t := d.target
	if t.taken != nil || t.Save != nil && *t.Save == step && t.Updates == d.rank.Updates {
		return d.handOver(part, score)
	}
	return nil
}

func (d *digests) take() ([]checkpoint.Item, error) {
	if d.state == nil {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "the recipe had passed no state to checkpoint.save or checkpoint.restore after %d updates", d.rank.Updates),
			"without one, drun does not know what belongs to the state: checkpoint.restore(state) before the first step is enough")
	}
	items, err := d.state.Items()
	for i := range items {
		items[i].Data = bytes.Clone(items[i].Data)
	}
	return items, err
}

// handOver stores the state once all ranks have reached it, and ends the recipe.
func (d *digests) handOver(items []checkpoint.Item, score *float64) error {
	if err := d.worker.save(engine.TargetStep, score, false, items); err != nil {
		return err
	}
	d.target.done = true
	return errHandedOver
}

// end turns the end of the recipe into that of the replay.
func (d *digests) end(err error) error {
	t := d.target
	if err == nil && t.taken != nil && !t.done {
		err = d.handOver(t.taken, nil)
	}
	switch {
	case t.done:
		return nil
	case err == nil && !t.Quit:
		return exit.Errorf(exit.Recipe, "the recipe came to its end after %d updates, before the state could be taken", d.rank.Updates)
	}
	return err
}
