package serve

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/runs/serve/access"
	"drun/runs/transfer"
)

// team is a server with a user of each role.
type team struct {
	*httptest.Server
	home   string
	tokens map[string]string
}

func newTeam(t *testing.T) *team {
	t.Helper()
	home := t.TempDir()
	s, err := New(t.Context(), Options{Home: home})
	ok(t, err)
	all := &team{httptest.NewServer(s.Handler()), home, map[string]string{}}
	t.Cleanup(func() {
		all.Close()
		ok(t, s.Close())
	})
	for name, grant := range map[string]access.Grant{"reader": {Role: access.Read}, "writer": {Role: access.Write}, "admin": {Role: access.Admin}, "vision": {Role: access.Write, Project: "vision"}} {
		all.tokens[name], err = AddUser(home, name, []access.Grant{grant})
		ok(t, err)
	}
	return all
}

func (s *team) as(t *testing.T, name string) *transfer.Remote {
	r := transfer.NewRemote(http.DefaultClient, s.URL, s.tokens[name])
	r.Patience = 0
	t.Cleanup(func() { r.Close() })
	return r
}

// run makes a home with a run of some points that still goes on.
func run(t *testing.T, project string, points int) (home *transfer.Home, r *history.Run, db *history.DB) {
	t.Helper()
	path := t.TempDir()
	db, err := history.Open(path)
	ok(t, err)
	t.Cleanup(func() { db.Close() })
	r, err = db.Begin(history.RunInfo{Recipe: "x.star", WorldSize: 1, Backend: "shm", ProjectName: project})
	ok(t, err)
	ok(t, r.BeginAttempt())
	ok(t, r.Write(&history.Batch{Batch: records.Batch{Points: some(points)}}))
	home, err = transfer.OpenHome(path, false)
	ok(t, err)
	t.Cleanup(func() { home.Close() })
	return home, r, db
}

// edit changes a history as no drun does.
func edit(t *testing.T, home, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite3", filepath.Join(home, "history.db"))
	ok(t, err)
	_, err = db.Exec(statement)
	ok(t, err)
	ok(t, db.Close())
}

func some(n int) (list []records.Point) {
	for i := range n {
		list = append(list, records.Point{Name: "loss", Step: int64(i), Value: float64(i), Time: time.Unix(1, 0)})
	}
	return list
}

func copyTo(t *testing.T, home *transfer.Home, r *history.Run, to transfer.Side) error {
	t.Helper()
	_, err := transfer.Copy(transfer.Local(t.Context()), home, to, []transfer.Found{{ID: r.ID, UID: r.UID, Name: r.Name}}, transfer.Options{Weights: "all", Say: func(string) {}})
	return err
}

func (s *team) points(t *testing.T, uid string) int64 {
	t.Helper()
	db, err := history.OpenReadOnly(s.home)
	ok(t, err)
	defer db.Close()
	e, err := db.Extent(uid)
	ok(t, err)
	return e.Points
}

func TestRoles(t *testing.T) {
	s := newTeam(t)
	home, r, _ := run(t, "", 3)
	inVision, v, _ := run(t, "vision", 3)
	for _, c := range []struct {
		who  string
		home *transfer.Home
		run  *history.Run
		want string
	}{
		{"reader", home, r, "reader may not write runs without a project"},
		{"vision", home, r, "vision may not write runs without a project"},
		{"nobody", home, r, "the token is missing, wrong or was revoked"},
		{"writer", home, r, ""},
		{"vision", home, r, "vision may not read runs without a project"}, // although the run says nothing, the server has it elsewhere
		{"vision", inVision, v, ""},
		{"writer", inVision, v, ""},
		{"reader", inVision, v, ""}, // nothing is to be written
	} {
		err := copyTo(t, c.home, c.run, s.as(t, c.who))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.who, err, c.want)
		}
	}
	for who, want := range map[string]int{"reader": 2, "vision": 1} {
		found, err := transfer.Find(t.Context(), s.as(t, who), transfer.Choice{})
		ok(t, err)
		if len(found) != want {
			t.Errorf("%s finds %v", who, found)
		}
	}
	if _, err := transfer.Since(t.Context(), s.as(t, "reader"), transfer.Lacks{UID: r.UID, Have: history.Extent{UID: r.UID}, Secrets: true}); err == nil || !strings.Contains(err.Error(), "may not administer") {
		t.Errorf("a reader gets secrets: %v", err)
	}
	if _, err := transfer.Since(t.Context(), s.as(t, "admin"), transfer.Lacks{UID: r.UID, Have: history.Extent{UID: r.UID}, Secrets: true}); err != nil {
		t.Error(err)
	}
}

