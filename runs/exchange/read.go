package exchange

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// Read reads the runs of a file, which its content shows to be MLflow's SQLite store, TensorBoard events, or CSV. In
// a folder, it reads the event files beneath it. notes say what was left out. A mistake in a file is a usage error.
func Read(path string) (runs []history.Foreign, notes []string, err error) {
	if runs, notes, err = read(path); err != nil {
		if p := (*fs.PathError)(nil); errors.As(err, &p) {
			err = exit.Errorf(exit.Usage, "%s: %w", p.Path, p.Err)
		}
		return nil, nil, err
	}
	for i := range runs {
		if err := check(&runs[i]); err != nil {
			return nil, nil, exit.Errorf(exit.Usage, "%s: %w", runs[i].Source, err)
		}
	}
	if len(runs)+len(notes) == 0 {
		notes = append(notes, path+": there are no runs in it")
	}
	return runs, notes, nil
}

// maxName is the most bytes that names in a file may have; MLflow's have at most 250.
const maxName = 1000

// check refuses what the history cannot keep or show.
func check(r *history.Foreign) (err error) {
	defer try.Caught(&err)
	name := func(what, name string) error {
		switch {
		case name == "":
			return fmt.Errorf("there is a %s without a name", what)
		case len(name) > maxName:
			return fmt.Errorf("the name of a %s has %d bytes, more than %d: %.40q…", what, len(name), maxName, name)
		case !utf8.ValidString(name):
			return fmt.Errorf("the name of a %s is not UTF-8: %q", what, name)
		}
		return nil
	}
	when := func(t time.Time) error {
		if year := t.UTC().Year(); year < 1 || year > 9999 {
			return fmt.Errorf("a time is in the year %d: want 1 to 9999", year)
		}
		return nil
	}
	try.Ok(when(r.Started))
	r.Seconds = max(r.Seconds, 0) // the clock may have been set during the run
	for _, p := range r.Params {
		try.Ok(name("parameter", p.Name))
	}
	for i, p := range r.Points {
		if i == 0 || p.Name != r.Points[i-1].Name {
			try.Ok(name("metric", p.Name))
		}
		try.Ok(when(p.Time))
	}
	return nil
}

func read(path string) (runs []history.Foreign, notes []string, err error) {
	defer try.Caught(&err)
	if !try.To(os.Stat(path)).IsDir() {
		return readFile(path)
	}
	var files []string
	try.Ok(filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && strings.Contains(entry.Name(), "tfevents") {
			files = append(files, name)
		}
		return err
	}))
	if len(files) == 0 {
		return nil, nil, exit.Errorf(exit.Usage, "%s: no file of events is beneath it", path)
	}
	for _, name := range files {
		more, said := try.To2(readFile(name))
		runs, notes = append(runs, more...), append(notes, said...)
	}
	return runs, notes, nil
}

func readFile(path string) (_ []history.Foreign, _ []string, err error) {
	defer try.Caught(&err)
	file := try.To(os.Open(path))
	defer file.Close()
	if !try.To(file.Stat()).Mode().IsRegular() {
		return nil, nil, exit.Errorf(exit.Usage, "%s is not a regular file", path)
	}
	start := make([]byte, 16)
	n, _ := io.ReadFull(file, start)
	if bytes.Equal(start[:n], []byte("SQLite format 3\x00")) {
		return readMLflow(path)
	}
	content := try.To(os.ReadFile(path))
	mark := func(kind string) string {
		sum := sha256.Sum256(content)
		return kind + ":" + hex.EncodeToString(sum[:8])
	}
	if strings.Contains(filepath.Base(path), "tfevents") {
		return readEvents(path, mark("tensorboard"), content)
	}
	return readCSV(path, mark("csv"), content)
}

const importable = "want CSV with a heading, TensorBoard's events or MLflow's SQLite store"

