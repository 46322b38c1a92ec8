// Package dap is `drun dap`: the debugger of runs/debug for editors, as a Debug Adapter. A thread is a rank, whose number is
// the thread's less one.
package dap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/go-dap"

	"drun/engine"
	"drun/engine/recipe"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/debug"
)

// Opener begins a session, as a request asks for. Lines that the run prints go to out.
type Opener func(args *Arguments, out func(category, text string)) (*debug.Session, error)

// Arguments are those of a launch or an attach request.
type Arguments struct {
	Attach      bool           `json:"-"`
	Run         string         `json:"run"`     // to which it attaches
	Program     string         `json:"program"` // the recipe, or RUN@STEP
	Nproc       int            `json:"nproc"`
	Params      map[string]any `json:"params"`
	StopOnEntry bool           `json:"stopOnEntry"`
	Cwd         string         `json:"cwd"`
	Seed        *int64         `json:"seed"`
	Data        []string       `json:"data"`
	Backend     string         `json:"backend"`
}

// Server is one conversation with an editor.
type Server struct {
	open Opener
	in   *bufio.Reader

	sending sync.Mutex // guards out and seq
	out     io.Writer
	seq     int

	console *debug.Console // nil: there is no session yet
	entry   bool
	seen    []seen                             // by the numbers that the editor has, from 1
	changed map[string]bool                    // files whose captured text differs from the disk's
	cancel  atomic.Pointer[context.CancelFunc] // of the request that is carried out
	over    chan string                        // why the run has ended
	errors  bool                               // the editor wants to see where a recipe has failed
	mortem  bool                               // it sees that: the run itself has ended
	failure atomic.Pointer[failure]            // of which the editor has not been told yet
}

// failure says which rank has failed, and why.
type failure struct {
	rank int
	why  string
}

// seen is a call, or a value with parts, while its rank stood somewhere.
type seen struct {
	rank int
	at   *engine.Stopped
	look engine.Look
}

// New makes a server that begins sessions with open.
func New(in io.Reader, out io.Writer, open Opener) *Server {
	return &Server{open: open, in: bufio.NewReader(in), out: out, changed: map[string]bool{}, over: make(chan string, 1)}
}

// Serve answers requests until the editor ends the conversation or goes away, and then ends the session: a run that was
// launched ends, one that was attached to goes on.
func (s *Server) Serve() (failed error) {
	requests := make(chan dap.Message, 100)
	go func() {
		defer close(requests)
		for {
			m, err := dap.ReadProtocolMessage(s.in)
			if wrong := (*dap.DecodeProtocolMessageFieldError)(nil); errors.As(err, &wrong) {
				s.refuse(wrong.Seq, wrong.FieldValue, exit.Errorf(exit.Usage, "this adapter has no %s", wrong.FieldValue))
				continue
			}
			switch m.(type) {
			case nil, *dap.DisconnectRequest, *dap.TerminateRequest, *dap.PauseRequest: // these end what is being searched for
				if cancel := s.cancel.Load(); cancel != nil {
					(*cancel)()
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					failed = err
				}
				return
			}
			requests <- m
		}
	}()
	defer s.end()
	for last := false; !last; {
		ctx, cancel := context.WithCancel(context.Background())
		s.cancel.Store(&cancel)
		select {
		case m, more := <-requests:
			if !more {
				cancel()
				return failed
			}
			last = s.handle(ctx, m)
		case why := <-s.over:
			s.finish(ctx, why)
		}
		cancel()
	}
	return nil
}

func (s *Server) end() {
	if s.console != nil {
		s.console.Close()
	}
}

// send sends a message, with its number.
func (s *Server) send(m dap.Message) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.seq++
	switch m := m.(type) {
	case dap.ResponseMessage:
		m.GetResponse().Seq = s.seq
	case dap.EventMessage:
		m.GetEvent().Seq = s.seq
	}
	_ = dap.WriteProtocolMessage(s.out, m) // the reader notices that the editor is gone
}

func event(name string) dap.Event {
	return dap.Event{ProtocolMessage: dap.ProtocolMessage{Type: "event"}, Event: name}
}

func (s *Server) output(category, text string) {
	s.send(&dap.OutputEvent{Event: event("output"), Body: dap.OutputEventBody{Category: category, Output: text}})
}