func TestRevokedTokens(t *testing.T) {
	s := newTeam(t)
	writer := s.as(t, "writer")
	_, err := transfer.Greet(t.Context(), writer, struct{}{})
	ok(t, err)
	_, err = RevokeUser(s.home, "writer")
	ok(t, err)
	if _, err := transfer.Greet(t.Context(), writer, struct{}{}); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked token: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(s.home, "users.json"))
	ok(t, err)
	for name, token := range s.tokens {
		if strings.Contains(string(text), token) {
			t.Errorf("the token of %s is in the file", name)
		}
	}
	for range 2 * burstWrong {
		_, err = transfer.Greet(t.Context(), s.as(t, "nobody"), struct{}{})
	}
	if refused := (*transfer.Refused)(nil); !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests {
		t.Errorf("after many wrong tokens: %v", err)
	}
	if _, err := transfer.Greet(t.Context(), s.as(t, "admin"), struct{}{}); err != nil {
		t.Errorf("others are kept waiting: %v", err)
	}
}

// post sends a body as a request of the writer.
func (s *team) post(t *testing.T, method string, body io.Reader, change func(*http.Request)) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, s.URL+transfer.Path+method, body)
	ok(t, err)
	request.Header.Set("Authorization", "Bearer "+s.tokens["writer"])
	if change != nil {
		change(request)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Requests that no drun makes are refused, and the server goes on.
func TestBadRequests(t *testing.T) {
	s := newTeam(t)
	sum := func(body string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Content-Digest", transfer.DigestOf([]byte(body))) }
	}
	for _, c := range []struct {
		method, body string
		digest       bool
		status       int
		says         string
	}{
		{"merge", "", false, 400, "digest"},
		{"merge", "\xa0", false, 400, "digest"},
		{"merge", "\xa0", true, 400, "is no part of a run"},
		{"merge", strings.Repeat("\x81", 100_000), true, 400, "cannot be read"},
		{"merge", "\x9b\xff\xff\xff\xff\xff\xff\xff\xff", true, 400, "cannot be read"},
		{"merge", "not CBOR", true, 400, "cannot be read"},
		{"enter", "\xa0", true, 404, "there is no run"},
		{"receive", "\xa0", true, 404, "there is no run"},
		{"nonsense", "\xa0", true, 404, "there is no request"},
		{"states", "\x81\x60", true, 200, ""},
	} {
		change := sum(c.body)
		if !c.digest {
			change = nil
		}
		if status, text := s.post(t, c.method, strings.NewReader(c.body), change); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %.20q: %d %.200s", c.method, c.body, status, text)
		}
	}
	status, text := s.post(t, "merge", io.LimitReader(zeros{}, 1<<30), nil)
	if status != http.StatusRequestEntityTooLarge && !strings.Contains(text, "broken pipe") && !strings.Contains(text, "connection reset") {
		t.Errorf("a request of a gigabyte: %d %s", status, text)
	}
	// A request that is cut short leaves nothing, and a connection that stays open for ever keeps nobody waiting.
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	ok(t, err)
	fmt.Fprintf(conn, "POST %smerge HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\nhalf", transfer.Path, s.tokens["writer"])
	defer conn.Close()
	if _, err := transfer.Greet(t.Context(), s.as(t, "writer"), struct{}{}); err != nil {
		t.Error(err)
	}
}

// tampered changes the bodies of requests on their way: it sends each twice, and cuts some short.
type tampered struct {
	cut, twice bool
	n          int
}

func (c *tampered) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	send := func(body []byte) (*http.Response, error) {
		again := r.Clone(r.Context())
		again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return http.DefaultTransport.RoundTrip(again)
	}
	if c.n++; c.cut && c.n%3 == 0 && len(body) > 2 {
		return send(body[:len(body)/2])
	}
	if c.twice {
		if response, err := send(body); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if c.n%3 == 1 {
				return nil, errors.New("the answer is lost")
			}
		}
	}
	return send(body)
}

// Whatever happens to requests, each point arrives once.
func TestBadNetwork(t *testing.T) {
	for _, way := range []tampered{{twice: true}, {cut: true}} {
		s := newTeam(t)
		home, r, _ := run(t, "", 40_000)
		to := transfer.NewRemote(&http.Client{Transport: &way}, s.URL, s.tokens["writer"])
		to.Patience = 20 * time.Second
		for range 10 {
			if err := copyTo(t, home, r, to); err == nil {
				break
			} else if !way.cut {
				t.Fatal(err)
			}
		}
		if n := s.points(t, r.UID); n != 40_000 {
			t.Errorf("%+v: %d points have arrived", way, n)
		}
		ok(t, copyTo(t, home, r, s.as(t, "writer"))) // compares all points
	}
}

