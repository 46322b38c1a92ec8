package ui

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"drun/history"
	"drun/history/historytest"
)

// serveWriting serves pages that may write.
func serveWriting(t *testing.T, home string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(home)
	s.Write = true
	ctx, stop := context.WithCancel(context.Background())
	addresses, ended := make(chan string, 10), make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener, "127.0.0.1", func(a string) { addresses <- a }) }()
	t.Cleanup(func() {
		stop()
		<-ended
		s.Close()
	})
	return <-addresses
}

// Only a page of the server itself can change something, and only what it may.
func TestWriting(t *testing.T) {
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 2, Params: 1, Metrics: 1, Points: 1}); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serveWriting(t, home))
	post := func(path, body string, header ...string) (int, string) {
		t.Helper()
		req, _ := http.NewRequest("POST", base+apiPath+path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	for _, header := range [][]string{{"Content-Type", "text/plain"}, {"Content-Type", "application/x-www-form-urlencoded"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://evil.example"}, {"Origin", "null"}} {
		if status, body := post("runs/1", `{"name":"taken-over"}`, header...); status != http.StatusForbidden {
			t.Errorf("%v: %d %s", header, status, body)
		}
	}
	for _, change := range []struct {
		body string
		good bool
	}{
		{`{"name":"better"}`, true}, {`{"tag":["<b>base</b>","other"]}`, true}, {`{"untag":["other"],"note":"seen"}`, true}, {`{"tag":[""]}`, false}, {`{"name":"1 bad name"}`, false}, {`{"name":"run-1"}`, false},
		{`{`, false}, {`{"note":"` + strings.Repeat("x", mostChanged) + `"}`, false}, {`{"stop":true}`, false},
	} {
		if status, text := post("runs/1", change.body); (status == 200) != change.good || status >= 500 {
			t.Errorf("%.60s: %d %s", change.body, status, text)
		}
	}
	for path, want := range map[string]int{"runs/7": 404, "runs": 405, "curves": 405, "nothing": 405} {
		if status, text := post(path, "{}"); status != want && status != 404 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d, err := db.Get(1)
	if err != nil || d.Name != "better" || strings.Join(d.Tags, ",") != "<b>base</b>,seventh" || len(d.Notes) != 1 || d.Notes[0].Text != "seen" {
		t.Errorf("%v %s %v %v", err, d.Name, d.Tags, d.Notes)
	}
	if status, text := post("runs/2", `{"trash":true}`); status != 200 {
		t.Errorf("to the trash: %d %s", status, text)
	}
	if status, _ := post("runs/2", `{"note":"late"}`); status != 404 {
		t.Errorf("a note for a run in the trash: %d", status)
	}
	// Views are kept in the home, for the next server as well.
	if status, text := post("pages", `{"name":"mine","view":"where=id+%3C+2"}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := post("pages", `{"name":"","view":"x"}`); status != 400 {
		t.Errorf("a view without a name: %d", status)
	}
	other, at := client(t, serve(t, home))
	if _, body, _ := get(t, other, at+apiPath+"pages"); body != `{"write":false,"views":{"mine":"where=id+%3C+2"}}`+"\n" {
		t.Errorf("the views: %s", body)
	}
	if status, _ := post("pages", `{"name":"mine","view":""}`); status != 200 {
		t.Errorf("the view cannot be removed: %d", status)
	}
	if _, body, _ := get(t, other, at+apiPath+"pages"); !strings.Contains(body, `"views":{}`) {
		t.Errorf("the views: %s", body)
	}
	if err := os.WriteFile(filepath.Join(home, "views.json"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, body, _ := get(t, other, at+apiPath+"pages"); status != 500 {
		t.Errorf("broken views: %d %s", status, body)
	}
}

// From the page: a run is renamed, tagged, annotated and stopped, and a view is saved; without --write there are no buttons.
func TestWritingPage(t *testing.T) {
	home := t.TempDir()
	cmd := start(t, home, "def main():\n    run.log(loss = 1.0)\n    while run.elapsed() < 600: pass\n", "--name", "long")
	p := browse(t, serveWriting(t, home))
	p.open("/run.html?id=long")
	press := func(label, text string) {
		t.Helper()
		p.until("[...document.querySelectorAll('#acts button')].some(b => b.innerText === '" + label + "')")
		p.run("[...document.querySelectorAll('#acts button')].find(b => b.innerText === '" + label + "').click()")
		p.until("document.querySelector('dialog[open]')")
		if text != "" {
			p.run("document.querySelector('dialog input').value = ''")
			p.do(chromedp.SendKeys("dialog input", text), chromedp.KeyEvent(kb.Enter))
		} else {
			p.do(chromedp.Click("dialog .main"))
		}
		p.until("!document.querySelector('dialog')")
	}
	press("Tag", "<b>base</b>")
	p.until("document.querySelector('#facts .tag')?.innerText === '<b>base</b>'")
	press("Note", "look at this")
	p.until("document.getElementById('about').textContent.includes('look at this')")
	press("Rename", "last") // is reserved
	p.until("document.getElementById('actfault').innerText.includes('is reserved')")
	press("Rename", "better")
	p.until("document.getElementById('title').innerText.endsWith('better') && document.getElementById('actfault').innerText === ''")
	harmless(p)
	press("Stop", "")
	p.until("document.querySelector('#state .s-interrupted') && ![...document.querySelectorAll('#acts button')].some(b => b.innerText === 'Stop')")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the run goes on")
	}
	p.open("/?where=id+%3D%3D+1&log=1")
	p.until("document.querySelectorAll('#charts canvas').length === 1")
	p.do(chromedp.Click("#keep"))
	p.do(chromedp.SendKeys("dialog input", "mine"), chromedp.KeyEvent(kb.Enter))
	p.until("document.getElementById('views').value === 'mine'")
	p.open("/")
	p.until("document.querySelectorAll('#views option').length === 2")
	p.do(chromedp.SetValue("#views", "mine"))
	p.until("location.search.includes('log=1') && document.getElementById('where').value === 'id == 1' && document.getElementById('views').value === 'mine'")

	q := browse(t, serve(t, home))
	q.open("/run.html?id=1")
	q.until("document.documentElement.dataset.ready !== undefined && document.getElementById('acts').childElementCount === 0")
}

// Several runs are tagged and removed together; the table is saved as it is shown, with nothing that a spreadsheet takes for a formula.
func TestWritingSelected(t *testing.T) {
	home := learned(t, 3)
	p := browse(t, serveWriting(t, home))
	p.open("/?view=table")
	p.until("document.querySelectorAll('#rows tr').length === 3 && document.getElementById('tag').hidden && document.getElementById('remove').hidden")
	p.run("[...document.querySelectorAll('#rows input')].slice(0, 2).forEach(i => i.click())")
	p.do(chromedp.Click("#tag"), chromedp.SendKeys("dialog input", `=1+"1"<b>`), chromedp.KeyEvent(kb.Enter))
	p.until("document.querySelectorAll('#rows .tag').length === 2")
	harmless(p)
	p.run("window.saved = []; URL.createObjectURL = b => { b.text().then(t => saved.push(t)); return 'blob:x'; }; HTMLAnchorElement.prototype.click = function() { saved.push(this.download); }; document.getElementById('csv').click()")
	p.until("window.saved.length === 2")
	lines := strings.Split(eval[string](p, "saved[0] + '\\n' + saved[1]"), "\n")
	if len(lines) != 6 || lines[0] != "runs.csv" || !strings.HasPrefix(lines[1], `"id","name","status","params.lr",`) || !strings.HasPrefix(lines[2], `3,"run-2","done",0.001,`) || !strings.HasSuffix(lines[2], `"'=1+""1""<b>"`+"\r") {
		t.Errorf("the table: %q", lines)
	}
	p.do(chromedp.Click("#remove"), chromedp.Click("dialog button:not(.main)"))
	p.until("!document.querySelector('dialog')")
	p.do(chromedp.Click("#remove"), chromedp.Click("dialog .main"))
	p.until("document.querySelectorAll('#rows tr').length === 1 && document.getElementById('remove').hidden && document.getElementById('compare').disabled")
	p.open("/run.html?id=1&tab=overview")
	p.until("[...document.querySelectorAll('#acts button')].some(b => b.innerText === 'Remove')")
	p.run("[...document.querySelectorAll('#acts button')].find(b => b.innerText === 'Remove').click()")
	p.do(chromedp.Click("dialog .main"))
	p.until("location.pathname.endsWith('/') && document.getElementById('nothing')?.checkVisibility()")
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if runs, err := db.Select(history.Selection{Trashed: true}); err != nil || len(runs) != 3 {
		t.Errorf("%v: %d runs are in the trash", err, len(runs))
	}
}
