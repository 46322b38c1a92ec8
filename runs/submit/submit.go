// Package submit hands runs to schedulers that exist, Slurm and Kubernetes, and to a queue on this machine, and brings home
// what becomes of them. `drun submit`, `drun jobs` and `drun sweep --on` call it. Each scheduler has a file; a job is a row of
// the history's table jobs beside the row of its run, which is pending until drun run begins it.
package submit

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"drun/engine"
	"drun/engine/recipe"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

// Request is a run, or the cells of a sweep, for a target.
type Request struct {
	Home    string // of the submitter
	Version string // of drun
	Target  *Target
	Bundle  *recipe.Bundle
	Args    []string       // flags of drun run, as words
	Filed   []engine.Param // of a file of parameters
	Nodes   int
	Ranks   int // of each node
	Threads int // of each rank; 0: as many as there are cores for
	Grace   time.Duration
	Info    history.RunInfo // of its run, as far as it is known; Name "": one is made up
	Cells   []Cell          // nil: one run
	AtOnce  int             // cells at a time; 0: all
	Copies  []string        // files and folders of the recipe's folder that go along
	Data    []string        // folders that must be there
	Sums    []byte          // of files there, as sha256sum prints them
	Plugins []string        // programs of backends that go along
	Server  string          // of the team, which a run in pods follows to; "": none
	Token   string          // for the server
}

// Cell is a run of a sweep.
type Cell struct {
	Args []string
	Key  string // the same for the cell whenever the sweep is repeated
	Info history.RunInfo
}

// spec is what a job's row keeps for later.
type spec struct {
	Target Target     `json:"target"`
	Folder string     `json:"folder"`           // of the job, there
	Home   string     `json:"home"`             // there
	Drun   string     `json:"drun"`             // the program there
	Server string     `json:"server,omitempty"` // that has what the run records
	Cell   int        `json:"cell,omitempty"`   // from 1; 0: the job has one run
	Key    string     `json:"key,omitempty"`    // of the cell
	CPUs   int        `json:"cpus,omitempty"`   // for the local queue
	Memory int64      `json:"memory,omitempty"` // bytes, likewise
	Missed *time.Time `json:"missed,omitempty"` // since when the scheduler does not know the job
}

func specOf(j *history.Job) (s spec) {
	_ = json.Unmarshal([]byte(j.Spec), &s) // drun wrote it
	return s
}

// KeyOf is the key of the cell that a job runs; "": it runs none.
func KeyOf(j *history.Job) string { return specOf(j).Key }

func (s spec) text() string {
	text, _ := json.Marshal(s) // plain data: it cannot fail
	return string(text)
}

// of names a file of a job's run.
func (s spec) of(name string) string {
	if s.Cell > 0 {
		name += "-" + strconv.Itoa(s.Cell)
	}
	return filepath.Join(s.Folder, name)
}

// place is where a job will be, once its target was looked at.
type place struct {
	Folder  string // the job's
	Dir     string // in which the script works, and the recipe finds its data
	RunHome string
	Program string   // drun
	Lacking []packed // drun and what belongs to it, if it is not there yet
}

// job is a request on its way to a scheduler.
type job struct {
	*Request
	place
	runs []Run
}

// State is what a scheduler says of a job.
type State struct {
	Status history.Status
	Reason string
	Code   *int // drun's exit code
}

// scheduler hands jobs over. One that runs on another machine may be slow or unreachable: all its calls may fail.
type scheduler interface {
	// look finds out whether the target can take a job, and where it will be there.
	look(ctx context.Context, r *Request, uid string) (place, error)
	// text is what is handed over, for --dry-run.
	text(j *job) string
	// submit takes there what the job needs, hands it over, and returns what the scheduler calls it.
	submit(ctx context.Context, j *job) (handle string, err error)
	// drop removes what submit has left there.
	drop(ctx context.Context, j *job)
	// states tells what has become of jobs; one that the scheduler does not know is left out.
	states(ctx context.Context, jobs []*history.Job) (map[int64]State, error)
	// cancel asks for the end of a job.
	cancel(ctx context.Context, j *history.Job) error
	// logs is what the job itself has printed, beside what its run has recorded.
	logs(ctx context.Context, j *history.Job) (string, error)
}

func schedulerOf(t *Target) scheduler {
	switch t.Kind {
	case "slurm":
		return slurm{machine{t.Get("host")}}
	case "kubernetes":
		return kubernetes{}
	}
	return local{}
}

