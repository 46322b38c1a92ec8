package ui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"drun/history"
	"drun/history/historytest"
)

// The built files of the chart library are those of its release, and all assets together stay small.
func TestAssets(t *testing.T) {
	for name, want := range map[string]string{
		"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"uPlot.LICENSE":     "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
	} {
		raw, err := fs.ReadFile(assets, name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has the SHA-256 %x", name, sum)
		}
	}
	const most = 300 << 10
	size := int64(0)
	err := fs.WalkDir(assets, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size += info.Size()
		raw, err := fs.ReadFile(assets, name)
		for _, forbidden := range []string{"innerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "https://"} {
			if strings.Contains(string(raw), forbidden) && !strings.HasPrefix(name, "uPlot") {
				t.Errorf("%s has %s", name, forbidden)
			}
		}
		return err
	})
	for name, text := range documents() {
		size += int64(len(text))
		if strings.Contains(string(text), "style=") || strings.Contains(string(text), "onclick") || strings.Count(string(text), "<script") != strings.Count(string(text), "<script src=") {
			t.Errorf("%s has style or script within", name)
		}
	}
	if err != nil || size > most {
		t.Errorf("the assets have %d bytes, want at most %d (%v)", size, most, err)
	}
}

// client is a browser that was let in.
func client(t *testing.T, address string) (*http.Client, string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Timeout: 10 * time.Second}
	t.Cleanup(c.CloseIdleConnections)
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	return c, address[:strings.LastIndex(address, "/")]
}

func get(t *testing.T, c *http.Client, address string) (int, string, http.Header) {
	t.Helper()
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

func TestWhoIsLetIn(t *testing.T) {
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 2, Params: 2, Metrics: 2, Points: 5}); err != nil {
		t.Fatal(err)
	}
	address := serve(t, home)
	c, base := client(t, address)
	status, body, header := get(t, c, base+"/api/v1/runs")
	if status != http.StatusOK || !strings.Contains(body, `"run-1"`) {
		t.Errorf("%d %s", status, body)
	}
	if allowed := header.Get("Content-Security-Policy"); allowed != "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'" {
		t.Errorf("the policy is %s", allowed)
	}
	if header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("other sites may read the answers")
	}
	at, _ := url.Parse(base)
	cookies := c.Jar.Cookies(at)
	if len(cookies) != 1 {
		t.Fatalf("%v", cookies)
	}

	stranger := &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(stranger.CloseIdleConnections)
	for _, path := range []string{"/", "/index.html", "/drun.js", "/api/v1/runs", "/api/v1/events", "/?token=wrong", "/?token=", address[len(base):]} {
		if status, body, header := get(t, stranger, base+path); status != http.StatusForbidden || header.Get("Set-Cookie") != "" {
			t.Errorf("%s: a browser without a token gets %d %s", path, status, body)
		}
	}
	for host, want := range map[string]int{at.Host: 200, "localhost:" + at.Port(): 200, "evil.example:" + at.Port(): 403, "127.0.0.1:1": 403, "127.0.0.1": 403, "": 200,
		"localhost.evil.example:" + at.Port(): 403, "[::1]:" + at.Port(): 200} {
		req, _ := http.NewRequest("GET", base+"/api/v1/names", nil)
		req.Host = host
		req.AddCookie(cookies[0])
		resp, err := stranger.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("for the host %q the answer is %s, want %d", host, resp.Status, want)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		req, _ := http.NewRequest(method, base+"/api/v1/runs", nil)
		req.AddCookie(cookies[0])
		resp, err := stranger.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
}

// The runs in the trash and the others are two lists, also where the server remembers the one that it showed last.
func TestRunsInTheTrash(t *testing.T) {
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 3, Params: 1, Metrics: 1, Points: 1}); err != nil {
		t.Fatal(err)
	}
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Trash([]int64{2}), db.Close()); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	for range 3 {
		time.Sleep(100 * time.Millisecond) // what has just been written is read again
		for _, q := range [][2]string{{"", `[{"id":1},{"id":3}],"total":2`}, {"&trash=1", `[{"id":2}],"total":1`}} {
			if status, body, _ := get(t, c, base+"/api/v1/runs?columns=id&sort=id"+q[0]); status != http.StatusOK || !strings.Contains(body, q[1]) {
				t.Errorf("runs%s: %d %s", q[0], status, body)
			}
		}
	}
}

// Of a long log, the newest lines are given, with how many are before them.
func TestLogTail(t *testing.T) {
	home := t.TempDir()
	if err := start(t, home, "def main():\n    for i in range(5):\n        print('line', i)\n").Wait(); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	for limit, skipped := range map[int]int{2: 3, 3: 2, 5: 0, 9: 0} {
		_, body, _ := get(t, c, fmt.Sprintf("%s/api/v1/runs/1/logs?limit=%d", base, limit))
		if !strings.Contains(body, fmt.Sprintf(`"skipped":%d`, skipped)) || strings.Count(body, `"text"`) != 5-skipped || !strings.Contains(body, `"text":"line 4"`) {
			t.Errorf("the newest %d: %s", limit, body)
		}
	}
}

