package ui

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"drun/history"
	"drun/history/historytest"
	"drun/history/query"
)

// exported writes the pages of all runs, and opens them.
func exported(t *testing.T, home string) *page {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pages")
	s := New(home)
	defer s.Close()
	if _, err := s.Export(dir, nil); err != nil {
		t.Fatal(err)
	}
	return browse(t, "file://"+dir+"/index.html")
}

// The boxes of exported pages choose and group the same runs as drun does, or refuse.
func TestExportedWhere(t *testing.T) {
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 40, Params: 6, Metrics: 3, Points: 5}); err != nil {
		t.Fatal(err)
	}
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	write(t, db, "nan", []history.Param{{Name: "lr", Value: math.Inf(1)}, {Name: "act", Value: "it's \\ \"x\""}}, everyStep, []float64{math.NaN()})
	write(t, db, "other", []history.Param{{Name: "hidden", Value: 64.5}, {Name: "act", Value: nil}}, everyStep, []float64{1e-3})
	p := exported(t, home)
	p.until("document.querySelectorAll('#rows tr').length > 10")
	ask := func(where, group string) string {
		return fmt.Sprintf("window.exported('runs', {where: %s, group: %s, sort: '', offset: 0, limit: 1000}).then(a => JSON.stringify(a.groups ? a.groups.map(g => [g.value, g.ids]) : a.runs.map(r => r.id)), e => 'refused: ' + e.text)", quoteJS(where), quoteJS(group))
	}
	for _, where := range []string{"", "params.lr < 0.01", "params.lr <= 0.01 and params.act == \"relu\"", "params.act == 'gelu'", "params.hidden in [32, 256]", "params.momentum == True", "id != 3", "id > 38",
		`"seventh" in tags`, `"seventh" in tags and status == "failed"`, "metrics.loss.last > 0.2", "metrics.loss.last < 1e-2", "metrics.acc.last >= .9 and world_size == 2", `name == "run-7"`, `params.act == 'it\'s \\ "x"'`,
		`started >= "2026-01-02T03:30"`, "params.lr > 1", "seed == 2", "params.hidden == 64.5", "params.act == 3", `params.hidden == "64"`, "id in []"} {
		var want []int64
		if where == "" {
			want, _, err = query.Choose(db, false, nil, nil)
		} else {
			var e *query.Expr
			if e, err = query.Parse("where", where); err == nil {
				want, _, err = query.Choose(db, false, []*query.Expr{e}, nil)
			}
		}
		if err != nil {
			t.Fatal(where, err)
		}
		raw, _ := json.Marshal(append([]int64{}, want...))
		if got := eval[string](p, ask(where, ""), chromedp.EvalAwaitPromise); got != string(raw) {
			t.Errorf("%s: %s, want %s", where, got, raw)
		}
	}
	for where, want := range map[string]string{
		"params.lr < 0.1 or id == 3": "joined by and", "not params.momentum": "joined by and", "len(tags) == 1": "joined by and", "params.lr": "joined by and", "params.lr < ": "joined by and", "params.lr <": "joined by and",
		"params.nothing == 1": "joined by and", "params.lr != 0.1": "some runs have no params.lr", "name < 3": "cannot be compared", "params.lr < params.p4": "joined by and", "id == 12x": "joined by and", "params.lr.x == 1": "joined by and",
	} {
		if got := eval[string](p, ask(where, ""), chromedp.EvalAwaitPromise); !strings.HasPrefix(got, "refused: ") || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", where, got, want)
		}
	}
	for _, by := range []string{"params.act", "params.momentum", "world_size", "params.hidden", "params.p5"} {
		e, err := grouping(map[string][]string{"group": {by}})
		if err != nil {
			t.Fatal(err)
		}
		key, err := query.ParseKey(by)
		if err != nil {
			t.Fatal(err)
		}
		ids, _, err := query.Choose(db, false, nil, []query.Key{key})
		if err != nil {
			t.Fatal(err)
		}
		found, err := groups(db, ids, e, nil)
		if err != nil {
			t.Fatal(err)
		}
		list := [][2]any{}
		for _, g := range found {
			list = append(list, [2]any{g.Value, g.IDs})
		}
		want, _ := json.Marshal(list)
		if got := eval[string](p, ask("", by), chromedp.EvalAwaitPromise); got != string(want) {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
	// On the page.
	p.run("document.getElementById('where').value = 'params.act == \"gelu\"'; document.getElementById('group').value = 'params.hidden'; document.querySelector('#choose button[type=submit]').click()")
	p.until("document.querySelectorAll('#rows tr.group').length > 1")
	p.shot("exported")
	p.run("document.getElementById('where').value = 'len(tags)'; document.querySelector('#choose button[type=submit]').click()")
	p.until("document.getElementById('fault').innerText.includes('drun ui takes the whole language')")
}

func quoteJS(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

// The lines that differ are found without a server: what a diff keeps and removes is the one text, what it keeps and adds the other.
func TestExportedDiff(t *testing.T) {
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 3, Params: 1, Metrics: 1, Points: 5}); err != nil {
		t.Fatal(err)
	}
	p := exported(t, home)
	p.until("document.querySelectorAll('#rows tr').length === 3")
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		texts := [2]string{}
		for i := range texts {
			for range random.IntN(30) {
				texts[i] += fmt.Sprint("line ", random.IntN(6), "\n")
			}
		}
		diff := eval[string](p, fmt.Sprintf("unified(['a', 'b'], [%s, %s])", quoteJS(texts[0]), quoteJS(texts[1])))
		if (diff == "") != (texts[0] == texts[1]) {
			t.Fatalf("%q: %q", texts, diff)
		}
		// Applied to the first text, it makes the second.
		lines, made, at := strings.SplitAfter(texts[0], "\n"), "", 0
		for _, line := range strings.Split(strings.TrimSuffix(diff, "\n"), "\n")[min(2, strings.Count(diff, "\n")):] {
			var start, n int
			switch {
			case diff == "":
			case line[0] == '@':
				if _, err := fmt.Sscanf(line, "@@ -%d,%d", &start, &n); err != nil {
					t.Fatal(err, line)
				}
				if n > 0 {
					start--
				}
				for ; at < start; at++ {
					made += lines[at]
				}
			case line[0] == '+':
				made += line[1:] + "\n"
			default:
				if lines[at] != line[1:]+"\n" {
					t.Fatalf("%q: line %d is not %q\n%s", texts, at, line, diff)
				}
				if line[0] == ' ' {
					made += lines[at]
				}
				at++
			}
		}
		if made += strings.Join(lines[at:], ""); made != texts[1] {
			t.Fatalf("%q: the diff makes %q\n%s", texts, made, diff)
		}
	}
	p.open("/run.html?tab=all&id=1")
	p.until("document.querySelector('#sources').innerText.includes('# Recipe 0.')")
	p.run("document.getElementById('other').value = '3'; document.querySelector('#against button').click()")
	p.until("!document.getElementById('diff').hidden && document.getElementById('diff').innerText.includes('-# Recipe 0.') && document.getElementById('diff').innerText.includes('+# Recipe 2.')")
	p.open("/compare.html?run=1&run=2")
	p.until("!document.getElementById('recipes').hidden && document.getElementById('diff').innerText.includes('+# Recipe 1.')")
}

