package ui

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/serve/access"
)

// pages is what the pages may do, and the views that were saved, by name.
type pages struct {
	Write bool              `json:"write"`
	Views map[string]string `json:"views"` // parameters of the workspace's address
}

func (s *Server) pages(_ *history.DB, r *request) (any, error) {
	views, err := s.views()
	return &pages{writes(r.Request), views}, err
}

func (s *Server) viewsPath() string { return filepath.Join(s.home, "views.json") }

func (s *Server) views() (map[string]string, error) {
	views := map[string]string{}
	text, err := os.ReadFile(s.viewsPath())
	if errors.Is(err, os.ErrNotExist) {
		return views, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &views)
	}
	return views, exit.WithCode(err, exit.Storage)
}

// writes reports whether the user may change runs of some project.
func writes(r *http.Request) bool {
	within := access.Of(r.Context()).Within(access.Write)
	return within == nil || len(within) > 0
}

// mayWrite reports whether a request may change something: only one that a page of this server makes, since no other site can send
// JSON to it, or say that it comes from here.
func (s *Server) mayWrite(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	_, host, _ := strings.Cut(origin, "://")
	return writes(r) && kind == "application/json" && (site == "" || site == "same-origin") && (origin == "" || host == r.Host)
}

// changes are the requests that change something, with what they take as JSON.
var changes = map[string]func(s *Server, r *http.Request, read func(into any)) error{
	"runs/{run}": (*Server).changeRun,
	"pages":      (*Server).changeView,
}

const mostChanged = 64 << 10 // bytes of a request

func (s *Server) handleChanges(mux *http.ServeMux) {
	for path, change := range changes {
		mux.HandleFunc("POST "+apiPath+path, func(w http.ResponseWriter, r *http.Request) {
			err := func() (err error) {
				defer try.Caught(&err)
				return change(s, r, func(into any) {
					text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostChanged))
					if err == nil {
						err = json.Unmarshal(text, into)
					}
					if err != nil {
						try.Ok(exit.Errorf(exit.Usage, "the request: %v", err))
					}
				})
			}()
			if err != nil {
				fail(w, statusOf(err), err)
				return
			}
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = io.WriteString(w, "{}\n")
		})
	}
}

// changeRun names a run, tags it, adds a note, ends it, or moves it to the trash.
func (s *Server) changeRun(r *http.Request, read func(any)) error {
	var change struct {
		Name       string
		Tag, Untag []string
		Note       string
		Stop       bool
		Trash      bool
	}
	read(&change)
	db := try.To(history.Open(s.home))
	defer db.Close()
	who := access.Of(r.Context())
	db = db.Within(who.Within(access.Read))
	db.Who = who.Name
	id := try.To(db.Find(r.PathValue("run")))
	run := try.To(db.Get(id))
	try.Ok(who.Must(access.Write, run.ProjectName))
	for _, tag := range change.Tag {
		try.Ok(history.CheckTag(tag))
	}
	if change.Name != "" {
		try.Ok(db.Rename(id, change.Name))
	}
	if len(change.Tag)+len(change.Untag) > 0 {
		try.Ok(db.Label(id, change.Tag, change.Untag))
	}
	if change.Note != "" {
		try.Ok(db.AddNote(id, change.Note))
	}
	if change.Trash {
		try.Ok(db.Trash([]int64{id}))
	}
	text, _ := json.Marshal(change) // plain data: it cannot fail
	who.Log(access.Event{Action: "change", Run: run.Name, UID: run.UID, Project: run.ProjectName, What: string(text)})
	if !change.Stop {
		return nil
	}
	if run.Status != history.Running {
		return exit.Errorf(exit.Usage, "run %d %s has ended: %s", id, run.Name, run.Status)
	}
	agent, err := db.Agent(r.Context(), id)
	if silent := (*history.SilentError)(nil); errors.As(err, &silent) {
		return exit.WithHint(exit.Errorf(exit.Usage, "the run cannot be stopped from here: %v", err), "where it goes on, as the user who started it: drun stop")
	}
	try.Ok(err)
	defer agent.Close()
	return agent.Terminate()
}

// changeView saves a view under a name; an empty one is removed.
func (s *Server) changeView(_ *http.Request, read func(any)) (err error) {
	var change struct{ Name, View string }
	read(&change)
	if change.Name == "" || len(change.Name) > 200 {
		return exit.Errorf(exit.Usage, "want the name of a view, of at most 200 bytes")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer try.Caught(&err)
	views := try.To(s.views())
	if views[change.Name] = change.View; change.View == "" {
		delete(views, change.Name)
	}
	text := try.To(json.Marshal(views))
	next := s.viewsPath() + ".new"
	err = os.WriteFile(next, append(text, '\n'), 0o600)
	if err == nil {
		err = os.Rename(next, s.viewsPath())
	}
	return exit.WithCode(err, exit.Storage)
}
