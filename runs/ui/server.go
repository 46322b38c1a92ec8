// Package ui serves the history as web pages (drun ui), and writes them as files. The pages are static; their script
// fetches the JSON under /api/v1/, which has the shapes of the command line's --json. It only reads, but for what write.go says.
package ui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"drun/checkpoints"
	"drun/history"
	"drun/internal/exit"
	"drun/runs/report"
	"drun/runs/serve/access"
)

//go:embed assets
var embedded embed.FS

var assets = func() fs.FS {
	files, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // a mistake in the build
	}
	return files
}()

// Server answers browsers' requests. All requests need the cookie that an address with a token gives, unless another server has found
// out who makes them (see Pages).
type Server struct {
	Write bool // the pages may name, tag, annotate, stop and remove runs

	home   string
	host   string // that it was told to listen on
	port   string
	secret string // value of the cookie
	used   func(address string)

	mu     sync.Mutex
	token  string // good for one browser
	db     *history.DB
	store  *checkpoints.Store
	cache  *cache
	chosen chosen
	opened []func() error // closes what was opened; also what requests may still read of a history that was replaced
	busy   chan struct{}  // limits concurrent requests that read much
	sends  chan struct{}  // limits requests that send files, which may take long
	events chan struct{}  // limits requests that stay open
}

const (
	busyAtMost   = 4
	sendsAtMost  = 4
	eventsAtMost = 100
)

// New makes the server of the history beneath home, which need not exist yet. Close releases what it opens.
func New(home string) *Server {
	return &Server{home: home, secret: rand.Text(), token: rand.Text(), cache: newCache(pointsInMemory),
		busy: make(chan struct{}, busyAtMost), sends: make(chan struct{}, sendsAtMost), events: make(chan struct{}, eventsAtMost)}
}

func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, shut := range s.opened {
		err = errors.Join(err, shut())
	}
	s.opened, s.db, s.store = nil, nil, nil
	return err
}

// Serve answers until ctx ends, and then waits a moment for requests in progress. It calls used with an address for
// the next browser at the start, and whenever a token has been used up.
func (s *Server) Serve(ctx context.Context, listener net.Listener, host string, used func(address string)) error {
	s.host, s.used = host, used
	_, s.port, _ = net.SplitHostPort(listener.Addr().String())
	used(s.address())
	server := &http.Server{Handler: s.Handler(), ReadTimeout: 30 * time.Second}
	return Until(ctx, server, func() error { return server.Serve(listener) })
}

// Until has a server answer until ctx ends, and then waits a moment for requests in progress.
func Until(ctx context.Context, server *http.Server, serve func() error) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	server.ReadHeaderTimeout, server.IdleTimeout, server.MaxHeaderBytes = 10*time.Second, 2*time.Minute, 64<<10
	server.BaseContext = func(net.Listener) context.Context { return serving }
	ended := make(chan error, 1)
	go func() { ended <- serve() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop()
	wait, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if server.Shutdown(wait) != nil {
		server.Close()
	}
	_ = <-ended
	return nil
}

// address returns the address at which a browser finds the pages, including a token that admits it.
func (s *Server) address() string {
	host := s.host
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("http://%s/?token=%s", net.JoinHostPort(host, s.port), s.token)
}

func (s *Server) cookie() string { return "drun-" + s.port }

func (s *Server) Handler() http.Handler {
	pages := s.pagesFor()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w)
		switch {
		case !s.knows(r.Host):
			fail(w, http.StatusForbidden, exit.WithHint(fmt.Errorf("the host %q is not this server", r.Host), "open the address that drun ui prints"))
		case r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.Query().Has("token"):
			s.letIn(w, r)
		case s.isIn(r) || r.Method != http.MethodGet && r.Method != http.MethodHead && !s.Write: // for which there is a better error
			role := access.Read
			if s.Write {
				role = access.Write
			}
			pages.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.User{Grants: []access.Grant{{Role: role}}}, nil)))
		default:
			fail(w, http.StatusForbidden, exit.WithHint(errors.New("this browser has not been let in"), "open the newest address that drun ui has printed: each is good for one browser"))
		}
	})
}

