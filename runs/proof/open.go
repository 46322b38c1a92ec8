package proof

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Run is the run in a pack, whose history lies in a temporary home.
type Run struct {
	Home string // for commands that show a run
	Name string
	Size int // its ranks

	pack  *Pack
	dir   *scratch.Dir
	db    *history.DB
	store *checkpoints.Store // with the checkpoints of the pack; nil: not read yet
	made  *made
	chain *chain
}

// Close removes the temporary home.
func (r *Run) Close() {
	_ = errors.Join(r.store.Close(), r.db.Close())
	r.dir.Remove()
}

// Run reads the history of a pack, and compares all members that are made from it.
func (p *Pack) Run() (_ *Run, err error) {
	defer try.Caught(&err)
	r := &Run{pack: p, dir: try.To(scratch.Make("pack-"))}
	defer try.CaughtOr(&err, r.dir.Remove)
	r.Home = filepath.Join(r.dir.Path, "home")
	try.Ok(p.extract(historyName, filepath.Join(r.Home, historyName)))
	db, id, err := history.OpenExtracted(r.Home)
	if err != nil {
		return nil, r.broken(err)
	}
	r.db = db
	defer try.CaughtOr(&err, func() { db.Close() })
	try.Ok(r.broken(r.read(id)))
	return r, nil
}

// broken makes an error of the history an error of the pack; one of a newer drun stays.
func (r *Run) broken(err error) error {
	if err == nil || errors.As(err, new(*Broken)) || strings.Contains(err.Error(), "newer drun") {
		return err
	}
	return r.pack.broken("%s", strings.ReplaceAll(err.Error(), r.Home+"/", ""))
}

func (r *Run) read(id int64) (err error) {
	defer try.Caught(&err)
	p := r.pack
	r.made = try.To(madeBy(r.db, id))
	r.Name, r.Size = r.made.detail.Name, r.made.detail.WorldSize
	try.Ok(history.CheckName(r.Name))
	if !try.To(r.db.SummariesHold(id)) {
		return p.broken("the summaries of the metrics in %s are not those of their points", historyName)
	}
	text := try.To(io.ReadAll(try.To(p.read(chainName))))
	origin, states := parseChain(string(text))
	r.chain = &chain{Origin: origin}
	expected := map[string]bool{historyName: true}
	there := func(name string) bool {
		expected[name] = true
		return p.members[name] != nil
	}
	r.chain.Links = try.To(r.made.links(func(step int64) (string, bool) {
		return states[step], there(checkpointName(step))
	}))
	if origin != nil {
		origin.Kept = there(originName)
	}
	for name, write := range try.To(r.made.derived(r.chain)) {
		expected[name] = true
		try.Ok(p.same(name, "what "+historyName+" says", write))
	}
	for _, f := range r.made.detail.DataFiles {
		if name, is := dataName(r.made.detail, &f); is && p.sums["data/"+name] == f.SHA256 {
			expected["data/"+name] = true
		}
	}
	for name := range p.sums {
		if !expected[name] {
			return p.broken("its member %s belongs to nothing in %s", name, historyName)
		}
	}
	return nil
}

// extract writes a member to a new file.
func (p *Pack) extract(name, path string) (err error) {
	defer try.Caught(&err)
	content := try.To(p.read(name))
	try.Ok(os.MkdirAll(filepath.Dir(path), 0o700))
	out := try.To(os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600))
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

// restore puts the checkpoints of a pack into a store, each after comparing it with its sum in the chain.
func (r *Run) restore(store *checkpoints.Store) (err error) {
	defer try.Caught(&err)
	for _, l := range r.chain.Links {
		if l.Kept {
			try.Ok(r.restoreOne(store, checkpointName(l.Step), r.made.detail.UID, l))
		}
	}
	return nil
}

func (r *Run) restoreOne(store *checkpoints.Store, name, uid string, want link) (err error) {
	defer try.Caught(&err)
	p := r.pack
	l, score, parts, err := readState(try.To(p.read(name)))
	if err != nil {
		return p.broken("%s cannot be read: %s", name, err)
	}
	if l.Step != want.Step || name != originName && l.Points != want.Points {
		return p.broken("%s is a checkpoint of another step", name)
	}
	if _, err := store.SaveAfter(l.Points, uid, l.Step, score, parts); err != nil {
		if !errors.As(err, new(*sqldb.Error)) {
			return p.broken("%s: %s", name, err)
		}
		return err
	}
	info := try.To(store.Find(uid, checkpoints.Step(l.Step)))
	view := try.To(store.ViewAll(info))
	defer view.Close()
	const should = "the state that " + chainName + " commits to"
	try.Ok(p.same(name, should, func(w io.Writer) error { return writeState(w, view) }))
	if try.To(store.Sum(uid, info.Ref())) != want.State {
		return p.broken("%s is not %s", name, should)
	}
	return nil
}

// Unpacked says what was entered into a history.
type Unpacked struct {
	ID          int64  `json:"id"`
	Name        string `json:"name"`
	Checkpoints int    `json:"checkpoints"`
}

// Unpack enters the run of a pack into the history of a home.
func (p *Pack) Unpack(home string) (_ *Unpacked, err error) {
	defer try.Caught(&err)
	r := try.To(p.Run())
	defer r.Close()
	db := try.To(history.Open(home))
	defer db.Close()
	uid := r.made.detail.UID
	if known := try.To(db.Known(uid)); known != 0 {
		return nil, exit.Errorf(exit.Usage, "%s is in the history already, as run %d", r.Name, known)
	}
	steps := r.chain.kept()
	if len(steps) > 0 {
		store := try.To(checkpoints.Open(home))
		defer store.Close()
		defer try.CaughtOr(&err, func() {
			list, _ := store.List(uid)
			_, _ = store.Delete(list...) // drun gc removes what stays
		})
		try.Ok(r.restore(store))
	}
	out := &Unpacked{Checkpoints: len(steps)}
	out.ID, out.Name, err = db.Admit(r.db, r.made.id, steps)
	return out, err
}
