package ui

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"drun/history"
	"drun/history/historytest"
	"drun/internal/elapsed"
)

func TestRunsPage(t *testing.T) {
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 1000, Params: 6, Metrics: 4, Points: 10}); err != nil {
		t.Fatal(err)
	}
	p := browse(t, serve(t, home))
	p.open("/?view=table")
	p.until("document.documentElement.dataset.ready !== undefined")
	if got := p.text("#count"); got != "1000 runs" {
		t.Errorf("%q", got)
	}
	if rows := eval[int](p, "document.querySelectorAll('#rows tr').length"); rows < 20 || rows > 80 {
		t.Errorf("%d rows are in the page", rows)
	}
	p.shot("runs")
	for _, s := range []float64{0, 3e-8, 9.96e-6, 0.00042, 0.000996, 0.0874, 0.124, 0.996, 1.25, 9.96, 12.5, 59.4, 59.6, 245, 3599.6, 3720, 360000} {
		if got, want := eval[string](p, fmt.Sprintf("duration(%v)", s)), elapsed.Text(s); got != want {
			t.Errorf("%v seconds: the page says %q, the command line %q", s, got, want)
		}
	}

	// To the end of the table: its rows are fetched.
	p.run("document.getElementById('scroll').scrollTop = 1e9")
	p.until("document.querySelector('#rows tr:last-child th')?.innerText === 'run-0'")

	// A filter, with a name completed by the keyboard.
	p.do(chromedp.Focus("#where"), chromedp.SendKeys("#where", "params.hid"))
	p.until("document.querySelector('#where-names li')?.innerText === 'params.hidden'")
	p.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter), chromedp.SendKeys("#where", " == 32 and metrics.acc.last > 0.9"), chromedp.KeyEvent(kb.Enter))
	p.until("document.getElementById('count').innerText !== '1000 runs'")
	for _, line := range strings.Split(p.text("#rows tr"), "\n") {
		if !strings.Contains(line, "\t32\t") {
			t.Errorf("%q is not chosen by the filter", line)
		}
	}

	// The command line's errors are shown in place.
	for text, want := range map[string]string{
		"params.lr < ":           "column",
		"metrics.acc.lst > 0":    "did you mean .last?",
		"paramss.lr > 0":         "did you mean params?",
		"params.hiden == 32":     `no run has a parameter "hiden": did you mean "hidden"?`,
		"params.act < 3":         "string cannot be compared with int",
		"<script>alert(1)</scri": "column",
	} {
		p.do(chromedp.SetValue("#where", text), chromedp.Click("#choose button[type=submit]"))
		p.until("document.getElementById('fault').innerText.includes(" + quote(want) + ")")
	}

	// So are those of Columns, and they quote what was typed.
	p.run("document.getElementById('where').value = ''")
	p.do(chromedp.SetValue("#columns", "params.lr, nosuch.x"), chromedp.Click("#choose button[type=submit]"))
	p.until("/column 12: there is no name nosuch.*\\n +params.lr, nosuch.x\\n/.test(document.getElementById('fault').innerText) && document.querySelector('#columns[aria-invalid]') && !document.querySelector('#where[aria-invalid]')")

	// A column may be written as Starlark has it.
	p.open("/?view=table&columns=metrics%5B%27acc%27%5D.last")
	p.until("[...document.querySelectorAll('#heads button')].some(b => b.title === `metrics['acc'].last`) && document.querySelectorAll('#rows tr').length > 20")

	// Sorting by the head of a column, the largest first and the other way.
	p.do(chromedp.Click("#reset"))
	p.until("document.getElementById('count').innerText === '1000 runs'")
	head := `[...document.querySelectorAll('#heads button')].find(b => b.title === 'metrics.acc.last')`
	p.until(head)
	p.run(head + ".click()")
	p.until(head + "?.closest('th').getAttribute('aria-sort') === 'descending'")
	const values = `[...document.querySelectorAll('#rows tr')].map(r => Number(r.cells[1 + [...document.querySelectorAll('#heads button')].findIndex(b => b.title === 'metrics.acc.last')].innerText))`
	p.until("((v) => v.length > 20 && v.every((x, i) => !i || v[i - 1] >= x) && v[0] > 0.98)(" + values + ")")
	p.run(head + ".click()")
	p.until("((v) => v.length > 20 && v.every((x, i) => !i || v[i - 1] <= x) && v[0] < 0.6)(" + values + ")")

	// Two runs are compared.
	p.run("document.querySelectorAll('#rows input')[0].click(); document.querySelectorAll('#rows input')[3].click()")
	p.do(chromedp.Click("#compare"))
	p.until("document.querySelectorAll('#charts canvas').length >= 2 && document.querySelectorAll('#table tbody tr').length > 3")
	p.shot("compare")
	if got := p.text("#table"); !strings.Contains(got, "lr") || strings.Contains(got, "parameter\tseed") {
		t.Errorf("the table of what differs:\n%s", got)
	}

	// What a group's runs have in common stands below the heading of its column.
	const below = `((r, h) => r.cells[1 + [...document.querySelectorAll('#heads button')].findIndex(b => b.title === h)])`
	p.open("/?view=table&where=id+%3C%3D+40+and+status+%3D%3D+%22done%22&group=params.act&columns=params.act,metrics.acc.last,world_size")
	p.until("document.querySelectorAll('#rows tr.group').length > 0")
	if got := eval[string](p, `[...document.querySelectorAll('#rows tr.group')].map(r => { const c = h => `+below+`(r, h);
		return [c('name').innerText.endsWith('= ' + c('params.act').innerText), c('status').innerText, /^mean 0\.\d+, from 0\.\d+ to 0\.\d+$/.test(c('metrics.acc.last').title), c('world_size').innerText.endsWith(' 1…4')].join(' '); })[0]`); got != "true done true true" {
		t.Errorf("the line of a group: %s", got)
	}

	// All runs that a filter chose.
	p.open("/?where=id+%3C%3D+40&group=params.act")
	p.until("document.getElementById('count').innerText === '40 runs in 3 groups'")
	p.do(chromedp.Click("#all"))
	p.until("!document.getElementById('compare').disabled")
	p.do(chromedp.Click("#compare"))
	p.until("document.querySelectorAll('#sweep .line').length === 40 && document.querySelectorAll('#which details').length === 3")
	p.run("document.getElementById('sweep').scrollIntoView()")
	p.shot("forty")
}