func (s *Server) refuse(seq int, command string, err error) {
	text := err.Error()
	if hint := exit.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	s.send(&dap.ErrorResponse{
		Response: dap.Response{ProtocolMessage: dap.ProtocolMessage{Type: "response"}, RequestSeq: seq, Command: command, Message: text},
		Body:     dap.ErrorResponseBody{Error: &dap.ErrorMessage{Id: 1, Format: text, ShowUser: true}},
	})
}

// response is one of any kind.
type response struct {
	dap.Response
	Body any `json:"body,omitempty"`
}

// handle answers a request, and reports whether it was the last.
func (s *Server) handle(ctx context.Context, m dap.Message) (last bool) {
	request, is := m.(dap.RequestMessage)
	if !is {
		return false
	}
	r := request.GetRequest()
	body, then, err := s.answer(ctx, m)
	if err != nil {
		s.refuse(r.Seq, r.Command, err)
	} else {
		s.send(&response{dap.Response{ProtocolMessage: dap.ProtocolMessage{Type: "response"}, RequestSeq: r.Seq, Command: r.Command, Success: true}, body})
	}
	if then != nil {
		then()
	}
	_, last = m.(*dap.DisconnectRequest)
	return last
}

// answer gives the body of the answer to a request, and what is done once the answer has been sent.
func (s *Server) answer(ctx context.Context, m dap.Message) (body any, then func(), err error) {
	defer try.Caught(&err)
	c := s.console
	switch m := m.(type) {
	case *dap.InitializeRequest:
		return capabilities, nil, nil
	case *dap.LaunchRequest:
		try.Ok(s.begin(m.Arguments, false))
		return nil, s.ready, nil
	case *dap.AttachRequest:
		try.Ok(s.begin(m.Arguments, true))
		return nil, s.ready, nil
	case *dap.TerminateRequest:
		return nil, s.end, nil
	case *dap.DisconnectRequest:
		s.end()
		return nil, nil, nil
	}
	if c == nil {
		return nil, nil, exit.Errorf(exit.Usage, "there is no session: launch or attach comes first")
	}
	switch m := m.(type) {
	case *dap.ConfigurationDoneRequest:
		return nil, func() {
			c.Start(s.entry)
			go s.follow()
		}, nil
	case *dap.SetBreakpointsRequest:
		file := s.shown(m.Arguments.Source)
		list := []engine.Breakpoint{}
		for _, b := range m.Arguments.Breakpoints {
			list = append(list, engine.Breakpoint{File: file, Line: int32(b.Line), Condition: b.Condition})
		}
		return dap.SetBreakpointsResponseBody{Breakpoints: s.place(file, list, &m.Arguments.Source)}, nil, nil
	case *dap.SetExceptionBreakpointsRequest:
		var list []engine.Breakpoint
		s.errors = false
		for _, filter := range m.Arguments.Filters {
			switch filter {
			case nonFinite:
				list = append(list, engine.Breakpoint{NotFinite: true})
			case collectives:
				list = append(list, engine.Breakpoint{Collective: "*"})
			case recipeErrors:
				s.errors = true
			}
		}
		return dap.SetExceptionBreakpointsResponseBody{Breakpoints: s.place("(exceptions)", list, nil)}, nil, nil
	case *dap.ThreadsRequest:
		threads := []dap.Thread{}
		for rank := range c.Now().Ranks {
			threads = append(threads, dap.Thread{Id: rank + 1, Name: fmt.Sprintf("rank %d", rank)})
		}
		return dap.ThreadsResponseBody{Threads: threads}, nil, nil
	case *dap.StackTraceRequest:
		frames := []dap.StackFrame{}
		rank := s.rank(m.Arguments.ThreadId)
		at := try.To(c.Stands(rank))
		for i, f := range at.Frames {
			id := s.number(seen{rank, at, engine.Look{Frame: i}})
			frames = append(frames, dap.StackFrame{Id: id, Name: f.Func, Source: s.source(f.File), Line: int(f.Line), Column: int(f.Col)})
		}
		return dap.StackTraceResponseBody{StackFrames: frames, TotalFrames: len(frames)}, nil, nil
	case *dap.ScopesRequest:
		of := s.of(m.Arguments.FrameId)
		scope := func(name, hint string) dap.Scope {
			return dap.Scope{Name: name, PresentationHint: hint, VariablesReference: s.number(seen{of.rank, of.at, engine.Look{Frame: of.look.Frame, Scope: hint}})}
		}
		return dap.ScopesResponseBody{Scopes: []dap.Scope{scope("Locals", engine.Locals), scope("Globals", engine.Globals)}}, nil, nil
	case *dap.VariablesRequest:
		of := s.of(m.Arguments.VariablesReference)
		list := []dap.Variable{}
		for _, v := range try.To(c.Look(ctx, of.rank, of.look)) {
			out := dap.Variable{Name: v.Name, Type: v.Type, Value: v.Text, VariablesReference: s.parts(of.rank, of.at, v)}
			if of.look.Of == 0 {
				out.EvaluateName = v.Name
			}
			list = append(list, out)
		}
		return dap.VariablesResponseBody{Variables: list}, nil, nil
	case *dap.EvaluateRequest:
		return try.To(s.evaluate(ctx, &m.Arguments)), nil, nil
	case *dap.SourceRequest:
		n := m.Arguments.SourceReference
		try.FailIf(n < 1 || n > len(c.Bundle.Sources), "there is no such source")
		return dap.SourceResponseBody{Content: string(c.Bundle.Sources[n-1].Content)}, nil, nil
	case *dap.ContinueRequest:
		return dap.ContinueResponseBody{AllThreadsContinued: !m.Arguments.SingleThread}, s.moves(m.Arguments.ThreadId, m.Arguments.SingleThread, s.goes(engine.ToBreak)), nil
	case *dap.NextRequest:
		return nil, s.moves(m.Arguments.ThreadId, m.Arguments.SingleThread, s.goes(engine.Over)), nil
	case *dap.StepInRequest:
		return nil, s.moves(m.Arguments.ThreadId, m.Arguments.SingleThread, s.goes(engine.StepIn)), nil
	case *dap.StepOutRequest:
		return nil, s.moves(m.Arguments.ThreadId, m.Arguments.SingleThread, s.goes(engine.Out)), nil
	case *dap.PauseRequest:
		return nil, func() { c.Pause(nil) }, nil
	case *dap.StepBackRequest:
		return nil, s.moves(m.Arguments.ThreadId, m.Arguments.SingleThread, func(ranks []int) error { return c.StepBack(ctx, c.Rank, ranks, c.Say) }), nil
	case *dap.ReverseContinueRequest:
		return nil, s.moves(m.Arguments.ThreadId, false, func([]int) error {
			_, err := c.ReverseContinue(ctx, c.Rank, c.Say)
			return err
		}), nil
	}
	return nil, nil, exit.Errorf(exit.Usage, "this adapter has no %s", m.(dap.RequestMessage).GetRequest().Command)
}

