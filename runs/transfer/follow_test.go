package transfer_test

import (
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/runs/transfer"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// began makes a home with a run that goes on.
func began(t *testing.T) (home string, db *history.DB, r *history.Run) {
	t.Helper()
	home = t.TempDir()
	db, err := history.Open(home)
	ok(t, err)
	t.Cleanup(func() { db.Close() })
	r, err = db.Begin(history.RunInfo{Recipe: "x.star", WorldSize: 1, Backend: "shm"})
	ok(t, err)
	ok(t, r.BeginAttempt())
	return home, db, r
}

func log(t *testing.T, r *history.Run, n int) {
	t.Helper()
	b := &history.Batch{}
	for i := range n {
		b.Points = append(b.Points, records.Point{Name: "x", Value: float64(i), Time: time.Unix(1, 0)})
	}
	ok(t, r.Write(b))
}

// A server that accepts requests and never answers keeps a run waiting for some seconds at its end, and not before.
func TestServerThatHangs(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer listener.Close()
	home, db, r := began(t)
	server := "http://" + listener.Addr().String()
	f := &transfer.Follower{Home: home, Server: server, Weights: "all", Say: func(string) {}, Open: func() (*transfer.Remote, error) {
		return transfer.NewRemote(&http.Client{}, server, ""), nil
	}}
	start := time.Now()
	f.Follow(r.ID)
	for range 20 {
		log(t, r, 10)
	}
	ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Done}}))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the run has taken %v", took)
	}
	start = time.Now()
	if left := f.End(time.Minute, nil); left != 1 {
		t.Errorf("%d runs are left", left)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("its end has taken %v", took)
	}
	uids, err := db.NotedFor(server)
	ok(t, err)
	if len(uids) != 1 || uids[0] != r.UID {
		t.Errorf("noted are %v", uids)
	}
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	again := &transfer.Follower{Home: home, Server: server, Weights: "all", Say: func(string) {}, Open: f.Open}
	again.Follow(r.ID)
	if left := again.End(time.Minute, signals); left == 0 {
		t.Error("a signal has not ended it")
	}
}

// served is a home that a server has, and its address. before is called with each request, and may answer it.
func served(t *testing.T, before func(http.ResponseWriter) (goOn bool)) (there *transfer.Home, address string) {
	t.Helper()
	there, err := transfer.OpenHome(t.TempDir(), true)
	ok(t, err)
	t.Cleanup(func() { there.Close() })
	mux := http.NewServeMux()
	mux.Handle("POST "+transfer.Path+"{method}", transfer.Handler(there))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before(w) {
			mux.ServeHTTP(w, r.WithContext(transfer.Local(r.Context())))
		}
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return there, "http://" + listener.Addr().String()
}

// A server that is slow, and has failed once, is waited for at the end as long as it answers.
func TestSlowServer(t *testing.T) {
	var n atomic.Int64
	_, address := served(t, func(w http.ResponseWriter) bool {
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return false
		}
		<-time.After(time.Second)
		return true
	})
	home, _, r := began(t)
	log(t, r, 10)
	ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Done}}))
	f := &transfer.Follower{Home: home, Server: address, Weights: "all", Say: func(text string) { t.Error(text) }, Open: func() (*transfer.Remote, error) {
		return transfer.NewRemote(&http.Client{}, address, ""), nil
	}}
	f.Follow(r.ID)
	start := time.Now()
	if left := f.End(time.Minute, nil); left != 0 || time.Since(start) < 4*time.Second {
		t.Errorf("%d runs are left after %v", left, time.Since(start))
	}
}

// unsteady loses some requests and some answers.
type unsteady struct{ n atomic.Int64 }

func (u *unsteady) RoundTrip(r *http.Request) (*http.Response, error) {
	n := u.n.Add(1)
	if n%5 == 2 {
		return nil, net.ErrClosed
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && n%5 == 4 {
		response.Body.Close()
		return nil, net.ErrClosed
	}
	return response, err
}

// What a run records arrives once, over a connection that loses much.
func TestUnsteadyServer(t *testing.T) {
	there, address := served(t, func(http.ResponseWriter) bool { return true })
	home, db, r := began(t)
	f := &transfer.Follower{Home: home, Server: address, Weights: "all", Say: func(text string) { t.Error(text) }, Open: func() (*transfer.Remote, error) {
		return transfer.NewRemote(&http.Client{Transport: &unsteady{}}, address, ""), nil
	}}
	f.Follow(r.ID)
	for range 30 {
		log(t, r, 3000)
	}
	ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Done}}))
	if left := f.End(time.Minute, nil); left != 0 {
		t.Errorf("%d runs are left", left)
	}
	a, err := db.Digest(r.UID, 90_000, 0)
	ok(t, err)
	b, err := there.Reader().Digest(r.UID, 90_000, 0)
	ok(t, err)
	e, err := there.Reader().Extent(r.UID)
	ok(t, err)
	if e.Points != 90_000 || string(a) != string(b) || e.Status != history.Done {
		t.Errorf("there are %d points, %s", e.Points, e.Status)
	}
	uids, err := db.NotedFor(address)
	ok(t, err)
	if len(uids) != 0 {
		t.Errorf("noted are %v", uids)
	}
}