// Where there is nothing to show, the pages say so.
func TestNothingToShow(t *testing.T) {
	home := t.TempDir()
	p := browse(t, serve(t, home))
	p.until("document.getElementById('nothing').innerText.includes('drun run RECIPE.star') && document.getElementById('all').disabled")
	const sections = "[...document.querySelectorAll('main > *')].filter(e => e.id !== 'fault' && e.checkVisibility()).length"
	for path, fault := range map[string]string{"/run.html?tab=all&id=7": "no history in", "/compare.html?run=7": "no history in", "/compare.html": "no runs are chosen"} {
		p.open(path)
		p.until("document.getElementById('fault').innerText.includes(" + quote(fault) + ")")
		if n := eval[int](p, sections); n != 0 {
			t.Errorf("%s shows %d empty sections", path, n)
		}
	}
	if err := start(t, home, "def main():\n    pass\n", "--name", "bare", "-n", "2").Wait(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/run.html?tab=all&run=7", "/run.html?7"} { // not another run's page
		p.open(path)
		p.until("document.getElementById('fault').innerText.includes('there is no run')")
	}
	p.open("/?where=id+%3E+7")
	p.until("document.getElementById('nothing').innerText === 'No run is as Where says.'")
	p.open("/")
	p.until("document.querySelectorAll('#rows tr').length === 1 && document.getElementById('nothing').hidden && document.querySelector('#rows th').title === 'bare'")
	p.open("/run.html?tab=all&id=bare")
	p.until("['params', 'metrics', 'checkpoints'].every(id => document.getElementById(id).closest('section').hidden) && document.querySelector('#charts .controls').hidden")
	p.until("document.querySelector('#charts p').innerText === 'no metrics were logged'")
	if n := eval[int](p, "document.querySelectorAll('#system canvas').length"); n != 0 {
		t.Errorf("%d charts of what the ranks used have no line", n)
	}
	p.open("/compare.html?run=bare")
	p.until("document.querySelector('#table caption')?.innerText.startsWith('one run alone')")
	p.shot("bare")
}

// A run that failed before its parameters were declared shows those that the command gave.
func TestGivenParameters(t *testing.T) {
	home := t.TempDir()
	_ = start(t, home, "x = 1 // 0\nP = run.params(lr = 0.1, name = '', api_key = '')\n\ndef main():\n    pass\n", "-p", "lr=0.3", "--param=name=a=b", "-pepochs=2", "-p", "api_key=hunter2").Wait()
	p := browse(t, serve(t, home))
	p.open("/run.html?tab=all&id=1")
	p.until("document.getElementById('paramsnote').innerText.startsWith('As the command gave them')")
	if got := p.text("#params tbody"); got != "lr\t0.3\nname\ta=b\nepochs\t2\napi_key\t[redacted]" {
		t.Errorf("the parameters: %q", got)
	}
}

