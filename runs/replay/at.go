package replay

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// Point is the state of a run at a step, rebuilt and proven.
type Point struct {
	Run     string  `json:"run"`
	Step    int64   `json:"step"`
	Updates int64   `json:"updates"`   // of the parameters, made by then
	Digest  *string `json:"digest"`    // of rank 0's parameters after them; nil: it is a checkpoint, which its SHA-256 proves
	From    *int64  `json:"from_step"` // of the checkpoint from which it was replayed; nil: from the beginning
	FromRun *string `json:"from_run"`  // whose checkpoint that is, if the run was resumed from it; nil: its own
	Again   int64   `json:"replayed"`  // updates that were compared with the recorded ones; 0: the run has the checkpoint itself

	// Store has the state, as the checkpoint Info.
	Store *checkpoints.Store `json:"-"`
	Info  checkpoints.Info   `json:"-"`
	free  func()
}

// Close removes the rebuilt state.
func (p *Point) Close() { p.free() }

// At returns the state of a run at a step: a step of checkpoint.save if that can be told, otherwise of run.log;
// with the name of a metric, a step of that. If the run has no such checkpoint, the run is repeated from the
// nearest one before it up to that step, and the digests of the parameters are compared with the recorded ones. o
// has the options that do not affect what is computed.
func At(o run.Options, db *history.DB, home string, id, step int64, metric string, secrets []engine.Param, say func(string)) (_ *Point, err error) {
	defer try.Caught(&err)
	p := try.To(newPast(db, home, id, secrets, false))
	marks := try.To(db.Marks(id))
	a := &attempt{past: p, options: o, step: step, steps: savedSteps(marks)}
	if at, err := a.stored(home, metric); at != nil || err != nil {
		return at, err
	}
	a.want = try.To(db.Digests(id))
	a.target = try.To(targetOf(p.detail, marks, a.steps, a.made(), step, metric))
	if rank, _, missing := missingUpdate(a.want, p.detail.WorldSize, a.target.Updates-1, a.target.Updates); missing || a.target.Updates == 0 {
		what := fmt.Sprintf("rank %d recorded no digest of its parameters after %d updates", rank, a.target.Updates)
		if a.target.Updates == 0 {
			what = "no update had been made by then that has a digest"
		}
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "the state of run %s at step %d cannot be proven: %s", p.detail.Name, step, what),
			"digests are recorded by a step of an optimizer, or by run.log for tensors of the state that a recipe without optimizers saves")
	}
	p.warn(say)
	return a.prove()
}

type attempt struct {
	*past
	options run.Options
	step    int64
	steps   []saved
	kept    []checkpoints.Info
	target  *engine.Target
	want    []map[int64][records.DigestSize]byte
}

// stored returns the state if the run has a checkpoint of the step, else nil.
func (a *attempt) stored(home, metric string) (at *Point, err error) {
	defer try.Caught(&err)
	store := try.To(checkpoints.OpenIfAny(home))
	defer func() {
		if at == nil {
			store.Close()
		}
	}()
	a.kept = try.To(store.List(a.detail.UID))
	i := slices.IndexFunc(a.kept, func(c checkpoints.Info) bool { return c.Step == a.step })
	if i < 0 || metric != "" {
		return nil, nil
	}
	for rank := range a.kept[i].WorldSize { // compares the SHA-256 of everything
		try.To2(store.Load(a.detail.UID, a.kept[i].Ref(), rank))
	}
	at = &Point{Run: a.detail.Name, Step: a.step, From: &a.step, Store: store, Info: a.kept[i], free: func() { store.Close() }}
	if s := slices.IndexFunc(a.steps, func(s saved) bool { return s.step == a.step }); s >= 0 {
		at.Updates = a.steps[s].updates
	}
	return at, nil
}

// made returns how many updates rank 0 has made.
func (a *attempt) made() (updates int64) {
	if len(a.want) > 0 {
		for n := range a.want[0] {
			updates = max(updates, n)
		}
	}
	return updates
}

