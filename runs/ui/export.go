package ui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"drun/history"
	"drun/history/query"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/report"
)

// Export writes the pages of some runs, or of all, as files into a new folder, which a browser opens without a
// server. A page loads its data as scripts, since browsers let files read nothing else. n is how many runs were
// written.
func (s *Server) Export(dir string, refs []string) (n int, err error) {
	defer try.Caught(&err)
	db := try.To(s.history())
	ids := try.To(report.Find(refs, db.Find))
	if len(refs) == 0 {
		ids, _ = try.To2(query.Choose(db, false, nil, nil))
	}
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return 0, exit.WithHint(exit.Errorf(exit.Usage, "%s is not empty", dir), "give the name of a new folder")
	}
	defer try.CaughtOr(&err, func() {
		if errors.As(err, new(*fs.PathError)) {
			err = exit.WithCode(err, exit.Storage)
		}
	})
	try.Ok(os.MkdirAll(filepath.Join(dir, "data"), 0o755))
	try.Ok(os.MkdirAll(filepath.Join(dir, "files"), 0o755))
	try.Ok(writePages(dir))
	try.Ok(writeIndex(db, dir, ids))
	for _, id := range ids {
		try.Ok(s.writeRun(db, dir, id))
	}
	return len(ids), nil
}

func writePages(dir string) (err error) {
	defer try.Caught(&err)
	for name, text := range documents() {
		text = bytes.Replace(text, []byte(`<script src="drun.js" defer></script>`), []byte("<script src=\"drun.js\" defer></script>\n<script src=\"export.js\" defer></script>"), 1)
		try.Ok(os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	for _, f := range try.To(fs.ReadDir(assets, ".")) {
		try.Ok(os.WriteFile(filepath.Join(dir, f.Name()), try.To(fs.ReadFile(assets, f.Name())), 0o644))
	}
	return nil
}

// writeData writes a value as a script that passes it on as JSON.
func writeData(dir, name string, v any) (err error) {
	defer try.Caught(&err)
	var text strings.Builder
	try.Ok(report.JSON(&text, v, ""))
	quoted := try.To(json.Marshal(text.String()))
	return os.WriteFile(filepath.Join(dir, "data", name+".js"), fmt.Appendf(nil, "exportedData(%q, %s);\n", name, quoted), 0o644)
}

// columnsAtMost limits the parameters, and the metrics, in the table of exported runs.
const columnsAtMost = 10

func writeIndex(db *history.DB, dir string, ids []int64) (err error) {
	defer try.Caught(&err)
	recent := try.To(namesOf(db, false, newestRuns)) // all names, since Where accepts what is in the table
	columns := []string{"id", "name", "status", "recipe"}
	for _, name := range recent.RecentParams[:min(columnsAtMost, len(recent.RecentParams))] {
		columns = append(columns, reference("params", name))
	}
	for _, name := range recent.RecentMetrics[:min(columnsAtMost, len(recent.RecentMetrics))] {
		columns = append(columns, reference("metrics", name)+".last")
	}
	columns = append(columns, "world_size", "seed", "started", "seconds", "tags")
	exprs := try.To(query.ParseList("columns", strings.Join(columns, ", ")))
	table := try.To(query.Table(db, ids, exprs))
	compared := try.To(db.Compare(ids))
	newest := int64(0)
	for _, id := range ids {
		newest = max(newest, id)
	}
	return writeData(dir, "index", map[string]any{"names": recent, "runs": table, "compare": compared, "newest": newest, "sweeps": try.To(sweepsOf(db, ids))})
}

var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// reference writes the name of a parameter or metric as in an expression.
func reference(kind, name string) string {
	if plainName().MatchString(name) {
		return kind + "." + name
	}
	return kind + "[" + query.Quote(name) + "]"
}

func (s *Server) writeRun(db *history.DB, dir string, id int64) (err error) {
	defer try.Caught(&err)
	detail := try.To(db.Get(id))
	data := map[string]any{"show": detail}
	for name, read := range map[string]func(*history.DB, int64, *request) (any, error){
		"logs": logs, "sources": sources, "checkpoints": s.kept, "usage": usage, "ranks": ranks,
	} {
		data[name] = try.To(read(db, id, &request{Request: &http.Request{}, values: url.Values{"limit": {"2000"}}}))
	}
	data["curves"] = try.To(s.exportedCurves(db, detail))
	data["artifacts"], data["histograms"] = try.To2(writeArtifacts(db, dir, id))
	return writeData(dir, "run-"+strconv.FormatInt(id, 10), data)
}

// smoothing are the weights of the past with which exported curves are smoothed; assets/export.js has the same.
var smoothing = []float64{0.75, 0.91, 0.96, 0.99}

// exportedCurve is a curve with all its smoothed forms, to six digits.
type exportedCurve struct {
	*curve
	Smooths []numbers `json:"smooths"`
}

func (s *Server) exportedCurves(db *history.DB, run *history.Detail) (map[string]map[string]exportedCurve, error) {
	curves := map[string]map[string]exportedCurve{"step": {}, "time": {}, "relative": {}}
	for metric := range run.Metrics {
		try.Ok(s.cache.with(db, s.home, run.ID, metric, func(points *series) {
			if points == nil {
				return
			}
			for axis, byMetric := range curves {
				v := view{metric: metric, axis: axis, from: math.Inf(-1), to: math.Inf(1), points: defaultPoints}
				c := exportedCurve{curve: v.of(points, &run.Summary)}
				for _, v.smooth = range smoothing {
					smooth := v.of(points, &run.Summary).Smooth
					for i, y := range smooth {
						smooth[i], _ = strconv.ParseFloat(strconv.FormatFloat(y, 'g', 6, 64), 64)
					}
					c.Smooths = append(c.Smooths, smooth)
				}
				byMetric[metric] = c
			}
		}))
	}
	return curves, nil
}

// exportedArtifact says which file beneath files has the content.
type exportedArtifact struct {
	records.Artifact
	File string `json:"file"`
}

// writeArtifacts writes what a run has kept as files, and what the pages read of it as scripts. It returns the
// list, and the histograms by name.
func writeArtifacts(db *history.DB, dir string, id int64) (_ []exportedArtifact, _ map[string]any, err error) {
	defer try.Caught(&err)
	all := try.To(db.Artifacts(id))
	list, byName := []exportedArtifact{}, map[string]any{}
	for i := range all {
		a := &all[i]
		file := a.SHA256 + cmp.Or(report.Suffixes[a.Kind], ".bin")
		list = append(list, exportedArtifact{*a, file})
		data := try.To(db.Content(a))
		try.Ok(os.WriteFile(filepath.Join(dir, "files", file), data, 0o644))
		switch a.Kind {
		case "histogram":
			if byName[a.Name] == nil {
				byName[a.Name] = try.To(histogramsOf(db, id, &request{values: url.Values{"name": {a.Name}}}))
			}
		case "table", "text", "tensor":
			try.Ok(writeData(dir, "content-"+a.SHA256, map[string][]byte{"base64": data}))
		}
	}
	return list, byName, nil
}
