package ui

import (
	"os"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Nothing that axe-core finds is wrong with any page, in either theme and on a narrow screen. make bin/axe installs it.
func TestAccessible(t *testing.T) {
	axe, err := os.ReadFile("../../bin/axe/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Skip("axe-core is not installed: make bin/axe")
	}
	home := learned(t, 24)
	if err := start(t, home, "def main():\n    for i in range(3):\n        run.log(step = i, loss = 1.0)\n        checkpoint.save({}, step = i)\n    print('said')\n    run.image('picture', tensor.zeros([4, 4]))\n    run.table('table', [{'n': 1}])\n    run.histogram('weights', tensor.zeros([9]), step = 1)\n    run.tag('tagged')\n    fail('at the end')\n", "-n", "2").Wait(); err == nil {
		t.Fatal("the run should fail")
	}
	p := browseFor(t, serveWriting(t, home), 6*time.Minute)
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1500}, {"dark", 1500}, {"light", 420}} {
		params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}}}
		if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, params); err != nil {
			t.Fatal(err)
		}
		p.do(chromedp.EmulateViewport(look.width, 900))
		for path, there := range map[string]string{
			"/": "#charts canvas", "/?view=table&group=params.act": "#rows tr.group", "/?where=nobody": "#nothing:not([hidden])", "/run.html?id=25&tab=all": "html[data-ready] #sources .src", "/run.html?id=25&tab=ranks": "#usage td",
			"/compare.html?run=1&run=2": "#table td", "/compare.html?run=1&run=2&run=3": "#sweep .line", "/sweep.html": "#sweeps td", "/sweep.html?name=sweep-one": "#importance td",
		} {
			p.open(path)
			p.until("document.querySelector(" + quote(there) + ")")
			p.run(string(axe))
			found := eval[[]string](p, "axe.run().then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + n.html.slice(0, 200) + ' ' + n.failureSummary)))", chromedp.EvalAwaitPromise)
			for _, violation := range found {
				t.Errorf("%s, %s, %d pixels: %s", path, look.scheme, look.width, violation)
			}
		}
	}
}
