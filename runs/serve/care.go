package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/backup"
	"drun/runs/serve/access"
)

// Rule says for how long a project's runs, and their weights, are kept after a run's end. A run with the tag keep is not
// touched.
type Rule struct {
	Runs    Age `json:"runs,omitempty"`    // then they are removed; 0: never
	Weights Age `json:"weights,omitempty"` // then only the best and the last checkpoint of each stay; 0: never
}

// KeepTag is the tag of runs that no rule touches.
const KeepTag = "keep"

// Age is a time, as text such as 90d, 12h or 30m.
type Age time.Duration

const day = 24 * time.Hour

func ParseAge(text string) (Age, error) {
	number, days := strings.CutSuffix(text, "d")
	factor := time.Duration(1)
	if days {
		number, factor = number+"h", 24
	}
	d, err := time.ParseDuration(number)
	if err != nil || d < 0 || d > 36500*day/factor {
		return 0, exit.Errorf(exit.Usage, "%q is no time such as 90d or 12h", text)
	}
	return Age(d * factor), nil
}

func (a Age) String() string {
	if d := time.Duration(a); d%day != 0 {
		return d.String()
	}
	return fmt.Sprintf("%dd", time.Duration(a)/day)
}

func (a Age) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a *Age) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAge(string(text))
	return err
}

func rulesPath(home string) string { return filepath.Join(home, "rules.json") }

// Rules are the rules of a home by project; "" is the rule of runs without a project, and of projects without a rule.
func Rules(home string) (rules map[string]Rule, err error) {
	rules = map[string]Rule{}
	text, err := os.ReadFile(rulesPath(home))
	if errors.Is(err, fs.ErrNotExist) {
		return rules, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &rules)
	}
	return rules, exit.WithCode(err, exit.Storage)
}

// SetRule changes the rule of a project; one that says nothing is removed.
func SetRule(home, project string, r Rule) error {
	rules, err := Rules(home)
	if err != nil {
		return err
	}
	if rules[project] = r; r == (Rule{}) {
		delete(rules, project)
	}
	return writeJSON(rulesPath(home), rules)
}

// Due is what a rule removes of a run.
type Due struct {
	ID      int64   `json:"id"`
	Name    string  `json:"name"`
	Project string  `json:"project"`
	All     bool    `json:"all"`     // the run itself
	Steps   []int64 `json:"weights"` // its checkpoints with these steps
	uid     string
	list    []checkpoints.Info // these
}

// Overdue lists what the rules remove at a time.
func Overdue(home string, now time.Time) (due []Due, err error) {
	defer try.Caught(&err)
	rules := try.To(Rules(home))
	if len(rules) == 0 {
		return nil, nil
	}
	db := try.To(history.OpenReadOnly(home))
	defer db.Close()
	store := try.To(checkpoints.OpenIfAny(home))
	defer store.Close()
	for _, r := range try.To(db.Select(history.Selection{Tags: true, Checkpoints: true})) {
		rule, own := rules[r.ProjectName]
		if !own {
			rule = rules[""]
		}
		if r.Status == history.Running || slices.Contains(r.Tags, KeepTag) {
			continue
		}
		ended := r.Started
		if r.Seconds != nil {
			ended = ended.Add(time.Duration(*r.Seconds * float64(time.Second)))
		}
		over := func(a Age) bool { return a > 0 && now.Sub(ended) > time.Duration(a) }
		d := Due{ID: r.ID, Name: r.Name, Project: r.ProjectName, uid: r.UID, All: over(rule.Runs), Steps: []int64{}}
		if !d.All && over(rule.Weights) {
			best, berr := store.Find(r.UID, checkpoints.Best)
			list := try.To(store.List(r.UID))
			for _, info := range list[:max(len(list)-1, 0)] {
				if berr != nil || !info.Same(best) {
					d.Steps, d.list = append(d.Steps, info.Step), append(d.list, info)
				}
			}
		}
		if d.All || len(d.Steps) > 0 {
			due = append(due, d)
		}
	}
	return due, nil
}

// Remove removes what is overdue: runs go to the trash, from which drun gc removes them.
func Remove(home string, due []Due) (err error) {
	defer try.Caught(&err)
	if len(due) == 0 {
		return nil
	}
	db := try.To(history.Open(home))
	defer db.Close()
	db.Who = "a rule"
	var store *checkpoints.Store
	for _, d := range due {
		if d.All {
			try.Ok(db.Trash([]int64{d.ID}))
			continue
		}
		if store == nil {
			store = try.To(checkpoints.Open(home))
			defer store.Close()
		}
		held := try.To(store.Delete(d.list...))
		try.Ok(db.RemoveCheckpoints(d.ID, slices.DeleteFunc(slices.Clone(d.Steps), func(step int64) bool {
			return slices.ContainsFunc(held, func(i checkpoints.Info) bool { return i.Step == step })
		})))
	}
	return nil
}

