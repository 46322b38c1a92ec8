package ui

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"drun/history"
	"drun/history/historytest"
	"drun/history/records"
)

// learned makes a history of runs with the metrics loss, train/loss and val/loss over 20 steps.
func learned(t *testing.T, runs int) string {
	t.Helper()
	home := t.TempDir()
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range runs {
		r, err := db.Begin(history.RunInfo{Name: fmt.Sprint("run-", i), Recipe: "r.star", WorldSize: 1, Backend: "shm", Threads: 1, Started: historytest.Start,
			Sweep: &records.Sweep{Name: "sweep-one", Cells: runs, Command: []string{"drun", "sweep", "r.star", "-p", "it's=1", "--minimize", "val/loss"}}})
		if err == nil {
			err = r.BeginAttempt()
		}
		if err != nil {
			t.Fatal(err)
		}
		lr := math.Pow(10, -1-float64(i%3))
		b := &history.Batch{Params: []history.Param{{Name: "lr", Value: lr}, {Name: "act", Value: []string{"relu", "gelu"}[i%2]}, {Name: "epochs", Value: int64(20)}}, End: &history.End{Status: history.Done, Seconds: 2}}
		for step := range 20 {
			for name, v := range map[string]float64{"loss": 1 / float64(step+1), "train/loss": float64(step), "val/loss": lr*100 + float64(i)/1000 - float64(step)/100} {
				b.Points = append(b.Points, records.Point{Name: name, Step: int64(step), Value: v, Exact: true, Time: historytest.Start})
			}
		}
		if err := r.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// The workspace shows the charts of the first runs at once, in sections, and the runs beside them say which curves are theirs.
func TestWorkspace(t *testing.T) {
	p := browse(t, serve(t, learned(t, 24)))
	p.until("document.querySelectorAll('#charts canvas').length === 3 && document.querySelectorAll('#rows tr').length === 24")
	if got := p.text("details.section summary"); got != "Metrics1\ntrain1\nval1" && got != "Metrics\n1\ntrain\n1\nval\n1" {
		t.Errorf("the sections: %q", got)
	}
	const chart = "document.querySelectorAll('#charts figure')[2].chart"
	p.until(chart + "?.curves.length === 20")
	// The legend names ten curves, and counts the others.
	p.until("document.querySelectorAll('#charts figure')[2].querySelectorAll('.legend button').length === 10 && document.querySelectorAll('#charts figure')[2].querySelector('.legend').innerText.includes('and 10 more')")
	p.shot("workspace")
	p.run(chart + ".figure.scrollIntoView()")
	// An eye hides a run in all charts and shows another; the address keeps that.
	eye := func(row int) string {
		return fmt.Sprintf("document.querySelectorAll('#rows tr')[%d].querySelector('.eye')", row)
	}
	p.run(eye(0) + ".click()")
	p.until(chart + ".curves.length === 19 && !" + chart + ".curves.some(c => c.run === 24) && location.search.includes('hide=24')")
	p.run(eye(23) + ".click()")
	p.until(chart + ".curves.length === 20 && " + chart + ".curves.some(c => c.run === 1) && location.search.includes('show=1')")
	p.open(eval[string](p, "location.pathname + location.search"))
	p.until("document.querySelectorAll('#charts figure').length === 3")
	p.run(chart + ".figure.scrollIntoView()")
	p.until(chart + "?.curves.some(c => c.run === 1) && !" + chart + ".curves.some(c => c.run === 24) && " + eye(0) + ".getAttribute('aria-pressed') === 'false'")
	// The crosshair is at the same step in all charts.
	p.run("document.querySelectorAll('#charts .plot')[2].focus()")
	p.do(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	p.until("[...document.querySelectorAll('#charts .legend .at')].filter(e => e.innerText === '2').length >= 2")
	// Smoothing, logarithms and the axis are in the address, too.
	p.run("const s = document.querySelector('#charts select'); s.value = 'metric:train/loss'; s.dispatchEvent(new Event('change'))")
	p.until(chart + ".plot.data[0].at(-1) === 19 && location.search.includes('x=metric')")
	p.run("[...document.querySelectorAll('#charts label')].find(l => l.innerText === 'log x').querySelector('input').click()")
	p.until(chart + ".plot.data[0][0] === 1 && location.search.includes('logx=1')")
	p.open("/")
	p.until("document.querySelectorAll('#charts canvas').length === 3")
	// A number finds a run, a status those that have it.
	for where, count := range map[string]string{"24": "1 run", "2": "7 runs", "done": "24 runs", "failed": "0 runs"} { // run-2, run-20 to run-23, and the second
		p.do(chromedp.SetValue("#where", where), chromedp.Click("#choose button[type=submit]"))
		p.until("document.getElementById('count').innerText === '" + count + "'")
	}
	// A plain word finds names, and groups have bands.
	p.do(chromedp.SetValue("#where", "run-2"), chromedp.SetValue("#group", "params.act"), chromedp.Click("#choose button[type=submit]"))
	p.until("document.querySelectorAll('#charts figure').length === 3")
	p.run(chart + ".figure.scrollIntoView()")
	p.until("document.getElementById('count').innerText.startsWith('5 runs in 2 groups') && " + chart + "?.curves.length === 2 && " + chart + ".curves[0].runs")
	harmless(p)

	// Charts are moved by the keyboard, within their section, and enlarged.
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 3, Params: 2, Metrics: 3, Points: 5}); err != nil {
		t.Fatal(err)
	}
	p = browse(t, serve(t, home))
	const order = "[...document.querySelectorAll('#charts figure')].map(f => f.chart.metric).join()"
	p.until(order + " === 'acc,loss,m2'")
	p.run("document.querySelector('#charts .handle').focus()")
	p.do(chromedp.KeyEvent(kb.ArrowRight))
	p.until(order + " === 'loss,acc,m2' && document.activeElement.closest('figure').chart.metric === 'acc' && new URLSearchParams(location.search).get('order') === 'loss,acc,m2'")
	p.open(eval[string](p, "location.pathname + location.search"))
	p.until(order + " === 'loss,acc,m2'")
	p.until("document.querySelectorAll('#charts canvas').length === 3")
	// A picture of a chart is handed over as a file.
	p.run("window.saved = []; HTMLAnchorElement.prototype.click = function() { saved.push(this.download, this.href.slice(0, 5)); }; document.querySelector('#charts .tools button[title=\"save as a picture\"]').click()")
	p.until("window.saved.join() === 'loss.png,blob:'")
	p.run("document.querySelector('#charts .tools button[title=enlarge]').click()")
	p.until("document.querySelector('#charts figure').chart.plot.height > 300")
}

// The curves of a run that goes on grow in the workspace, and a run that begins joins them.
func TestWorkspaceLive(t *testing.T) {
	home := t.TempDir()
	p := browse(t, serve(t, home))
	p.until("document.getElementById('nothing').innerText.includes('drun run RECIPE.star') && document.getElementById('panels').hidden")
	recipe := "def main():\n    for i in range(10000):\n        run.log(step = i, loss = 1.0 / (i + 1))\n        began = run.elapsed()\n        while run.elapsed() < began + 0.05: pass\n"
	start(t, home, recipe, "--name", "one")
	const points = "(document.querySelector('#charts figure')?.chart.curves[0]?.points ?? 0)"
	p.until(points + " > 2")
	was := eval[int](p, points)
	p.until(fmt.Sprintf("%s > %d", points, was))
	start(t, home, recipe, "--name", "two")
	p.until("document.querySelector('#charts figure').chart.curves.length === 2")
}

// By keyboard: the search, the rows, the eye, the baseline, the views, the theme and the help.
func TestWorkspaceKeys(t *testing.T) {
	p := browse(t, serve(t, learned(t, 3)))
	p.until("document.querySelectorAll('#charts canvas').length === 3")
	p.do(chromedp.KeyEvent("/"))
	p.until("document.activeElement.id === 'where'")
	p.do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	p.until("document.querySelector('#rows tr.at')?.dataset.run === '2' && document.activeElement.closest('tr').dataset.run === '2'")
	p.do(chromedp.KeyEvent("k"), chromedp.KeyEvent("h"))
	p.until("location.search.includes('hide=3')")
	p.do(chromedp.KeyEvent("b"))
	p.until("location.search.includes('pin=3') && document.querySelector('#rows tr .pin[aria-pressed=true]') && document.querySelector('#charts figure').chart.plot?.series.some(s => s.width === 3)")
	p.do(chromedp.KeyEvent("x"))
	p.until("document.getElementById('compare').innerText === 'Compare 1 selected'")
	p.do(chromedp.KeyEvent("v"))
	p.until("!document.body.classList.contains('charts') && document.querySelectorAll('#rows svg.spark path').length >= 3")
	p.do(chromedp.KeyEvent("t"))
	p.until("document.documentElement.dataset.theme === 'light' && document.cookie.includes('drun-theme=light')")
	p.do(chromedp.KeyEvent("?"))
	p.until("document.querySelector('dialog[open]')?.innerText.includes('the baseline')")
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until("!document.querySelector('dialog')")
	// The parameters that differ come first, then the objective of the sweep.
	if got := eval[string](p, "document.getElementById('columns').value"); !strings.HasPrefix(got, `params.lr, params.act, params.epochs, metrics["val/loss"].last, `) {
		t.Errorf("the columns are %s", got)
	}
}

// The tabs of a run have addresses, which the browser's history knows.
func TestRunTabs(t *testing.T) {
	home := t.TempDir()
	if err := start(t, home, "def main():\n    run.log(loss = 1.0)\n    print('a \"text\"') # said\n    run.image('picture', tensor.zeros([4, 4]))\n", "--name", "tabs").Wait(); err != nil {
		t.Fatal(err)
	}
	p := browse(t, serve(t, home))
	p.open("/run.html?id=tabs")
	const shown = "[...document.querySelectorAll('[data-tab]')].filter(e => e.checkVisibility()).map(e => e.dataset.tab).join()"
	p.until(shown + " === 'charts' && document.querySelector('.tabs [aria-current]').innerText === 'Charts' && document.querySelectorAll('#charts canvas').length === 1")
	p.run("[...document.querySelectorAll('.tabs a')].find(a => a.innerText === 'Log').click()")
	p.until(shown + " === 'log' && location.search === '?id=tabs&tab=log' && document.getElementById('log').innerText.includes('a \"text\"')")
	p.do(chromedp.KeyEvent("["))
	p.until(shown + " === 'charts'")
	p.run("history.back()")
	p.until(shown + " === 'log'")
	p.run("window.saved = []; URL.createObjectURL = b => { b.text().then(t => saved.push(t)); return 'blob:x'; }; HTMLAnchorElement.prototype.click = function() { saved.push(this.download); }; document.getElementById('savelog').click()")
	p.until("window.saved.join() === 'tabs.log,a \"text\"\\n'")
	p.open("/run.html?id=tabs&tab=code")
	p.until(shown + " === 'code' && document.querySelector('#sources .t-k')?.innerText === 'def' && document.querySelector('#sources .t-s')?.innerText.startsWith(\"'a\") && document.querySelector('#sources .t-c')?.innerText === '# said'")
	p.open("/run.html?id=tabs&tab=checkpoints")
	p.until("document.getElementById('blank').innerText.includes('checkpoint.save')")
	p.open("/run.html?id=tabs&tab=all")
	p.until(shown + ".split(',').length === 8")
}

// A sweep has its best cells first, and says which parameter mattered.
func TestSweepOfRuns(t *testing.T) {
	home := learned(t, 24)
	c, base := client(t, serve(t, home))
	if _, body, _ := get(t, c, base+"/api/v1/sweeps"); !strings.Contains(body, `"runs":[{"id":1,"name":"run-0",`) {
		t.Errorf("the runs do not begin with the oldest: %s", body)
	}
	p := browse(t, serve(t, home))
	p.open("/sweep.html")
	p.until(`document.querySelector("#sweeps tbody tr")?.innerText.includes("it's\t24 of 24")`)
	p.run("document.querySelector('#sweeps a').click()")
	p.until("location.search === '?name=sweep-one' && document.querySelectorAll('#best tbody tr').length === 24 && document.querySelectorAll('#sweep .line').length === 24")
	if got := p.text("#best tbody tr:first-child"); !strings.HasPrefix(got, "run-2\t-0.088") { // lr = 0.001
		t.Errorf("the best: %q", got)
	}
	if got := p.text("#importance tbody tr"); !strings.HasPrefix(got, "lr\t100 %") || !strings.Contains(got, "small values are better") || !strings.Contains(got, "\nact\t0 %") {
		t.Errorf("what mattered: %q", got)
	}
	if got := p.text("#command"); got != `drun sweep r.star -p 'it'\''s=1' --minimize val/loss` {
		t.Errorf("the command: %q", got)
	}
	// Values computed by hand: 3 groups of 2 with the means 1, 2 and 6, each value 1 beside it; and ranks with ties.
	if got := eval[[]float64](p, "[explained([1, 1, 2, 2, 3, 3], [0, 2, 1, 3, 5, 7]), explained([1, 2, 1, 2], [0, 0, 1, 1]), rising([1, 2, 3, 4], [1, 4, 9, 16]), rising([1, 1, 2, 2], [4, 3, 2, 1])]"); math.Abs(got[0]-(1-6./34*5/3)) > 1e-12 || got[1] != 0 || got[2] != 1 || math.Abs(got[3]+0.894427) > 1e-6 {
		t.Errorf("explained and rising: %v", got)
	}
	p.run("document.getElementById('goal').value = 'max'; document.getElementById('goal').dispatchEvent(new Event('change'))")
	p.until("document.querySelector('#best tbody tr').innerText.startsWith('run-21') && location.search.includes('goal=max')")
	p.shot("one-sweep")
	harmless(p)
	p.run("document.getElementById('curves').click()") // in the workspace, the best first
	p.until("document.getElementById('count')?.innerText === '24 runs' && document.querySelector('#rows th')?.title === 'run-21' && document.querySelectorAll('#charts canvas').length > 0")

	// The exported pages have it, too, and the charts of the workspace.
	q := exported(t, home)
	q.until("document.querySelectorAll('#charts canvas').length > 0 && document.querySelector('#charts figure').chart.curves.length === 20")
	q.open("/sweep.html?name=sweep-one")
	q.until("document.querySelectorAll('#best tbody tr').length === 24 && document.querySelector('#importance tbody tr').innerText.startsWith('lr')")
}

// Of two runs, what differs comes first: the first point, and images beside each other.
func TestCompareTwo(t *testing.T) {
	home := t.TempDir()
	for i := range 2 {
		if err := start(t, home, "p = run.params(a = 0)\ndef main():\n    for i in range(5):\n        run.log(step = i, loss = 1.0 / (i + 1), late = float(i * (p.a if i > 2 else 0)))\n        run.image('picture', tensor.zeros([4 + p.a, 4]), step = i)\n", "-p", fmt.Sprint("a=", i)).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	p := browse(t, serve(t, home))
	p.open("/compare.html?run=1&run=2")
	p.until("document.getElementById('firstdiff').innerText.startsWith('The first point that differs: late at step 3, 0 and 3.')")
	p.until("document.getElementById('beside').checkVisibility()") // after the curves
	if got := eval[string](p, "[...document.querySelectorAll('#parts > section')].filter(e => e.checkVisibility()).map(e => e.id).join()"); got != "differences,recipes,curves,beside" {
		t.Errorf("the sections are %s", got)
	}
	p.until("[...document.querySelectorAll('.pair img')].map(i => i.naturalHeight).join() === '4,5'")
}
