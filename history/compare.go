package history

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Comparison is how runs differ. Its JSON form is documented in docs/history-tables.md.
type Comparison struct {
	Runs []RunName `json:"runs"`
	// Differences are in the order of Kinds, and within a kind by name.
	Differences []Difference `json:"differences"`
	Same        []Difference `json:"same"`
}

// RunName identifies a run.
type RunName struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// Kinds are the kinds of Difference, most informative first.
var Kinds = []string{"parameter", "run", "metric", "artifact", "recipe", "data", "backend", "machine", "version"}

// Difference is something for which each run has a value, in the order of the runs; nil: none. A value is a
// json.RawMessage of a parameter, a Float (NaN and infinities of parameters too) or a string.
type Difference struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Values []any  `json:"values"`
}

// Compare finds what differs between the runs with these ids, and what does not.
func (db *DB) Compare(ids []int64) (_ *Comparison, err error) {
	defer try.Caught(&err)
	c := &Comparison{Differences: []Difference{}, Same: []Difference{}}
	found, exact := map[[2]string][]any{}, map[[2]string][]string{}
	for i, id := range ids {
		d := try.To(db.Get(id))
		artifacts := try.To(db.Artifacts(id))
		c.Runs = append(c.Runs, RunName{id, d.Name})
		add := func(kind, name string, value any) {
			key := [2]string{kind, name}
			if found[key] == nil {
				found[key], exact[key] = make([]any, len(ids)), make([]string, len(ids))
			}
			found[key][i], exact[key][i] = value, canonical(value)
			if kind == "parameter" { // the float NaN is not the text "NaN"
				exact[key][i] = fmt.Sprintf("%T %s", d.Params[name], exact[key][i])
			}
		}
		d.describe(add)
		for name, value := range keptUnder(artifacts) {
			add("artifact", name, value)
		}
	}
	order := func(a, b [2]string) int {
		if k := slices.Index(Kinds, a[0]) - slices.Index(Kinds, b[0]); k != 0 {
			return k
		}
		return strings.Compare(a[1], b[1])
	}
	for _, key := range slices.SortedFunc(maps.Keys(found), order) {
		d := Difference{key[0], key[1], found[key]}
		if of := exact[key]; !slices.ContainsFunc(of, func(v string) bool { return v != of[0] }) {
			c.Same = append(c.Same, d)
		} else {
			c.Differences = append(c.Differences, d)
		}
	}
	return c, nil
}

// keptUnder says what was kept under each name: the SHA-256 of a single artifact, or their number and the beginning
// of a digest of all. Images, histograms and tables have names of their own.
func keptUnder(list []records.Artifact) map[string]string {
	byName := map[string][]records.Artifact{}
	for _, a := range list { // in the order of steps
		name := a.Name
		if !oneKind[a.Kind] {
			name += ", " + a.Kind
		}
		byName[name] = append(byName[name], a)
	}
	values := map[string]string{}
	for name, all := range byName {
		first := all[0]
		switch {
		case len(all) > 1:
			whole := sha256.New()
			for _, a := range all {
				fmt.Fprintln(whole, stepOf(&a), a.SHA256)
			}
			values[name] = fmt.Sprintf("%d steps: %.6x", len(all), whole.Sum(nil))
		case first.Step != nil:
			values[name] = fmt.Sprintf("step %d: %.12s", *first.Step, first.SHA256)
		default:
			values[name] = first.SHA256
		}
	}
	return values
}

// canonical maps equal values to equal texts: NaN equals NaN, and 0 is not -0.
func canonical(v any) string {
	if v == nil {
		return "" // a parameter that is None is null
	}
	text, err := records.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// describe calls add for everything of a run that can be compared.
func (d *Detail) describe(add func(kind, name string, value any)) {
	for name, v := range d.Params {
		if f, is := v.(float64); is && (math.IsNaN(f) || math.IsInf(f, 0)) {
			add("parameter", name, records.Float(f)) // printed without quotes
			continue
		}
		add("parameter", name, json.RawMessage(d.Params.Text(name)))
	}
	add("run", "seed", strconv.FormatInt(d.Seed, 10))
	add("run", "ranks", strconv.Itoa(d.WorldSize))
	add("run", "status", string(d.Status))
	tags := slices.Clone(d.Tags)
	for i, tag := range tags {
		if strings.ContainsAny(tag, `,"`) {
			tags[i] = strconv.Quote(tag) // "a,b" is not "a" and "b"
		}
	}
	add("run", "tags", strings.Join(tags, ","))
	if p := d.Parent; p != nil {
		add("run", "resumed from", fmt.Sprintf("%d@%d", p.ID, p.Step))
	}
	for name, m := range d.Metrics {
		add("metric", name+".last", m.Last)
		add("metric", name+".min", m.Min)
		add("metric", name+".max", m.Max)
		add("metric", name+".count", records.Float(m.Count))
	}
	for _, s := range d.Sources {
		name := s.Path
		if s.Role == "recipe" {
			name = "recipe" // the same file may have been given under several names
			add("recipe", "path", d.Recipe)
		}
		add("recipe", name, s.SHA256)
	}
	data := map[string][]string{}
	for _, f := range d.DataFiles {
		data[f.Path] = append(data[f.Path], fmt.Sprintf("%s (%d bytes)", f.SHA256, f.Bytes))
	}
	for path, contents := range data {
		add("data", path, strings.Join(contents, ", "))
	}
	add("backend", "backend", d.Backend)
	for _, p := range d.Plugins {
		add("backend", "plugin "+p.Name, strings.TrimSpace(p.Version+" "+p.SHA256))
	}
	order := "the ranks'"
	if d.OwnOrder() {
		order = d.Backend + "'s own"
	}
	add("backend", "order of reduction", order)
	hosts, kernels := []string{}, []string{}
	for _, r := range d.Ranks {
		hosts, kernels = append(hosts, r.Host), append(kernels, r.Kernels)
	}
	if len(hosts) == 0 {
		hosts = append(hosts, d.Host)
	}
	several := func(list []string) string { slices.Sort(list); return strings.Join(slices.Compact(list), ", ") }
	add("machine", "host", several(hosts))
	add("machine", "kernels", several(kernels))
	add("machine", "threads a rank", strconv.Itoa(d.Threads))
	add("version", "drun", d.Version)
	if d.GoVersion != nil {
		add("version", "go", *d.GoVersion)
	}
	if d.Numerics != nil {
		add("version", "numerics", strconv.Itoa(*d.Numerics))
	}
	if d.Git != nil {
		commit := d.Git.Commit
		if d.Git.Dirty {
			commit += " and changes"
		}
		add("version", "git commit", commit)
	}
}

// Sources returns the captured files of a run, the recipe first.
func (db *DB) Sources(run int64) ([]records.Source, error) {
	all, err := sourcesIn(db.sql, run)
	return all, sqldb.Wrap(db.path, err)
}

func sourcesIn(in sqldb.Queryer, run int64) ([]records.Source, error) {
	return sqldb.List(in, func(s *records.Source) []any { return []any{&s.Path, &s.SHA256, &s.Role, &s.Content} },
		`SELECT path, sha256, role, content FROM run_sources JOIN sources USING (sha256) WHERE run = ? ORDER BY role = 'load', path`, run)
}
