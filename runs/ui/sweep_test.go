package ui

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"drun/history"
)

// evil is HTML, long, and has characters that reorder text.
const evil = "<script>document.title='broken into'</script><img src=x onerror=alert(1)>\u202e\x1b]0;x\x07 and long, long, long"

// harmless fails the test if the page has an element that a recipe made, has run its script, or has characters that control
// the text.
func harmless(p *page) {
	p.Helper()
	if found := eval[string](p, "[...document.querySelectorAll('script:not([src]), img:not(.kept img), b, [onerror], iframe')].map(e => e.outerHTML).join()"); found != "" {
		p.Errorf("elements that a recipe made: %s", found)
	}
	if strings.HasPrefix(eval[string](p, "document.title"), "broken into") {
		p.Error("a script of a recipe has run")
	}
	if found := eval[string](p, `[...document.querySelectorAll("*")].filter(e => /[\u001b\u202e\u0007]/.test([...e.childNodes].filter(n => n.nodeType === Node.TEXT_NODE).map(n => n.data).join() + e.title + e.label + e.ariaLabel + e.ariaValueText))
		.map(e => e.outerHTML.slice(0, 200)).join("\n")`); found != "" {
		p.Errorf("characters that control the text: %q", found)
	}
}

func TestSweepPage(t *testing.T) {
	home := t.TempDir()
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 24 {
		params := []history.Param{{Name: "lr", Value: math.Pow(10, -1-float64(i%4))}, {Name: "same", Value: 1.5}, {Name: "hidden", Value: int64(32 << (i % 3))}, {Name: "act", Value: []string{"relu", "gelu"}[i%2]}}
		if i%8 == 7 {
			params = params[:2]
		}
		if i >= 20 {
			params = append(params, history.Param{Name: evil, Value: evil})
		}
		values := []float64{2, 1 / float64(i+1)}
		if i == 5 {
			values[1] = math.NaN()
		}
		write(t, db, fmt.Sprint("run-", i, strings.Repeat("-long", 10)), params, everyStep, values)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	p := browse(t, serve(t, home))
	p.open("/")
	p.until("document.querySelectorAll('#rows tr').length === 24")
	p.do(chromedp.Click("#all"))
	p.until("document.getElementById('compare').innerText === 'Compare 24 selected'")
	p.do(chromedp.Click("#compare"))
	p.until("location.pathname === '/compare.html' && !document.getElementById('sweep').hidden && document.querySelectorAll('#sweep .line').length === 24 && document.querySelectorAll('#sweep .dot').length === 24")
	names := func() string { return p.text("#sweep .chips span") }
	// What most runs have comes first, then what has most values; what few have is left out, until it is asked for.
	if got := names(); got != "params.lr\nparams.hidden\nparams.act\nmetrics.loss.last" {
		t.Errorf("the axes: %s", got)
	}
	if x := eval[string](p, "sweep.xy.x"); x != "params.lr" { // the loss of these runs follows neither; lr has the values of all
		t.Errorf("across is %s", x)
	}
	if r := eval[[]float64](p, "[together([0, 0.5, 1, without], [1, 0.6, 0, 0.5]), together([0, 1, 0, 1], [0, 0, 1, 1]), together([0.5, 0.5], [0, 1])]"); math.Abs(r[0]-0.99) > 0.01 || r[1] != 0 || r[2] != 0 {
		t.Errorf("together: %v", r)
	}
	p.run("view.group = 'params.act'; sweep.draw()")
	if got := names(); got != "params.act\nparams.lr\nparams.hidden\nmetrics.loss.last" {
		t.Errorf("the axes of groups: %s", got)
	}
	p.run("view.group = ''; sweep.add.value = [...sweep.add.options].find(o => o.value.includes('<script>')).value; sweep.add.dispatchEvent(new Event('change'))")
	p.until("document.querySelectorAll('#sweep .grip').length === 5")
	if text := p.text("#sweep .tick"); !strings.Contains(text, "0.001\n0.01\n0.1") && !strings.Contains(eval[string](p, "[...document.querySelectorAll('#sweep .tick')].map(e => e.textContent).join(' ')"), "0.001") {
		t.Errorf("the axis of lr is not logarithmic: %s", text)
	}
	scales := "sweep.scales.get('params.lr')"
	if kind := eval[string](p, scales+".kind"); kind != "log" {
		t.Errorf("lr has the scale %s", kind)
	}
	p.run("document.getElementById('sweep').scrollIntoView()")
	p.shot("sweep")
	harmless(p)

	// A range by the keyboard: lr from 0.01 up.
	focus := func(key string) {
		p.run("document.querySelector('[data-key=\"" + key + "\"]').focus()")
	}
	count := "document.querySelector('#sweep [role=status]:not(.told)').innerText"
	focus("lower params.lr")
	p.do(chromedp.KeyEvent(kb.ArrowUp), chromedp.KeyEvent(kb.ArrowUp))
	p.until(count + " === '12 of 24 runs' && document.activeElement.getAttribute('aria-valuetext') === '0.01' && document.querySelectorAll('#sweep .line:not(.out)').length === 12 && document.querySelectorAll('#sweep .dot:not(.out)').length === 12")
	focus("upper params.lr")
	p.do(chromedp.KeyEvent(kb.ArrowDown))
	p.until(count + " === '6 of 24 runs'")
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(count + " === '24 runs'")
	// Runs without a value are below the axis, and can be left out.
	focus("lower params.hidden")
	p.do(chromedp.KeyEvent(kb.ArrowUp))
	p.until(count + " === '21 of 24 runs'")
	// By the mouse: the upper half of act, which is relu, besides.
	box := eval[[]float64](p, "(r => [r.left + r.width / 2, r.top, r.height])([...document.querySelectorAll('#sweep .grip')][2].getBoundingClientRect())")
	p.do(chromedp.MouseEvent("mousePressed", box[0], box[1]+2, chromedp.Button("left")), chromedp.MouseEvent("mouseMoved", box[0], box[1]+box[2]/3, chromedp.Button("left")), chromedp.MouseEvent("mouseReleased", box[0], box[1]+box[2]/3, chromedp.Button("left")))
	p.until(count + " !== '21 of 24 runs' && !" + count + ".startsWith('24')")
	p.shot("sweep-range")
	chosen := eval[[]int](p, "sweep.chosen().map(i => sweep.runs[i].id)")
	// The table has the runs that are selected, and can be sorted.
	p.run("document.querySelector('#sweep details').open = true")
	p.until(fmt.Sprintf("document.querySelectorAll('#sweep details tbody tr').length === %d", len(chosen)))
	p.run("document.querySelector('#sweep details thead th:last-child button').click()")
	p.until("document.querySelector('#sweep details thead th:last-child').getAttribute('aria-sort') === 'ascending'")
	values := eval[[]float64](p, "[...document.querySelectorAll('#sweep details tbody tr')].map(r => Number(r.lastChild.innerText)).filter(v => v === v)")
	for i := 1; i < len(values); i++ {
		if values[i] < values[i-1] {
			t.Errorf("not sorted: %v", values)
		}
	}
	// The scatter plot by the keyboard.
	p.run("document.querySelectorAll('.sweep')[1].focus()")
	p.do(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	p.until("document.querySelectorAll('#sweep .dot.marked').length === 1 && document.querySelectorAll('#sweep .line.marked').length === 1 && document.querySelector('.told').innerText.startsWith('run ')")
	// An axis is removed and another added, which the address keeps.
	p.run("document.querySelectorAll('#sweep .chips button')[2].click()")
	p.run("sweep.add.value = 'metrics.loss.max'; sweep.add.dispatchEvent(new Event('change'))")
	p.until("location.search.includes('axes=metrics.loss.max') && document.querySelectorAll('#sweep .grip').length === 5")
	p.open(eval[string](p, "location.pathname + location.search"))
	p.until("document.querySelectorAll('#sweep .grip').length === 5")
	if got := names(); !strings.Contains(got, "metrics.loss.max") {
		t.Errorf("the address keeps other axes: %s", got)
	}
	// Only the selected runs.
	focus("lower params.lr")
	p.do(chromedp.KeyEvent(kb.End))
	p.until(count + " === '6 of 24 runs'")
	p.run("[...document.querySelectorAll('#sweep button')].find(b => b.innerText === 'Compare only these').click()")
	p.until("document.querySelectorAll('#which li').length === 6 && document.querySelectorAll('#sweep .line').length === 6")
	harmless(p)
	p.open("/compare.html?run=1&run=2")
	p.until("document.querySelectorAll('#charts canvas').length === 1 && document.getElementById('sweep').hidden")
}
