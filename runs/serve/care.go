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
	"strconv"
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

func ParseAge(text string) (Age, error) {
	if days, is := strings.CutSuffix(text, "d"); is {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > 36500 {
			return 0, exit.Errorf(exit.Usage, "%q is no time such as 90d or 12h", text)
		}
		return Age(time.Duration(n) * 24 * time.Hour), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, exit.Errorf(exit.Usage, "%q is no time such as 90d or 12h", text)
	}
	return Age(d), nil
}

func (a Age) String() string {
	if d := time.Duration(a); d%(24*time.Hour) != 0 {
		return d.String()
	}
	return fmt.Sprintf("%dd", time.Duration(a)/(24*time.Hour))
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
func SetRule(home, project string, r Rule) (err error) {
	defer try.Caught(&err)
	rules := try.To(Rules(home))
	if rules[project] = r; r == (Rule{}) {
		delete(rules, project)
	}
	text := try.To(json.MarshalIndent(rules, "", "  "))
	next := rulesPath(home) + ".new"
	try.Ok(sqldb.Wrap(next, os.WriteFile(next, append(text, '\n'), sqldb.FileMode)))
	return sqldb.Wrap(next, os.Rename(next, rulesPath(home)))
}

// Due is what a rule removes of a run.
type Due struct {
	ID      int64   `json:"id"`
	Name    string  `json:"name"`
	Project string  `json:"project"`
	All     bool    `json:"all"`     // the run itself
	Steps   []int64 `json:"weights"` // its checkpoints with these steps
	uid     string
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
		d := Due{ID: r.ID, Name: r.Name, Project: r.ProjectName, uid: r.UID, Steps: []int64{}}
		age := now.Sub(ended)
		if rule.Runs > 0 && age > time.Duration(rule.Runs) {
			d.All = true
		} else if rule.Weights > 0 && age > time.Duration(rule.Weights) {
			best, berr := store.Find(r.UID, checkpoints.Best)
			list := try.To(store.List(r.UID))
			for i, info := range list {
				if i < len(list)-1 && !(berr == nil && info.Same(best)) {
					d.Steps = append(d.Steps, info.Step)
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
		var list []checkpoints.Info
		for _, info := range try.To(store.List(d.uid)) {
			if slices.Contains(d.Steps, info.Step) {
				list = append(list, info)
			}
		}
		held := try.To(store.Delete(list...))
		gone := slices.DeleteFunc(slices.Clone(d.Steps), func(step int64) bool {
			return slices.ContainsFunc(held, func(i checkpoints.Info) bool { return i.Step == step })
		})
		try.Ok(db.RemoveCheckpoints(d.ID, gone))
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
	by := map[string]*Usage{}
	for _, r := range append(try.To(db.Select(history.Selection{})), try.To(db.Select(history.Selection{Trashed: true}))...) {
		if by[r.Owner] == nil {
			by[r.Owner] = &Usage{User: r.Owner}
		}
		u := by[r.Owner]
		u.Runs++
		u.Checkpoints += saved[r.UID]
		u.Artifacts += kept[r.ID]
		u.Shared += savedShared[r.UID] + keptShared[r.ID]
	}
	for _, u := range by {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(b.Checkpoints+b.Artifacts, a.Checkpoints+a.Artifacts), cmp.Compare(a.User, b.User))
	})
	return list, nil
}

// care backs the home up and applies the rules, until ctx ends.
func (s *Server) care(ctx context.Context) {
	backups, rules := time.Time{}, time.Time{}
	if s.Backup != "" {
		backups = newest(s.Backup)
	}
	for {
		if s.Backup != "" && time.Since(backups) >= s.Every {
			backups = time.Now()
			if err := s.backUp(backups); err != nil {
				s.failed("the backup", err)
			} else {
				s.measured.GetOrCreateFloatCounter("drun_backup_timestamp_seconds").Set(float64(backups.Unix()))
			}
		}
		if time.Since(rules) >= rulesEvery {
			rules = time.Now()
			if err := s.applyRules(rules); err != nil {
				s.failed("what the rules remove", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(max(s.Every/10, time.Second), time.Minute)):
		}
	}
}

func (s *Server) failed(what string, err error) {
	s.measured.GetOrCreateCounter("drun_care_failures_total").Inc()
	s.Say(fmt.Sprintf("%s: %v", what, err))
}

// rulesEvery is how often the rules are applied, and incomingFor how long parts of checkpoints that have not come are kept.
const (
	rulesEvery  = time.Hour
	incomingFor = 7 * 24 * time.Hour
)

func (s *Server) applyRules(now time.Time) (err error) {
	defer try.Caught(&err)
	store := try.To(checkpoints.OpenIfAny(s.Home))
	if store != nil {
		try.Ok(store.Close())
		store = try.To(checkpoints.Open(s.Home))
		defer store.Close()
		try.Ok(store.Forget(now.Add(-incomingFor)))
	}
	due := try.To(Overdue(s.Home, now))
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

// backupForm is how backups are named, and mostBackups how many of them stay.
const (
	backupForm  = "drun-20060102T150405Z.tar"
	mostBackups = 24
)

func backupsIn(folder string) (list []string) {
	names, _ := filepath.Glob(filepath.Join(folder, "drun-*.tar"))
	for _, name := range names {
		if _, err := time.Parse(backupForm, filepath.Base(name)); err == nil {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// newest is when the newest backup was made.
func newest(folder string) time.Time {
	list := backupsIn(folder)
	if len(list) == 0 {
		return time.Time{}
	}
	at, _ := time.Parse(backupForm, filepath.Base(list[len(list)-1]))
	return at
}

// backUp writes a backup, and removes the oldest once there are many.
func (s *Server) backUp(now time.Time) (err error) {
	defer try.Caught(&err)
	try.Ok(os.MkdirAll(s.Backup, sqldb.FolderMode))
	size := try.To(backup.Write(s.Home, filepath.Join(s.Backup, now.UTC().Format(backupForm))))
	for _, d := range size.Damaged {
		s.Say(fmt.Sprintf("the backup lacks a checkpoint: %v", d.Fault))
	}
	list := backupsIn(s.Backup)
	for _, old := range list[:max(len(list)-mostBackups, 0)] {
		try.Ok(os.Remove(old))
	}
	return nil
}
