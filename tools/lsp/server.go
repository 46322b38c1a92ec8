// Package lsp is a language server for recipes: diagnostics, completion, documentation of builtins, definitions and
// formatting. `drun lsp`, started by editors, serves it on stdin and stdout.
package lsp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"sync"

	"github.com/sourcegraph/jsonrpc2"

	"drun/internal/try"
	"drun/starlib/universe"
	"drun/tools/check"
)

const maxDocument = 16 << 20 // bytes

// A Server knows the documents that an editor has open.
type Server struct {
	version string
	recipes *check.Recipes
	entries universe.Entries
	logged  io.Writer

	mu        sync.Mutex
	documents map[string]string // by URI
	dirty     map[string]bool   // documents whose diagnostics are due
	changed   chan struct{}
	shutdown  bool
}

// New makes a server; its internal errors are written to logged.
func New(version string, logged io.Writer) *Server {
	return &Server{version: version, recipes: check.NewRecipes(), entries: universe.Reference(), logged: logged,
		documents: map[string]string{}, dirty: map[string]bool{}, changed: make(chan struct{}, 1)}
}

// Serve answers until the editor sends exit or closes the connection. clean reports whether it had sent shutdown before.
func (s *Server) Serve(ctx context.Context, stream io.ReadWriteCloser) (clean bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	conn := jsonrpc2.NewConn(ctx, jsonrpc2.NewBufferedStream(stream, jsonrpc2.VSCodeObjectCodec{}), jsonrpc2.HandlerWithError(s.handle), jsonrpc2.SetLogger(discard{}))
	go s.publish(ctx, conn)
	select {
	case <-conn.DisconnectNotify():
	case <-ctx.Done():
		conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shutdown
}

type discard struct{}

func (discard) Printf(string, ...any) {}

func invalid(format string, args ...any) error {
	return &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// handle answers one message. A connection's messages are handled one after the other.
func (s *Server) handle(_ context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(s.logged, "drun lsp: %s: %v\n%s", req.Method, p, debug.Stack())
			result, err = nil, &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: fmt.Sprintf("a bug in drun: %v", p)}
		}
	}()
	if req.Method == "exit" {
		return nil, conn.Close()
	}
	handler, known := map[string]func(json.RawMessage) (any, error){
		"initialize":                 s.initialize,
		"initialized":                nothing,
		"shutdown":                   s.end,
		"textDocument/didOpen":       s.told((*Server).open),
		"textDocument/didChange":     s.told((*Server).change),
		"textDocument/didSave":       s.told(func(*Server, documentParams) error { return nil }),
		"textDocument/didClose":      s.told((*Server).close),
		"textDocument/completion":    at(s, s.completion),
		"textDocument/signatureHelp": at(s, s.signatureHelp),
		"textDocument/hover":         at(s, s.hover),
		"textDocument/definition":    at(s, s.definition),
		"textDocument/formatting":    at(s, s.formatting),
	}[req.Method]
	if !known {
		if req.Notif {
			return nil, nil // such as $/cancelRequest
		}
		return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: "there is no method " + req.Method}
	}
	params := json.RawMessage("{}")
	if req.Params != nil {
		params = *req.Params
	}
	return handler(params)
}

func nothing(json.RawMessage) (any, error) { return nil, nil }

func (s *Server) initialize(json.RawMessage) (any, error) {
	return map[string]any{
		"serverInfo": map[string]string{"name": "drun", "version": s.version},
		"capabilities": map[string]any{
			"positionEncoding":           "utf-16",
			"textDocumentSync":           map[string]any{"openClose": true, "change": 1, "save": true},
			"completionProvider":         map[string]any{"triggerCharacters": []string{"."}},
			"signatureHelpProvider":      map[string]any{"triggerCharacters": []string{"(", ","}},
			"hoverProvider":              true,
			"definitionProvider":         true,
			"documentFormattingProvider": true,
		},
	}, nil
}

func (s *Server) end(json.RawMessage) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shutdown = true
	return nil, nil
}

type documentParams struct {
	TextDocument struct {
		URI  string `json:"uri"`
		Text string `json:"text"`
	} `json:"textDocument"`
	ContentChanges []struct {
		Text  string    `json:"text"`
		Range *struct{} `json:"range"`
	} `json:"contentChanges"`
	Position Position `json:"position"`
}

func read(params json.RawMessage) (p documentParams, err error) {
	if err := json.Unmarshal(params, &p); err != nil {
		return p, invalid("%v", err)
	}
	if p.TextDocument.URI == "" {
		return p, invalid("the message names no document")
	}
	return p, nil
}

// told makes the handler of a message about what the editor has done with a document. Files that load it may
// be affected, too, so all open ones are checked.
func (s *Server) told(update func(*Server, documentParams) error) func(json.RawMessage) (any, error) {
	return func(params json.RawMessage) (_ any, err error) {
		defer try.Caught(&err)
		p := try.To(read(params))
		s.mu.Lock()
		defer s.mu.Unlock()
		try.Ok(update(s, p))
		s.dirty[p.TextDocument.URI] = true // even if it was closed: its diagnostics are then removed
		for open := range s.documents {
			s.dirty[open] = true
		}
		select {
		case s.changed <- struct{}{}:
		default:
		}
		return nil, nil
	}
}

func (s *Server) open(p documentParams) error {
	if len(p.TextDocument.Text) > maxDocument {
		return invalid("a document of %d bytes, more than %d", len(p.TextDocument.Text), maxDocument)
	}
	s.documents[p.TextDocument.URI] = p.TextDocument.Text
	return nil
}

func (s *Server) change(p documentParams) error {
	for _, c := range p.ContentChanges {
		if c.Range != nil {
			return invalid("a change of a part of the document, although the server asked for whole documents")
		}
		p.TextDocument.Text = c.Text
		if err := s.open(p); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) close(p documentParams) error {
	delete(s.documents, p.TextDocument.URI)
	return nil
}

// at makes the handler of a request about a document, or about a position in it.
func at(s *Server, answer func(*document, Position) (any, error)) func(json.RawMessage) (any, error) {
	return func(params json.RawMessage) (_ any, err error) {
		defer try.Caught(&err)
		p := try.To(read(params))
		d := try.To(s.document(p.TextDocument.URI))
		return answer(d, p.Position)
	}
}

func (s *Server) document(uri string) (*document, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, open := s.documents[uri]
	if !open {
		return nil, invalid("the document %s is not open", uri)
	}
	return newDocument(uri, text), nil
}

// overlay returns the text of an open document by its path, for files that load it.
func (s *Server) overlay(path string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, open := s.documents[uriOf(path)]
	return []byte(text), open
}
