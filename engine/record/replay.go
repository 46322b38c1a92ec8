package record

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/recipe"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/secret"
	"drun/internal/try"
)

// Replay is a run that is repeated in another home, from what the history has of it.
type Replay struct {
	Bundle *recipe.Bundle
	Params []engine.Param
	Spread bool   // see Spread
	ID     int64  // as the recipe sees it, like Name
	Name   string // likewise

	Home   string         // that contains the run
	From   string         // RUN@STEP there, the checkpoint that the ranks restore; "": none
	Own    bool           // it is the run's own checkpoint, not one that it was resumed from
	Trace  string         // see engine.Job
	Starts int            // earlier starts of the ranks, as run.restart_count counts them
	Target *engine.Target // where it ends; nil: at the recipe's end
}

// FileBackend is the backend of runs that were made from a file of weights, for which no ranks were started.
const FileBackend = "none"

// NewReplay prepares the replay of a run from its beginning. given are values of secret parameters, which the
// history does not have.
func NewReplay(db *history.DB, home string, d *history.Detail, given []engine.Param) (_ *Replay, err error) {
	defer try.Caught(&err)
	path := d.Recipe
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.Dir, path)
	}
	sources := try.To(db.Sources(d.ID))
	r := &Replay{Bundle: &recipe.Bundle{Name: d.Recipe, Dir: filepath.Dir(path), Project: recipe.Project(d.Project), Sources: sources}, Params: paramsOf(d), ID: d.ID, Name: d.Name, Spread: Spread(d), Home: home}
	for _, s := range sources {
		if s.Role == "recipe" {
			r.Bundle.Main = s.Path
		}
	}
	if d.Backend == FileBackend {
		return nil, exit.Errorf(exit.Usage, "run %d %s was made from a file of weights, and has no recipe", d.ID, d.Name)
	}
	if r.Bundle.Main == "" {
		return nil, exit.Errorf(exit.Usage, "run %d %s cannot be repeated: the history does not have its recipe", d.ID, d.Name)
	}
	for _, p := range given {
		if value, is := d.Params[p.Name]; !is || value != (history.Secret{}) {
			return nil, exit.Errorf(exit.Usage, "-p %s: only the values of secret parameters are given again, and the run has no such secret", p.Name)
		}
	}
	r.Params = Override(r.Params, given)
	for _, p := range r.Params {
		if p.Kind == secret.Withheld {
			return nil, exit.Errorf(exit.Usage, "the history did not keep the value of parameter %s, as the name says that it is a secret: give it again with -p %s=VALUE", p.Name, p.Name)
		}
	}
	if d.Parent != nil {
		r.From = fmt.Sprintf("%d@%d", d.Parent.ID, d.Parent.Step)
	}
	return r, nil
}

// Spread reports whether a run had several nodes, some with several ranks.
func Spread(d *history.Detail) bool {
	nodes := map[int]bool{}
	for _, rank := range d.Ranks {
		nodes[rank.Node] = true
	}
	return len(nodes) > 1 && len(nodes) < d.WorldSize
}

func (r *Record) goOnFrom(p *Replay) (err error) {
	defer try.Caught(&err)
	db := try.To(history.OpenReadOnly(p.Home))
	defer db.Close()
	store := try.To(checkpoints.OpenReadOnly(p.Home))
	if r.from, err = findOrigin(db, store, p.From); err != nil {
		store.Close()
		return fmt.Errorf("the checkpoint from which the replay would go on: %w", err)
	}
	r.from.store, r.from.own = store, p.Own
	return nil
}

// findReplayed is find for a replay that starts from a checkpoint of another home.
func (r *Checkpoints) findReplayed(step string, ref checkpoints.Ref, f *found) error {
	o, err := r.from, error(&checkpoints.ErrNone{Which: step})
	if r.store != nil {
		f.store = r.store
		f.info, err = r.store.Find(r.run.UID, ref)
	}
	none := errors.As(err, new(*checkpoints.ErrNone))
	if err != nil && !none {
		return err
	}
	if step != "last" && o.own {
		return fmt.Errorf("the recipe restores step %s, and the replay began in its middle", step)
	}
	if f.run = "this run"; none || step == "best" {
		theirs := o.info
		if err = nil; step != "last" {
			theirs, err = o.store.FindAmong(uids(o.line), ref)
		}
		switch {
		case err == nil && (none || *theirs.Score > *f.info.Score):
			f.store, f.info, f.run = o.store, theirs, "run "+o.line[0].Name
		case err != nil && !errors.As(err, new(*checkpoints.ErrNone)):
			return err
		case err != nil && none:
			return noSuch(step, true)
		}
	}
	if f.info.WorldSize != len(r.places) {
		f.differ, err = f.store.Differing(f.info.Run, f.info.Ref())
		return err
	}
	return nil
}

// inputsOf returns what decides the bits of a run, except its parameters and the checkpoint that it goes on from.
func inputsOf(c Config, seed int64) *history.Inputs {
	in := &history.Inputs{Main: path.Join(string(c.Recipe.Project), c.Recipe.Main), Seed: seed, WorldSize: len(c.Placements), Order: "ranks", Numerics: engine.Numerics,
		Sources: c.Recipe.Sources}
	if c.Plugin != nil && in.WorldSize > 1 && !c.Deterministic {
		// It reduces in an order of its own, which may depend on where the ranks are.
		in.Order = fmt.Sprintf("%s's own, %s", c.Backend, c.Plugin.SHA256)
		for _, place := range c.Placements {
			in.Order += fmt.Sprintf(" %d", place.NodeRank)
		}
	}
	if c.OtherBits != "" {
		in.Order += ", with the bits of " + c.OtherBits
	}
	return in
}