// Pages answers the requests of users whom another server has let in (see access.With).
func (s *Server) Pages() http.Handler {
	pages := s.pagesFor()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w)
		pages.ServeHTTP(w, r)
	})
}

func (s *Server) pagesFor() http.Handler {
	mux := http.NewServeMux()
	s.handle(mux)
	s.handleChanges(mux)
	servePages(mux)
	files := http.FileServerFS(assets)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		if !utf8.ValidString(r.URL.Path) { // cannot be a file name
			http.NotFound(w, r)
			return
		}
		files.ServeHTTP(w, r)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead && !(writes(r) && r.Method == http.MethodPost):
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, http.StatusMethodNotAllowed, exit.WithHint(errors.New("the pages only read"), "drun ui --write lets them name, tag, annotate, stop and remove runs"))
		case r.Method == http.MethodPost && !s.mayWrite(r):
			fail(w, http.StatusForbidden, errors.New("only these pages may change something, with JSON"))
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

func headers(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerWithin))
}

// policy allows only content from this server, and no inline script or style.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"

// answerWithin limits how long a client may take to receive an answer.
const answerWithin = time.Minute

// knows reports whether a request names this server by an address, not by a name that somebody may have pointed here.
func (s *Server) knows(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "80"
	}
	if port != s.port {
		return false
	}
	_, err = netip.ParseAddr(name)
	return err == nil || name == "localhost" || name == s.host
}

// letIn gives the browser the cookie in exchange for a token, which is then used up.
func (s *Server) letIn(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	good := same(r.URL.Query().Get("token"), s.token)
	if good {
		s.token = rand.Text()
	}
	s.mu.Unlock()
	switch {
	case good:
		http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		s.used(s.address())
	case !s.isIn(r):
		fail(w, http.StatusForbidden, exit.WithHint(errors.New("the token in the address is wrong, or has been used"), "open the newest address that drun ui has printed: each is good for one browser"))
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther) // so that the token does not stay in the address
}

func (s *Server) isIn(r *http.Request) bool {
	cookie, err := r.Cookie(s.cookie())
	return err == nil && same(cookie.Value, s.secret)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = report.JSON(w, struct {
		Error string `json:"error"`
		Hint  string `json:"hint,omitempty"`
	}{err.Error(), exit.HintOf(err)}, "")
}

// tooMany is the error of a request that exceeds a limit on concurrent requests.
type tooMany struct{ what string }

func (e *tooMany) Error() string { return e.what }

func statusOf(err error) int {
	if errors.As(err, new(*history.NotFound)) || errors.As(err, new(*history.ErrNone)) || errors.As(err, new(*checkpoints.ErrNone)) {
		return http.StatusNotFound
	}
	if access.IsDenied(err) {
		return http.StatusForbidden
	}
	if errors.As(err, new(*tooMany)) {
		return http.StatusServiceUnavailable
	}
	if exit.CodeOf(err) == exit.Usage {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// history opens the history once it exists, and again if another file has taken its name.
func (s *Server) history() (*history.DB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db != nil && s.db.Replaced() {
		s.db, s.store = nil, nil
	}
	if s.db == nil {
		db, err := history.OpenReadOnly(s.home)
		if err != nil {
			return nil, err
		}
		s.db, s.opened = db, append(s.opened, db.Close)
	}
	return s.db, nil
}

// checkpoints opens the checkpoints once they exist; nil: there are none.
func (s *Server) checkpoints() (*checkpoints.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		store, err := checkpoints.OpenIfAny(s.home)
		if store == nil || err != nil {
			return nil, err
		}
		s.store, s.opened = store, append(s.opened, store.Close)
	}
	return s.store, nil
}
