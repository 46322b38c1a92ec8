package ui

import (
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
		"runs/1/checkpoints/last/safetensors", "names", "compare", "curves", "runs/1/histograms", "runs/%2e%2e/%00", "../../etc/passwd", "nothing"} {
		for _, query := range []string{"", "where=params.lr<1&sort=-metrics.loss.last&columns=id,tags&limit=3&offset=1", "run=1&run=2&metric=loss&x=time&smooth=0.5&from=-1e300&to=5&points=4",
			"rank=-1&grep=a(b&after=9223372036854775807", "where=[x+for+x+in+range(9)]&tag=\"\\&with=2", "name=loss&points=4&attempt=0", "%zz=1;2", "run=1&metric=acc&from=Inf&to=-Inf&x=relative",
			"group=params.lr&columns=id,tags", "run=1&run=2&run=3&metric=loss&group=params.act&x=time&points=4&from=1e300"} {
			f.Add(path, query)
		}
	}
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
	s.port = "80"
	handler := s.Handler()
	f.Fuzz(func(t *testing.T, path, query string) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/api/v1/" + path, RawQuery: query}, Host: "127.0.0.1:80", Header: http.Header{}}
		if strings.HasSuffix(path, "events") {
			cancel() // it would stay open
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
