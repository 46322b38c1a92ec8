package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"drun/checkpoints"
	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/try"
)

// Options say what is copied of a run.
type Options struct {
	Weights string // of which checkpoints: none, which leaves files out, too, best or all
	Secrets bool   // the values of secret parameters, if the sending home has kept them
	Project string // of runs that have none
	Quick   bool   // take runs that look the same on both sides for the same; otherwise their points are compared
	Again   bool   // also runs that the receiver has removed for good
	Say     func(text string)
}

// CheckWeights returns an error unless it is a value of --weights.
func CheckWeights(text string) error {
	if !slices.Contains([]string{"none", "best", "all"}, text) {
		return exit.Errorf(exit.Usage, "--weights wants none, best or all, not %q", text)
	}
	return nil
}

// Result says what was copied.
type Result struct {
	Runs    int   `json:"runs"`                // that are on both sides now
	Sent    int64 `json:"sent_bytes"`          // of rows, artifacts and checkpoints
	There   int64 `json:"already_there_bytes"` // of artifacts and checkpoints that the receiver had
	Changed int   `json:"-"`                   // of the runs, of which something was sent
}

type copier struct {
	from, to Side
	Options
	Result
}

// Copy copies runs from one side to the other, in this order. A run that cannot be copied does not keep the others from it:
// the error is about the first.
func Copy(ctx context.Context, from, to Side, runs []Found, o Options) (_ *Result, err error) {
	defer try.Caught(&err)
	c := &copier{from: from, to: to, Options: o}
	try.Ok(agree(ctx, from, to))
	var failed []error
	for part := range slices.Chunk(runs, 500) {
		uids := each.Of(part, func(r Found) string { return r.UID })
		here, there := states(try.To(States(ctx, from, uids))), states(try.To(States(ctx, to, uids)))
		for _, r := range part {
			if there[r.UID].Trashed {
				c.Say(fmt.Sprintf("run %s is in the trash there", r.Name))
			}
			a, b := here[r.UID], there[r.UID]
			alike := a.Alike(&b.State)
			if c.Quick && alike && (o.Weights == "none" || a.Checkpoints == b.Checkpoints && !a.Files) {
				c.Runs++
				c.There += b.Bytes[0] + map[string]int64{"best": b.Bytes[1], "all": b.Bytes[2]}[o.Weights]
				continue
			}
			if err := c.run(ctx, r, alike); errors.As(err, new(*history.Gone)) && c.Quick {
				c.Say(err.Error())
				continue
			} else if err != nil {
				failed = append(failed, fmt.Errorf("run %s: %w", r.Name, err))
				if refused := (*Refused)(nil); ctx.Err() != nil || exit.CodeOf(err) == exit.Requirement || errors.As(err, &refused) && refused.Status == 401 {
					return &c.Result, failed[0] // the others would fail likewise
				}
				continue
			}
			c.Runs++
		}
	}
	for _, err := range failed[min(1, len(failed)):] {
		c.Say(err.Error())
	}
	return &c.Result, append(failed, nil)[0]
}

func states(list []State) map[string]State {
	by := map[string]State{}
	for _, s := range list {
		by[s.UID] = s
	}
	return by
}

// tries limits how often a copy of a run begins anew, because something else has changed the run there, or removed it.
const tries = 5

func (c *copier) run(ctx context.Context, r Found, alike bool) (err error) {
	defer try.Caught(&err)
	before, changed := c.Sent, false
	for n := 1; ; n++ {
		have, same := try.To2(c.compare(ctx, r.UID))
		newer, err := false, error(nil)
		if !same || !alike {
			newer, err = c.rows(ctx, r, have, &changed)
		}
		if err == nil && c.Weights != "none" {
			err = c.count(CopyCheckpoints(ctx, c.from, c.to, r.UID, c.Weights))
		}
		if err == nil && c.Weights != "none" && !newer {
			err = c.count(copyFiles(ctx, c.from, c.to, r.UID, !c.Quick || !alike))
		}
		missing := (*history.NotFound)(nil)
		again := errors.As(err, new(*history.Moved)) || errors.As(err, new(*Lacking)) || errors.As(err, &missing) && c.isThere(ctx, r.UID)
		if !again || n == tries {
			if changed || c.Sent > before {
				c.Changed++
			}
			return err
		}
	}
}

// count adds the bytes that were sent, and those that were there.
func (c *copier) count(sent, there int64, err error) error {
	c.Sent, c.There = c.Sent+sent, c.There+there
	return err
}

// isThere reports whether the sending side still has a run.
func (c *copier) isThere(ctx context.Context, uid string) bool {
	found, err := States(ctx, c.from, []string{uid})
	return err == nil && len(found) == 1
}

// compare returns what the receiver has of a run, after comparing it with what the sender has. same reports whether it has all
// points and lines.
func (c *copier) compare(ctx context.Context, uid string) (there history.Extent, same bool, err error) {
	defer try.Caught(&err)
	there = try.To(Extent(ctx, c.to, Part{uid, -1, -1})).Extent
	if c.Quick || there.ID == 0 {
		return there, there.ID != 0, nil
	}
	here := try.To(Extent(ctx, c.from, Part{uid, -1, -1})).Extent
	if here.ID == 0 {
		return there, false, &history.NotFound{What: "it has been removed here", Near: "drun runs lists those that are there"}
	}
	first := Part{uid, min(here.Points, there.Points), min(here.Lines, there.Lines)}
	a, b := try.To(Extent(ctx, c.from, first)), try.To(Extent(ctx, c.to, first))
	if !slices.Equal(a.Digest, b.Digest) {
		return there, false, &history.Diverged{Name: there.Name, Why: fmt.Sprintf("its first %d points and %d lines are not the same", first.Points, first.Lines)}
	}
	return there, here.Points == there.Points && here.Lines == there.Lines, nil
}