// What a recipe kept, and smoothed curves, are in exported pages, too.
func TestExportedRun(t *testing.T) {
	home := kept(t)
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float64, 5000)
	for i := range values {
		values[i] = rand.New(rand.NewPCG(uint64(i), 1)).NormFloat64()
	}
	write(t, db, "noisy", nil, everyStep, values)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	p := exported(t, home)
	p.until("document.querySelectorAll('#rows tr').length === 2")
	p.open("/run.html?tab=all&id=2")
	p.until("document.querySelectorAll('#charts canvas').length === 1")
	p.run("const s = document.querySelector('#charts input[type=range]'); s.value = 4; s.dispatchEvent(new Event('input'))")
	p.until("document.querySelector('figure').chart.plot.series.length === 3")
	smooth := eval[[]float64](p, "document.querySelector('figure').chart.plot.data[2].filter(v => v !== undefined)")
	exact := smoothed(values, 0.99)
	if last := exact[len(exact)-1]; len(smooth) > 1000 || math.Abs(smooth[len(smooth)-1]-last) > 1e-5*math.Abs(last) || slices.Max(smooth) > 3 {
		t.Errorf("%d smoothed points, the last %v, want %v", len(smooth), smooth[len(smooth)-1], last)
	}
	checkKept(t, p, "/run.html?tab=all&id=1")
	if href := eval[string](p, "document.querySelector('#artifacts a').getAttribute('href')"); !strings.HasPrefix(href, "files/") {
		t.Errorf("a file is at %s", href)
	} else if _, err := os.Stat(filepath.Join(strings.TrimPrefix(p.base, "file://"), href)); err != nil {
		t.Error(err)
	}
}