// prove replays from the nearest checkpoint before the target. If the recipe does not get there with the same
// digests, it replays from the beginning.
func (a *attempt) prove() (*Point, error) {
	a.replay.Target = a.target
	var best *saved
	for i, s := range a.steps {
		kept := slices.ContainsFunc(a.kept, func(c checkpoints.Info) bool { return c.Step == s.step })
		if kept && s.updates < a.target.Updates && (best == nil || s.updates >= best.updates) {
			best = &a.steps[i]
		}
	}
	if best != nil && a.replay.Bundle.Names("restore") {
		begin := a.replay.From
		a.replay.From, a.replay.Own = fmt.Sprintf("%d@%d", a.detail.ID, best.step), true
		at, err := a.rebuild(best.updates)
		if err == nil {
			at.From = &best.step
			return at, nil
		}
		if exit.CodeOf(err) == exit.Interrupted || exit.CodeOf(err) == exit.Usage {
			return nil, err
		}
		a.replay.From, a.replay.Own = begin, false
	}
	after := int64(0)
	if a.replay.From != "" { // a resumed run counts on from its parent
		after = -1
	}
	at, err := a.rebuild(after)
	if parent := a.detail.Parent; err == nil && parent != nil {
		at.From, at.FromRun = &parent.Step, &parent.Name
	}
	return at, err
}

// rebuild replays from the state after so many updates; -1: as many as the checkpoint says.
func (a *attempt) rebuild(after int64) (_ *Point, err error) {
	dir, err := scratch.Make("at-")
	if err != nil {
		return nil, err
	}
	defer try.CaughtOr(&err, dir.Remove)
	again, repeated, got := try.To3(a.repeat(a.options, dir.Path, true))
	defer again.Close()
	until := a.target.Updates
	if after < 0 {
		after = until
		for _, digests := range got {
			for n := range digests {
				after = min(after, n-1)
			}
		}
	}
	if rank, n, missing := missingUpdate(got, a.detail.WorldSize, after, until); missing {
		return nil, exit.Errorf(exit.Recipe, "the replay of run %s has no digest of rank %d's parameters after %d updates", a.detail.Name, rank, n)
	}
	if d := differentUpdate(a.want, got, after); d != nil {
		return nil, exit.WithHint(exit.Errorf(exit.Recipe, "the replay of run %s came to other parameters: after update %d, rank %d has digest %s, recorded was %s", a.detail.Name, d.Step, d.Rank, d.B, d.A),
			"drun replay says in which metric they differ, drun show which versions and data the run had")
	}
	store := try.To(checkpoints.OpenReadOnly(dir.Path))
	defer try.CaughtOr(&err, func() { store.Close() })
	d := try.To(again.Get(repeated))
	info := try.To(store.Find(d.UID, checkpoints.Step(engine.TargetStep)))
	sum := a.want[0][until]
	digest := hex.EncodeToString(sum[:])
	return &Point{Run: a.detail.Name, Step: a.step, Updates: until, Digest: &digest, Again: until - after, Store: store, Info: info,
		free: func() { store.Close(); dir.Remove() }}, nil
}

// targetOf finds the number of updates after which the run had the state of a step.
func targetOf(d *history.Detail, marks []records.Mark, steps []saved, made, step int64, metric string) (*engine.Target, error) {
	if i := slices.IndexFunc(steps, func(s saved) bool { return s.step == step }); i >= 0 && metric == "" {
		return &engine.Target{Updates: steps[i].updates, Save: &step}, nil
	}
	found := map[string]int64{} // updates by metric
	logged := map[string]bool{}
	for _, m := range marks {
		if m.Name == "" {
			continue
		}
		logged[m.Name] = true
		lag, same := inStep(marks, steps, m.Name)
		if updates, is := m.At(step); is && (m.Name == metric || metric == "" && (same || len(steps) == 0)) {
			found[m.Name] = updates + lag
		}
	}
	if updates, is := between(steps, step); metric == "" && len(found) == 0 && is && updates <= made {
		return &engine.Target{Updates: updates}, nil
	}
	names := slices.Sorted(maps.Keys(found))
	switch {
	case metric != "" && !logged[metric]:
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "run %s has no metric %q with steps that rank 0 recorded", d.Name, metric), "metrics: "+strings.Join(slices.Sorted(maps.Keys(logged)), ", "))
	case len(names) == 0:
		if len(steps) > 1 && steps[0].step < step && step < steps[len(steps)-1].step {
			return nil, exit.WithHint(exit.Errorf(exit.Usage, "nothing tells how many updates run %s had made at step %d, which it has not saved", d.Name, step),
				"run.log(…, step = step) once a step tells; --metric NAME takes a metric's own steps: "+steppingOf(d, marks, steps))
		}
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "run %s has no step %d", d.Name, step), steppingOf(d, marks, steps))
	}
	for _, name := range names[1:] {
		if found[name] != found[names[0]] {
			return nil, exit.WithHint(exit.Errorf(exit.Usage, "run %s has several steps %d: %s after %d updates, %s after %d", d.Name, step, names[0], found[names[0]], name, found[name]),
				"say which with --metric NAME")
		}
	}
	if earlier, is := stepBefore(marks, names[0], step); is && found[names[0]] > 0 {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "run %s recorded %s at step %d after the same update as at step %d: which state is that of step %d cannot be told", d.Name, names[0], step, earlier, step),
			"the state of the first of these steps can be rebuilt")
	}
	return &engine.Target{Updates: found[names[0]]}, nil
}

