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
	Name   string              `json:"name"`
	Kind   string              `json:"kind"`
	Values map[string]string   `json:"values,omitempty"` // by the keys of the file
	Lists  map[string][]string `json:"lists,omitempty"`
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
}

// Keys lists what a target may have besides its kind.
var Keys = []Key{
	{Name: "host", Kinds: "slurm", Usage: "the login node, as ssh takes it; without it, this machine is one", form: word, want: "a name without spaces"},
	{Name: "folder", Kinds: "slurm", Usage: "where drun keeps jobs, their history and itself, on a disk that the login node and the nodes share", form: `^(/|~/?)[^'\n]*$`, want: "an absolute path, or one that begins with ~/"},
	{Name: "drun", Kinds: "slurm", Usage: "a drun that is there already, instead of a copy of this one", form: `^/[^'\n]+$`, want: "an absolute path"},
	{Name: "setup", Kinds: "slurm", Usage: "lines of shell that the job begins with, as module load", form: `(?s).*`},
	{Name: "account", Kinds: "slurm", Usage: "account that is charged", Flag: true, form: word, want: "a name without spaces"},
	{Name: "partition", Kinds: "slurm", Usage: "partition, or several with commas", Flag: true, form: word, want: "a name without spaces"},
	{Name: "qos", Kinds: "slurm", Usage: "quality of service", Flag: true, form: word, want: "a name without spaces"},
	{Name: "constraint", Kinds: "slurm", Usage: "features that the nodes must have", Flag: true, form: `^[A-Za-z0-9_.,:@+=*&|()\[\]-]+$`, want: "features as sbatch takes them"},
	{Name: "time", Kinds: "slurm", Usage: "time limit, as 4:00:00 or 2-00:00:00; the run is saved, and goes on in a job of the same length", Flag: true, form: `^[0-9]+(-[0-9]+)?(:[0-9]+){0,2}$`, want: "a time such as 4:00:00"},
	{Name: "context", Kinds: "kubernetes", Usage: "context of kubectl's configuration", form: word, want: "a name without spaces"},
	{Name: "namespace", Kinds: "kubernetes", Usage: "namespace", Flag: true, form: name, want: "a name of small letters, digits and -"},
	{Name: "image", Kinds: "kubernetes", Usage: "container image with drun", Flag: true, form: word, want: "an image"},
	{Name: "queue", Kinds: "kubernetes", Usage: "local queue of Kueue", Flag: true, form: name, want: "a name of small letters, digits and -"},
	{Name: "volumes", Kinds: "kubernetes", List: true, Usage: "claims and where they are mounted, as drun:/drun; the first has drun's home", form: `^[a-z0-9][a-z0-9.-]*:/[^'\n]*$`, want: "CLAIM:/PATH"},
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

// Number is a setting that is a whole number; 0: there is none.
func (t *Target) Number(key string) int {
	n, _ := strconv.Atoi(t.Values[key]) // its form was checked
	return n
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
	k := keyOf(key)
	if !slices.Contains(strings.Fields(k.Kinds), t.Kind) {
		return exit.Errorf(exit.Usage, "--%s: %s is a target of the kind %s, which has no %s", key, t.Name, t.Kind, key)
	}
	if !k.fits(value) {
		return exit.Errorf(exit.Usage, "--%s %s: want %s", key, value, k.want)
	}
	t.Values = maps.Clone(t.Values)
	if t.Values == nil {
		t.Values = map[string]string{}
	}
	t.Values[key] = value
	return nil
}

func keyOf(name string) *Key {
	for i := range Keys {
		if Keys[i].Name == name {
			return &Keys[i]
		}
	}
	return nil
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
	targets := []*Target{{Name: Local, Kind: Local}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return targets, nil
	}
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "the targets: %w", err)
	}
	more, err := parseTargets(path, text)
	return append(targets, more...), err
}

