package serve

import (
	"crypto/rand"
	_ "embed"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"drun/runs/serve/access"
	"drun/runs/transfer"
)

var (
	//go:embed assets/login.html
	loginPage []byte
	//go:embed assets/login.css
	loginStyle []byte
)

// A browser that has sent a token gets a cookie in its place, which is good until it was not used for a while, or the
// token was revoked.
type sessions struct {
	mu   sync.Mutex
	open map[string]*session // by the cookie's value
}

type session struct {
	hash string // of the token
	used time.Time
}

const (
	sessionFor   = 12 * time.Hour // without a request
	mostSessions = 10_000
)

func (s *sessions) begin(hash string) (value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for value, one := range s.open {
		if time.Since(one.used) > sessionFor || len(s.open) >= mostSessions {
			delete(s.open, value)
		}
	}
	value = rand.Text()
	s.open[value] = &session{hash, time.Now()}
	return value
}

// token is the hash of the token that a cookie stands for; "": none.
func (s *sessions) token(value string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.open[value]
	if one == nil || time.Since(one.used) > sessionFor {
		delete(s.open, value)
		return ""
	}
	one.used = time.Now()
	return one.hash
}

func (s *sessions) end(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, value)
}

const cookieName = "drun-session"

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost {
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(loginPage)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	hash := hashOf(strings.TrimSpace(r.PostFormValue("token")))
	_, is, err := userWith(s.Home, hash)
	if err != nil {
		transfer.Fail(w, err)
		return
	}
	if !is {
		s.wrong(w, r)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: s.sessions.begin(hash), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		s.sessions.end(c.Value)
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1})
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// identify finds the user of a request, and answers it itself if there is none.
func (s *Server) identify(w http.ResponseWriter, r *http.Request) (user access.User, hash string, is bool) {
	token := tokenOf(r)
	if c, err := r.Cookie(cookieName); token != "" {
		hash = hashOf(token)
	} else if err == nil {
		hash = s.sessions.token(c.Value)
	}
	user, is, err := userWith(s.Home, hash)
	user.Via = s.via(r)
	switch {
	case err != nil:
		transfer.Fail(w, err)
	case is:
	case token == "" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
		http.Redirect(w, r, "/login", http.StatusSeeOther)
	default:
		s.wrong(w, r)
	}
	return user, hash, is && err == nil
}

// wrong answers a request without a token that is known. Who sends many of them waits.
func (s *Server) wrong(w http.ResponseWriter, r *http.Request) {
	if !s.limits.allow("from "+s.via(r), mostWrong, burstWrong) {
		slowDown(w)
		return
	}
	s.audit.log(access.User{Via: s.via(r)}, access.Event{Action: "refused", What: r.Method + " " + r.URL.Path})
	w.Header().Set("WWW-Authenticate", `Bearer realm="drun"`)
	transfer.Fail(w, unknown)
}

// via is the address that a request comes from: that which a reverse proxy on this machine names, if there is one.
func (s *Server) via(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	if at, err := netip.ParseAddr(host); err == nil && at.IsLoopback() {
		list := strings.Split(r.Header.Get("X-Forwarded-For"), ",")
		if far := strings.TrimSpace(list[len(list)-1]); far != "" && len(far) < 100 {
			return far
		}
	}
	return host
}

// limits are how often somebody may ask.
type limits struct {
	mu sync.Mutex
	by map[string]*rate.Limiter
}

// A user may make 100 requests a second, and more for a moment; a browser loads some twenty for a page.
const (
	mostAsked  = 100
	burstAsked = 500
	mostWrong  = 0.5
	burstWrong = 20
)

func (l *limits) allow(who string, most rate.Limit, burst int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.by) > 10_000 {
		clear(l.by)
	}
	if l.by[who] == nil {
		l.by[who] = rate.NewLimiter(most, burst)
	}
	return l.by[who].Allow()
}

func slowDown(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "2")
	transfer.Fail(w, &transfer.Refused{Status: http.StatusTooManyRequests, What: "too many requests", Do: "wait a moment"})
}
