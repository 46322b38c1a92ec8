package ui

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"drun/history"
	"drun/history/records"
)

// Every text of a history is hostile: the names of runs, sweeps, metrics, parameters, users, files, tags, and what was logged. The pages
// show all of it as text. A new column of texts counts, too.
func TestHostileHistory(t *testing.T) {
	home := t.TempDir()
	for i := range 3 {
		_ = start(t, home, "p = run.params(lr = 0.1, text = 'x')\ndef main():\n    for i in range(3):\n        run.log(step = i, loss = 1.0, other = 2.0)\n    run.tag('tag')\n    run.note('note')\n    print('line')\n    run.image('image', tensor.zeros([4, 4]))\n    run.artifact('said', 'text')\n    run.table('table', [{'column': 'cell'}])\n    checkpoint.save({'w': tensor.ones(3)}, step = 1)\n    dist.barrier()\n    fail('the end')\n", "-n", "2", "-p", fmt.Sprint("text=", i)).Wait()
	}
	h, err := history.Open(home)
	if err == nil {
		err = h.AddReplay(1, history.Replay{Host: "host", Version: "version", Result: "result"})
	}
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	db, err := sql.Open("sqlite3", filepath.Join(home, "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatal(statement, err)
		}
	}
	exec(`INSERT INTO plugins (run, name, version, path, sha256) VALUES (1, 'plugin', '1', 'path', '')`)
	exec(`INSERT INTO data_files (run, path, sha256, bytes, position) VALUES (1, 'data', '', 1, 'at')`)
	exec(`UPDATE runs SET parent = 1, parent_step = 1 WHERE id = 2`)
	exec(`UPDATE runs SET owner = 'ada', project_name = 'project', project = 'folder', git_commit = 'commit', command = json_array('drun', ?, '-p', ? || '=1', '--minimize', ? || 'loss'),
		sweep = json_object('name', ?, 'cells', 3, 'command', json_array('drun', ?, '-p', ? || '=1', '--minimize', ? || 'loss'))`, evil, evil, evil, evil, evil, evil, evil)
	columns, err := db.Query(`SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND c.type = 'TEXT'`)
	if err != nil {
		t.Fatal(err)
	}
	var texts [][2]string
	for columns.Next() {
		var c [2]string
		if err := columns.Scan(&c[0], &c[1]); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, c)
	}
	if err := columns.Err(); err != nil || len(texts) < 60 {
		t.Fatal(len(texts), err)
	}
	// What drun itself writes: ids, times, words of its own, and lists of the above.
	own := regexp.MustCompile(`^(uid|parent_uid|sha256|bits|type|role|kind|stream|command|sweep|data_dirs|status|state|started|time|leased|trashed|ended_early|inputs|bits_key)$`)
	for _, c := range texts {
		if !own.MatchString(c[1]) && c != [2]string{"params", "value"} {
			exec(fmt.Sprintf("UPDATE %q SET %q = ? || %[2]q", c[0], c[1]), evil)
		}
	}
	exec(`UPDATE params SET value = json_quote(? || json_extract(value, '$')) WHERE type = 'string'`, evil)
	var lr, loss, recipe string
	if err := db.QueryRow(`SELECT (SELECT name FROM params WHERE name LIKE '%lr'), (SELECT name FROM metric_names WHERE name LIKE '%loss'), (SELECT path FROM run_sources LIMIT 1)`).Scan(&lr, &loss, &recipe); err != nil {
		t.Fatal(err)
	}

	p := browse(t, serve(t, home))
	shown := func(address, ready string, places ...string) {
		t.Helper()
		p.open(address)
		p.until(ready)
		harmless(p)
		for _, place := range places {
			if text := eval[string](p, "[...document.querySelectorAll("+quote(place)+")].map(e => e.textContent).join()"); !strings.Contains(text, "<script>") {
				t.Errorf("%s: %s does not show the text: %.300q", address, place, text)
			}
		}
	}
	names, err := records.Marshal([]string{lr, evil + "text", loss})
	if err != nil {
		t.Fatal(err)
	}
	var quoted [3]json.RawMessage
	if err := json.Unmarshal(names, &quoted); err != nil {
		t.Fatal(err)
	}
	all := url.QueryEscape(fmt.Sprintf("recipe, tags, error, project, owner, params[%s], params[%s], metrics[%s].last", quoted[0], quoted[1], quoted[2]))
	for _, column := range []string{"name", "tags", "error", "project", "owner", "params", "metrics"} {
		place := fmt.Sprintf("#rows tr:first-child > :nth-child(%d)", 2+slices.Index([]string{"", "name", "status", "recipe", "tags", "error", "project", "owner", "lr", "params"}, column))
		if column == "metrics" {
			place = "#heads"
		}
		shown("/?view=table&columns="+all, "document.querySelectorAll('#rows tr').length === 3 && document.querySelector('svg.spark path')", place)
	}
	shown("/", "document.querySelectorAll('#charts canvas').length === 2", "#rows", "#charts figcaption", "#charts .legend")
	shown("/?group=owner", "document.querySelectorAll('#rows tr.group').length === 1 && document.querySelectorAll('#charts canvas').length === 2", "#rows tr.group", "#charts .legend")
	p.do(chromedp.Focus("#where"), chromedp.SendKeys("#where", "params"))
	p.until("document.querySelectorAll('#where-names li').length > 1")
	harmless(p)
	shown("/run.html?tab=all&id=2", "(document.querySelector('#charts').scrollIntoView(), document.querySelectorAll('#charts canvas').length) === 2 && document.querySelector('#doing tbody tr')",
		"title", "#title", "#crumb", "#facts", "#error", "#params", "#metrics", "#about", "#charts", "#log", "#sources", "#doing", "#artifacts", "#views", "#attempts", "#lineage")
	p.until("[...document.querySelectorAll('#views figure')].every(f => (f.scrollIntoView(), f.querySelector('.kept-body').childElementCount))")
	harmless(p)
	shown("/run.html?tab=lineage&id=1", "document.querySelectorAll('#lineage a').length === 2 && document.querySelector('#replays td')", "#lineage", "#replays", "#about")
	shown("/sweep.html", "document.querySelector('#sweeps td')", "#sweeps")
	shown("/sweep.html?name="+url.QueryEscape(evil), "document.querySelectorAll('#best tbody tr').length === 3 && document.querySelectorAll('#sweep .line').length === 3", "title", "#title", "#best", "#importance", "#command", "#sweep", "#metric")
	shown("/compare.html?run=1&run=2", "document.getElementById('firstdiff').innerText && document.querySelectorAll('#charts canvas').length === 2", "#which", "#table", "#charts", "#group")
	shown("/compare.html?run=1&run=2&run=3", "document.querySelectorAll('#sweep .line').length === 3", "#which", "#sweep")
	shown("/run.html?id="+url.QueryEscape(evil), "document.getElementById('fault').innerText", "#fault")
	p.open("/")
	p.run("localStorage.setItem('drun-views', JSON.stringify({ [" + quote(evil) + "]: 'where=x' }))")
	shown("/", "document.querySelectorAll('#views option').length === 2", "#views")
	p = exported(t, home)
	p.until("document.querySelectorAll('#rows tr').length === 3 && document.querySelectorAll('#charts canvas').length === 2")
	harmless(p)
	shown("/run.html?tab=all&id=1", "document.querySelector('#log div') && document.querySelector('#sources .src')", "#title", "#log", "#params")
}
