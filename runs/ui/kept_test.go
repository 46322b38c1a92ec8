package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// keeps is a recipe that keeps something of each kind, some of it under hostile names.
const keeps = `
X = "<script>document.title='broken into'</script><img src=x onerror=alert(1)>\x1b]0;x\x07\u202egnp"
NAN = float("nan")

def main():
    for i in range(300):
        run.histogram("weights " + X if i == 7 else "weights", tensor.randn([500]) * (1.0 + i / 100.0) + i / 50.0, step = i * 10)
    run.histogram("constant", tensor.ones([7]))
    run.histogram("odd", tensor.tensor([NAN, float("inf"), NAN]))
    for i in range(5):
        run.image("picture " + X if i == 3 else "picture", tensor.full([8, 4 + i], i / 5.0), step = i)
    run.table("results " + X, [{"name": X, "n": (1 << 60) + k, "loss": 1.0 / (k + 1) if k != 3 else NAN, X: k == 2} for k in range(1200)])
    run.table("empty", [])
    run.artifact("notes", "first line\n" + X + "\nlast line")
    run.artifact("matrix", tensor.tensor([[1.5, -2.0, NAN], [0.25, 3.0, 4.0]]))
    run.artifact("whole", tensor.tensor([1, -2, 9007199254740993], dtype = "int64"))
    run.artifact("halves", tensor.tensor([1.5, -0.25], dtype = "float16"))
    run.artifact("brain", tensor.tensor([1.5, -0.25], dtype = "bfloat16"))
    run.artifact("flags", tensor.tensor([True, False]))
    run.artifact("scalar", tensor.tensor(2.5))
    run.artifact("none", tensor.zeros([0, 3]))
    run.artifact("deep", tensor.arange(24).reshape([2, 3, 4]))
    run.artifact("raw " + X, b"\x00\x01")
`

// kept runs the recipe, and returns the home of its history.
func kept(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	cmd := start(t, home, keeps)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, cmd.Stderr.(*bytes.Buffer))
	}
	return home
}

// look scrolls to what was kept under a name, and waits until it is shown; it returns an expression for its element.
func look(p *page, name string) string {
	p.Helper()
	figure := "[...document.querySelectorAll('#views figure')].find(f => f.kept.name === " + quote(name) + ")"
	p.until(figure)
	p.run(figure + ".scrollIntoView()")
	p.until(figure + ".querySelector('.kept-body').childElementCount > 0")
	return figure
}

func TestKept(t *testing.T) {
	checkKept(t, browse(t, serve(t, kept(t))), "/run.html?tab=all&id=1")
}