// Sides of other versions are refused with words; what is newer is not cut down to what an older one knows.
func TestVersions(t *testing.T) {
	s := newTeam(t)
	home, r, _ := run(t, "", 3)
	for _, c := range []struct {
		change func(*transfer.Hello)
		want   string
	}{
		{func(h *transfer.Hello) { h.Version++ }, "copy runs in different ways"},
		{func(h *transfer.Hello) { h.Schema-- }, "is older than the sending one"},
		{func(h *transfer.Hello) { h.Schema++ }, ""},
	} {
		err := copyTo(t, home, r, &otherVersion{s.as(t, "writer"), c.change})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

type otherVersion struct {
	transfer.Side
	change func(*transfer.Hello)
}

func (o *otherVersion) Ask(ctx context.Context, name string, in, out any) error {
	err := o.Side.Ask(ctx, name, in, out)
	if hello, is := out.(*transfer.Hello); is {
		o.change(hello)
	}
	return err
}

// Two homes in which a run differs, if only in one value, are not mixed.
func TestTwoContents(t *testing.T) {
	s := newTeam(t)
	home, r, _ := run(t, "", 100)
	ok(t, copyTo(t, home, r, s.as(t, "writer")))
	edit(t, home.Path(), "UPDATE metric_blocks SET v3 = 77 WHERE seq = 33")
	if err := copyTo(t, home, r, s.as(t, "writer")); !errors.As(err, new(*history.Diverged)) {
		t.Errorf("another value: %v", err)
	}
}

// A run is removed on the server while it is being sent: it arrives anew.
func TestRemovedMeanwhile(t *testing.T) {
	s := newTeam(t)
	home, r, db := run(t, "", 10)
	ok(t, copyTo(t, home, r, s.as(t, "writer")))
	edit(t, s.home, "PRAGMA foreign_keys = ON; DELETE FROM runs")
	ok(t, r.Write(&history.Batch{Batch: records.Batch{Points: some(5)}}))
	ok(t, copyTo(t, home, r, s.as(t, "writer")))
	if n := s.points(t, r.UID); n != 15 {
		t.Errorf("%d points have arrived", n)
	}
	ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Done}}))
	ok(t, db.Trash([]int64{r.ID}))
	_, err := db.Purge(r.ID, func() (bool, error) { return false, nil })
	ok(t, err)
	if err := copyTo(t, home, r, s.as(t, "writer")); !errors.As(err, new(*history.NotFound)) {
		t.Errorf("a run that is gone here: %v", err)
	}
}

// Hostile names reach the pages as text, and no file.
func TestHostileNames(t *testing.T) {
	s := newTeam(t)
	path := t.TempDir()
	db, err := history.Open(path)
	ok(t, err)
	defer db.Close()
	evil := "\x1b]52;c;ZXZpbA==\x07<script>alert(1)</script>\u202e\n\x00"
	r, err := db.Begin(history.RunInfo{Recipe: evil, WorldSize: 1, Backend: evil, Given: records.Given{Version: evil, Command: []string{evil}}})
	ok(t, err)
	ok(t, r.Write(&history.Batch{Params: []history.Param{{Name: evil, Value: evil}}, Lines: []history.LogLine{{Stream: "stdout", Time: time.Unix(1, 0), Text: evil}},
		Batch: records.Batch{Tags: []string{evil}, Notes: []records.Note{{Time: time.Unix(1, 0), Text: evil}}, Points: []records.Point{{Name: evil, Time: time.Unix(1, 0)}},
			Artifacts: []records.Artifact{{Name: "../../../" + evil, Kind: "text", Data: []byte(evil), Time: time.Unix(1, 0)}}},
		End: &history.End{Status: history.Failed, Error: evil}}))
	home, err := transfer.OpenHome(path, false)
	ok(t, err)
	defer home.Close()
	ok(t, copyTo(t, home, r, s.as(t, "writer")))
	for _, page := range []string{"runs", "runs/1", "runs/1/logs", "runs/1/artifacts", "names"} {
		request, err := http.NewRequest(http.MethodGet, s.URL+"/api/v1/"+page, nil)
		ok(t, err)
		request.Header.Set("Authorization", "Bearer "+s.tokens["reader"])
		response, err := http.DefaultClient.Do(request)
		ok(t, err)
		text, err := io.ReadAll(response.Body)
		ok(t, err)
		response.Body.Close()
		var v any
		if err := json.Unmarshal(text, &v); err != nil || response.StatusCode != 200 {
			t.Errorf("%s: %d %v", page, response.StatusCode, err)
		}
	}
	log, err := os.ReadFile(filepath.Join(s.home, "audit.log"))
	ok(t, err)
	for line := range strings.Lines(string(log)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the audit log: %q", line)
		}
	}
}
