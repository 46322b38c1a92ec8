package ui

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// document is docs/ui.md, or the part beneath one of its headings.
func document(t *testing.T, heading string) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/ui.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut("\n"+string(raw), "\n"+heading+"\n")
	if !found {
		t.Fatalf("docs/ui.md has no %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// rows are the cells of the table with these heads.
func rows(t *testing.T, text, heads string) (table [][]string) {
	t.Helper()
	_, rest, found := strings.Cut(text, heads+"\n")
	if !found {
		t.Fatalf("no table %s", heads)
	}
	for _, line := range strings.Split(rest, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var cells []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		table = append(table, cells)
	}
	return table
}

var code = regexp.MustCompile("`([^`]*)`")

// place is a folder with the examples, as one who has just cloned the repository finds them.
func place(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("../../examples")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// recipeOf is the recipe beneath a heading.
func recipeOf(t *testing.T, heading string) string {
	t.Helper()
	m := regexp.MustCompile("(?s)```python\n(.*?)```").FindStringSubmatch(document(t, heading))
	if m == nil {
		t.Fatalf("%s has no recipe", heading)
	}
	return m[1]
}

// sh runs commands in a folder; what they started is ended with the test.
func sh(t *testing.T, dir, commands string, out *bytes.Buffer) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", commands)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(os.Environ(), "PATH="+installed(t)+":"+os.Getenv("PATH"), "NO_COLOR=1", "DRUN_HOME=.drun")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		// Who is left of the group may still write into the folder.
		for end := time.Now().Add(10 * time.Second); syscall.Kill(-cmd.Process.Pid, 0) == nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	})
	return cmd
}

// The first example shows curves that grow.
func TestUIDocumentStart(t *testing.T) {
	commands := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(document(t, "# The pages: `drun ui`"))[1]
	const run = "cnn.star -n 2"
	commands = strings.Replace(commands, run, run+" -p epochs=100000", 1) // it ends with the test, however long the browser takes to start
	dir := place(t)
	out := filepath.Join(dir, "out")
	sh(t, dir, "{ "+strings.TrimSpace(commands)+"; } > "+out+" 2>&1", new(bytes.Buffer))
	address := ""
	for deadline := time.Now().Add(20 * time.Second); address == ""; time.Sleep(20 * time.Millisecond) {
		raw, _ := os.ReadFile(out)
		address = regexp.MustCompile(`http://\S*token=\w+`).FindString(string(raw))
		if time.Now().After(deadline) {
			t.Fatalf("no address in %s", raw)
		}
	}
	p := browse(t, address)
	p.until("document.querySelector('#rows .s-running')")
	p.open("/run.html?tab=all&id=last")
	const points = "[...document.querySelectorAll('figure')].find(f => f.innerText.includes('loss'))?.chart?.plot?.data[0].length ?? 0"
	p.until("(" + points + ") > 2")
	was := eval[int](p, points)
	const look = "[...document.querySelectorAll('figure')].forEach(f => f.innerText.includes('loss') && f.scrollIntoView())" // what is not seen is not drawn
	p.until(fmt.Sprintf("(%s, (%s) > %d)", look, points, was))
}

// The other examples print what stands there.
func TestUIDocumentCommands(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed: apt-get install curl")
	}
	for _, heading := range []string{"## Pages as files", "## The API"} {
		m := regexp.MustCompile("(?s)```sh\n(.*?)```\n\n```text\n(.*?)```").FindStringSubmatch(document(t, heading))
		if m == nil {
			t.Fatalf("%s: no commands with what they print", heading)
		}
		var out bytes.Buffer
		if err := sh(t, place(t), "set -e\n"+m[1], &out).Wait(); err != nil {
			t.Errorf("%s: %v\n%s", heading, err, out.String())
		}
		for line := range strings.Lines(m[2]) {
			if !strings.Contains(out.String(), strings.TrimSuffix(line, "\n")) {
				t.Errorf("%s: no %q in\n%s", heading, line, out.String())
			}
		}
	}
}

