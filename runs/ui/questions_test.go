package ui

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// The five questions of the document are answered by as many clicks as it says.
func TestQuestions(t *testing.T) {
	home := learned(t, 6)
	if err := start(t, home, "def main():\n    run.log(loss = 1.0)\n    print('rank', dist.rank(), 'was here')\n    dist.barrier()\n    fail('too large')\n", "-n", "4", "--name", "failing").Wait(); err == nil {
		t.Fatal("the run should fail")
	}
	p := browse(t, serve(t, home))
	table := rows(t, document(t, "## Five questions"), "| question | clicks | way | MLflow | W&B |")
	if len(table) != 5 {
		t.Fatal(table)
	}
	const failing = "[...document.querySelectorAll('#rows a')].find(a => a.innerText === 'failing')"
	for i, answer := range []func(click func(element string)){
		func(click func(string)) {
			click("[...document.querySelectorAll('header a')].find(a => a.innerText === 'Sweeps')")
			click("document.querySelector('#sweeps a')")
			p.until("document.querySelector('#best tbody tr')?.innerText.startsWith('run-2')")
		},
		func(click func(string)) {
			click("[...document.querySelectorAll('header a')].find(a => a.innerText === 'Sweeps')")
			click("document.querySelector('#sweeps a')")
			p.until("document.querySelector('#importance tbody tr')?.innerText.startsWith('lr')")
		},
		func(click func(string)) {
			click(failing)
			p.until("document.getElementById('error')?.checkVisibility() && document.getElementById('error').innerText.includes('too large')")
		},
		func(click func(string)) {
			click(failing)
			click("[...document.querySelectorAll('.tabs a')].find(a => a.innerText === 'Log')")
			p.until("document.querySelector('#rank option[value=\"3\"]')")
			click("document.getElementById('rank')")
			p.do(chromedp.SetValue("#rank", "3"))
			p.until("document.getElementById('log').innerText === '[3] rank 3 was here'")
		},
		func(click func(string)) {
			p.until("document.querySelector('#charts figure canvas')") // of the first
			p.run("HTMLAnchorElement.prototype.click = function() { window.saved = this.download; }")
			click("document.querySelector('#charts button[title=\"save as a picture\"]')")
			p.until("window.saved")
		},
	} {
		p.open("/")
		clicks := 0
		answer(func(element string) {
			t.Helper()
			p.until(element)
			p.run("(" + element + ").dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }))")
			clicks++
		})
		if fmt.Sprint(clicks) != table[i][1] {
			t.Errorf("%s takes %d clicks, and docs/ui.md says %s", table[i][0], clicks, table[i][1])
		}
	}
}