// updatesWith is how many updates had been made when a step of a metric was recorded last; -1: it was not.
func updatesWith(marks []records.Mark, metric string, step int64) int64 {
	updates := int64(-1)
	for _, m := range marks {
		if n, has := m.At(step); has && m.Name == metric {
			updates = n
		}
	}
	return updates
}

// stepBefore returns an earlier step at which a metric was recorded after the same number of updates.
func stepBefore(marks []records.Mark, metric string, step int64) (earlier int64, is bool) {
	updates := updatesWith(marks, metric, step)
	for _, m := range marks {
		if m.Name != metric {
			continue
		}
		for i := range m.Count {
			if s := m.Step + i*m.StepBy; s < step && m.Updates+i*m.UpdatesBy == updates {
				return s, true
			}
		}
	}
	return 0, false
}

// between returns the number of updates at a step that was not saved, if each step makes one update, from the save
// before it to the one after or, for a step before or after all saves, from the first save to the last. With
// several updates per step, their distribution is unknown.
func between(steps []saved, step int64) (int64, bool) {
	if len(steps) < 2 {
		return 0, false
	}
	i, _ := slices.BinarySearchFunc(steps, step, func(s saved, step int64) int { return cmp.Compare(s.step, step) })
	within := steps[max(i-1, 0):min(i+1, len(steps))]
	if len(within) < 2 {
		within = steps
	}
	from := within[0]
	for _, s := range within {
		if s.updates-from.updates != s.step-from.step {
			return 0, false
		}
	}
	return from.updates + step - from.step, true
}

// inStep reports whether a metric's steps are those of checkpoint.save, and how many updates the recipe makes
// between recording a step and saving it. If it makes some, such as when a loss is logged before the optimizer's
// step, it must make equally many per step: otherwise nothing is known about a step that was not saved.
func inStep(marks []records.Mark, steps []saved, metric string) (lag int64, same bool) {
	var uniform *records.Mark
	count := 0
	for _, m := range marks {
		if m.Name != metric {
			continue
		}
		uniform = &m
		count++
		for _, s := range steps {
			at, is := m.At(s.step)
			if !is {
				continue
			}
			by := s.updates - at
			if by < 0 || same && by != lag {
				return 0, false
			}
			lag, same = by, true
		}
	}
	if lag > 0 && (count > 1 || uniform.StepBy < 1 || lag > uniform.UpdatesBy/uniform.StepBy) {
		return 0, false
	}
	return lag, same
}

func steppingOf(d *history.Detail, marks []records.Mark, steps []saved) string {
	var parts []string
	if len(steps) > 0 {
		some := make([]string, 0, 6)
		for i, s := range steps {
			if i == 5 && len(steps) > 7 {
				some = append(some, "…", strconv.FormatInt(steps[len(steps)-1].step, 10))
				break
			}
			some = append(some, strconv.FormatInt(s.step, 10))
		}
		parts = append(parts, "checkpoint.save has the steps "+strings.Join(some, ", "))
	}
	ends := map[string][2]int64{}
	for _, m := range marks {
		last := m.Step + (m.Count-1)*m.StepBy
		e, is := ends[m.Name]
		if !is {
			e = [2]int64{m.Step, m.Step}
		}
		ends[m.Name] = [2]int64{min(e[0], m.Step, last), max(e[1], m.Step, last)}
	}
	delete(ends, "")
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		parts = append(parts, fmt.Sprintf("%s %d to %d", name, ends[name][0], ends[name][1]))
	}
	if len(parts) == 0 {
		return "an older drun ran it, or it recorded no step"
	}
	return strings.Join(parts, ", ")
}