// The expressions do what they say, each in its box, and choose some of the runs.
func TestUIDocumentExpressions(t *testing.T) {
	home := t.TempDir()
	for i, lr := range []string{"0.05", "0.2"} {
		recipe := "params = run.params(lr = 0.1)\ndef main():\n    for i in range(4):\n        run.log(step = i, loss = params.lr * (4 - i))\n"
		if err := start(t, home, recipe, "-n", "2", "-p", "lr="+lr, "--name", fmt.Sprint("run-", i), "--tag", []string{"base", "other"}[i]).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	p := browse(t, serve(t, home))
	p.open("/?view=table")
	p.until("document.documentElement.dataset.ready !== undefined")
	table := rows(t, document(t, "# The pages: `drun ui`"), "| in the box | for example |")
	if len(table) < 5 {
		t.Fatal(table)
	}
	want := []string{"1 runs", "2 runs", "2 runs"}
	for i, row := range table {
		text := code.FindStringSubmatch(row[1])[1]
		box := map[string]string{"Where": "#where", "Columns": "#columns", "Group by": "#group"}[row[0]]
		p.do(chromedp.SetValue(box, text), chromedp.Click("#choose button[type=submit]"))
		switch row[0] {
		case "Where":
			count := want[i]
			p.until("document.getElementById('count').innerText.replace('1 run', '1 runs').replace('runss', 'runs').startsWith('" + count + "')")
			p.run("document.getElementById('where').value = ''")
		case "Columns":
			p.until("document.querySelectorAll('#heads button').length === 6")
		case "Group by":
			p.until("document.getElementById('count').innerText.includes('2 groups')")
		}
		if fault := p.text("#fault"); fault != "" {
			t.Errorf("%s: %s", text, fault)
		}
	}
}

// The run that hangs shows the table that stands there.
func TestUIDocumentHang(t *testing.T) {
	text := document(t, "## What each rank is doing")
	dir := place(t)
	if err := os.WriteFile(filepath.Join(dir, "hang.star"), []byte(recipeOf(t, "## What each rank is doing")), 0o600); err != nil {
		t.Fatal(err)
	}
	sh(t, dir, "exec drun run hang.star -n 3", new(bytes.Buffer))
	p := browse(t, serve(t, filepath.Join(dir, ".drun")))
	p.until("document.querySelector('#rows .s-running')")
	p.open("/run.html?tab=ranks&id=last")
	table := rows(t, text, "| rank | state | call | number | position |")
	if len(table) != 3 {
		t.Fatal(table)
	}
	for i, row := range table {
		for _, cell := range row {
			p.until(fmt.Sprintf("[...document.querySelector('#doing tbody').rows[%d].cells].some(c => c.innerText === %s)", i, quote(cell)))
		}
	}
}

// The document lists the requests of the API, with what they take, and no others; and the errors come as it says.
func TestUIDocumentAPI(t *testing.T) {
	text := document(t, "## The API")
	listed := map[string][]string{}
	for _, row := range rows(t, text, "| request | takes | answers |") {
		path := strings.NewReplacer("RUN", "{run}", "STEP", "{step}", "SHA256", "{sha256}").Replace(strings.Trim(row[0], "`"))
		// A code in brackets is a value, or a default.
		names := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(row[1], "")
		listed[path] = []string{}
		for _, m := range code.FindAllStringSubmatch(names, -1) {
			listed[path] = append(listed[path], m[1])
		}
	}
	home := t.TempDir()
	if err := start(t, home, "def main():\n    run.log(loss = 1)\n    checkpoint.save({}, step = 1)\n", "--name", "first").Wait(); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	for path, names := range listed {
		if _, there := routes[path]; !there {
			t.Errorf("there is no request %s", path)
		}
		real := strings.NewReplacer("{run}", "1", "{step}", "1", "{sha256}", strings.Repeat("0", 64)).Replace(path)
		if _, body, _ := get(t, c, base+apiPath+real+"?unheard_of=1"); !strings.Contains(body, "takes no parameter") { // events, too: it would stay open
			t.Errorf("%s takes any parameter: %.200s", path, body)
		}
		if !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(routes[path].takes))) {
			t.Errorf("%s takes %v, and docs/ui.md says %v", path, routes[path].takes, names)
		}
	}
	for path := range routes {
		if listed[path] == nil {
			t.Errorf("docs/ui.md does not list %s", path)
		}
	}
	for _, row := range rows(t, text, "| request | status | because |") {
		for _, m := range code.FindAllStringSubmatch(row[0], -1) {
			at := base + apiPath + strings.ReplaceAll(m[1], " ", "%20")
			var status int
			switch row[1] {
			case "403":
				stranger := &http.Client{Timeout: 10 * time.Second}
				status, _, _ = get(t, stranger, at)
				stranger.CloseIdleConnections()
			case "503":
				continue // TestManyAndSlowClients
			default:
				status, _, _ = get(t, c, at)
			}
			if fmt.Sprint(status) != row[1] {
				t.Errorf("%s: %d, and docs/ui.md says %s", m[1], status, row[1])
			}
		}
	}
}