// gitAtMost limits how long finding the state of the recipe's repository may take. The run goes on meanwhile.
const gitAtMost = 2 * time.Second

// askGit sends the commit of the recipe's folder, if it is in a repository and git is installed, and closes the
// channel.
func askGit(dir string) <-chan *history.Git {
	found := make(chan *history.Git, 1) // buffered, since nobody may receive it
	go func() {
		defer close(found)
		if !inRepository(dir) {
			return
		}
		ctx, stop := context.WithTimeout(context.Background(), gitAtMost)
		defer stop()
		cmd := exec.CommandContext(ctx, "git", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "--untracked-files=no", "--", ".")
		cmd.Dir, cmd.WaitDelay = dir, 100*time.Millisecond
		cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0")
		out, err := cmd.Output()
		if err != nil {
			return
		}
		git := &history.Git{}
		for line := range strings.Lines(string(out)) {
			if commit, is := strings.CutPrefix(line, "# branch.oid "); is {
				git.Commit = strings.TrimSpace(commit)
			} else if !strings.HasPrefix(line, "#") {
				git.Dirty = true
			}
		}
		if git.Commit != "" && git.Commit != "(initial)" {
			found <- git
		}
	}()
	return found
}

// inRepository reports whether a folder, or one above it, contains .git.
func inRepository(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		above := filepath.Dir(dir)
		if above == dir {
			return false
		}
		dir = above
	}
}

// Earlier is a run that has ended.
type Earlier struct {
	ID      int64
	Name    string
	Seconds float64
}

// Reusable finds the newest run that ended with this code and whose bits the new run would repeat: recipe,
// parameters, seed, world size, arithmetic and order of reductions are the same, and the files that it read have
// the same content now. nil: there is none.
func Reusable(c Config, declared *engine.Declared, code exit.Code) (_ *Earlier, err error) {
	defer try.Caught(&err)
	in := inputsOf(c, c.Seed)
	in.Params = values(declared.Params, c.KeepSecrets)
	key, err := in.Key()
	if err != nil || key == "" {
		return nil, err
	}
	db, err := history.OpenReadOnly(c.Home)
	if errors.As(err, new(*history.ErrNone)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for _, s := range try.To(db.WithInputs(key, history.Status(code.Status()))) {
		d := try.To(db.Get(s.ID))
		if slices.Equal(d.DataDirs, c.DataDirs) && len(Changed(c.Recipe, c.DataDirs, d.DataFiles)) == 0 && s.Seconds != nil {
			return &Earlier{s.ID, s.Name, *s.Seconds}, nil
		}
	}
	return nil, nil
}

// Changed lists the files that a run has read and that are no longer the same, with the reason. dirs are its --data
// folders.
func Changed(bundle *recipe.Bundle, dirs []string, files []records.DataFile) (list []DataChange) {
	contents := map[string]string{}
	for _, f := range files {
		path, why := f.Path, ""
		if !filepath.IsAbs(path) {
			path = filepath.Join(bundle.Dir, filepath.FromSlash(path))
		}
		sum, err := contents[path], error(nil)
		if sum == "" {
			sum, err = sumOf(path, f.Bytes)
			contents[path] = sum
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			why = "it is gone"
		case err != nil:
			why = err.Error()
		case sum != f.SHA256:
			why = "its content has changed since the run"
		case filepath.IsAbs(f.Path):
			why = hidden(bundle.Dir, dirs, f.Path)
		}
		if why != "" {
			list = append(list, DataChange{f, why})
		}
	}
	return list
}

// hidden says why a file of a --data folder is no longer the one that its name refers to: a recipe looks first in
// its own folder, then in the --data folders in order.
func hidden(own string, dirs []string, path string) string {
	for i, dir := range dirs {
		rel, is := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
		if !is {
			continue
		}
		for _, before := range append([]string{own}, dirs[:i]...) {
			if other := filepath.Join(before, rel); other != path {
				if _, err := os.Lstat(other); err == nil {
					return other + " now comes before it"
				}
			}
		}
		return ""
	}
	return "it is beneath none of the --data folders" // an earlier attempt had another
}

// DataChange is a file that has changed since a run read it.
type DataChange struct {
	File records.DataFile
	Why  string
}

func (c DataChange) String() string {
	at := ""
	if c.File.Position != "" {
		at = ", which is read at " + c.File.Position
	}
	return fmt.Sprintf("%s%s: %s", c.File.Path, at, c.Why)
}

// sumOf is the SHA-256 of a file of that size in bytes; "another" if its size differs.
func sumOf(path string, bytes int64) (_ string, err error) {
	defer try.Caught(&err)
	info := try.To(os.Stat(path))
	if !info.Mode().IsRegular() || info.Size() != bytes {
		return "another", nil
	}
	file := try.To(os.Open(path))
	defer file.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), err
}
