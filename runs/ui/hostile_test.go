package ui

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"drun/history/historytest"
)

// A history that is removed, replaced or damaged while the server runs is what the answers are about from then on.
func TestHistoryThatIsReplaced(t *testing.T) {
	home := t.TempDir()
	fill := func(runs int) {
		t.Helper()
		if err := historytest.Fill(home, historytest.Shape{Runs: runs, Params: 2, Metrics: 2, Points: 5}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		t.Helper()
		for _, name := range []string{"history.db", "history.db-wal", "history.db-shm"} {
			if err := os.Remove(filepath.Join(home, name)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	c, base := client(t, serve(t, home))
	total := func(want int) {
		t.Helper()
		if status, body, _ := get(t, c, base+"/api/v1/runs?limit=1"); status != 200 || !strings.Contains(body, fmt.Sprintf(`"total":%d,`, want)) {
			t.Errorf("want %d runs: %d %.200s", want, status, body)
		}
	}
	fill(3)
	total(3)
	remove()
	total(0)
	if status, body, _ := get(t, c, base+"/api/v1/runs/1"); status != 404 || !strings.Contains(body, "no history in") {
		t.Errorf("%d %s", status, body)
	}
	for runs := range 6 { // in one step
		remove()
		fill(runs + 1)
		total(runs + 1)
		if status, body, _ := get(t, c, base+"/api/v1/curves?run=1&metric=loss"); status != 200 || !strings.Contains(body, `"points":5`) {
			t.Errorf("%d %.200s", status, body)
		}
	}
	remove()
	if err := os.WriteFile(filepath.Join(home, "history.db"), []byte(strings.Repeat("no database", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"runs", "runs/1", "runs/1/ranks", "names", "curves?run=1&metric=loss"} {
		if status, body, _ := get(t, c, base+"/api/v1/"+path); status != 500 || !strings.Contains(body, "history.db") {
			t.Errorf("%s of a damaged history: %d %s", path, status, body)
		}
	}
	remove()
	fill(2)
	total(2)
}

// A history whose pages are damaged is an error, whatever is asked, and never the end of the server.
func TestDamagedHistory(t *testing.T) {
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 20, Params: 4, Metrics: 3, Points: 200}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, "history.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	for at := 4096; at < len(whole); at += len(whole) / 8 {
		broken := append([]byte{}, whole...)
		for i := at; i < min(at+8192, len(broken)); i++ {
			broken[i] ^= 0xa5
		}
		if err := os.WriteFile(path+".new", broken, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"runs", "runs/3", "runs/3/ranks", "runs/3/logs", "runs/3/metrics", "runs/3/sources", "names", "compare?run=1&run=2", "curves?run=1&metric=loss"} {
			status, body, _ := get(t, c, base+"/api/v1/"+what)
			if status != 200 && status != 500 && status != 404 || status == 500 && strings.Contains(body, "a bug in drun") {
				t.Errorf("%s with damage at %d: %d %.300s", what, at, status, body)
			}
		}
	}
}

// Neither many connections, nor clients that never read or never ask, keep a browser from its answers; when they
// go, what they held is given back.
func TestManyAndSlowClients(t *testing.T) {
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 50, Params: 4, Metrics: 3, Points: 2000}); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	at, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	cookie := c.Jar.Cookies(at)[0].String()
	before := runtime.NumGoroutine()
	var open []net.Conn
	connect := func(request string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
		_, _ = io.WriteString(conn, strings.NewReplacer("HOST", at.Host, "COOKIE", cookie).Replace(request))
		return conn
	}
	for range 600 {
		connect("")                                     // says nothing
		connect("GET /api/v1/runs HTTP/1.1\r\nHost: ")  // never ends
		connect("GET / HTTP/1.1\r\nHost: HOST\r\n\r\n") // has no cookie
	}
	for i := range eventsAtMost + 50 { // follow, and read no more than the status
		conn := connect("GET /api/v1/events HTTP/1.1\r\nHost: HOST\r\nCookie: COOKIE\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		status, err := bufio.NewReader(conn).ReadString('\n') // so that the first ones are those that are let in
		if err != nil {
			t.Fatal(err)
		}
		if refused := strings.Contains(status, " 503 "); refused != (i >= eventsAtMost) {
			t.Errorf("page %d of at most %d: %s", i+1, eventsAtMost, status)
		}
	}
	for range sendsAtMost + busyAtMost { // large answers that nobody takes
		connect("GET /api/v1/runs/1/metrics HTTP/1.1\r\nHost: HOST\r\nCookie: COOKIE\r\n\r\n")
	}
	start := time.Now()
	for _, path := range []string{"/", "/api/v1/runs", "/api/v1/runs/1/ranks", "/drun.js"} {
		if status, body, _ := get(t, c, base+path); status != 200 {
			t.Errorf("%s beside all these: %d %.200s", path, status, body)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the answers took %v", took)
	}
	for _, conn := range open {
		conn.Close()
	}
	c.CloseIdleConnections()
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before+20; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, before there were %d", runtime.NumGoroutine(), before)
		}
	}
}

// Requests that try to get more than the pages give.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if err := historytest.Fill(home, historytest.Shape{Runs: 2, Params: 2, Metrics: 2, Points: 5}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "secret"), []byte("not for you"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := serve(t, home)
	c, base := client(t, address)
	at, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	cookie := c.Jar.Cookies(at)[0]
	raw := func(request string) (status int, header http.Header, body string) {
		t.Helper()
		conn, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(conn, request)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0, nil, ""
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header, string(text)
	}
	in := "Host: " + at.Host + "\r\nCookie: " + cookie.Name + "=" + cookie.Value + "\r\n"
	for _, path := range []string{"/../secret", "/..%2fsecret", "/%2e%2e/secret", "/....//secret", "//secret", "/assets/../../secret", "/%00", "/.git/config", "/history.db", "/secret",
		"/api/v1/runs/..%2f..%2fsecret", "/api/v1/runs/1/artifacts/..%2f..%2fsecret", "/api/v1/runs/1/checkpoints/..%2fsecret/safetensors", "/api/v2/runs", "/api/", "/API/v1/runs"} {
		if status, _, body := raw("GET " + path + " HTTP/1.1\r\n" + in + "\r\n"); status == 200 || strings.Contains(body, "not for you") {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	// Another site: it can send requests with the cookie at most where browsers let it, and never reads the answers.
	_, header, _ := raw("GET /api/v1/runs HTTP/1.1\r\n" + in + "Origin: https://evil.example\r\nReferer: https://evil.example/?token=x\r\nSec-Fetch-Site: cross-site\r\n\r\n")
	for name := range header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("%s: %s", name, header.Get(name))
		}
	}
	if header.Get("Cross-Origin-Resource-Policy") != "same-origin" || header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%v", header)
	}
	// A token counts in the address of the first page alone.
	next := base + "/?token=AAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, request := range []string{"GET /api/v1/runs?token=x HTTP/1.1\r\nHost: HOST\r\n\r\n", "GET / HTTP/1.1\r\nHost: HOST\r\nReferer: " + next + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer x\r\n\r\n", "GET / HTTP/1.1\r\nHost: HOST\r\nCookie: " + cookie.Name + "=\r\n\r\n", "GET / HTTP/1.1\r\nHost: HOST\r\nCookie: " + cookie.Name + "=" + cookie.Value[1:] + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: HOST\r\n\r\n", "GET http://HOST/api/v1/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n"} {
		if status, header, _ := raw(strings.ReplaceAll(request, "HOST", at.Host)); status != 403 || header.Get("Set-Cookie") != "" {
			t.Errorf("%q: %d", request, status)
		}
	}
	// Huge, and odd.
	for request, want := range map[string][]int{
		"GET /api/v1/runs?where=" + strings.Repeat("a", 60<<10) + " HTTP/1.1\r\n" + in + "\r\n":             {400},
		"GET /api/v1/runs?where=" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\n" + in + "\r\n":              {431, 414, 400, 0},
		"GET /api/v1/runs?where=" + strings.Repeat("(", 20<<10) + " HTTP/1.1\r\n" + in + "\r\n":             {400},
		"GET /api/v1/runs?where=" + strings.Repeat("not%20", 9<<10) + "1 HTTP/1.1\r\n" + in + "\r\n":        {400},
		"GET /api/v1/runs/1/logs?grep=" + strings.Repeat("(a*)*", 5<<10) + " HTTP/1.1\r\n" + in + "\r\n":    {200, 400},
		"GET /api/v1/compare?" + strings.Repeat("run=1&", 5000) + " HTTP/1.1\r\n" + in + "\r\n":             {400},
		"GET /api/v1/runs?limit=999999999999999999999 HTTP/1.1\r\n" + in + "\r\n":                           {400},
		"GET /api/v1/runs?wher=id HTTP/1.1\r\n" + in + "\r\n":                                               {400},
		"GET /api/v1/runs HTTP/1.1\r\n" + in + "X: " + strings.Repeat("y", 1<<20) + "\r\n\r\n":              {431, 0},
		"GET /api/v1/runs HTTP/1.1\r\n" + in + "Content-Length: 5\r\n\r\nhello":                             {200},
		"HEAD /api/v1/runs/1 HTTP/1.0\r\n" + in + "\r\n":                                                    {200},
		"BREW /api/v1/runs HTTP/1.1\r\n" + in + "\r\n":                                                      {405},
		"GET /api/v1/runs HTTP/1.1\r\n" + in + "Host: evil.example\r\n\r\n":                                 {400},
		"GET /api/v1/runs HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n" + in + "\r\nabc": {400, 200, 0},
	} {
		status, _, body := raw(request)
		good := false
		for _, w := range want {
			good = good || status == w
		}
		if !good || strings.Contains(body, "a bug in drun") {
			t.Errorf("%.90q: %d %.200s, want %v", request, status, body, want)
		}
	}
	if status, _, _ := get(t, c, base+"/api/v1/runs"); status != 200 {
		t.Error("the server is gone")
	}
}

