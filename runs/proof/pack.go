package proof

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/record"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Packing says what goes into a pack beside what the history has.
type Packing struct {
	Weights string // of which checkpoints: none, last, best or all
	Data    bool   // the files that the run read
	Sign    string // with the SSH key in this file; "": not
}

// Packed says what was packed.
type Packed struct {
	File        string   `json:"file"`
	Root        string   `json:"root"`
	Bytes       int64    `json:"bytes"`
	Segments    int      `json:"segments"`
	Checkpoints int      `json:"checkpoints"`
	Notes       []string `json:"notes"` // what may keep others from repeating the run
}

// Write packs a run into a new file.
func Write(home string, db *history.DB, id int64, path string, o Packing) (_ *Packed, err error) {
	defer try.Caught(&err)
	if d := try.To(db.Get(id)); !d.Status.Ended() {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "run %d %s is still %s", id, d.Name, d.Status), "wait for its end")
	}
	dir := try.To(scratch.MakeIn(filepath.Dir(path), ".drun-pack-"))
	defer dir.Remove()
	try.Ok(db.Extract(id, dir.Path))
	extracted, id := try.To2(history.OpenExtracted(dir.Path))
	defer extracted.Close()
	m := try.To(madeBy(extracted, id))
	store := try.To(checkpoints.OpenIfAny(home))
	defer store.Close()
	members, c := try.To2(m.states(store, o.Weights))
	maps.Copy(members, try.To(m.derived(c)))
	members[historyName] = func(w io.Writer) error { _, err := copySummed(w, filepath.Join(dir.Path, historyName)); return err }
	if o.Data {
		maps.Copy(members, try.To(m.dataFiles()))
	}
	p := &Packed{File: path, Segments: len(c.Links), Checkpoints: len(c.kept()), Notes: try.To(m.notes(home))}
	out := try.To(os.OpenFile(filepath.Join(dir.Path, "pack"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600))
	defer out.Close()
	a := newArchive(&early{File: out})
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !validName(name) {
			return nil, exit.Errorf(exit.Usage, "run %s cannot be packed: a member of a pack cannot be called %q", m.detail.Name, name)
		}
		try.Ok(a.add(name, members[name]))
	}
	var sign func(string) ([]byte, error)
	if o.Sign != "" {
		sign = signWith(o.Sign)
	}
	p.Root = try.To(a.end(sign))
	p.Bytes = try.To(out.Stat()).Size()
	try.Ok(out.Sync())
	if err := os.Link(out.Name(), path); err != nil { // unlike a rename, it does not replace a file that has appeared meanwhile
		return nil, err
	}
	return p, sqldb.Sync(filepath.Dir(path))
}

// early has the disk begin with what is written, which would otherwise wait for the last sync.
type early struct {
	*os.File
	behind int
}

