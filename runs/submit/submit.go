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
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/engine/launch"
	"drun/engine/recipe"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// Request is a run, or the cells of a sweep, for a target.
type Request struct {
	Home    string // of the submitter
	Version string // of drun
	Target  *Target
	Bundle  *recipe.Bundle
	Args    []string // flags of drun run, as words; InJob begins the name of one of Files
	Nodes   int
	Ranks   int // of each node
	Threads int // of each rank; 0: as many as there are cores for
	Grace   time.Duration
	Info    history.RunInfo // of its run, as far as it is known; Name "": one is made up
	Cells   []Cell          // nil: one run
	AtOnce  int             // cells at a time; 0: all
	Files   map[string][]byte
	Copies  []string // files and folders of the recipe's folder that go along
	Needs   []string // folders that must be there
	Plugins []string // programs of backends that go along
}

// Cell is a run of a sweep.
type Cell struct {
	Args []string
	Key  string // the same for the cell whenever the sweep is repeated
	Info history.RunInfo
}

// InJob begins a word of Request.Args that names one of its Files.
const InJob = "{job}/"

// spec is what a job's row keeps for later.
type spec struct {
	Target Target     `json:"target"`
	Folder string     `json:"folder"`           // of the job, there
	Home   string     `json:"home"`             // there
	Drun   string     `json:"drun"`             // the program there
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

// place is where a job will be, once its target was looked at.
type place struct {
	folder  string // the job's
	dir     string // in which the script works, and the recipe finds its data
	home    string
	program string // drun
	upload  bool   // program is not there yet
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
	// send takes there what the job needs.
	send(ctx context.Context, j *job) error
	// text is what is handed over, for --dry-run.
	text(j *job) string
	// submit hands over, and returns what the scheduler calls the job.
	submit(ctx context.Context, j *job) (handle string, err error)
	// drop removes what send has sent.
	drop(ctx context.Context, j *job)
	// states tells what has become of jobs; one that the scheduler does not know is left out.
	states(ctx context.Context, jobs []*history.Job) (map[int64]State, error)
	// cancel asks for the end of a job.
	cancel(ctx context.Context, j *history.Job) error
	// logs copies what the job itself has printed, beside what its run has recorded.
	logs(ctx context.Context, j *history.Job, to io.Writer) error
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

// handles names the job of a run, from 1, of those that were handed over as one.
func handleOf(t *Target, handle string, cell int) string {
	if cell > 0 && t.Kind == "slurm" {
		return fmt.Sprintf("%s_%d", handle, cell)
	}
	return handle
}

// Plan returns what would be handed over; nothing is started, and no other machine is asked.
func Plan(r *Request) (string, error) {
	j := &job{Request: r, place: place{folder: filepath.Join(cmp.Or(r.Target.Get("folder"), absolute(r.Home)), "jobs", "ID")}}
	j.dir, j.home, j.program = j.folder+"/files", filepath.Join(cmp.Or(r.Target.Get("folder"), absolute(r.Home)), "home"), filepath.Join(cmp.Or(r.Target.Get("folder"), "/"), "bin", folderOf(r.Version), "drun")
	if Here(r.Target) {
		own, err := ownPlace(r, "ID")
		if err != nil {
			return "", err
		}
		j.place = own
	}
	for i := range max(len(r.Cells), 1) {
		j.runs = append(j.runs, Run{Name: cmp.Or(r.Info.Name, "NAME"), UID: "ID" + strconv.Itoa(i)})
	}
	return schedulerOf(r.Target).text(j), nil
}

// Submit hands a request over and returns its jobs, one a run. If it cannot be handed over, nothing is left of it.
func Submit(ctx context.Context, r *Request) (_ []*history.Job, err error) {
	s := schedulerOf(r.Target)
	uid := rand.Text()
	at, err := s.look(ctx, r, uid)
	if err != nil {
		return nil, told(r.Target, err)
	}
	j := &job{Request: r, place: at}
	db, err := history.Open(r.Home)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	cells := r.Cells
	if cells == nil {
		cells = []Cell{{Info: r.Info}}
	}
	var jobs []*history.Job
	handle := ""
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
	for i, c := range cells {
		c.Info.UID = uid
		what := spec{Target: *r.Target, Folder: at.folder, Home: at.home, Drun: at.program, CPUs: r.cpus(), Memory: r.Target.memory()}
		if r.Cells != nil {
			c.Info.UID, what.Cell, what.Key = fmt.Sprintf("%s-%d", uid, i+1), i+1, c.Key
		}
		id, name := try.To2(db.Enqueue(c.Info))
		entered := &history.Job{Run: id, RunName: name, RunStatus: history.Pending, UID: c.Info.UID, Target: r.Target.Name, Reason: "is handed over", Spec: what.text(), Submitted: time.Now()}
		jobs = append(jobs, entered)
		try.Ok(db.AddJob(entered))
		j.runs = append(j.runs, Run{c.Info.UID, name})
	}
	if err := s.send(ctx, j); err != nil {
		return nil, told(r.Target, err)
	}
	if handle, err = s.submit(ctx, j); err != nil {
		return nil, told(r.Target, err)
	}
	for i, entered := range jobs {
		cell := 0
		if r.Cells != nil {
			cell = i + 1
		}
		entered.Handle, entered.Reason = handleOf(r.Target, cmp.Or(handle, strconv.FormatInt(entered.ID, 10)), cell), "waits for "+r.Target.Name
		try.Ok(db.SetJob(entered))
	}
	return jobs, nil
}

// told gives an error of a target its name.
func told(t *Target, err error) error {
	switch {
	case err == nil || errors.As(err, new(*UnreachableError)):
		return err
	case !errors.As(err, new(exit.Coded)) && errors.As(err, new(*CommandError)):
		return exit.Errorf(exit.Usage, "%s: %w", t.Name, err)
	case strings.HasPrefix(err.Error(), t.Name+": "):
		return err
	}
	return fmt.Errorf("%s: %w", t.Name, err)
}

// file is what the job takes along for drun run.
func (j *job) file() []byte {
	dir := j.dir
	if Here(j.Target) {
		dir = j.Bundle.Dir
	}
	f := newFile(j.Bundle, dir)
	f.Runs, f.Sweep = j.runs, j.sweep()
	text, _ := json.Marshal(f) // plain data: it cannot fail
	return text
}

func (j *job) sweep() *records.Sweep {
	if j.Cells != nil {
		return j.Cells[0].Info.Sweep
	}
	return j.Info.Sweep
}

// cpus is how many cores of a node the run takes.
func (r *Request) cpus() int {
	return cmp.Or(r.Target.Number("cpus"), r.Ranks*max(r.Threads, 1))
}

// files are those of the job's folder, but for copies of data.
func (j *job) files(script string) []packed {
	list := []packed{{name: "job.json", content: j.file()}, {name: "script", content: []byte(script), mode: 0o700}}
	for name, content := range j.Files {
		list = append(list, packed{name: name, content: content})
	}
	if j.Cells != nil {
		var lines strings.Builder
		for i, c := range j.Cells {
			fmt.Fprintln(&lines, words(append(slices.Clone(c.Args), "--name", j.runs[i].Name)))
		}
		list = append(list, packed{name: "cells", content: []byte(lines.String())})
	}
	return list
}

// words are arguments for a shell.
func words(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		if strings.ContainsFunc(arg, func(c rune) bool { return !strings.ContainsRune(plain, c) }) || arg == "" {
			quoted[i] = launch.Quote(arg)
		}
	}
	return strings.Join(quoted, " ")
}

const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"

// command is drun run with its flags, for the script; "$@" stands for those of a sweep's cell.
func (j *job) command() string {
	args := append([]string{j.program, "run", j.Bundle.Name}, j.Args...)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, InJob, j.folder+"/")
	}
	args = append(args, "--resume", "auto")
	if slices.ContainsFunc(j.Args, func(arg string) bool { return arg == "--resume" || strings.HasPrefix(arg, "--resume=") }) {
		args = args[:len(args)-2] // what it goes on from; a job that is started again goes on from its own checkpoints in any case
	}
	if j.Cells != nil {
		return words(args) + ` "$@"`
	}
	return words(append(args, "--name", j.runs[0].Name))
}