func TestAPI(t *testing.T) {
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 30, Params: 4, Metrics: 3, Points: 100}); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	for path, want := range map[string]struct {
		status int
		has    string
	}{
		"runs":                                 {200, `"total":30`},
		"runs?where=id<4%20and%20id>1":         {200, `"total":2`},
		"runs?sort=-id&limit=1":                {200, `"name":"run-29"`},
		"runs?sort=id&limit=1&columns=id,name": {200, `{"runs":[{"id":1,"name":"run-0"}],"total":30,"notes":[]}`},
		"runs?offset=29&limit=5&columns=id":    {200, `{"runs":[{"id":1}],"total":30,"notes":[]}`},
		"runs?offset=300&limit=5&columns=id":   {200, `{"runs":[],"total":30,"notes":[]}`},
		"runs?limit=0":                         {400, `limit=0: want a whole number from 1`},
		"runs?where=params.lr<":                {400, `column`},
		"runs?where=params.lrr<1":              {200, `did you mean \"lr\"?`},
		"runs?tag=seventh":                     {200, `"total":5`},
		"runs/3":                               {200, `"name":"run-2"`},
		"runs/last":                            {200, `"name":"run-29"`},
		"runs/run-7":                           {200, `"id":8`},
		"runs/nobody":                          {404, `there is no run`},
		"runs/3/metrics?name=loss&points=8":    {200, `"name":"loss"`},
		"runs/3/metrics?name=lost":             {404, `it has: acc, loss, m2`},
		"runs/3/metrics?points=1":              {400, `points=1`},
		"runs/3/logs":                          {200, `learning rate`},
		"runs/3/logs?grep=nothing":             {200, `"lines":[]`},
		"runs/3/logs?grep=(":                   {400, `missing closing`},
		"runs/3/sources":                       {200, `# Recipe 2.\n`},
		"runs/3/sources/diff?with=4":           {200, `+# Recipe 3.`},
		"runs/3/checkpoints":                   {200, `[]`},
		"runs/3/checkpoints/7/safetensors":     {404, `has no such checkpoint`},
		"runs/3/usage":                         {200, `[]`},
		"runs/3/ranks":                         {200, `{"live":false,"problem":"","hint":"","snapshot":null}`},
		"compare?run=1&run=2":                  {200, `"recipe_diff":"---`},
		"compare":                              {400, `want 1 to`},
		"curves?run=1&metric=loss":             {200, `"points":100`},
		"curves?run=1&metric=lost":             {200, `[]`},
		"curves?run=1":                         {400, `want a metric`},
		"curves?run=1&metric=loss&x=day":       {400, `want step, time or relative`},
		"curves?run=1&metric=loss&smooth=1":    {400, `less than 1`},
		"curves?run=1&metric=loss&from=NaN":    {400, `want a number`},
		"nothing":                              {404, `there is no /api/v1/nothing`},
	} {
		status, body, header := get(t, c, base+"/api/v1/"+path)
		if status != want.status || !strings.Contains(body, want.has) {
			t.Errorf("%s: %d %.300s, want %d with %s", path, status, body, want.status, want.has)
		}
		if header.Get("Content-Type") != "application/json; charset=utf-8" || !json.Valid([]byte(body)) {
			t.Errorf("%s: not JSON: %.200s", path, body)
		}
	}
}

// A home without a history has no runs yet; they are there as soon as the first is.
func TestHistoryThatComesLater(t *testing.T) {
	home := t.TempDir()
	c, base := client(t, serve(t, home))
	if status, body, _ := get(t, c, base+"/api/v1/runs"); status != 200 || body != `{"runs":[],"total":0,"notes":[]}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if err := historytest.Fill(home, historytest.Shape{Runs: 1, Params: 1, Metrics: 1, Points: 1}); err != nil {
		t.Fatal(err)
	}
	if _, body, _ := get(t, c, base+"/api/v1/runs"); !strings.Contains(body, `"total":1`) {
		t.Error(body)
	}
}

// Each write is told within a second, and the server ends although a page listens.
func TestEvents(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 1, Params: 1, Metrics: 1, Points: 1}); err != nil {
		t.Fatal(err)
	}
	s := New(home)
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	told := make(chan time.Time, 1000)
	go func() { _ = s.watch(ctx, againAfter, func(bool) error { told <- time.Now(); return nil }) }()
	<-told
	time.Sleep(2 * newsEvery)
	for len(told) > 0 {
		<-told
	}
	for i := range 3 {
		start := time.Now()
		if err := historytest.Fill(t.TempDir(), historytest.Shape{Runs: 1}); err != nil { // elsewhere: not told
			t.Fatal(err)
		}
		if len(told) > 0 && time.Since(start) < againAfter/2 {
			t.Error("a change is told that was none")
		}
		start = time.Now()
		tag(t, home, fmt.Sprint("tag", i))
		if at := <-told; at.Sub(start) > time.Second {
			t.Errorf("told after %v", at.Sub(start))
		}
		time.Sleep(2 * newsEvery)
		for len(told) > 0 {
			<-told
		}
	}
}

// tag writes to a history.
func tag(t *testing.T, home, label string) {
	t.Helper()
	db, err := history.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Label(1, []string{label}, nil); err != nil {
		t.Fatal(err)
	}
}