func (e *early) Write(p []byte) (int, error) {
	if e.behind += len(p); e.behind >= 8<<20 {
		_ = unix.SyncFileRange(int(e.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // a hint: some file systems do not support it
		e.behind = 0
	}
	return e.File.Write(p)
}

// states are the members with checkpoints, and the chain that commits to them all.
func (m *made) states(store *checkpoints.Store, weights string) (members map[string]func(io.Writer) error, c *chain, err error) {
	defer try.Caught(&err)
	members, c = map[string]func(io.Writer) error{}, &chain{}
	keep := func(name string, info checkpoints.Info) {
		members[name] = func(w io.Writer) (err error) {
			defer try.Caught(&err)
			view := try.To(store.ViewAll(info))
			defer view.Close()
			return writeState(w, view)
		}
	}
	find := func(uid string, ref checkpoints.Ref) (info checkpoints.Info, sum string) { // "": there is none, or it was removed
		info, err := store.Find(uid, ref)
		if errors.As(err, new(*checkpoints.ErrNone)) {
			return info, ""
		}
		try.Ok(err)
		return info, try.To(store.Sum(info.Run, info.Ref()))
	}
	wanted := func(checkpoints.Info) bool { return weights == "all" }
	if ref, one := map[string]checkpoints.Ref{"last": checkpoints.Last, "best": checkpoints.Best}[weights]; one {
		chosen, sum := find(m.detail.UID, ref)
		if sum == "" && weights == "best" {
			return nil, nil, exit.Errorf(exit.Usage, "run %s has no checkpoint with a score", m.detail.Name)
		}
		wanted = chosen.Same
	}
	c.Links = try.To(m.links(func(step int64) (sum string, kept bool) {
		info, sum := find(m.detail.UID, checkpoints.Step(step))
		if kept = sum != "" && wanted(info); kept {
			keep(checkpointName(step), info)
		}
		return sum, kept
	}))
	if p := m.detail.Parent; p != nil {
		if info, sum := find(try.To(m.db.Get(p.ID)).UID, checkpoints.Step(p.Step)); sum != "" {
			if c.Origin = (&link{Step: p.Step, State: sum, Kept: weights != "none"}); c.Origin.Kept {
				keep(originName, info)
			}
		}
	}
	return members, c, nil
}

// dataFiles are the members with what the run read. A file that is no longer the same is an error.
func (m *made) dataFiles() (members map[string]func(io.Writer) error, err error) {
	if faults := m.fileFaults(); len(faults) > 0 {
		return nil, exit.Errorf(exit.Usage, "the run's data cannot be packed: %s", faults[0])
	}
	members = map[string]func(io.Writer) error{}
	for _, f := range m.detail.DataFiles {
		from := f.Path
		for _, folder := range []string{filepath.Dir(m.detail.Recipe), m.detail.Dir} {
			if !filepath.IsAbs(from) {
				from = filepath.Join(folder, filepath.FromSlash(from))
			}
		}
		name, _ := dataName(m.detail, &f)
		members["data/"+name] = func(w io.Writer) error {
			got, err := copySummed(w, from)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return exit.Errorf(exit.Usage, "%s is gone: the run's data cannot be packed", from)
			case err == nil && got != f.SHA256:
				return exit.Errorf(exit.Usage, "%s has changed since the run: its data cannot be packed", from)
			}
			return err
		}
	}
	return members, nil
}

// fileFaults names the files that others cannot give, and those that have no one content.
func (m *made) fileFaults() (faults []string) {
	contents := map[string]string{}
	for _, f := range m.detail.DataFiles {
		name, is := dataName(m.detail, &f)
		if !is {
			faults = append(faults, fmt.Sprintf("the recipe read %s at %s, which lies neither in its folder nor in a --data folder: others cannot give it", f.Path, f.Position))
		}
		if other, twice := contents[name]; twice && other != f.SHA256 {
			faults = append(faults, fmt.Sprintf("%s, which is read at %s, has another content than before: it changed during the run, or two files have this name, and the run cannot be repeated", f.Path, f.Position))
		}
		contents[name] = f.SHA256
	}
	return faults
}

// notes names what may keep others from repeating the run.
func (m *made) notes(home string) (notes []string, err error) {
	defer try.Caught(&err)
	d := m.detail
	notes = []string{}
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if d.Backend == record.FileBackend {
		note("the run was imported: there is no recipe that could be run again")
		return notes, nil
	}
	var secrets []engine.Param
	for _, name := range slices.Sorted(maps.Keys(d.Params)) {
		if d.Params[name] == (history.Secret{}) {
			note("the value of the secret parameter %s is not in the pack: who checks it needs it", name)
			secrets = append(secrets, engine.Param{Name: name, Value: "x"})
		}
	}
	replay := try.To(record.NewReplay(m.db, home, d, secrets))
	clock := replay.Bundle.Calls("elapsed", "")
	if len(clock) == 0 && replay.Bundle.Names("elapsed") {
		clock = append(clock, "a place where run.elapsed has another name")
	}
	for _, line := range clock {
		note("the recipe reads the clock at %s: what it computes from that differs each time, so run.log(…, exact = False) must mark it", line)
	}
	notes = append(notes, m.fileFaults()...)
	if d.Deterministic != nil && !*d.Deterministic && d.WorldSize > 1 {
		note("the run did not reduce in rank order (--deterministic=false): only the same backend on the same nodes repeats it")
	}
	if d.Numerics == nil || *d.Numerics != engine.Numerics {
		note("the run was made by a drun with another arithmetic: this one cannot check it")
	}
	return notes, nil
}
