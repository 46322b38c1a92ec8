package ui

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"drun/history"
)

// sweepOf is a sweep, with its runs from the oldest.
type sweepOf struct {
	Name      string     `json:"name"`
	Recipe    string     `json:"recipe"`
	Cells     int        `json:"cells"` // how many runs it has, when all have run
	Command   []string   `json:"command"`
	Objective string     `json:"objective"` // the metric by which its command judges; "": it names none
	Largest   bool       `json:"largest"`   // large values are good
	Started   time.Time  `json:"started"`
	Runs      []sweepRun `json:"runs"`
}

type sweepRun struct {
	ID     int64          `json:"id"`
	Name   string         `json:"name"`
	Status history.Status `json:"status"`
}

// sweeps lists the sweeps, the newest first.
func sweeps(_ *Server, db *history.DB, _ *request) (any, error) { return sweepsOf(db, nil) }

// sweepsOf lists those of some runs; nil: of all.
func sweepsOf(db *history.DB, ids []int64) ([]*sweepOf, error) {
	runs, err := db.Select(history.Selection{IDs: ids})
	list, byName := []*sweepOf{}, map[string]*sweepOf{}
	for i := range runs {
		r := &runs[i]
		if r.Sweep == nil {
			continue
		}
		s := byName[r.Sweep.Name]
		if s == nil {
			s = &sweepOf{Name: r.Sweep.Name, Recipe: r.Recipe, Cells: r.Sweep.Cells, Command: r.Sweep.Command, Started: r.Started}
			s.Objective, s.Largest = objective(r.Sweep.Command)
			list, byName[s.Name] = append(list, s), s
		}
		s.Started = r.Started
		s.Runs = append(s.Runs, sweepRun{r.ID, r.Name, r.Status})
	}
	for _, s := range list {
		slices.Reverse(s.Runs)
	}
	return list, err
}

var sorted = regexp.MustCompile(`^-?metrics\.([A-Za-z_]\w*)\.(last|min|max)$`)

// objective is the metric by which a command of drun sweep judges, and whether its large values are good.
func objective(command []string) (metric string, largest bool) {
	for i, word := range command {
		flag, value, is := strings.Cut(word, "=")
		if !is && i+1 < len(command) {
			value = command[i+1]
		}
		metric, largest := strings.CutPrefix(value, "-")
		switch flag {
		case "--minimize", "--early-stop":
			return metric, largest
		case "--sort":
			if m := sorted.FindStringSubmatch(value); m != nil {
				return m[1], largest
			}
		}
	}
	return "", false
}
