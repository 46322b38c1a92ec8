package lsp

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/sourcegraph/jsonrpc2"

	"drun/engine/recipe"
	"drun/tools/check"
	"drun/tools/format"
)

// Diagnostic is something wrong with a document.
type Diagnostic struct {
	Range    Range  `json:"range"`
	Severity int    `json:"severity"` // 1: error, 2: warning
	Source   string `json:"source"`
	Message  string `json:"message"`
}

// publish tells the editor what is wrong with the documents that have changed. Changes that arrive meanwhile are checked together.
func (s *Server) publish(ctx context.Context, conn *jsonrpc2.Conn) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		s.mu.Lock()
		dirty := slices.Sorted(maps.Keys(s.dirty))
		clear(s.dirty)
		s.mu.Unlock()
		for _, uri := range dirty {
			list := []Diagnostic{}
			if d, err := s.document(uri); err == nil {
				list = s.diagnose(d)
			}
			if conn.Notify(ctx, "textDocument/publishDiagnostics", map[string]any{"uri": uri, "diagnostics": list}) != nil {
				return
			}
		}
	}
}

// diagnose checks a document with all files that it loads.
func (s *Server) diagnose(d *document) (list []Diagnostic) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(s.logged, "drun lsp: %v\n%s", p, debug.Stack())
		}
	}()
	list = []Diagnostic{}
	found, _ := s.inspect(d)
	for _, f := range found {
		if f.File != d.path {
			continue // the file's own diagnostics include it
		}
		severity := 1
		if f.Severity == check.Warning {
			severity = 2
		}
		list = append(list, Diagnostic{d.word(f.Line, f.Col), severity, "drun", f.Message})
	}
	return list
}

// inspect checks a document, and returns the shapes of tensors that names in it stand for.
func (s *Server) inspect(d *document) ([]check.Finding, map[check.Position]string) {
	bundle, faults := recipe.ReadAll(d.path, s.reader(d))
	found, shapes, err := s.recipes.Inspect(bundle, faults, true) // others may load it
	if err != nil {
		found = append(found, check.Finding{File: d.path, Line: 1, Col: 1, Severity: check.Error, Message: err.Error()})
	}
	return found, shapes
}

// reader returns a function that reads open documents from the editor, and other files from disk.
func (s *Server) reader(d *document) func(path string) ([]byte, bool) {
	return func(path string) ([]byte, bool) {
		if path == d.path {
			return []byte(d.text), true
		}
		return s.overlay(path)
	}
}

// formatting formats a document. One with a syntax error stays as it is: its diagnostics say why.
func (s *Server) formatting(d *document, _ Position) (any, error) {
	out, err := format.Source(d.path, []byte(d.text))
	if err != nil || string(out) == d.text {
		return []any{}, nil
	}
	return []map[string]any{{"range": d.whole(), "newText": string(out)}}, nil
}
