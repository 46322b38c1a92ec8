// Package serve is a team's server (drun serve): the history of a home as pages for many people, and as an API for the
// drun of each of them. It finds out who makes a request before anything else sees it.
//
// A further API, such as MLflow's (runs/serve/mlflow), is an http.Handler that is added with [Server.Mount]. It is called
// only for requests of known users, whom access.Of(request.Context()) returns: Must and May compare the user's role with
// the project of a run, which is its column project_name (history.Summary.ProjectName); Within lists the projects for
// history.DB.Within, which hides the runs of others; Log writes to the audit log, after a change. The handler reads with
// [Server.Reader] and writes with [Server.Writer], whose one connection all writers share, so that no request waits for a
// lock of this process. A run that no process of this machine leads counts as running until its column leased.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
	"drun/runs/serve/access"
	"drun/runs/serve/objects"
	"drun/runs/transfer"
	"drun/runs/ui"
)

// Options say what is served, and how.
type Options struct {
	Home string
	// Artifacts is the bucket, as s3://BUCKET/PREFIX, of artifacts and of the chunks of checkpoints; "": the home keeps them.
	Artifacts string
	Cert      string // files of TLS; "": the connection is not encrypted
	Key       string

	Backup  string        // the folder of backups; "": there are none
	Every   time.Duration // between two of them
	Collect func() error  // frees what was removed
	Say     func(text string)
}

// Server is a team's server.
type Server struct {
	Options
	bucket   *objects.Bucket // nil: there is none
	saved    history.Stamp   // of the home when it was copied there
	home     *transfer.Home
	pages    *ui.Server
	sessions sessions
	limits   limits
	mux      *http.ServeMux
	audit    audit
	measured *metrics.Set
}

// New opens the home, which is made if it is not there, and the bucket, which is used until ctx ends.
func New(ctx context.Context, o Options) (_ *Server, err error) {
	defer try.Caught(&err)
	s := &Server{Options: o, home: try.To(transfer.OpenHome(o.Home, true)), pages: ui.New(o.Home),
		sessions: sessions{open: map[string]*session{}}, limits: limits{by: map[string]*rate.Limiter{}}, mux: http.NewServeMux(), measured: metrics.NewSet()}
	if s.Say == nil {
		s.Say = func(string) {}
	}
	s.audit.path = filepath.Join(o.Home, "audit.log")
	defer try.CaughtOr(&err, func() { s.Close() })
	try.Ok(s.keepFiles(ctx))
	s.Mount("POST "+transfer.Path+"{method}", transfer.Handler(s.home))
	s.Mount("/", s.pages.Pages())
	s.Mount("GET /metrics", http.HandlerFunc(s.metrics))
	s.Mount("POST /logout", http.HandlerFunc(s.logout))
	return s, nil
}

func (s *Server) Close() error { return errors.Join(s.pages.Close(), s.home.Close()) }

func (s *Server) Reader() *history.DB { return s.home.Reader() }
func (s *Server) Writer() *history.DB { return s.home.Writer() }

// Mount adds a handler for requests that match a pattern of http.ServeMux.
func (s *Server) Mount(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// Handler answers all requests.
func (s *Server) Handler() http.Handler {
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", s.healthy)
	open.HandleFunc("/login", s.login)
	open.HandleFunc("GET /login.css", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(loginStyle)
	})
	open.Handle("/", s.known(s.mux))
	return open
}

func (s *Server) healthy(w http.ResponseWriter, _ *http.Request) {
	if _, err := s.Reader().States([]string{}); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// tokenOf is the token of a request: a bearer's, or the password of basic authentication.
func tokenOf(r *http.Request) string {
	if token, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		return token
	}
	_, password, _ := r.BasicAuth()
	return password
}

// streamFor is how long a stream of events goes on before the browser asks again, and its user is looked up again.
const streamFor = 10 * time.Minute

// known passes on the requests of users.
func (s *Server) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, hash, is := s.identify(w, r)
		if !is {
			return
		}
		if !s.limits.allow(hash, mostAsked, burstAsked) {
			slowDown(w)
			return
		}
		ctx := access.With(r.Context(), user, func(e access.Event) { s.audit.log(user, e) })
		if strings.HasSuffix(r.URL.Path, "/events") {
			until, cancel := context.WithTimeout(ctx, streamFor)
			defer cancel()
			ctx = until
		}
		began, answer := time.Now(), &answered{ResponseWriter: w}
		next.ServeHTTP(answer, r.WithContext(ctx))
		s.measure(r, answer.status, time.Since(began))
		if answer.status == http.StatusForbidden {
			s.audit.log(user, access.Event{Action: "refused", What: r.Method + " " + r.URL.Path})
		}
	})
}

// unknown is the error of a request whose user is not known.
var unknown = &transfer.Refused{Status: http.StatusUnauthorized, What: "the token is missing, wrong or was revoked", Code: exit.Usage,
	Do: "drun login URL keeps a token, or set DRUN_TOKEN; whoever runs the server makes one with drun serve users add"}

// Serve answers until ctx ends, and then waits a moment for requests in progress.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	serving, stop := context.WithCancel(ctx)
	var caring sync.WaitGroup
	defer caring.Wait()
	defer stop()
	caring.Go(func() { s.every(serving, saveEvery, time.Time{}, "artifacts are not up to date", s.keepUp) })
	caring.Go(func() { s.every(serving, rulesEvery, time.Time{}, "what the rules remove", s.applyRules) })
	if _, last := backups(s.Backup); s.Backup != "" {
		caring.Go(func() { s.every(serving, s.Every, last, "the backup", s.backUp) })
	}
	server := &http.Server{Handler: s.Handler(), ReadTimeout: 5 * time.Minute}
	return ui.Until(serving, server, func() error {
		if s.Cert != "" {
			return server.ServeTLS(listener, s.Cert, s.Key)
		}
		return server.Serve(listener)
	})
}

// audit is the log of who did what: a line of JSON each.
type audit struct {
	path string
	mu   sync.Mutex
}

// mostAudited is the size in bytes at which the log becomes audit.log.1, and a new one begins.
const mostAudited = 64 << 20

func (a *audit) log(u access.User, e access.Event) {
	text, _ := json.Marshal(struct {
		Time time.Time `json:"time"`
		User string    `json:"user"`
		Via  string    `json:"via"`
		access.Event
	}{time.Now().UTC(), u.Name, u.Via, e})
	a.mu.Lock()
	defer a.mu.Unlock()
	if info, err := os.Stat(a.path); err == nil && info.Size() > mostAudited {
		_ = os.Rename(a.path, a.path+".1")
	}
	file, err := os.OpenFile(a.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, sqldb.FileMode)
	if err == nil {
		_, err = file.Write(append(text, '\n'))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "drun: the audit log cannot be written: %v\n", err)
	}
}
