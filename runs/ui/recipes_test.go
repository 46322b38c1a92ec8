package ui

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/history"
	"drun/internal/programs"
	"drun/internal/testlimit"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// installed gives the folder of drun, its plugin host and, in plugins beneath, the example backend.
func installed(t *testing.T) string {
	t.Helper()
	drun := ""
	for _, name := range []string{"drun-plugin-host", "drun-backend-example", "drun"} {
		var err error
		if drun, err = programs.Path(name); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Dir(drun)
}

// start runs a recipe.
func start(t *testing.T, home, recipe string, args ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(home, "recipe.star")
	if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(installed(t), "drun"), append([]string{"run", file, "--home", home}, args...)...)
	cmd.Stdout, cmd.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// startUI starts drun ui, and returns the address that it prints, and what prints the next.
func startUI(t *testing.T, home string) (cmd *exec.Cmd, address string, next func() string) {
	t.Helper()
	cmd = exec.Command(filepath.Join(installed(t), "drun"), "ui", "--home", home)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	notes, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	line := func(from *bufio.Reader) string {
		t.Helper()
		text, err := from.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(text)
	}
	others := bufio.NewReader(notes)
	return cmd, line(bufio.NewReader(out)), func() string {
		t.Helper()
		return strings.TrimPrefix(line(others), "for another browser: ")
	}
}

// The program ends in a clean way on either signal, although a page is open.
func TestSignals(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd, address, _ := startUI(t, t.TempDir())
		c, base := client(t, address)
		resp, err := c.Get(base + "/api/v1/events") // stays open
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || time.Since(start) > 5*time.Second {
			t.Errorf("%v: %v after %v", signal, err, time.Since(start))
		}
		resp.Body.Close()
	}
}

// hostile has HTML, control characters and characters that reorder text in all that a recipe can name.
const hostile = `
X = "<script>document.title='broken into'</script><img src=x onerror=alert(1)>&amp;\"'\x1b]0;x\x07\u202egnp\n2nd"

params = run.params(text = X, lr = 0.1)

def main():
    for i in range(5):
        run.log(step = i, **{X: float(i), "a/b <b>bold</b>": float(i), "nan": float("nan") if i == 3 else 1.0})
    run.tag(X)
    run.note(X)
    print(X)
    run.artifact(X[:100], "<script>document.title='broken into'</script>")
    run.image("<b>picture</b>", tensor.zeros([4, 4]))
    checkpoint.save({"w<script>": tensor.zeros([3])}, step = 4)
    fail(X)
`