// What several ranks logged and saved is explained and reached; what is missing stands where the numbers do; a lone chart has the page's width.
func TestRanksOnOnePage(t *testing.T) {
	home := t.TempDir()
	if err := start(t, home, `
def main():
    for i in range(10):
        run.log(loss = 1.0 + i + dist.rank(), step = i, all_ranks = True)
    checkpoint.save({"w": tensor.ones(3) * (1.0 + dist.rank())}, 9)
    run.table("cells", [{"n": 1, "v": 2.5e-9}, {"v": 1.0}])
    for i in range(40):
        print("line", i)
`, "-n", "2").Wait(); err != nil {
		t.Fatal(err)
	}
	p := browse(t, serve(t, home))
	p.open("/run.html?tab=all&id=1")
	p.until("document.documentElement.dataset.ready !== undefined && document.querySelector('#charts .u-wrap')")
	if wide := eval[[]float64](p, "['.u-wrap', '.chartset'].map(s => document.querySelector('#charts ' + s).clientWidth)"); wide[0] < wide[1]-60 {
		t.Errorf("the lone chart is %v of %v wide", wide[0], wide[1])
	}
	if note := p.text("#metricsnote"); !strings.Contains(note, "of whichever rank") {
		t.Errorf("the metrics' note: %q", note)
	}
	const link = "document.querySelector('#checkpoints a')"
	p.until(link + ".innerText === 'safetensors of rank 0'")
	p.run("document.getElementById('ofrank').value = '1'; document.getElementById('ofrank').dispatchEvent(new Event('change'))")
	p.until(link + ".innerText === 'safetensors of rank 1'")
	p.until("fetch(" + link + ".href).then(r => r.arrayBuffer()).then(b => window.last = new Float32Array(b.slice(-4))[0]) && window.last === 2")
	f := look(p, "cells")
	p.until(f + ".querySelector('.kind').innerText === 'table'")
	p.run(f + ".querySelectorAll('thead button')[1].click()")
	p.until(f + ".querySelectorAll('tbody tr').length === 2")
	if cells := eval[[]string](p, "[...("+f+").querySelectorAll('td, thead th')].map(c => c.innerText + ' ' + getComputedStyle(c).textAlign + ' ' + getComputedStyle(c).whiteSpace)"); fmt.Sprint(cells) != "[n left nowrap v ▲ right nowrap 2.5e-9 right nowrap 1 right nowrap]" {
		t.Errorf("the cells: %v", cells)
	}
	// The log shows whole lines.
	for _, end := range []string{"0", "l.scrollHeight"} {
		if cut := eval[int](p, "(l => { l.scrollTop = "+end+"; const b = l.getBoundingClientRect(); return [...l.children].filter(c => { const r = c.getBoundingClientRect(); return r.top < b.top - 1 && r.bottom > b.top + 3 || r.top < b.bottom - 3 && r.bottom > b.bottom + 1; }).length; })(document.getElementById('log'))"); cut != 0 {
			t.Errorf("%d lines of the log are cut, scrolled to %s", cut, end)
		}
	}
}

