package ui

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"drun/history"
	"drun/history/records"
)

// write enters a run with parameters, and the values of loss: one list for each rank, at the steps that at gives.
func write(t *testing.T, db *history.DB, name string, params []history.Param, at func(i int) int64, ranks ...[]float64) {
	t.Helper()
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, err := db.Begin(history.RunInfo{Name: name, Recipe: "r.star", WorldSize: len(ranks), Backend: "shm", Threads: 1, Started: started})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.BeginAttempt(); err != nil {
		t.Fatal(err)
	}
	b := &history.Batch{Params: params, End: &history.End{Status: history.Done, Seconds: 1}}
	for rank, values := range ranks {
		for i, v := range values {
			b.Points = append(b.Points, records.Point{Name: "loss", Rank: rank, Step: at(i), Value: v, Time: started.Add(time.Duration(i) * time.Second)})
		}
	}
	if err := r.Write(b); err != nil {
		t.Fatal(err)
	}
}

func everyStep(i int) int64 { return int64(i) }

// sweep is the history of six runs with the parameters lr and a: those with lr = 0.1 log 1 2 3 and 3 4 5 (on two ranks the
// mean of 3 4 5), those with 0.01 log at other steps, and one has no lr.
func sweep(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	lr := func(v any) []history.Param { return []history.Param{{Name: "lr", Value: v}, {Name: "a", Value: "x"}} }
	write(t, db, "one", lr(0.1), everyStep, []float64{1, 2, 3})
	write(t, db, "two", lr(0.1), everyStep, []float64{2, 3, 4}, []float64{4, 5, 6})
	write(t, db, "three", lr(0.01), func(i int) int64 { return int64(2 * i) }, []float64{0, 2, 4}) // at 0 2 4
	write(t, db, "four", lr(0.01), everyStep, []float64{10, 10, 10, 10, 10})                       // at 0 1 2 3 4
	write(t, db, "five", lr(true), everyStep, []float64{math.NaN(), 7})
	write(t, db, "six", nil, everyStep, []float64{9})
	return home
}

func TestGroups(t *testing.T) {
	c, base := client(t, serve(t, sweep(t)))
	ask := func(path string, want int, values url.Values) string {
		t.Helper()
		status, body, _ := get(t, c, base+"/api/v1/"+path+"?"+values.Encode())
		if status != want {
			t.Fatalf("%s %v: %d %s", path, values, status, body)
		}
		return body
	}
	var list struct {
		Runs   []struct{ ID int64 }
		Groups json.RawMessage
		Total  int
	}
	if err := json.Unmarshal([]byte(ask("runs", 200, url.Values{"group": {"params.lr"}, "sort": {"-metrics.loss.last"}, "columns": {"id, metrics.loss.last, params.a, name"}})), &list); err != nil {
		t.Fatal(err)
	}
	const want = `[{"value":0.01,"ids":[4,3],"cells":[{"mean":3.5,"min":3,"max":4},{"mean":7,"min":4,"max":10},{"same":"x"},{}]},` +
		`{"value":0.1,"ids":[2,1],"cells":[{"mean":1.5,"min":1,"max":2},{"mean":3.5,"min":3,"max":4},{"same":"x"},{}]},` +
		`{"value":true,"ids":[5],"cells":[{"same":5},{"same":7},{"same":"x"},{"same":"five"}]},` +
		`{"value":null,"ids":[6],"cells":[{"same":6},{"same":9},{},{"same":"six"}]}]`
	if string(list.Groups) != want || list.Total != 6 || fmt.Sprint(list.Runs) != "[{4} {3} {2} {1} {5} {6}]" {
		t.Errorf("%d %v\n%s\nwant\n%s", list.Total, list.Runs, list.Groups, want)
	}
	// Run 6 has no lr and no a, which says nothing of the others.
	summed := ask("runs", 200, url.Values{"group": {"status"}, "sort": {"id"}, "columns": {"params.a, id"}})
	if !strings.Contains(summed, `"cells":[{"same":"x"},{"mean":3.5,"min":1,"max":6}]`) {
		t.Error(summed)
	}
	for text, want := range map[string]string{"params.lr, seed": "want one expression, not 2", "params.lr <": "column", "metrics.loss": "", "nothing": "there is no name nothing"} {
		if want == "" {
			continue
		}
		if body := ask("runs", 400, url.Values{"group": {text}}); !strings.Contains(body, want) {
			t.Errorf("%s: %s", text, body)
		}
		ask("curves", 400, url.Values{"group": {text}, "run": {"1"}, "metric": {"loss"}})
	}

	curves := func(values url.Values) (found []bundle) {
		t.Helper()
		values["metric"], values["group"], values["run"] = []string{"loss"}, []string{"params.lr"}, []string{"1", "2", "3", "4", "5", "6"}
		var raw []map[string]json.RawMessage
		if err := json.Unmarshal([]byte(ask("curves", 200, values)), &raw); err != nil {
			t.Fatal(err)
		}
		for _, r := range raw {
			b := bundle{}
			for name, to := range map[string]*numbers{"x": &b.X, "y": &b.Y, "low": &b.Low, "high": &b.High, "smooth": &b.Smooth} {
				var list []*float64
				if r[name] != nil {
					if err := json.Unmarshal(r[name], &list); err != nil {
						t.Fatal(err)
					}
				}
				for _, v := range list {
					if v == nil {
						*to = append(*to, math.NaN())
					} else {
						*to = append(*to, *v)
					}
				}
			}
			if err := json.Unmarshal(r["runs"], &b.Runs); err != nil {
				t.Fatal(err)
			}
			found = append(found, b)
		}
		return found
	}
	show := func(b bundle) string { return fmt.Sprint(b.Runs, b.X, b.Y, b.Low, b.High) }
	got := []string{}
	for _, b := range curves(url.Values{}) {
		got = append(got, show(b))
	}
	wanted := []string{
		"[1 2] [0 1 2] [2 3 4] [1 2 3] [4 5 6]",
		// Stretches of 0.8 steps: run three is on the straight lines between its points.
		"[3 4] [0.4 1.2000000000000002 2 2.8000000000000003 3.6] [5 5.5 6 6.5 7] [0 1 2 3 4] [10 10 10 10 10]",
		"[5] [0 1] [NaN 7] [NaN 7] [NaN 7]", "[6] [0] [9] [9] [9]"}
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
	for _, b := range curves(url.Values{"from": {"1"}, "to": {"2"}, "smooth": {"0.5"}}) {
		if slices.Equal(b.Runs, []int64{1, 2}) && (show(b) != "[1 2] [1 2] [3 4] [2 3] [5 6]" || math.Abs(b.Smooth[0]-(5./3+8./3+1)/2) > 0.2) {
			t.Errorf("zoomed and smoothed: %s %v", show(b), b.Smooth)
		}
	}
}