func TestHostileRecipe(t *testing.T) {
	home := t.TempDir()
	cmd := start(t, home, hostile)
	if err := cmd.Wait(); err == nil {
		t.Fatal("the recipe should fail")
	}
	if text := cmd.Stderr.(*bytes.Buffer).String(); !strings.Contains(text, "<script>") || !strings.Contains(text, "fail") {
		t.Fatalf("the recipe failed otherwise: %s", text)
	}
	db, err := history.Open(home)
	if err == nil {
		err = errors.Join(db.AddReplay(1, history.Replay{Host: "<b>", Version: "1\x1b]0;x\x07", Result: "<script>document.title='broken into'</script>"}), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	p := browse(t, serve(t, home))
	p.open("/?view=table")
	p.until("document.querySelectorAll('#rows tr').length === 1")
	safe := func(page string) {
		t.Helper()
		if found := eval[string](p, "[...document.querySelectorAll('script:not([src]), img:not(.kept img), b, [onerror], iframe')].map(e => e.outerHTML).join()"); found != "" {
			t.Errorf("%s has elements that a recipe made: %s", page, found)
		}
		if strings.Contains(eval[string](p, "document.title"), "broken into") {
			t.Errorf("%s has run a script of the recipe", page)
		}
		if text := eval[string](p, "document.body.innerText"); strings.ContainsAny(text, "\x1b\u202e\x07") {
			t.Errorf("%s shows characters that control the text", page)
		}
	}
	safe("runs")
	if text := p.text("#rows"); !strings.Contains(text, "<script>") {
		t.Errorf("the tag or a parameter is not shown as text: %s", text)
	}
	p.open("/run.html?tab=all&id=1")
	p.until("(document.querySelector('#charts').scrollIntoView(), document.querySelectorAll('#charts canvas').length >= 3)")
	p.until("document.documentElement.dataset.ready !== undefined && document.querySelectorAll('#log div').length > 0 && document.querySelectorAll('#checkpoints a').length === 1 && (document.querySelector('#kept details:last-child').open = true) && (document.querySelector('#views')?.scrollIntoView(), document.querySelector('#views img')?.naturalWidth === 4) && document.querySelector('#views pre')")
	safe("run")
	p.shot("hostile")
	for _, place := range []string{"#about", "#error", "#params", "#metrics", "#log", "#sources", "#charts", "#artifacts", "#views", "#views pre", "#replays"} {
		if text := p.text(place); !strings.Contains(text, "<script>") && !strings.Contains(text, "<b>") {
			t.Errorf("%s does not show the text: %.500s", place, text)
		}
	}
	if note := p.text("#charts figure small"); !strings.Contains(note, "1 not finite") {
		t.Errorf("the value that is not finite is not told: %q", note)
	}
	p.open("/compare.html?run=1&run=1")
	p.until("(document.querySelector('#charts').scrollIntoView(), document.querySelectorAll('#charts canvas').length >= 3)")
	safe("compare")

	// The checkpoint comes as a file.
	c, base := client(t, serve(t, home))
	status, body, header := get(t, c, base+"/api/v1/runs/1/checkpoints/4/safetensors")
	if status != 200 || !strings.Contains(body, `"w\u003cscript\u003e":{"dtype":"F32","shape":[3]`) || header.Get("Content-Disposition") != `attachment; filename="run-1-step-4.safetensors"` {
		t.Errorf("%d %q %v", status, body, header)
	}
	// What a recipe kept is never a page.
	_, list, _ := get(t, c, base+"/api/v1/runs/1/artifacts")
	found := regexp.MustCompile(`"kind":"(text|image)".*?"sha256":"([0-9a-f]{64})"`).FindAllStringSubmatch(list, -1)
	if len(found) != 2 {
		t.Fatal(list)
	}
	for _, m := range found {
		status, body, header := get(t, c, base+"/api/v1/runs/1/artifacts/"+m[2])
		want := map[string]string{"text": "application/octet-stream", "image": "image/png"}[m[1]]
		if status != 200 || header.Get("Content-Type") != want || m[1] == "text" && (!strings.HasPrefix(header.Get("Content-Disposition"), "attachment") || !strings.Contains(body, "<script>")) {
			t.Errorf("%s: %d %q %v", m[1], status, body, header)
		}
	}
	if status, _, _ := get(t, c, base+"/api/v1/runs/1/artifacts/"+strings.Repeat("0", 64)); status != 404 {
		t.Errorf("an unknown artifact: %d", status)
	}
}

// A run that goes on, watched: its points and lines appear within a second of being logged, and its end.
func TestLive(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	p := browse(t, serve(t, home))
	p.until("document.getElementById('count').innerText === '0 runs'")
	cmd := start(t, home, `
def main():
    for i in range(1000):
        run.log(step = i, loss = 1.0 / (i + 1))
        print("step", i)
        began = run.elapsed()
        while dist.rank() == 0 and run.elapsed() < began + 0.5: pass
        if run.should_stop() and i >= 2:
            break
    print("the end")
`, "-n", "2", "--name", "growing")
	p.until("document.querySelectorAll('#rows tr').length === 1 && document.querySelector('#rows .s-running')")
	p.open("/run.html?tab=all&id=growing")
	p.until("document.querySelectorAll('#charts canvas').length === 1")
	const points = "Number(document.querySelector('#metrics td:last-child')?.innerText ?? 0)"
	for range 3 {
		was := eval[int](p, points)
		start := time.Now()
		p.until(fmt.Sprintf("%s > %d", points, was))
		if took := time.Since(start); took > testlimit.Time(2*time.Second) { // logged each half second, shown a second later at the latest
			t.Errorf("a new point came after %v", took)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	p.until("document.querySelector('#state .s-done')")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	p.until("document.getElementById('log').innerText.split('the end').length === 3")
	p.until(fmt.Sprintf("%s === document.getElementById('log').innerText.split('[0] step').length - 1", points))
	p.shot("run")
	// The filter of the log.
	p.do(chromedp.Focus("#grep"), chromedp.SendKeys("#grep", "step (1|2)$"))
	p.until("document.querySelectorAll('#log div').length === 4")
	p.do(chromedp.SendKeys("#grep", "("))
	p.until("document.getElementById('grepfault').innerText.includes('missing closing')")
}

// All that the mouse can do in the table of runs, the keyboard can.
func TestKeyboardOnly(t *testing.T) {
	home := t.TempDir()
	if err := start(t, home, "params = run.params(lr = 0.1)\ndef main():\n    for i in range(50):\n        run.log(step = i, loss = 1.0 / (i + 1))\n", "--name", "first").Wait(); err != nil {
		t.Fatal(err)
	}
	if err := start(t, home, "params = run.params(lr = 0.2)\ndef main():\n    for i in range(50):\n        run.log(step = i, loss = 2.0 / (i + 1))\n", "--name", "second").Wait(); err != nil {
		t.Fatal(err)
	}
	p := browse(t, serve(t, home))
	p.open("/?view=table")
	p.until("document.querySelectorAll('#rows tr').length === 2")
	tab := func(to string) {
		t.Helper()
		for range 60 {
			p.do(chromedp.KeyEvent(kb.Tab))
			if eval[bool](p, "document.activeElement.matches("+quote(to)+")") {
				return
			}
		}
		t.Fatalf("Tab never reaches %s", to)
	}
	tab("#where")
	p.do(chromedp.KeyEvent("params.l"))
	p.until("document.querySelectorAll('#where-names:not([hidden]) li').length === 1")
	p.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(" > 0.05"), chromedp.KeyEvent(kb.Enter))
	if got := eval[string](p, "document.getElementById('where').value"); got != "params.lr > 0.05" {
		t.Errorf("typed: %q", got)
	}
	p.until("document.getElementById('count').innerText === '2 runs'")
	tab("#heads button[title=id]")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("document.querySelector('#rows th').innerText === 'first'")
	tab("#rows input")
	p.do(chromedp.KeyEvent(" "), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(" "))
	p.until("document.getElementById('compare').innerText === 'Compare 2 selected'")
	p.run("document.getElementById('choose').querySelector('button').focus()")
	tab("#compare")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("location.pathname === '/compare.html' && document.querySelectorAll('#charts canvas').length === 1")
	tab(".plot")
	label := eval[string](p, "document.activeElement.getAttribute('aria-label')")
	for _, want := range []string{"loss", "first", "second", "50 points", "from 0.02 to 1", "from 0.04 to 2"} {
		if !strings.Contains(label, want) {
			t.Errorf("the chart is called %q, without %q", label, want)
		}
	}
	p.do(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	p.until("document.querySelector('.legend .at').innerText === '1'") // the crosshair is at step 1
	const width = "(c => c.plot.scales.x.max - c.plot.scales.x.min)(document.querySelector('figure').chart)"
	p.do(chromedp.KeyEvent("+"))
	p.until("Math.abs(" + width + " - 24.5) < 0.1")
	p.do(chromedp.KeyEvent("0"))
	p.until(width + " === 49")

	// Every control of each page has a name, and each page one heading of the first level.
	for _, path := range []string{"/", "/run.html?tab=all&id=1", "/compare.html?run=1&run=2"} {
		p.open(path)
		p.until("document.querySelectorAll('#rows tr').length === 2 || document.querySelectorAll('#charts canvas').length === 1")
		nameless := eval[string](p, `[...document.querySelectorAll('button, input, select, a')].filter(e => !(e.innerText?.trim() || e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML).join()`)
		if nameless != "" || eval[int](p, "document.querySelectorAll('h1').length") != 1 {
			t.Errorf("%s: without a name: %s", path, nameless)
		}
	}
}