// readCSV reads tables with a heading in one of two forms: a row per point, with the columns metric (or name),
// value and optionally step, rank, time, run and run_name, as drun export writes them; or a column per metric, and
// optionally step, time, run and run_name. An empty cell is not a point.
func readCSV(path, mark string, content []byte) (_ []history.Foreign, _ []string, err error) {
	defer try.Caught(&err)
	in := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(content, []byte("\ufeff"))))
	heading, err := in.Read()
	if err != nil {
		return nil, nil, exit.WithHint(badCSV(path, err), importable)
	}
	at := map[string]int{}
	for i, name := range heading {
		if _, again := at[name]; again {
			return nil, nil, exit.Errorf(exit.Usage, "%s: two columns are called %q", path, name)
		}
		at[name] = i
	}
	_, metric := at["metric"]
	if i, has := at["name"]; has && !metric { // from drun metrics --csv
		at["metric"], metric = i, true
	}
	_, value := at["value"]
	long := metric && value
	var runs []history.Foreign
	index := map[string]int{}
	for line := 2; ; line++ {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, exit.WithHint(badCSV(path, err), importable)
		}
		cell := func(name string) string {
			if i, has := at[name]; has {
				return row[i]
			}
			return ""
		}
		fault := func(name, what string) error {
			l, _ := in.FieldPos(at[name])
			return exit.Errorf(exit.Usage, "%s:%d: %s is %q: want %s", path, l, name, cell(name), what)
		}
		key := cell("run") + "\x00" + cell("run_name")
		i, known := index[key]
		if !known {
			i = len(runs)
			index[key] = i
			name := cell("run_name")
			if _, err := strconv.Atoi(cell("run")); name == "" && err != nil {
				name = cell("run")
			}
			runs = append(runs, history.Foreign{Mark: mark + "/" + strconv.Itoa(i+1), Name: name, Source: path, Tool: "CSV", Status: history.Done})
		}
		r := &runs[i]
		p := records.Point{Exact: true}
		switch text := cell("step"); {
		case text != "":
			if p.Step, err = strconv.ParseInt(text, 10, 64); err != nil {
				step, err := strconv.ParseFloat(text, 64) // 3.0, as some tools write whole numbers; exact up to 2^53
				if err != nil || step != math.Trunc(step) || math.Abs(step) >= 1<<53 {
					return nil, nil, fault("step", "a whole number")
				}
				p.Step = int64(step)
			}
		case !long:
			p.Step = int64(line - 2)
		}
		if text := cell("rank"); text != "" {
			if p.Rank, err = strconv.Atoi(text); err != nil || p.Rank < 0 || p.Rank > math.MaxInt32 {
				return nil, nil, fault("rank", "a whole number from 0")
			}
		}
		if text := cell("time"); text != "" {
			if p.Time, err = time.Parse(time.RFC3339, text); err != nil {
				return nil, nil, fault("time", "a time as 2026-01-02T15:04:05Z")
			}
		}
		add := func(column, name string) error {
			text := cell(column)
			if text == "" {
				return nil
			}
			v, err := strconv.ParseFloat(text, 64)
			if err != nil && !errors.Is(err, strconv.ErrRange) {
				return fault(column, "a number")
			}
			p.Name, p.Value = name, v
			r.Points = append(r.Points, p)
			return nil
		}
		if long {
			try.Ok(add("value", uncell(cell("metric"))))
			continue
		}
		for _, name := range heading {
			if slices.Contains([]string{"step", "rank", "time", "run", "run_name"}, name) {
				continue
			}
			try.Ok(add(name, uncell(name)))
		}
	}
	for i := range runs {
		setTimes(&runs[i])
	}
	return runs, nil, nil
}

func badCSV(path string, err error) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return exit.Errorf(exit.Usage, "%s is empty", path)
	case errors.As(err, &parse):
		return exit.Errorf(exit.Usage, "%s:%d: %w", path, parse.Line, parse.Err)
	}
	return exit.Errorf(exit.Usage, "%s: %w", path, err)
}

// setTimes makes the run begin and end with its points; points without a time get that of the start.
func setTimes(r *history.Foreign) {
	var last time.Time
	for _, p := range r.Points {
		if !p.Time.IsZero() && (r.Started.IsZero() || p.Time.Before(r.Started)) {
			r.Started = p.Time
		}
		if p.Time.After(last) {
			last = p.Time
		}
	}
	if r.Started.IsZero() {
		r.Started = time.Now()
		last = r.Started
	}
	for i := range r.Points {
		if r.Points[i].Time.IsZero() {
			r.Points[i].Time = r.Started
		}
	}
	r.Seconds = last.Sub(r.Started).Seconds()
}

// uncell removes the apostrophe that terminal.Cell puts before a name.
func uncell(text string) string {
	if rest, is := strings.CutPrefix(text, "'"); is && strings.IndexAny(strings.TrimLeft(rest, "'"), "=+-@\t\r") == 0 {
		return rest
	}
	return text
}