func TestGroupedPages(t *testing.T) {
	p := browse(t, serve(t, sweep(t)))
	p.open("/?view=table")
	p.until("document.querySelectorAll('#rows tr').length === 6")
	p.do(chromedp.Focus("#group"), chromedp.SendKeys("#group", "params.l"))
	p.until("document.querySelector('#group-names li')?.innerText === 'params.lr'")
	p.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Enter))
	p.until("document.querySelectorAll('#rows tr.group').length === 4 && document.querySelectorAll('#rows tr').length === 10 && document.getElementById('count').innerText === '6 runs in 4 groups'")
	if text := p.text("#rows tr.group:nth-child(4)"); !strings.Contains(text, "params.lr = 0.1") || !strings.Contains(text, "2 ×") || !strings.Contains(text, "3.5 3…4") {
		t.Errorf("the row of a group: %q", text)
	}
	p.shot("groups")
	// Folded, by the keyboard, and one group unfolded again.
	p.do(chromedp.Focus("#fold"), chromedp.KeyEvent(kb.Enter))
	p.until("document.querySelectorAll('#rows tr').length === 4 && location.search.includes('fold=1')")
	p.do(chromedp.Focus("#rows tr:nth-child(2) button"), chromedp.KeyEvent(kb.Enter))
	p.until("document.querySelectorAll('#rows tr').length === 6 && document.querySelector('#rows tr:nth-child(2) button').getAttribute('aria-expanded') === 'true' && document.activeElement.tagName === 'BUTTON'")
	// A link shows the same.
	p.open(eval[string](p, "location.pathname + location.search"))
	p.until("document.querySelectorAll('#rows tr.group').length === 4 && document.querySelectorAll('#rows tr').length === 4 && document.getElementById('group').value === 'params.lr'")
	// The box of a group selects its runs.
	p.run("document.querySelectorAll('#rows tr.group input')[0].click(); document.querySelectorAll('#rows tr.group input')[1].click()")
	p.until("document.getElementById('compare').innerText === 'Compare 4 selected'")
	p.do(chromedp.Click("#compare"))
	p.until("location.pathname === '/compare.html' && document.querySelectorAll('#charts canvas').length === 1 && document.querySelectorAll('#which details').length === 2 && document.querySelector('figure').chart.plot.series.length === 7")
	const strokes = "[...new Set(document.querySelector('figure').chart.plot.series.filter(s => s.width === 1.5).map(s => s._stroke ?? s.stroke()))].length"
	if n := eval[int](p, strokes); n != 2 {
		t.Errorf("%d colours for two groups", n)
	}
	p.do(chromedp.SetValue("#as", "mean"))
	p.run("document.getElementById('as').dispatchEvent(new Event('change'))")
	p.until("document.querySelector('.plot').getAttribute('aria-label').includes('2 runs with params.lr = 0.1, mean: 9 points, last 4') && location.search.includes('as=mean')")
	p.shot("means")
	p.open(eval[string](p, "location.pathname + location.search"))
	p.until("document.querySelector('.plot')?.getAttribute('aria-label').includes('2 runs with params.lr = 0.1, mean') && document.getElementById('as').value === 'mean'")
	p.do(chromedp.SetValue("#group", ""))
	p.run("document.getElementById('group').dispatchEvent(new Event('change'))")
	p.until("document.querySelectorAll('#which li').length === 4 && document.getElementById('aslabel').hidden && document.querySelector('.plot').getAttribute('aria-label').includes('run 1 one')")
	p.open("/compare.html?run=1&run=2&group=params.lr+%3C")
	p.until("document.getElementById('groupfault').innerText.includes('column') && document.querySelectorAll('#charts canvas').length === 1")
}

func TestSummarise(t *testing.T) {
	var rows [][]any
	for _, v := range []float64{1, math.NaN(), 3} {
		rows = append(rows, []any{records.Float(v)})
	}
	if c := summarise(append(rows, []any{nil}), 0); c.Mean == nil || *c.Mean != 2 || *c.Min != 1 || *c.Max != 3 {
		t.Errorf("%+v", c)
	}
}