// Downloads that nobody takes keep no page waiting, and their slots are free again once their clients have gone.
func TestSlowDownloads(t *testing.T) {
	home := t.TempDir()
	const size = 15 << 20 // more than a connection holds
	if err := start(t, home, fmt.Sprintf("def main():\n    run.artifact(\"big\", \"x\" * %d)\n", size), "--name", "big").Wait(); err != nil {
		t.Fatal(err)
	}
	c, base := client(t, serve(t, home))
	_, list, _ := get(t, c, base+"/api/v1/runs/big/artifacts")
	found := regexp.MustCompile(`"sha256":"([0-9a-f]{64})"`).FindStringSubmatch(list)
	if found == nil {
		t.Fatal(list)
	}
	path := "/api/v1/runs/big/artifacts/" + found[1]
	at, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	for range sendsAtMost {
		conn, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n\r\n", path, at.Host, c.Jar.Cookies(at)[0])
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if status, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(status, " 200 ") {
			t.Fatal(status, err)
		}
		open = append(open, conn)
	}
	start := time.Now()
	if status, body, _ := get(t, c, base+"/api/v1/runs"); status != 200 || time.Since(start) > 5*time.Second {
		t.Errorf("a page beside slow downloads: %d after %v: %.200s", status, time.Since(start), body)
	}
	for _, conn := range open {
		conn.Close()
	}
	if status, body, _ := get(t, c, base+path); status != 200 || len(body) != size {
		t.Errorf("the next download: %d, %d bytes", status, len(body))
	}
}