// environment is what the script tells drun run, as lines of shell. cell is the variable with the number of a sweep's cell.
func (j *job) environment(cell string) string {
	text := fmt.Sprintf("export DRUN_HOME=%s %s=%s\n", words([]string{j.home}), FileVariable, words([]string{j.folder + "/job.json"}))
	if j.Cells != nil {
		text += fmt.Sprintf("export %s=$%s\neval \"set -- $(sed -n \"$%s\"p %s)\"\n", CellVariable, cell, cell, words([]string{j.folder + "/cells"}))
	}
	return text
}

// copies lists the files that go along, by their names in the job's folder, and their sums as sha256sum writes them.
func (r *Request) copies() (list []packed, sums string, err error) {
	defer try.Caught(&err)
	var text strings.Builder
	for _, name := range r.Copies {
		top := name
		if !filepath.IsAbs(top) {
			top = filepath.Join(r.Bundle.Dir, name)
		}
		beneath, err := filepath.Rel(r.Bundle.Dir, top)
		if err != nil || !filepath.IsLocal(beneath) {
			return nil, "", exit.Errorf(exit.Usage, "--copy %s: it is outside the recipe's folder %s", name, r.Bundle.Dir)
		}
		err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if !d.Type().IsRegular() {
				return exit.Errorf(exit.Usage, "--copy %s: %s is not a regular file", name, path)
			}
			if strings.ContainsAny(path, "\\\n") {
				return exit.Errorf(exit.Usage, "--copy %s: a file's name has a backslash or a line's end", name)
			}
			sum, err := sumOf(path)
			beneath, _ := filepath.Rel(r.Bundle.Dir, path) // it is, since top is
			list = append(list, packed{name: "files/" + beneath, from: path})
			fmt.Fprintf(&text, "%s  files/%s\n", sum, beneath)
			return err
		})
		if err != nil {
			return nil, "", exit.WithCode(fmt.Errorf("--copy %s: %w", name, err), exit.Usage)
		}
	}
	return list, text.String(), nil
}

func sumOf(path string) (_ string, err error) {
	defer try.Caught(&err)
	f := try.To(os.Open(path))
	defer f.Close()
	h := sha256.New()
	try.To(io.Copy(h, f))
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Here reports whether the target's jobs use the submitter's own home.
func Here(t *Target) bool {
	return t.Kind == Local || t.Kind == "slurm" && t.Get("host") == "" && t.Get("folder") == ""
}

// ownPlace is the place of a job whose home is the submitter's.
func ownPlace(r *Request, uid string) (p place, err error) {
	defer try.Caught(&err)
	if len(r.Copies) > 0 {
		return p, exit.Errorf(exit.Usage, "--copy is for targets on other machines: %s reads the files where they are", r.Target.Name)
	}
	home := absolute(r.Home)
	p = place{folder: filepath.Join(home, "jobs", uid), home: home}
	p.dir = try.To(os.Getwd())
	p.program = cmp.Or(r.Target.Get("drun"), try.To(os.Executable()))
	return p, nil
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// folderOf is the name of the folder with a version of drun.
func folderOf(version string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune(plain, c) && c != '/' {
			return c
		}
		return '-'
	}, version)
}
