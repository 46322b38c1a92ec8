package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"drun/history/historytest"
)

// Whatever is asked, the answer is JSON, and never a fault of the server. make fuzz looks for more than the seeds.
func FuzzAPI(f *testing.F) {
	for _, path := range []string{"runs", "runs/1", "runs/last/metrics", "runs/run-1/logs", "runs/1/sources", "runs/1/sources/diff", "runs/1/usage", "runs/1/ranks", "runs/1/checkpoints",
		"runs/1/checkpoints/last/safetensors", "names", "compare", "curves", "runs/1/histograms", "runs/1/events", "runs/%2e%2e/%00", "../../etc/passwd", "nothing"} {
		for _, query := range []string{"", "where=params.lr<1&sort=-metrics.loss.last&columns=id,tags&limit=3&offset=1", "run=1&run=2&metric=loss&x=time&smooth=0.5&from=-1e300&to=5&points=4",
			"rank=-1&grep=a(b&after=9223372036854775807", "where=[x+for+x+in+range(9)]&tag=\"\\&with=2", "name=loss&points=4&attempt=0", "%zz=1;2", "run=1&metric=acc&from=Inf&to=-Inf&x=relative",
			"metric=loss&seen=1.5.false&metric=acc&seen=-&x=time&points=4&smooth=0.5&show=logs&show=ranks&show=usage&show=artifacts&show=checkpoints&grep=a&after=3&limit=2&calls=1",
			"group=params.lr&columns=id,tags", "run=1&run=2&run=3&metric=loss&group=params.act&x=time&points=4&from=1e300"} {
			f.Add(path, query)
		}
	}
	s := fuzzed(f)
	handler := s.Handler()
	f.Fuzz(func(t *testing.T, path, query string) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/api/v1/" + path, RawQuery: query}, Host: "127.0.0.1:80", Header: http.Header{}}
		if strings.HasSuffix(path, "events") { // it would stay open
			cancel()
			ctx, cancel = context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer cancel()
		}
		r = r.WithContext(ctx)
		r.AddCookie(&http.Cookie{Name: s.cookie(), Value: s.secret})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		switch {
		case w.Code >= 300 && w.Code < 400: // a path with dots
		case w.Code == 503 && ctx.Err() == nil, w.Code >= 500 && w.Code != 503:
			t.Fatalf("%s?%s: %d %s", path, query, w.Code, w.Body)
		case w.Header().Get("Content-Type") == "application/json; charset=utf-8" && !json.Valid(w.Body.Bytes()):
			t.Fatalf("%s?%s: not JSON: %s", path, query, w.Body)
		case w.Code == 200 && !strings.HasPrefix(w.Header().Get("Content-Type"), "application/") && !strings.HasSuffix(path, "events"):
			t.Fatalf("%s?%s: %v", path, query, w.Header())
		}
	})
}

// fuzzed serves a small history.
func fuzzed(f *testing.F) *Server {
	home, err := os.MkdirTemp("", "drun-fuzz-")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(home) })
	if err := historytest.Fill(home, historytest.Shape{Runs: 3, Params: 4, Metrics: 3, Points: 20}); err != nil {
		f.Fatal(err)
	}
	s := New(home)
	f.Cleanup(func() { s.Close() })
	s.host, s.port, s.used = "pages.example", "80", func(string) {}
	return s
}

// Whatever a request consists of, nothing is given to one without the cookie or with the name of another host, nothing but GET and
// HEAD is done, and every answer has what keeps other sites out.
func FuzzRequests(f *testing.F) {
	for _, request := range []string{
		"GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: NAME=SECRET\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: localhost:80\r\nCookie: NAME=SECRET; NAME=x\r\n\r\n",
		"HEAD /run.html?id=1 HTTP/1.0\r\nHost: [::1]:80\r\nCookie: a=b; NAME=SECRET\r\nRange: bytes=0-5\r\n\r\n",
		"GET /\xf5 HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: NAME=SECRET\r\n\r\n",
		"GET /?token=TOKEN HTTP/1.1\r\nHost: pages.example\r\n\r\n",
		"GET /?token=wrong HTTP/1.1\r\nHost: 127.0.0.1\r\nReferer: http://127.0.0.1/?token=TOKEN\r\n\r\n",
		"GET /api/v1/runs/1/ranks HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: 127.0.0.1\r\nCookie: NAME=SECRET\r\n\r\n",
		"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: NAME=SECRET\r\nContent-Length: 3\r\nX-HTTP-Method-Override: GET\r\n\r\nabc",
		"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\nAccess-Control-Request-Method: GET\r\n\r\n",
		"GET http://evil.example/api/v1/names HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: NAME=SECRET\r\n\r\n",
		"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "GET //evil.example/..%2f HTTP/1.1\r\nHost: 127.0.0.1:80\r\nCookie: NAME=SECRET\r\nIf-None-Match: *\r\n\r\n",
	} {
		f.Add(request)
	}
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, request string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.NewReplacer("NAME", s.cookie(), "SECRET", s.secret, "TOKEN", s.token).Replace(request))))
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // some requests stay open
		defer cancel()
		r = r.WithContext(ctx)
		token := s.token
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		given := w.Code < 300 || w.Header().Get("Set-Cookie") != ""
		let := strings.Contains(strings.Join(r.Header["Cookie"], ";"), s.secret) || r.URL.Query().Get("token") == token
		host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
		named := strings.Contains(host, "example") && host != "pages.example"
		if given && (!let || named || r.Method != "GET" && r.Method != "HEAD") {
			t.Fatalf("%q is answered: %d %v", request, w.Code, w.Header())
		}
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"} {
			if w.Header().Get(name) != want {
				t.Fatalf("%q: %s is %q", request, name, w.Header().Get(name))
			}
		}
		if w.Code >= 500 && w.Code != 503 || strings.Contains(w.Header().Get("Location"), "//") || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Fatalf("%q: %d %v", request, w.Code, w.Header())
		}
	})
}