// Usage is what a user's runs take of the server's disk.
type Usage struct {
	User        string `json:"user"`
	Runs        int    `json:"runs"`
	Checkpoints int64  `json:"checkpoints"` // bytes that only this user's runs need
	Artifacts   int64  `json:"artifacts"`
	Shared      int64  `json:"shared"` // of several runs
}

// UsageOf adds up what users take. Runs that were recorded on the server itself are of the user "".
func UsageOf(home string) (list []Usage, err error) {
	defer try.Caught(&err)
	db := try.To(history.OpenReadOnly(home))
	defer db.Close()
	store := try.To(checkpoints.OpenIfAny(home))
	defer store.Close()
	saved, savedShared := try.To2(store.RunBytes())
	kept, keptShared := try.To2(db.ArtifactBytes())
	by := map[string]Usage{}
	for _, r := range append(try.To(db.Select(history.Selection{})), try.To(db.Select(history.Selection{Trashed: true}))...) {
		u := by[r.Owner]
		by[r.Owner] = Usage{r.Owner, u.Runs + 1, u.Checkpoints + saved[r.UID], u.Artifacts + kept[r.ID], u.Shared + savedShared[r.UID] + keptShared[r.ID]}
	}
	for _, u := range by {
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(b.Checkpoints+b.Artifacts, a.Checkpoints+a.Artifacts), cmp.Compare(a.User, b.User))
	})
	return list, nil
}

// What the server does from time to time: saveEvery it brings the bucket up to date, rulesEvery it applies the rules. Parts of
// checkpoints and files that have not come on are kept for incomingFor, and of backups mostBackups.
const (
	saveEvery   = 5 * time.Minute
	rulesEvery  = time.Hour
	incomingFor = 7 * day
	mostBackups = 24
	backupForm  = "drun-20060102T150405Z.tar" // how they are named
)

// every does something again and again until ctx ends, the first time a period after the last.
func (s *Server) every(ctx context.Context, period time.Duration, last time.Time, what string, do func(ctx context.Context) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(last.Add(period))):
		}
		last = time.Now()
		if err := do(ctx); err != nil && ctx.Err() == nil {
			s.measured.GetOrCreateCounter("drun_care_failures_total").Inc()
			s.Say(fmt.Sprintf("%s: %v", what, err))
		}
	}
}

func (s *Server) applyRules(context.Context) (err error) {
	defer try.Caught(&err)
	try.Ok(s.home.Forget(time.Now().Add(-incomingFor)))
	due := try.To(Overdue(s.Home, time.Now()))
	try.Ok(Remove(s.Home, due))
	for _, d := range due {
		what := "run"
		if !d.All {
			what = fmt.Sprintf("checkpoints %v", d.Steps)
		}
		s.audit.log(access.User{Name: "rule"}, access.Event{Action: "remove", Run: d.Name, UID: d.uid, Project: d.Project, What: what})
	}
	if len(due) > 0 && s.Collect != nil {
		return s.Collect()
	}
	return nil
}

// backups lists the backups in a folder, the oldest first, and says when the newest was made.
func backups(folder string) (list []string, newest time.Time) {
	names, _ := filepath.Glob(filepath.Join(folder, "drun-*.tar")) // in order
	for _, name := range names {
		if at, err := time.Parse(backupForm, filepath.Base(name)); err == nil {
			list, newest = append(list, name), at
		}
	}
	return list, newest
}

// backUp writes a backup, and removes the oldest once there are many.
func (s *Server) backUp(context.Context) (err error) {
	defer try.Caught(&err)
	now := time.Now()
	try.Ok(os.MkdirAll(s.Backup, sqldb.FolderMode))
	size := try.To(backup.Write(s.Home, filepath.Join(s.Backup, now.UTC().Format(backupForm))))
	for _, d := range size.Damaged {
		s.Say(fmt.Sprintf("the backup lacks a checkpoint: %v", d.Fault))
	}
	list, _ := backups(s.Backup)
	for _, old := range list[:max(len(list)-mostBackups, 0)] {
		try.Ok(os.Remove(old))
	}
	s.measured.GetOrCreateFloatCounter("drun_backup_timestamp_seconds").Set(float64(now.Unix()))
	return nil
}