// Plan returns what would be handed over; nothing is started, and no other machine is asked.
func Plan(r *Request) (_ string, err error) {
	defer try.Caught(&err)
	try.Ok(r.fits())
	j := &job{Request: r}
	switch {
	case Here(r.Target):
		j.place = try.To(ownPlace(r, "ID"))
	case r.Target.Kind == "slurm":
		program, _ := try.To2(programs(r))
		j.place = placeIn(r.Target.Get("folder"), "ID", program)
	}
	for i := range max(len(r.Cells), 1) {
		j.runs = append(j.runs, Run{Name: cmp.Or(r.Info.Name, "NAME"), UID: "ID" + strconv.Itoa(i)})
	}
	return schedulerOf(r.Target).text(j), nil
}

// Submit hands a request over and returns its jobs, one a run. If it cannot be handed over, nothing is left of it.
func Submit(ctx context.Context, r *Request) (_ []*history.Job, err error) {
	if err := r.fits(); err != nil {
		return nil, err
	}
	s, uid, handle := schedulerOf(r.Target), rand.Text(), ""
	at, err := s.look(ctx, r, uid)
	if err != nil {
		return nil, told(r.Target, err)
	}
	db, err := history.Open(r.Home)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	j := &job{Request: r, place: at}
	var jobs []*history.Job
	defer try.CaughtOr(&err, func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), atMost)
		defer cancel()
		if handle != "" {
			_ = s.cancel(late, &history.Job{Handle: handle, Spec: jobs[0].Spec})
		}
		s.drop(late, j)
		_ = db.DropJobs(jobs)
		Wake(r.Home)
	})
	release := try.To(handing(r.Home, uid))
	defer release()
	cells := r.Cells
	if cells == nil {
		cells = []Cell{{Info: r.Info}}
	}
	for i, c := range cells {
		c.Info.UID = uid
		what := spec{Target: *r.Target, Folder: at.Folder, Home: at.RunHome, Drun: at.Program, Server: r.Server, CPUs: r.CPUs(), Memory: r.Target.memory()}
		if r.Cells != nil {
			c.Info.UID, what.Cell, what.Key = fmt.Sprintf("%s-%d", uid, i+1), i+1, c.Key
		}
		id, name := try.To2(db.Enqueue(c.Info))
		entered := &history.Job{Run: id, RunName: name, RunStatus: history.Pending, UID: c.Info.UID, Target: r.Target.Name, Reason: "is handed over", Spec: what.text(), Submitted: time.Now()}
		jobs = append(jobs, entered)
		try.Ok(db.AddJob(entered))
		j.runs = append(j.runs, Run{c.Info.UID, name})
	}
	handle, err = s.submit(ctx, j)
	try.Ok(told(r.Target, err))
	for i, entered := range jobs {
		entered.Handle, entered.Reason = cmp.Or(handle, strconv.FormatInt(entered.ID, 10)), "waits for "+r.Target.Name
		if r.Cells != nil && handle != "" { // a task of an array
			entered.Handle += "_" + strconv.Itoa(i+1)
		}
		try.Ok(db.SetJob(entered))
	}
	return jobs, nil
}

// fits returns an error if a job would be told to end as soon as it begins, again and again. Slurm may tell it a minute early.
func (r *Request) fits() error {
	if limit := r.Target.limit(); limit > 0 && limit < r.Seconds()+120 {
		return exit.WithHint(exit.Errorf(exit.Usage, "--time %s: it is told to save %d to %d s before that, and would have no time to work", r.Target.Get("time"), r.Seconds(), r.Seconds()+60), "give it more --time, or a shorter --grace")
	}
	return nil
}

// handing claims what the submitter of a job holds until it is handed over; nil: it holds it.
func handing(home, uid string) (release func(), err error) {
	uid, _, _ = strings.Cut(uid, "-") // of all cells
	return history.Claim(home, "submit "+uid)
}

// told gives an error of a target its name.
func told(t *Target, err error) error {
	switch {
	case err == nil || errors.As(err, new(*UnreachableError)) || strings.HasPrefix(err.Error(), t.Name+": "):
		return err
	case !errors.As(err, new(exit.Coded)) && errors.As(err, new(*CommandError)):
		return exit.Errorf(exit.Usage, "%s: %w", t.Name, err)
	}
	return fmt.Errorf("%s: %w", t.Name, err)
}

