package submit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"drun/internal/exit"
	"drun/internal/spelling"
)

// Target is where jobs go.
type Target struct {
	Name   string            `json:"name"`
	Kind   string            `json:"kind"`
	Values map[string]string `json:"values,omitempty"` // by the keys of the file; a list has lines
}

// Local is the name and the kind of the target that is always there: a queue on this machine.
const Local = "local"

// Key is a setting of targets.
type Key struct {
	Name, Usage string
	Kinds       string // that have it
	Flag        bool   // drun submit has it as a flag, too, which comes first
	List        bool
	form        string // a regular expression
	want        string // what the form asks for
	needed      string // the kind of target, or the other setting, that cannot be without it
}

// Keys lists what a target may have besides its kind.
var Keys = []Key{
	{Name: "host", Kinds: "slurm", Usage: "the login node, as ssh takes it; without it, this machine is one", form: word, want: "a name without spaces"},
	{Name: "folder", Kinds: "slurm", Usage: "where drun keeps jobs, their history and itself, on a disk that the login node and the nodes share", form: `^(/|~/?)[^'\n]*$`, want: "an absolute path, or one that begins with ~/", needed: "host"},
	{Name: "drun", Kinds: "slurm", Usage: "a drun that is there already, instead of a copy of this one", form: `^/[^'\n]+$`, want: "an absolute path"},
	{Name: "setup", Kinds: "slurm", Usage: "lines of shell that the job begins with, as module load", form: `(?s).*`, want: "a text"},
	{Name: "account", Kinds: "slurm", Usage: "account that is charged", Flag: true, form: word, want: "a name without spaces"},
	{Name: "partition", Kinds: "slurm", Usage: "partition, or several with commas", Flag: true, form: word, want: "a name without spaces"},
	{Name: "qos", Kinds: "slurm", Usage: "quality of service", Flag: true, form: word, want: "a name without spaces"},
	{Name: "constraint", Kinds: "slurm", Usage: "features that the nodes must have", Flag: true, form: `^[A-Za-z0-9_.,:@+=*&|()\[\]-]+$`, want: "features as sbatch takes them"},
	{Name: "time", Kinds: "slurm", Usage: "time limit, as 4:00:00 or 2-00:00:00; the run is saved, and goes on in a job of the same length", Flag: true, form: `^[0-9]+(-[0-9]+)?(:[0-9]+){0,2}$`, want: "a time such as 4:00:00"},
	{Name: "context", Kinds: "kubernetes", Usage: "context of kubectl's configuration", form: word, want: "a name without spaces"},
	{Name: "namespace", Kinds: "kubernetes", Usage: "namespace", Flag: true, form: name, want: "a name of small letters, digits and -"},
	{Name: "image", Kinds: "kubernetes", Usage: "container image with drun", Flag: true, form: word, want: "an image", needed: "kubernetes"},
	{Name: "queue", Kinds: "kubernetes", Usage: "local queue of Kueue", Flag: true, form: name, want: "a name of small letters, digits and -"},
	{Name: "volumes", Kinds: "kubernetes", List: true, Usage: "claims and where they are mounted, as drun:/drun; the first has drun's home", form: `^[a-z0-9][a-z0-9.-]*:/[^'\n]*$`, want: "CLAIM:/PATH", needed: "kubernetes"},
	{Name: "cpus", Kinds: "slurm kubernetes local", Usage: "cores of each node that the run takes (default: one a rank, or --threads)", Flag: true, form: number, want: "a whole number from 1"},
	{Name: "gpus", Kinds: "slurm kubernetes", Usage: "GPUs of each node", Flag: true, form: `^([a-z0-9_-]+:)?[1-9][0-9]{0,4}$`, want: "a whole number from 1, or TYPE:NUMBER"},
	{Name: "memory", Kinds: "slurm kubernetes local", Usage: "memory of each node, as 16G", Flag: true, form: `^[1-9][0-9]{0,9}[KMGT]$`, want: "a size such as 16G"},
	{Name: "options", Kinds: "slurm", List: true, Usage: "further options of sbatch, as --exclusive", form: `^-[^\n]+$`, want: "an option that begins with -"},
}

const (
	word   = `^[^\s'"$\\` + "`" + `;-][^\s'"$\\` + "`" + `;]*$`
	name   = `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`
	number = `^[1-9][0-9]{0,4}$`
)

var kinds = []string{"slurm", "kubernetes", Local}

// Get returns a setting; "": there is none.
func (t *Target) Get(key string) string { return t.Values[key] }

// List returns a setting that is a list.
func (t *Target) List(key string) []string {
	return strings.FieldsFunc(t.Values[key], func(c rune) bool { return c == '\n' })
}

// Number is a setting that is a whole number; 0: there is none.
func (t *Target) Number(key string) int {
	n, _ := strconv.Atoi(t.Values[key]) // its form was checked
	return n
}

// limit is the setting time in seconds; 0: there is none.
func (t *Target) limit() int {
	days, clock, with := strings.Cut(t.Get("time"), "-")
	if !with {
		days, clock = "", days
	}
	parts, unit := strings.Split(clock, ":"), 3600
	if !with && len(parts) < 3 {
		unit = 60
	}
	seconds, _ := strconv.Atoi(days) // its form was checked
	seconds *= 24 * 3600
	for _, part := range parts {
		n, _ := strconv.Atoi(part)
		seconds, unit = seconds+n*unit, unit/60
	}
	return seconds
}