// The filters of exceptions that stop ranks.
const (
	nonFinite    = "nonfinite"
	collectives  = "collective"
	recipeErrors = "error"
)

var capabilities = dap.Capabilities{
	SupportsConfigurationDoneRequest: true, SupportsConditionalBreakpoints: true, SupportsEvaluateForHovers: true,
	SupportsStepBack: true, SupportsTerminateRequest: true, SupportsSingleThreadExecutionRequests: true,
	ExceptionBreakpointFilters: []dap.ExceptionBreakpointsFilter{
		{Filter: recipeErrors, Label: "Errors of the recipe", Default: true},
		{Filter: nonFinite, Label: "Operations that make NaN or infinity"},
		{Filter: collectives, Label: "Calls of other ranks"},
	},
}

// begin begins the conversation's session.
func (s *Server) begin(raw json.RawMessage, attach bool) (err error) {
	defer try.Caught(&err)
	try.FailIf(s.console != nil, "there is a session already")
	var args Arguments
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&args); err != nil && !errors.Is(err, io.EOF) {
		return exit.Errorf(exit.Usage, "the arguments: %v", err)
	}
	args.Attach, s.entry = attach, args.StopOnEntry
	session := try.To(s.open(&args, s.output))
	s.console = &debug.Console{Session: session, Say: func(text string) { s.output("console", text+"\n") }}
	return nil
}