// CPUs is how many cores of a node the run takes.
func (r *Request) CPUs() int {
	return cmp.Or(r.Target.Number("cpus"), r.Ranks*max(r.Threads, 1))
}

// files are those of the job's folder, but for copies of data.
func (j *job) files(script string) []packed {
	var cells strings.Builder
	for i, c := range j.Cells {
		fmt.Fprintf(&cells, "%d) set -- %s ;;\n", i+1, words(c.Args, "--name", j.runs[i].Name))
	}
	return []packed{{name: "job.json", content: j.file()}, {name: "script", content: []byte(script), mode: 0o700}, {name: "data.sums", content: j.Sums},
		{name: "cells", content: []byte("case $DRUN_JOB_CELL in\n" + cells.String() + "esac\n")}}
}

// failure is the word with which a script has said why it failed, and what it has printed besides; "": it has not failed so.
func failure(out string, err error) (word, said string) {
	if failed := (*CommandError)(nil); errors.As(err, &failed) {
		return first(pairs(out)["failed"]), failed.Words
	}
	return "", ""
}

// differs is the error of data that is not what its sums say; another stays as it is.
func differs(out string, err error) error {
	if word, said := failure(out, err); word == "data" {
		return exit.WithHint(exit.Errorf(exit.Usage, "the data there is not what --sums says: %s", said), "sha256sum there shows what it is")
	}
	return err
}

// copies lists the files that go along, by their names in the job's folder, and their sums as sha256sum writes them.
func (r *Request) copies() (list []packed, sums string, err error) {
	defer try.Caught(&err)
	for _, name := range r.Copies {
		beneath := name
		if filepath.IsAbs(name) {
			beneath, _ = filepath.Rel(r.Bundle.Dir, name)
		}
		if !filepath.IsLocal(beneath) {
			return nil, "", exit.Errorf(exit.Usage, "--copy %s: it is outside the recipe's folder %s", name, r.Bundle.Dir)
		}
		err := fs.WalkDir(os.DirFS(r.Bundle.Dir), filepath.ToSlash(filepath.Clean(beneath)), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil || d.IsDir():
				return err
			case !d.Type().IsRegular() || strings.ContainsAny(path, "\\\n"):
				return fmt.Errorf("%s is not a regular file, or has a name with a backslash or a line's end", path)
			}
			list = append(list, packed{name: "files/" + path, from: filepath.Join(r.Bundle.Dir, path)})
			return nil
		})
		if err != nil {
			return nil, "", exit.WithCode(fmt.Errorf("--copy %s: %w", name, err), exit.Usage)
		}
	}
	sums, err = sumsOf(list)
	return list, sums, err
}

// sumsOf are the SHA-256 of files, as sha256sum prints them.
func sumsOf(list []packed) (_ string, err error) {
	defer try.Caught(&err)
	var text strings.Builder
	for _, p := range list {
		f := try.To(os.Open(p.from))
		defer f.Close()
		h := sha256.New()
		try.To(io.Copy(h, f))
		fmt.Fprintf(&text, "%s  %s\n", hex.EncodeToString(h.Sum(nil)), p.name)
	}
	return text.String(), nil
}

// Here reports whether the target's jobs use the submitter's own home.
func Here(t *Target) bool {
	return t.Kind == Local || t.Kind == "slurm" && t.Get("host") == "" && t.Get("folder") == ""
}

// placeIn is the place of a job beneath the target's folder.
func placeIn(root, uid, program string) place {
	if !filepath.IsAbs(program) {
		program = filepath.Join(root, program)
	}
	folder := filepath.Join(root, "jobs", uid)
	return place{Folder: folder, Dir: folder + "/files", RunHome: filepath.Join(root, "home"), Program: program}
}

// ownPlace is the place of a job whose home is the submitter's.
func ownPlace(r *Request, uid string) (p place, err error) {
	defer try.Caught(&err)
	if len(r.Copies) > 0 {
		return p, exit.Errorf(exit.Usage, "--copy is for targets on other machines: %s reads the files where they are", r.Target.Name)
	}
	p.RunHome = try.To(filepath.Abs(r.Home))
	p.Folder, p.Dir = filepath.Join(p.RunHome, "jobs", uid), try.To(os.Getwd())
	p.Program = cmp.Or(r.Target.Get("drun"), try.To(os.Executable()))
	return p, nil
}