// What ranks and machines used is drawn as curves: rates between samples, a line for each rank and for each node.
func TestUsageCharts(t *testing.T) {
	home := t.TempDir()
	if err := start(t, home, "def main():\n    pass\n", "-n", "2").Wait(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", filepath.Join(home, "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"DELETE FROM rank_usage",
		"UPDATE ranks SET node = rank + 3",
		`INSERT INTO rank_usage (run, attempt, rank, time, cpu, resident, peak, collectives, waiting, machine_cpu, machine_memory, machine_sent, machine_received)
			SELECT 1, 0, rank, 1700000000000000 + 5000000 * at, 5 * at, 1 << 20, 1 << 20, 0, 0, 10 * at, (2 + rank) << 30, 40000000 * at, 5000000 * at
			FROM (SELECT 0 AS rank UNION SELECT 1), (SELECT 0 AS at UNION SELECT 1 UNION SELECT 2)`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	p := browse(t, serve(t, home))
	p.open("/run.html?tab=all&id=1")
	p.until("document.querySelectorAll('#system canvas').length === 7")
	if got := p.text("#system figure:nth-child(4) figcaption"); got != "all processes of the machine: cores in use" {
		t.Errorf("the fourth chart is %q", got)
	}
	if got := eval[string](p, "JSON.stringify(system.map(c => [c.series[2].label, ...c.data[2]]))"); got != `[["rank 1",1,1],["rank 1",1,1,1],["rank 1",0,0],["node 4",2,2],["node 4",3,3,3],["node 4",8,8],["node 4",1,1]]` {
		t.Errorf("the lines are %s", got)
	}
	p.shot("usage")
}

// The usual columns are what many of the newest runs have.
func TestUsualNames(t *testing.T) {
	home := t.TempDir()
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		params := []history.Param{{Name: "lr", Value: float64(i)}, {Name: "alike", Value: 1.0}}
		if i == 8 {
			params = append(params, history.Param{Name: "a_rare", Value: 1.0})
		}
		write(t, db, fmt.Sprint("run-", i), params, everyStep, []float64{1})
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	_, body, _ := get(t, c, base+"/api/v1/names?recent=1")
	if !strings.Contains(body, `"recent_params":["lr","alike"],"recent_metrics":["loss"]`) {
		t.Error(body)
	}
}

func quote(text string) string { return "`" + strings.ReplaceAll(text, "`", "\\`") + "`" }

// Exported pages show the same from files alone.
func TestExport(t *testing.T) {
	home, dir := t.TempDir(), filepath.Join(t.TempDir(), "pages")
	if err := historytest.Fill(home, historytest.Shape{Runs: 5, Params: 3, Metrics: 2, Points: 20}); err != nil {
		t.Fatal(err)
	}
	s := New(home)
	defer s.Close()
	if n, err := s.Export(dir, []string{"1", "run-1", "last"}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.Export(filepath.Join(t.TempDir(), "all"), []string{}); n != 5 || err != nil { // as without names on the command line
		t.Errorf("%d runs of 5: %v", n, err)
	}
	if _, err := s.Export(dir, nil); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a folder with files is overwritten: %v", err)
	}
	p := browse(t, "file://"+dir+"/index.html?view=table")
	p.until("document.querySelectorAll('#rows tr').length === 3 && !document.getElementById('offline').hidden")
	p.run("document.querySelector('#heads button[title=id]').click()")
	p.until("document.querySelector('#rows th').innerText === 'run-0'")
	p.run("document.querySelectorAll('#rows input')[0].click(); document.querySelectorAll('#rows input')[1].click(); document.getElementById('compare').click()")
	p.until("document.querySelectorAll('#charts canvas').length === 2 && [...document.querySelectorAll('#table th')].some(e => e.innerText === 'parameter')")
	p.open("/run.html?tab=all&id=run-1")
	p.until("document.querySelectorAll('#charts canvas').length === 2 && document.querySelector('#log').innerText.includes('learning rate') && document.querySelector('#sources').innerText.includes('# Recipe 1.')")
	p.open("/run.html?tab=all&id=run-2")
	p.until("document.getElementById('fault').innerText.includes('not exported')")
}

// What tells runs apart can be seen: the ends of long names, and the columns of the parameters that differ.
func TestRunsThatAreAlike(t *testing.T) {
	home := t.TempDir()
	const recipe = "params = run.params(arms = 3, batch = 32, epochs = 1, width = 16, zeal = 0.5)\ndef main():\n    run.log(loss = params.zeal)\n"
	const long = "a-network-with-a-name-that-explains-all-that-there-is-to-it-but-for-its-end-which-is-"
	for _, zeal := range []string{"0.25", "0.75"} {
		if err := start(t, home, recipe, "--name", long+zeal, "-p", "zeal="+zeal).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	p := browse(t, serve(t, home))
	p.do(chromedp.EmulateViewport(800, 600))
	p.open("/?view=table")
	p.until("document.querySelectorAll('#rows tr').length === 2")
	if got := eval[string](p, "document.getElementById('columns').value"); !strings.HasPrefix(got, "params.zeal, params.arms, params.batch, ") {
		t.Errorf("the columns are %s", got)
	}
	// The end of the name is in its cell, whole; and the cell has all of it for who listens.
	for i, zeal := range []string{"0.75", "0.25"} {
		row := fmt.Sprintf("document.querySelectorAll('#rows tr')[%d].querySelector('th')", i)
		if got := eval[string](p, row+".textContent"); got != long+zeal {
			t.Errorf("row %d is called %q", i, got)
		}
		if !eval[bool](p, "(th => { const end = th.querySelector('a span:last-child').getBoundingClientRect(), cell = th.getBoundingClientRect(); return end.right <= cell.right + 1 && end.width > 60 && cell.right < innerWidth; })("+row+")") {
			t.Errorf("the end of %s cannot be seen", zeal)
		}
	}
	p.shot("alike")

	// What another run differs in: runs are offered, and what was shown goes where there is no answer.
	p.open("/run.html?tab=all&id=1")
	p.until("document.documentElement.dataset.ready !== undefined")
	if got := p.text("#skipped"); got != "nothing was printed" {
		t.Errorf("the log says %q", got)
	}
	p.do(chromedp.Click("#other"))
	p.until("document.querySelectorAll('#others option').length === 1 && document.querySelector('#others option').value === '2'")
	p.do(chromedp.SendKeys("#other", "2"), chromedp.KeyEvent(kb.Enter))
	p.until("document.getElementById('diff').innerText === 'the files are the same'")
	p.do(chromedp.SendKeys("#other", "2"), chromedp.KeyEvent(kb.Enter))
	p.until("document.getElementById('difffault').innerText.includes('there is no run') && document.getElementById('diff').hidden")
}