// ready has the editor send its breakpoints.
func (s *Server) ready() { s.send(&dap.InitializedEvent{Event: event("initialized")}) }

// follow tells the editor what has changed in the run.
func (s *Server) follow() {
	var was debug.View
	s.console.Follow(func(v debug.View) {
		if was.Past && !v.Past && !v.Over {
			s.output("console", "this is the present: the run itself goes on from here\n")
		}
		for rank, r := range v.Ranks {
			old := debug.Rank{}
			if rank < len(was.Ranks) {
				old = was.Ranks[rank]
			}
			switch {
			case r.State == debug.Held && (old.State != debug.Held || r.Stop != old.Stop):
				at := stopped(rank, r.Stop)
				if f := s.failure.Load(); f != nil && f.rank == rank {
					at.Body.Reason, at.Body.Description, at.Body.Text = "exception", "The recipe has failed", f.why
					s.failure.Store(nil)
				}
				s.send(at)
			case v.Past || r.State == old.State: // a repetition that ends is as good as one that waits
			case r.Why != "":
				s.output("stderr", fmt.Sprintf("rank %d: %s\n", rank, r.Why))
			case r.State == debug.Ended:
				s.send(&dap.ThreadEvent{Event: event("thread"), Body: dap.ThreadEventBody{Reason: "exited", ThreadId: rank + 1}})
			case r.State == debug.Waits:
				s.output("console", fmt.Sprintf("rank %d waits for other ranks\n", rank))
			}
		}
		if v.Over && !was.Over {
			s.over <- v.Why
		}
		was = v
	})
}

// finish goes back to the step at which a recipe has failed, if the editor wants to see that, and else tells that the run has ended.
func (s *Server) finish(ctx context.Context, why string) {
	if rank, is := s.console.Failed(); is && s.errors {
		s.failure.Store(&failure{rank, why})
		if s.mortem = s.console.StepBack(ctx, rank, nil, s.console.Say) == nil; s.mortem {
			return
		}
	}
	if why != "" {
		s.output("stderr", why+"\n")
	}
	s.exited(why)
}

// exited tells how the run has ended.
func (s *Server) exited(why string) {
	code := exit.Done
	if why != "" {
		code = exit.Recipe
	}
	if r, _ := s.console.Ended(); r != nil {
		code = r.Code
	}
	s.send(&dap.ExitedEvent{Event: event("exited"), Body: dap.ExitedEventBody{ExitCode: int(code)}})
	s.send(&dap.TerminatedEvent{Event: event("terminated")})
}

func stopped(rank int, at *engine.Stopped) *dap.StoppedEvent {
	body := dap.StoppedEventBody{Reason: at.Why, ThreadId: rank + 1, Text: at.Text, Description: at.Text}
	if at.Break > 0 {
		body.HitBreakpointIds = []int{at.Break}
	}
	return &dap.StoppedEvent{Event: event("stopped"), Body: body}
}

// rank is that of a thread.
func (s *Server) rank(thread int) int {
	try.FailIf(thread < 1 || thread > len(s.console.Now().Ranks), "there is no such thread")
	return thread - 1
}

// moves has ranks move: all, with nil, or that of a thread alone. If that fails, they stand where they did.
func (s *Server) moves(thread int, alone bool, move func(ranks []int) error) (then func()) {
	var ranks []int
	s.console.Rank, s.console.Frame = s.rank(thread), 0
	if alone {
		ranks = []int{s.console.Rank}
	}
	return func() {
		if err := move(ranks); err != nil {
			s.output("stderr", err.Error()+"\n")
			for rank, r := range s.console.Now().Ranks {
				if r.State == debug.Held {
					s.send(stopped(rank, r.Stop))
				}
			}
		}
	}
}

// goes lets ranks go on.
func (s *Server) goes(to string) (move func(ranks []int) error) {
	return func(ranks []int) error {
		before := s.console.Now().Ranks
		s.console.Go(ranks, engine.Go{To: to})
		moves, stay := false, []int{} // at the end of the past, while the editor takes them to be going
		for rank, r := range s.console.Now().Ranks {
			switch {
			case r.State == debug.Held && r.Stop == before[rank].Stop:
				stay = append(stay, rank)
			case r.State != debug.Ended:
				moves = true
			}
		}
		if s.mortem && !moves {
			s.exited("there is nothing after the error")
			return nil
		}
		for _, rank := range stay {
			if s.mortem && (ranks == nil || slices.Contains(ranks, rank)) {
				s.send(stopped(rank, before[rank].Stop))
			}
		}
		return nil
	}
}

