package ui

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// reported writes runs as one file in a folder of its own, and opens it.
func reported(t *testing.T, home string, runs ...string) *page {
	t.Helper()
	var text bytes.Buffer
	s := New(home)
	defer s.Close()
	if err := s.Report(&text, runs); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"<script src", "<link", "http://", " src=\"/"} {
		if strings.Contains(strings.ReplaceAll(text.String(), "http://www.w3.org/2000/svg", ""), other) {
			t.Errorf("the report has %s", other)
		}
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return browse(t, "file://"+file)
}

// A report of one run is its page, and one of several their comparison, each from a single file; names stay text.
func TestReport(t *testing.T) {
	home := t.TempDir()
	for _, lr := range []string{"lr=0.1", "lr=0.2"} {
		_ = start(t, home, hostile, "-p", lr).Wait() // it fails at its end
	}
	for _, run := range []string{"1", "2"} { // the page of a run that is not the newest, too
		p := reported(t, home, run)
		p.until("(document.querySelector('#charts figure:last-child').scrollIntoView(), document.querySelectorAll('#charts canvas').length >= 3) && document.getElementById('title').innerText.startsWith('" + run + " ')")
		p.run("[...document.querySelectorAll('.tabs a')].find(a => a.innerText.startsWith('Kept')).click()")
		p.until("document.querySelector('#views img')?.naturalWidth === 4")
		p.run("[...document.querySelectorAll('.tabs a')].find(a => a.innerText === 'All').click()")
		if text := p.text("#error") + p.text("#log"); !strings.Contains(text, "<script>") {
			t.Errorf("the texts are not shown: %.300s", text)
		}
		if found := eval[string](p, "[...document.querySelectorAll('img:not(.kept img), b, [onerror], iframe, a[href*=\"run.html?id=\"]')].map(e => e.outerHTML).join()"); found != "" {
			t.Errorf("elements that a recipe made, or links to nowhere: %s", found)
		}
		if title := eval[string](p, "document.title"); strings.HasPrefix(title, "broken into") {
			t.Error("a script of a recipe has run")
		}
	}
	p := reported(t, home, "1", "2")
	p.until("document.querySelectorAll('#table th').length > 3 && (document.querySelector('#charts').scrollIntoView(), document.querySelectorAll('#charts canvas').length >= 3)")
	p.do(chromedp.Click("#theme"))
	p.until("document.documentElement.dataset.theme === 'light'")
	if found := eval[string](p, "[...document.querySelectorAll('#which a, b, [onerror]')].map(e => e.outerHTML).join()"); found != "" {
		t.Errorf("elements that a recipe made, or links to nowhere: %s", found)
	}
}