// Each key of the document does something on its page.
func TestUIDocumentKeys(t *testing.T) {
	table := rows(t, document(t, "## By keyboard"), "| where | keys |")
	if len(table) != 6 { // of the last three, TestWorkspaceKeys and TestRunTabs press the keys
		t.Fatal(table)
	}
	table = table[:3]
	home := t.TempDir()
	recipe := "params = run.params(lr = 0.1)\ndef main():\n    for i in range(50):\n        run.log(step = i, loss = 1.0 / (i + 1))\n"
	for range 3 {
		if err := start(t, home, recipe).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	p := browse(t, serve(t, home))
	p.open("/?view=table")
	p.until("document.querySelectorAll('#rows tr').length === 3")
	keys := map[string]string{"ArrowDown": kb.ArrowDown, "ArrowUp": kb.ArrowUp, "ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight, "Enter": kb.Enter, "Tab": kb.Tab, "Escape": kb.Escape, "Space": " ", "+": "+", "-": "-", "0": "0"}
	press := func(state string, key string, options ...chromedp.KeyOption) {
		t.Helper()
		was := eval[string](p, state)
		p.do(chromedp.KeyEvent(keys[key], options...))
		p.until("(" + state + ") !== " + quote(was))
	}
	for i, row := range table {
		told := []string{}
		for _, m := range code.FindAllStringSubmatch(row[1], -1) {
			if told = append(told, m[1]); keys[m[1]] == "" && m[1] != "Shift" {
				t.Errorf("%q is no key", m[1])
			}
		}
		has := func(want ...string) {
			t.Helper()
			if !slices.Equal(told, want) {
				t.Errorf("%s: docs/ui.md tells %v, tested are %v", row[0], told, want)
			}
		}
		switch i {
		case 0:
			has("ArrowDown", "ArrowUp", "Enter", "Tab", "Escape")
			const list = "[...document.querySelectorAll('#where-names li')].map(l => l.getAttribute('aria-selected')).join() + document.getElementById('where').value + document.getElementById('where-names').hidden"
			for _, takes := range []string{"Enter", "Tab"} {
				p.run("document.getElementById('where').value = ''")
				p.do(chromedp.Focus("#where"), chromedp.KeyEvent("s"))
				p.until("document.querySelectorAll('#where-names li').length > 1")
				press(list, "ArrowDown")
				press(list, "ArrowDown")
				press(list, "ArrowUp")
				press("document.getElementById('where').value", takes)
			}
			p.run("document.getElementById('where').value = ''")
			p.do(chromedp.Focus("#where"), chromedp.KeyEvent("s"))
			p.until("document.querySelectorAll('#where-names li').length > 1")
			press(list, "Escape")
			p.run("document.getElementById('where').value = ''")
		case 1:
			has("Space", "ArrowDown", "ArrowUp", "Enter")
			p.run("document.querySelector('#rows input').focus()")
			press("document.getElementById('compare').innerText", "Space")
			const focus = "[...document.querySelectorAll('#rows input')].indexOf(document.activeElement) + ''"
			press(focus, "ArrowDown")
			press("document.getElementById('compare').innerText", "Space")
			press(focus, "ArrowUp")
			p.run("document.querySelector('#heads button').focus()")
			press("[...document.querySelectorAll('#heads th')].map(h => h.getAttribute('aria-sort')).join()", "Enter")
		case 2:
			has("ArrowLeft", "ArrowRight", "Shift", "+", "-", "0")
			p.open("/run.html?tab=all&id=last")
			p.until("document.querySelector('#charts figure')?.chart?.plot")
			p.run("document.querySelector('#charts .plot').focus()")
			const cross, span = "document.querySelector('.legend .at').innerText", "(c => c.plot.scales.x.min + ' ' + c.plot.scales.x.max)(document.querySelector('#charts figure').chart)"
			press(cross, "ArrowRight")
			press(cross, "ArrowRight")
			press(cross, "ArrowLeft")
			press(span, "+")
			press(span, "ArrowRight", chromedp.KeyModifiers(8))
			press(span, "-")
			press(span, "0")
		}
	}
	for _, path := range []string{"/", "/run.html?tab=all&id=1", "/compare.html?run=1&run=2"} {
		p.open(path)
		p.until("document.querySelectorAll('#rows tr').length === 3 || document.querySelectorAll('#charts canvas').length === 1")
		p.do(chromedp.KeyEvent(kb.Tab))
		if got := eval[string](p, "document.activeElement.className + ' ' + (document.querySelector(document.activeElement.getAttribute('href')) !== null)"); got != "skip true" {
			t.Errorf("%s: the first stop is %s", path, got)
		}
	}
}