// place replaces the breakpoints of a file, or those of a kind.
func (s *Server) place(by string, list []engine.Breakpoint, in *dap.Source) []dap.Breakpoint {
	answers := []dap.Breakpoint{}
	for i, b := range s.console.SetBreakpoints(by, list) {
		a := dap.Breakpoint{Line: int(list[i].Line), Source: in}
		if b.Err != nil {
			a.Message = b.Err.Error()
		} else {
			a.Verified, a.Id, a.Line, a.Message = true, b.ID, int(b.Line), b.Moved
		}
		answers = append(answers, a)
	}
	return answers
}

// shown is the name under which positions show a file of the recipe.
func (s *Server) shown(source dap.Source) string {
	b := s.console.Bundle
	if n := source.SourceReference; n > 0 && n <= len(b.Sources) {
		return recipe.Display(b.Name, b.Sources[n-1].Path)
	}
	path := real(source.Path)
	for _, f := range b.Sources {
		if real(filepath.Join(b.Dir, filepath.FromSlash(f.Path))) == path {
			return recipe.Display(b.Name, f.Path)
		}
	}
	return source.Path
}

func real(path string) string {
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		return whole
	}
	return filepath.Clean(path)
}

// source is a file of the recipe, as the editor finds it: on disk or, if it has changed since the run captured it, here.
func (s *Server) source(file string) *dap.Source {
	b := s.console.Bundle
	i := slices.IndexFunc(b.Sources, func(f records.Source) bool { return recipe.Display(b.Name, f.Path) == file })
	if i < 0 {
		return &dap.Source{Name: filepath.Base(file)}
	}
	path := filepath.Join(b.Dir, filepath.FromSlash(b.Sources[i].Path))
	src := &dap.Source{Name: filepath.Base(file), Path: path}
	if _, known := s.changed[file]; !known {
		content, err := os.ReadFile(path)
		s.changed[file] = err != nil || !bytes.Equal(content, b.Sources[i].Content)
		if s.changed[file] {
			s.output("console", fmt.Sprintf("%s has changed since the run began: the text that the run captured is shown\n", file))
		}
	}
	if s.changed[file] {
		src.SourceReference, src.Origin = i+1, "captured with the run"
	}
	return src
}

// number is by what the editor asks for something.
func (s *Server) number(of seen) int {
	s.seen = append(s.seen, of)
	return len(s.seen)
}

// of is what a number stands for, as long as its rank stands there.
func (s *Server) of(number int) seen {
	try.FailIf(number < 1 || number > len(s.seen), "there is no such value")
	of := s.seen[number-1]
	at, _ := s.console.Stands(of.rank)
	try.FailIf(at != of.at, "the rank has gone on since")
	return of
}

// parts is the number of a value's parts; 0: it has none.
func (s *Server) parts(rank int, at *engine.Stopped, v engine.DebugValue) int {
	if v.Of == 0 {
		return 0
	}
	return s.number(seen{rank, at, engine.Look{Of: v.Of}})
}

func (s *Server) evaluate(ctx context.Context, args *dap.EvaluateArguments) (body dap.EvaluateResponseBody, err error) {
	defer try.Caught(&err)
	c := s.console
	if n := args.FrameId; n > 0 && n <= len(s.seen) {
		c.Rank, c.Frame = s.seen[n-1].rank, s.seen[n-1].look.Frame
	}
	if args.Context == "repl" && debug.Knows(args.Expression) {
		body.Result = try.To(c.Do(ctx, args.Expression))
		return body, nil
	}
	at := try.To(c.Stands(c.Rank))
	v := try.To(c.Look(ctx, c.Rank, engine.Look{Frame: c.Frame, Expr: args.Expression}))[0]
	return dap.EvaluateResponseBody{Result: v.Text, Type: v.Type, VariablesReference: s.parts(c.Rank, at, v)}, nil
}