// checkKept looks at all that the recipe kept.
func checkKept(t *testing.T, p *page, path string) {
	p.open(path)
	p.until("document.documentElement.dataset.ready !== undefined && document.querySelectorAll('#views figure').length === 17")
	// A histogram of each step: the newest first, then another by the keyboard.
	f := look(p, "weights")
	p.until(f + ".querySelectorAll('.bars rect').length === 64 && " + f + ".querySelector('small').innerText.startsWith('step 2990, 500 values, 200 of 299 steps')")
	p.shot("kept-histogram")
	p.run(f + ".querySelector('input').focus()")
	p.do(chromedp.KeyEvent(kb.Home))
	p.until(f + ".querySelector('small').innerText.startsWith('step 0, 500 values')")
	p.run(f + ".querySelector('details').open = true")
	p.until(f + ".querySelectorAll('details tbody tr').length === 64")
	if sum := eval[int](p, "[...("+f+").querySelectorAll('details tbody tr')].reduce((s, r) => s + Number(r.lastChild.innerText), 0)"); sum != 500 {
		t.Errorf("the counts are %d values", sum)
	}
	// The heat map is darkest about the mean, which rises: its middle row is empty in no column, and the top of the first is.
	dark := eval[[]int](p, "(c => { const g = c.getContext('2d'), at = (x, y) => Math.max(...g.getImageData(Math.floor(x * c.width), Math.floor(y * c.height), 1, 8).data.filter((_, i) => i % 4 === 3)); return [at(0.03, 0.05), at(0.97, 0.05), at(0.9, 0.45), at(0.03, 0.55)]; })(("+f+").querySelector('canvas'))")
	if dark[0] != 0 || dark[2] < 60 || dark[3] < 20 {
		t.Errorf("the heat map is %v", dark)
	}
	f = look(p, "odd")
	if text := eval[string](p, f+".innerText"); !strings.Contains(text, "2 NaN, 1 infinite") || !strings.Contains(text, "no finite values") {
		t.Errorf("nothing finite: %q", text)
	}
	f = look(p, "constant")
	p.until(f + ".innerText.includes('7 values')")

	// Images by step.
	f = look(p, "picture")
	p.until(f + ".querySelector('img').naturalWidth === 8")
	p.run(f + ".querySelector('input').focus()")
	p.do(chromedp.KeyEvent(kb.ArrowLeft))
	p.until(f + ".querySelector('img').naturalWidth === 6 && " + f + ".querySelector('small').innerText.startsWith('step 2, 3 of 4')")
	p.do(chromedp.KeyEvent(kb.Home))
	p.until(f + ".querySelector('img').naturalWidth === 4 && " + f + ".querySelector('input').getAttribute('aria-valuetext') === 'step 0'")

	// A table, sorted and filtered; whole numbers are exact.
	figure := "[...document.querySelectorAll('#views figure')].find(f => f.kept.kind === 'table' && f.kept.name.startsWith('results'))"
	p.run(figure + ".scrollIntoView()")
	p.until(figure + ".querySelectorAll('tbody tr').length === 500")
	head := func(k int) string { return fmt.Sprintf("%s.querySelectorAll('thead button')[%d]", figure, k) }
	p.run(head(1) + ".click()")
	p.run(head(1) + ".click()")
	p.until(figure + ".querySelector('tbody tr').cells[1].innerText === '1152921504606848175'")
	p.run(head(2) + ".click()")
	p.until(figure + ".querySelector('tbody tr').cells[2].innerText === '0.000833333'")
	p.run(figure + ".querySelector('tfoot button').click(); " + figure + ".querySelector('tfoot button').click()")
	p.until(figure + ".querySelectorAll('tbody tr').length === 1200 && " + figure + ".querySelector('tbody tr:last-child').cells[2].innerText === 'NaN'")
	p.run(figure + ".querySelector('.controls input').value = '606848175'; " + figure + ".querySelector('.controls input').dispatchEvent(new Event('input'))")
	p.until(figure + ".querySelectorAll('tbody tr').length === 1 && " + figure + ".querySelector('[role=status]').innerText === '1 of 1200 rows'")
	p.shot("kept-table")
	look(p, "empty")

	// Text and tensors.
	f = look(p, "notes")
	if text := eval[string](p, f+".querySelector('pre').innerText"); !strings.HasPrefix(text, "first line\n<script>") || !strings.HasSuffix(text, "last line") {
		t.Errorf("the text: %q", text)
	}
	for name, want := range map[string][]string{
		"matrix": {"(2, 3)", "F32", "-2", "1.35", "NaN\t1", "0\t1.5\t-2\tNaN", "1\t0.25\t3\t4"}, "whole": {"(3,)", "I64", "9007199254740993"},
		"halves": {"F16", "0\t1.5", "1\t-0.25"}, "brain": {"BF16", "0\t1.5", "1\t-0.25"}, "flags": {"BOOL", "true", "false"}, "scalar": {"()", "2.5"},
		"none": {"(0, 3)"}, "deep": {"(2, 3, 4)", "0, 0\t0\t1\t2\t3", "1, 2\t20\t21\t22\t23"},
	} {
		text := eval[string](p, look(p, name)+".innerText")
		for _, w := range want {
			if !strings.Contains(strings.ReplaceAll(text, "\n", "\t"), w) {
				t.Errorf("the tensor %s lacks %q: %q", name, w, text)
			}
		}
	}
	p.shot("kept-tensor")
	// All of them as files.
	p.run("document.querySelector('#kept > details').open = true")
	if n := eval[int](p, "document.querySelectorAll('#artifacts tbody a').length"); n != 319 {
		t.Errorf("%d artifacts are listed", n)
	}
	if fault := p.text("#views [role=alert]"); strings.TrimSpace(fault) != "" {
		t.Errorf("faults: %s", fault)
	}
	harmless(p)
}

func TestHistograms(t *testing.T) {
	c, base := client(t, serve(t, kept(t)))
	ask := func(values url.Values) (status int, h histograms) {
		t.Helper()
		status, body, _ := get(t, c, base+"/api/v1/runs/1/histograms?"+values.Encode())
		if err := json.Unmarshal([]byte(body), &h); err != nil {
			t.Fatal(err)
		}
		return status, h
	}
	steps := func(h histograms) (list []int64) {
		for _, one := range h.Histograms {
			list = append(list, *one.Step)
		}
		return list
	}
	if status, h := ask(url.Values{"name": {"weights"}, "points": {"4"}}); status != 200 || h.Kept != 299 || fmt.Sprint(steps(h)) != "[0 1000 1990 2990]" || len(h.Histograms[0].Edges) != 65 || len(h.Histograms[0].Counts) != 64 {
		t.Errorf("%d, of %d: %v", status, h.Kept, steps(h))
	}
	if _, h := ask(url.Values{"name": {"odd"}}); len(h.Histograms) != 1 || h.Histograms[0].Step != nil || h.Histograms[0].NaN != 2 || h.Histograms[0].Inf != 1 {
		t.Errorf("%+v", h)
	}
	for want, values := range map[int]url.Values{400: {"points": {"4"}}, 404: {"name": {"picture"}}} {
		if status, _ := ask(values); status != want {
			t.Errorf("%v: %d, want %d", values, status, want)
		}
	}
	if status, _ := ask(url.Values{"name": {"weights"}, "points": {"1"}}); status != 400 {
		t.Errorf("one point: %d", status)
	}
}