// memory is the setting in bytes.
func (t *Target) memory() int64 {
	text := t.Values["memory"]
	if text == "" {
		return 0
	}
	n, _ := strconv.ParseInt(text[:len(text)-1], 10, 64) // its form was checked
	return n << (10 * (1 + strings.IndexByte("KMGT", text[len(text)-1])))
}

// Set changes a setting, as a flag does.
func (t *Target) Set(key, value string) error {
	if problem := t.set(key, value); problem != "" {
		return exit.Errorf(exit.Usage, "--%s", problem)
	}
	return nil
}

// set changes a setting, and returns what is wrong with it; "": nothing.
func (t *Target) set(key string, value any) (problem string) {
	var k *Key
	known, texts := []string{}, []string{}
	for i, each := range Keys {
		if !slices.Contains(strings.Fields(each.Kinds), t.Kind) {
			continue
		}
		if known = append(known, each.Name); each.Name == key {
			k = &Keys[i]
		}
	}
	list, is := value.([]any)
	switch near := spelling.Nearest(key, known); {
	case k == nil && near != "":
		return fmt.Sprintf("%s: did you mean %s?", key, near)
	case k == nil:
		return fmt.Sprintf("%s: a target of the kind %s has %s", key, t.Kind, strings.Join(known, ", "))
	case is != k.List:
		return fmt.Sprintf("%s: want %s", key, map[bool]string{true: `a list, as ["…"]`, false: "one text in quotes, not a list"}[k.List])
	case !is:
		list = []any{value}
	}
	for _, v := range list {
		text, is := v.(string)
		if n, number := v.(int64); number {
			text, is = strconv.FormatInt(n, 10), true
		}
		if !is {
			return key + ": want a text in quotes"
		}
		if fits, err := regexp.MatchString(k.form, text); !fits || err != nil {
			return fmt.Sprintf("%s %v: want %s", key, v, k.want)
		}
		texts = append(texts, text)
	}
	t.Values[key] = strings.Join(texts, "\n")
	return ""
}

// TargetsFile is where the file of targets is: $DRUN_TARGETS, or targets.toml in drun's folder of the user's configuration.
func TargetsFile() string {
	if path := os.Getenv("DRUN_TARGETS"); path != "" {
		return path
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "targets.toml"
	}
	return filepath.Join(dir, "drun", "targets.toml")
}

// ReadTargets reads the file of targets; a missing file has none. The target "local" is always the first.
func ReadTargets(path string) ([]*Target, error) {
	targets := []*Target{{Name: Local, Kind: Local, Values: map[string]string{}}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return targets, nil
	}
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "the targets: %w", err)
	}
	var file map[string]any
	meta, err := toml.Decode(string(bytes.TrimPrefix(text, []byte("\ufeff"))), &file)
	if wrong := (toml.ParseError{}); errors.As(err, &wrong) {
		return nil, exit.Errorf(exit.Usage, "%s:%d: %s", path, wrong.Position.Line, wrong.Message)
	} else if err != nil {
		return nil, exit.Errorf(exit.Usage, "%s: %w", path, err)
	}
	for _, k := range meta.Keys() {
		if len(k) != 1 {
			continue
		}
		t := &Target{Name: k[0], Values: map[string]string{}}
		if key, problem := t.read(file[t.Name]); problem != "" {
			return nil, exit.WithHint(exit.Errorf(exit.Usage, "%s:%d: %s", path, lineOf(text, t.Name, key), problem), "docs/schedulers.md has a file of targets as an example")
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// read takes the settings from the file. A problem comes with the key that it is about; "": it is about the whole.
func (t *Target) read(section any) (key, problem string) {
	values, is := section.(map[string]any)
	t.Kind, _ = values["kind"].(string)
	switch {
	case !is:
		return t.Name, t.Name + " stands in no target: a target begins with a line [NAME]"
	case t.Name == Local:
		return "", "the target local is always there, and needs no lines"
	case !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`).MatchString(t.Name):
		return "", fmt.Sprintf("the name of the target %q: want letters, digits, - and _", t.Name)
	case !slices.Contains(kinds, t.Kind):
		return "kind", fmt.Sprintf("%s wants kind = %q, %q or %q, not %q", t.Name, kinds[0], kinds[1], kinds[2], t.Kind)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key != "kind" {
			if problem := t.set(key, values[key]); problem != "" {
				return key, problem
			}
		}
	}
	for _, k := range Keys {
		if t.Get(k.Name) == "" && k.needed != "" && (k.needed == t.Kind || t.Get(k.needed) != "") {
			return k.needed, fmt.Sprintf("%s needs %s: %s", t.Name, k.Name, k.Usage)
		}
	}
	return "", ""
}

// lineOf finds the line of a key in a section, or of the section.
func lineOf(text []byte, section, key string) (at int) {
	in := false
	for i, line := range strings.Split(string(text), "\n") {
		name, _, _ := strings.Cut(line, "=")
		switch name = strings.Trim(name, " \t\"'"); {
		case strings.HasPrefix(name, "["):
			if in = strings.Trim(name, "[] \t\"'\r") == section; in {
				at = i + 1
			}
		case name == key && (in || at == 0 && key == section):
			return i + 1
		}
	}
	return at
}

// FindTarget returns the target of that name.
func FindTarget(targets []*Target, name string) (*Target, error) {
	var known []string
	for _, t := range targets {
		if t.Name == name {
			return t, nil
		}
		known = append(known, t.Name)
	}
	hint := "there are " + strings.Join(known, ", ") + "; more: " + TargetsFile()
	if near := spelling.Nearest(name, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return nil, exit.WithHint(exit.Errorf(exit.Usage, "there is no target %q", name), hint)
}
