package ui

import (
	"bytes"
	"embed"
	"net/http"
	"strings"
	"sync"
	"text/template"
	"time"

	"drun/internal/try"
)

//go:embed pages
var parts embed.FS

// framed is what a page has besides the frame that all have.
type framed struct {
	Title      string
	Part, Skip string // the link of those who use the keyboard: where it leads, and its text
	Crumb      string
	Scripts    []string // besides those of all pages, in their order

	Main string
}

// documents are the pages by the names of their files.
var documents = sync.OnceValue(func() map[string][]byte {
	frame := template.Must(template.ParseFS(parts, "pages/frame.html")) // of text that is no user's
	made := map[string][]byte{}
	for name, p := range map[string]framed{
		"index":   {Title: "Runs", Part: "runs", Skip: "To the runs", Scripts: []string{"groups", "complete", "sparks", "workspace", "runs"}},
		"run":     {Title: "Run", Part: "tabs", Skip: "To the run", Crumb: "run", Scripts: []string{"ranks", "kept", "watch", "run"}},
		"sweep":   {Title: "Sweeps", Part: "cells", Skip: "To the cells", Scripts: []string{"sweep", "sweeps"}},
		"compare": {Title: "Compare", Part: "differences", Skip: "To what differs", Crumb: "compare", Scripts: []string{"groups", "sweep", "compare"}},
	} {
		p.Main = string(try.To(parts.ReadFile("pages/" + name + ".html")))
		var out bytes.Buffer
		try.Ok(frame.Execute(&out, p))
		made[name+".html"] = out.Bytes()
	}
	return made
})

// servePages adds the pages to a server of other files.
func servePages(mux *http.ServeMux) {
	for name, text := range documents() {
		answer := func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, ".html", time.Time{}, strings.NewReader(string(text)))
		}
		if name == "index.html" {
			name = "{$}" // to which the server of files redirects its own name
		}
		mux.HandleFunc("GET /"+name, answer)
	}
}
