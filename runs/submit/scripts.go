package submit

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	"drun/engine/launch"
	"drun/history"
	"drun/internal/try"
)

// What schedulers and login nodes execute is in the folder scripts, as templates that a job fills in.

//go:embed scripts
var scripts embed.FS

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"sh":   words,
		"exit": func(j *history.Job) string { return specOf(j).of("exit") },
		"json": func(v any) (string, error) { // which YAML contains
			text, err := json.Marshal(v)
			return string(text), err
		},
		"claim":  func(volume string) string { return strings.SplitN(volume, ":", 2)[0] },
		"mount":  func(volume string) string { return strings.SplitN(volume, ":", 2)[1] },
		"number": func(gpus string) string { return gpus[strings.LastIndexByte(gpus, ':')+1:] },
	}).ParseFS(scripts, "scripts/*"))
})

func fill(name string, data any) string {
	var b strings.Builder
	try.Ok(templates().ExecuteTemplate(&b, name, data)) // a mistake in the template
	return b.String()
}

// words are texts, and lists of them, as words for a shell.
func words(args ...any) string {
	var quoted []string
	for _, arg := range args {
		if list, is := arg.([]string); is {
			for _, each := range list {
				quoted = append(quoted, words(each))
			}
			continue
		}
		text := fmt.Sprint(arg)
		if text == "" || strings.ContainsFunc(text, func(c rune) bool { return !strings.ContainsRune(plain, c) }) {
			text = launch.Quote(text)
		}
		quoted = append(quoted, text)
	}
	return strings.Join(quoted, " ")
}

const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"

// The following is what templates ask of a job.

func (r *Request) Here() bool { return Here(r.Target) }

// Name is that of the job, or of its first run.
func (j *job) Name() string { return j.runs[0].Name }

// Seconds is how long before its end a job is told.
func (r *Request) Seconds() int { return int((r.Grace + 30*time.Second) / time.Second) }

// Stuck is a query, in a shell's double quotes, whether the last ten attempts of the run began at the same step: one that saves nothing
// would go on for ever.
func (j *job) Stuck() string {
	uid := j.runs[0].UID
	if j.Cells != nil {
		uid = strings.TrimSuffix(uid, "1") + "$DRUN_JOB_CELL"
	}
	return "select count(*) = 10 and count(distinct coalesce(from_step, -1)) = 1 from (select from_step from attempts join runs on id = run where uid = '" + uid + "' order by attempt desc limit 10)"
}

// Arguments are those of drun run. The name of a sweep's cell is among the flags of the cell.
func (j *job) Arguments() []string {
	args := append([]string{"run", j.Bundle.Name}, j.Args...)
	if !slices.ContainsFunc(j.Args, func(arg string) bool { return strings.HasPrefix(arg, "--resume=") }) {
		args = append(args, "--resume", "auto") // a job that is started again goes on from its own checkpoints in any case
	}
	if j.Cells == nil {
		args = append(args, "--name", j.Name())
	}
	return args
}

// Environ is what a job in the queue here has of the submitter's environment.
func (j *job) Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return !strings.HasPrefix(name, "DRUN_") || strings.Contains(name, "SECRET") || strings.Contains(name, "TOKEN") || name == "DRUN_HOME"
	})
}

// Options are those of sbatch that the target has.
func (j *job) Options() (list []string) {
	for _, o := range [][2]string{{"account", "account"}, {"partition", "partition"}, {"qos", "qos"}, {"constraint", "constraint"}, {"time", "time"}, {"gpus", "gpus-per-node"}, {"memory", "mem"}} {
		if value := j.Target.Get(o[0]); value != "" {
			list = append(list, "--"+o[1]+"="+value)
		}
	}
	return append(list, j.Target.List("options")...)
}

// DataFolder is where relative names of Sums begin.
func (j *job) DataFolder() string {
	if len(j.Data) > 0 {
		return j.Data[0]
	}
	return j.Dir
}

// Root is the folder that has the jobs' folder, Installed the one with the program, and Part where it is until all of it is there.
func (j *job) Root() string      { return filepath.Dir(filepath.Dir(j.Folder)) }
func (j *job) Installed() string { return filepath.Dir(j.Program) }
func (j *job) Part() string      { return j.Installed() + "." + filepath.Base(j.Folder) }
