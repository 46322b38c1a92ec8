package ui

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"drun/history"
	"drun/history/records"
)

// BenchmarkCurves is the request of a chart of 20 runs with 100,000 points each, which are in memory.
func BenchmarkCurves(b *testing.B) {
	home := b.TempDir()
	db, err := history.Open(home)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	query := url.Values{"metric": {"loss"}, "points": {"900"}}
	for i := range 20 {
		random := rand.New(rand.NewPCG(uint64(i), 2))
		r, err := db.Begin(history.RunInfo{Name: fmt.Sprint("long-", i), Recipe: "long.star", WorldSize: 1, Backend: "shm", Threads: 1})
		if err != nil {
			b.Fatal(err)
		}
		batch := &history.Batch{End: &history.End{Status: history.Done, Seconds: 100}}
		for step := range 100_000 {
			batch.Points = append(batch.Points, records.Point{Name: "loss", Step: int64(step), Value: random.NormFloat64(), Time: time.Now()})
		}
		if err := r.Write(batch); err != nil {
			b.Fatal(err)
		}
		query.Add("run", fmt.Sprint(r.ID))
	}
	s := New(home)
	defer s.Close()
	s.port = "80"
	handler := s.Handler()
	ask := func() {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/api/v1/curves", RawQuery: query.Encode()}, Host: "127.0.0.1:80", Header: http.Header{}}
		r.AddCookie(&http.Cookie{Name: s.cookie(), Value: s.secret})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
	ask()
	time.Sleep(3 * time.Second) // files that were just written are looked at each time
	ask()
	for b.Loop() {
		ask()
	}
}