// rows copies what the receiver's history lacks, and reports whether what that has is newer.
func (c *copier) rows(ctx context.Context, r Found, have history.Extent, changed *bool) (newer bool, err error) {
	defer try.Caught(&err)
	lacks := Lacks{UID: r.UID, Secrets: c.Secrets}
	since := func(have history.Extent) (*history.Delta, error) {
		lacks.Have = have
		return Since(ctx, c.from, lacks)
	}
	if home, is := c.from.(*Home); is { // which knows what was taken before
		since = home.sourceOf(lacks).Since
	}
	for first := true; ; first = false {
		d := try.To(since(have))
		c.There += try.To(Fill(ctx, c.from, c.to, d))
		*changed = *changed || have.ID == 0 || d.Batch.Number > have.Batch || len(d.Series.Name)+len(d.Batch.Lines) > 0
		c.Sent += size(d)
		m := try.To(Merge(ctx, c.to, Arriving{Delta: d, Project: c.Project, Again: c.Again}))
		if first && have.ID == 0 && m.Name != r.Name {
			c.Say(fmt.Sprintf("run %d %s is run %d %s there: its name was taken", r.ID, r.Name, m.ID, m.Name))
		}
		if d.Batch.Number < have.Batch {
			c.Say(fmt.Sprintf("run %s is newer there", r.Name))
			return true, nil
		}
		if have = have.After(d); !d.More {
			return false, nil
		}
	}
}

// size is about how many bytes a Delta takes on its way.
func size(d *history.Delta) int64 {
	text, err := encoder.Marshal(d)
	if err != nil {
		return 0
	}
	return int64(len(text))
}

// Fill adds to a Delta the contents of artifacts that the receiver lacks, and returns how many bytes it has.
func Fill(ctx context.Context, from, to Side, d *history.Delta) (there int64, err error) {
	defer try.Caught(&err)
	bytes := map[string]int64{}
	for _, a := range d.Batch.Artifacts {
		bytes[a.SHA256] = a.Bytes
		there += a.Bytes
	}
	if len(bytes) == 0 {
		return 0, nil
	}
	sums := each.Of(d.Batch.Artifacts, func(a records.Artifact) string { return a.SHA256 })
	slices.Sort(sums)
	lacking := try.To(LackingContents(ctx, to, slices.Compact(sums)))
	d.Contents = map[string][]byte{}
	for len(lacking) > 0 {
		list := try.To(Contents(ctx, from, Sums{d.UID, lacking}))
		try.FailIf(len(list) == 0 || len(list) > len(lacking), "contents of artifacts are missing")
		for i, data := range list {
			d.Contents[lacking[i]] = data
			there -= bytes[lacking[i]]
		}
		lacking = lacking[len(list):]
	}
	return there, nil
}

// CopyCheckpoints copies those checkpoints of a run that are wanted and that the receiver does not list, and returns the
// bytes that were sent, and those that the receiver had.
func CopyCheckpoints(ctx context.Context, from, to Side, uid, weights string) (sent, there int64, err error) {
	defer try.Caught(&err)
	list, known := try.To(Checkpoints(ctx, from, uid)), try.To(Checkpoints(ctx, to, uid))
	if weights == "best" {
		list = best(list)
	}
	listed := try.To(Extent(ctx, to, Part{uid, -1, -1})).Extent.Checkpoints
	for _, m := range list {
		same := slices.ContainsFunc(known, func(k checkpoints.Manifest) bool { return k.Step == m.Step && k.Sum == m.Sum })
		if same && slices.Contains(listed, m.Step) {
			there += m.Bytes
			continue
		}
		a, b, err := copyCheckpoint(ctx, from, to, uid, m.Step)
		sent, there = sent+a, there+b
		if errors.As(err, new(*history.NotFound)) || errors.As(err, new(*checkpoints.ErrNone)) {
			continue // the run has just removed it
		}
		try.Ok(err)
	}
	return sent, there, nil
}

// best is the checkpoint with the highest score; without scores, the last.
func best(list []checkpoints.Manifest) []checkpoints.Manifest {
	if len(list) == 0 {
		return nil
	}
	at := len(list) - 1
	for i, m := range list {
		if m.Score != nil && (list[at].Score == nil || *m.Score >= *list[at].Score) {
			at = i
		}
	}
	return list[at : at+1]
}

func copyCheckpoint(ctx context.Context, from, to Side, uid string, step int64) (sent, there int64, err error) {
	defer try.Caught(&err)
	m := try.To(Manifest(ctx, from, Step{uid, step}))
	bytes := map[string]int{}
	var sums []string
	for _, c := range m.Chunks() {
		bytes[c.SHA256], sums = c.Bytes, append(sums, c.SHA256)
		there += int64(c.Bytes)
	}
	const atOnce = 10_000
	for part := range slices.Chunk(sums, atOnce) {
		lacking := try.To(LackingChunks(ctx, to, part))
		for len(lacking) > 0 {
			list := try.To(Chunks(ctx, from, Sums{uid, lacking}))
			try.FailIf(len(list) == 0 || len(list) > len(lacking), "chunks of the checkpoint are missing")
			try.To(Receive(ctx, to, Parts{uid, list}))
			for i, data := range list {
				sent, there = sent+int64(len(data)), there-int64(bytes[lacking[i]])
			}
			lacking = lacking[len(list):]
		}
	}
	_, err = Enter(ctx, to, m)
	return sent, there, err
}