func parseTargets(path string, text []byte) (targets []*Target, err error) {
	fault := func(section, key, format string, args ...any) error {
		at := path
		if line := lineOf(text, section, key); line > 0 {
			at = fmt.Sprintf("%s:%d", path, line)
		}
		return exit.WithHint(exit.Errorf(exit.Usage, "%s: %s", at, fmt.Sprintf(format, args...)), "docs/schedulers.md has a file of targets as an example")
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
		section := k[0]
		values, is := file[section].(map[string]any)
		switch {
		case !is:
			return nil, fault("", section, "%s stands in no target: a target begins with a line [NAME]", section)
		case section == Local:
			return nil, fault(section, "", "the target local is always there, and needs no lines")
		case !(&Key{form: name}).fits(strings.ToLower(section)):
			return nil, fault(section, "", "the name of the target %q: want letters, digits and -", section)
		}
		t := &Target{Name: section, Values: map[string]string{}, Lists: map[string][]string{}}
		kind, given := values["kind"].(string)
		if t.Kind = kind; !slices.Contains(kinds, kind) {
			if !given {
				return nil, fault(section, "kind", "%s has no kind: want kind = %q, %q or %q", section, kinds[0], kinds[1], kinds[2])
			}
			return nil, fault(section, "kind", "kind %q: want %s, %s or %s", kind, kinds[0], kinds[1], kinds[2])
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if key == "kind" {
				continue
			}
			if err := t.read(key, values[key], func(format string, args ...any) error { return fault(section, key, format, args...) }); err != nil {
				return nil, err
			}
		}
		for _, need := range map[string][]string{"kubernetes": {"image", "volumes"}}[t.Kind] {
			if t.Values[need] == "" && t.Lists[need] == nil {
				return nil, fault(section, "", "%s needs %s: %s", section, need, keyOf(need).Usage)
			}
		}
		if t.Kind == "slurm" && t.Get("host") != "" && t.Get("folder") == "" {
			return nil, fault(section, "host", "%s needs a folder there: %s", section, keyOf("folder").Usage)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// read takes one setting from the file.
func (t *Target) read(key string, value any, fault func(format string, args ...any) error) error {
	k := keyOf(key)
	if k == nil || !slices.Contains(strings.Fields(k.Kinds), t.Kind) {
		var known []string
		for _, k := range Keys {
			if slices.Contains(strings.Fields(k.Kinds), t.Kind) {
				known = append(known, k.Name)
			}
		}
		if near := spelling.Nearest(key, known); near != "" {
			return fault("%s: did you mean %s?", key, near)
		}
		return fault("a target of the kind %s has no %s, but %s", t.Kind, key, strings.Join(known, ", "))
	}
	texts := []string{}
	switch v := value.(type) {
	case string:
		texts = append(texts, v)
	case int64:
		texts = append(texts, strconv.FormatInt(v, 10))
	case []any:
		for _, e := range v {
			text, is := e.(string)
			if !is {
				return fault("%s: want a list of texts", key)
			}
			texts = append(texts, text)
		}
	default:
		return fault("%s: want a text in quotes", key)
	}
	if _, list := value.([]any); list != k.List {
		return fault("%s: want %s", key, map[bool]string{true: `a list, as ["…"]`, false: "one text in quotes, not a list"}[k.List])
	}
	for _, text := range texts {
		if !k.fits(text) {
			return fault("%s %q: want %s", key, text, k.want)
		}
	}
	if k.List {
		t.Lists[key] = texts
	} else {
		t.Values[key] = texts[0]
	}
	return nil
}

// lineOf finds the line of a key in a section, or of the section; 0: it has none.
func lineOf(text []byte, section, key string) int {
	in, at := section == "", 0
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if header, is := strings.CutPrefix(line, "["); is {
			header, _, _ = strings.Cut(header, "]")
			if in = strings.Trim(header, ` "'`) == section; in {
				at = i + 1
			}
			continue
		}
		if name, _, is := strings.Cut(line, "="); in && is && key != "" && strings.Trim(name, ` "'`) == key {
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

func (k *Key) fits(value string) bool {
	is, err := regexp.MatchString(k.form, value)
	return is && err == nil
}
