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
	"strings"
	"sync"

	"github.com/google/go-dap"

	"drun/engine"
	"drun/engine/recipe"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/debug"
)

// Opener begins sessions, as the arguments of a launch or attach request ask for. Lines that the run prints go to out.
type Opener interface {
	Launch(args *LaunchArguments, out func(category, text string)) (*debug.Session, error)
	Attach(args *AttachArguments, out func(category, text string)) (*debug.Session, error)
}

// LaunchArguments are those of a launch request.
type LaunchArguments struct {
	Program     string         `json:"program"` // the recipe, or RUN@STEP
	Nproc       int            `json:"nproc"`
	Params      map[string]any `json:"params"`
	StopOnEntry bool           `json:"stopOnEntry"`
	Cwd         string         `json:"cwd"`
	Seed        *int64         `json:"seed"`
	Data        []string       `json:"data"`
	Backend     string         `json:"backend"`
}

// AttachArguments are those of an attach request.
type AttachArguments struct {
	Run string `json:"run"`
	Cwd string `json:"cwd"`
}

// Server is one conversation with an editor.
type Server struct {
	open Opener
	in   *bufio.Reader

	mu  sync.Mutex // guards out and seq
	out io.Writer
	seq int

	console *debug.Console // nil: there is no session yet
	entry   bool
	lines   map[string][]engine.Breakpoint // by file
	kinds   map[string][]engine.Breakpoint // other breakpoints, by the request that set them
	values  []value                        // by reference, from 1
	changed map[string]bool                // files whose captured text differs from the disk's

	cancel func() // of the request that is carried out
	done   chan struct{}
}

// value is what a variables reference stands for.
type value struct {
	rank int
	look engine.Look
}

// New makes a server that begins sessions with open.
func New(in io.Reader, out io.Writer, open Opener) *Server {
	return &Server{open: open, in: bufio.NewReader(in), out: out, lines: map[string][]engine.Breakpoint{}, kinds: map[string][]engine.Breakpoint{}, changed: map[string]bool{}, done: make(chan struct{})}
}

// Serve answers requests until the editor ends the conversation or goes away, and then ends the session: a run that was
// launched ends, one that was attached to goes on.
func (s *Server) Serve() error {
	requests := make(chan dap.Message)
	var failed error
	var mu sync.Mutex
	go func() {
		defer close(requests)
		for {
			m, err := dap.ReadProtocolMessage(s.in)
			if err != nil {
				if wrong := (*dap.DecodeProtocolMessageFieldError)(nil); errors.As(err, &wrong) {
					s.refuse(wrong.Seq, wrong.FieldValue, exit.Errorf(exit.Usage, "this adapter has no %s", wrong.FieldValue))
					continue
				}
				if !errors.Is(err, io.EOF) {
					failed = err
				}
				mu.Lock()
				if s.cancel != nil {
					s.cancel()
				}
				mu.Unlock()
				return
			}
			switch m.(type) {
			case *dap.DisconnectRequest, *dap.TerminateRequest, *dap.PauseRequest: // these end what is being searched for
				mu.Lock()
				if s.cancel != nil {
					s.cancel()
				}
				mu.Unlock()
			}
			requests <- m
		}
	}()
	defer s.end()
	for m := range requests {
		ctx, cancel := context.WithCancel(context.Background())
		mu.Lock()
		s.cancel = cancel
		mu.Unlock()
		over := s.handle(ctx, m)
		cancel()
		if over {
			go func() {
				for range requests { // nothing more is answered
				}
			}()
			return nil
		}
	}
	return failed
}

func (s *Server) end() {
	if s.console != nil {
		s.console.Close()
	}
}

// send sends a message, with its number.
func (s *Server) send(m dap.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// handle answers a request, and reports whether it was the last.
func (s *Server) handle(ctx context.Context, m dap.Message) (over bool) {
	request, is := m.(dap.RequestMessage)
	if !is {
		return false
	}
	r := request.GetRequest()
	answer := dap.Response{ProtocolMessage: dap.ProtocolMessage{Type: "response"}, RequestSeq: r.Seq, Command: r.Command, Success: true}
	switch m.(type) {
	case *dap.InitializeRequest, *dap.LaunchRequest, *dap.AttachRequest, *dap.DisconnectRequest, *dap.TerminateRequest:
	default:
		if s.console == nil {
			s.refuse(r.Seq, r.Command, exit.Errorf(exit.Usage, "there is no session: launch or attach comes first"))
			return false
		}
	}
	err := s.answer(ctx, m, answer)
	if err != nil {
		s.refuse(r.Seq, r.Command, err)
	}
	_, over = m.(*dap.DisconnectRequest)
	return over
}

func (s *Server) answer(ctx context.Context, m dap.Message, a dap.Response) (err error) {
	defer try.Caught(&err)
	switch m := m.(type) {
	case *dap.InitializeRequest:
		s.send(&dap.InitializeResponse{Response: a, Body: capabilities()})
	case *dap.LaunchRequest:
		var args LaunchArguments
		try.Ok(arguments(m.Arguments, &args))
		session := try.To(s.open.Launch(&args, s.output))
		s.entry = args.StopOnEntry
		s.begin(session)
		s.send(&dap.LaunchResponse{Response: a})
		s.send(&dap.InitializedEvent{Event: event("initialized")})
	case *dap.AttachRequest:
		var args AttachArguments
		try.Ok(arguments(m.Arguments, &args))
		s.begin(try.To(s.open.Attach(&args, s.output)))
		s.send(&dap.AttachResponse{Response: a})
		s.send(&dap.InitializedEvent{Event: event("initialized")})
	case *dap.ConfigurationDoneRequest:
		s.send(&dap.ConfigurationDoneResponse{Response: a})
		s.console.Start(s.entry)
		go s.follow(s.console.Session)
	case *dap.SetBreakpointsRequest:
		s.send(&dap.SetBreakpointsResponse{Response: a, Body: dap.SetBreakpointsResponseBody{Breakpoints: s.setLines(&m.Arguments)}})
	case *dap.SetFunctionBreakpointsRequest:
		var list []engine.Breakpoint
		for _, b := range m.Arguments.Breakpoints {
			list = append(list, engine.Breakpoint{Collective: strings.TrimPrefix(b.Name, "dist."), Condition: b.Condition})
		}
		s.send(&dap.SetFunctionBreakpointsResponse{Response: a, Body: dap.SetFunctionBreakpointsResponseBody{Breakpoints: s.setKinds("functions", list)}})
	case *dap.SetExceptionBreakpointsRequest:
		var list []engine.Breakpoint
		for _, filter := range m.Arguments.Filters {
			switch filter {
			case nonFinite:
				list = append(list, engine.Breakpoint{NotFinite: true})
			case collectives:
				list = append(list, engine.Breakpoint{Collective: "*"})
			}
		}
		s.setKinds("exceptions", list)
		s.send(&dap.SetExceptionBreakpointsResponse{Response: a})
	case *dap.ThreadsRequest:
		threads := []dap.Thread{}
		for rank := range s.console.Ranks() {
			threads = append(threads, dap.Thread{Id: rank + 1, Name: fmt.Sprintf("rank %d", rank)})
		}
		s.send(&dap.ThreadsResponse{Response: a, Body: dap.ThreadsResponseBody{Threads: threads}})
	case *dap.StackTraceRequest:
		frames := try.To(s.stack(m.Arguments.ThreadId - 1))
		total := len(frames)
		frames = frames[min(total, m.Arguments.StartFrame):]
		if m.Arguments.Levels > 0 {
			frames = frames[:min(len(frames), m.Arguments.Levels)]
		}
		s.send(&dap.StackTraceResponse{Response: a, Body: dap.StackTraceResponseBody{StackFrames: frames, TotalFrames: total}})
	case *dap.ScopesRequest:
		rank, frame := unframe(m.Arguments.FrameId)
		scope := func(name, hint string) dap.Scope {
			return dap.Scope{Name: name, PresentationHint: hint, VariablesReference: s.reference(rank, engine.Look{Frame: frame, Scope: hint})}
		}
		s.send(&dap.ScopesResponse{Response: a, Body: dap.ScopesResponseBody{Scopes: []dap.Scope{scope("Locals", engine.Locals), scope("Globals", engine.Globals)}}})
	case *dap.VariablesRequest:
		s.send(&dap.VariablesResponse{Response: a, Body: dap.VariablesResponseBody{Variables: try.To(s.variables(ctx, &m.Arguments))}})
	case *dap.EvaluateRequest:
		s.send(&dap.EvaluateResponse{Response: a, Body: try.To(s.evaluate(ctx, &m.Arguments))})
	case *dap.SourceRequest:
		n := m.Arguments.SourceReference
		sources := s.console.Bundle().Sources
		try.FailIf(n < 1 || n > len(sources), "there is no such source")
		s.send(&dap.SourceResponse{Response: a, Body: dap.SourceResponseBody{Content: string(sources[n-1].Content)}})
	case *dap.ContinueRequest:
		all := !m.Arguments.SingleThread
		s.send(&dap.ContinueResponse{Response: a, Body: dap.ContinueResponseBody{AllThreadsContinued: all}})
		s.goOn(m.Arguments.ThreadId, all, engine.ToBreak)
	case *dap.NextRequest:
		s.send(&dap.NextResponse{Response: a})
		s.goOn(m.Arguments.ThreadId, !m.Arguments.SingleThread, engine.Over)
	case *dap.StepInRequest:
		s.send(&dap.StepInResponse{Response: a})
		s.goOn(m.Arguments.ThreadId, !m.Arguments.SingleThread, engine.StepIn)
	case *dap.StepOutRequest:
		s.send(&dap.StepOutResponse{Response: a})
		s.goOn(m.Arguments.ThreadId, !m.Arguments.SingleThread, engine.Out)
	case *dap.PauseRequest:
		s.send(&dap.PauseResponse{Response: a})
		s.console.Pause(nil)
	case *dap.StepBackRequest:
		s.send(&dap.StepBackResponse{Response: a})
		s.goBack(m.Arguments.ThreadId, func(rank int) error {
			var ranks []int
			if m.Arguments.SingleThread {
				ranks = []int{rank}
			}
			return s.console.StepBack(ctx, rank, ranks, s.console.Say)
		})
	case *dap.ReverseContinueRequest:
		s.send(&dap.ReverseContinueResponse{Response: a})
		s.goBack(m.Arguments.ThreadId, func(rank int) error { return s.console.ReverseContinue(ctx, rank, s.console.Say) })
	case *dap.TerminateRequest:
		s.send(&dap.TerminateResponse{Response: a})
		s.end()
	case *dap.DisconnectRequest:
		s.end()
		s.send(&dap.DisconnectResponse{Response: a})
	default:
		return exit.Errorf(exit.Usage, "this adapter has no %s", a.Command)
	}
	return nil
}

// The filters of exceptions that stop ranks.
const (
	nonFinite   = "nonfinite"
	collectives = "collective"
)

func capabilities() dap.Capabilities {
	return dap.Capabilities{
		SupportsConfigurationDoneRequest: true, SupportsConditionalBreakpoints: true, SupportsFunctionBreakpoints: true, SupportsEvaluateForHovers: true,
		SupportsStepBack: true, SupportsTerminateRequest: true, SupportsSingleThreadExecutionRequests: true,
		ExceptionBreakpointFilters: []dap.ExceptionBreakpointsFilter{
			{Filter: nonFinite, Label: "Operations that make NaN or infinity"},
			{Filter: collectives, Label: "Calls of other ranks"},
		},
	}
}

func arguments(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return exit.Errorf(exit.Usage, "the arguments: %v", err)
	}
	return nil
}

func (s *Server) begin(session *debug.Session) {
	s.console = &debug.Console{Session: session, Say: func(text string) { s.output("console", text+"\n") }}
}

// follow tells the editor what happens in the run.
func (s *Server) follow(session *debug.Session) {
	for e := range session.Events {
		switch {
		case e.Stopped != nil:
			s.send(stopped(e.Rank, e.Stopped))
		case e.Ended && e.Why != "":
			s.output("stderr", fmt.Sprintf("rank %d: %s\n", e.Rank, e.Why))
		case e.Ended:
			s.send(&dap.ThreadEvent{Event: event("thread"), Body: dap.ThreadEventBody{Reason: "exited", ThreadId: e.Rank + 1}})
		case e.Waits:
			s.output("console", fmt.Sprintf("rank %d waits for other ranks\n", e.Rank))
		case e.Present:
			s.output("console", "this is the present: the run itself goes on from here\n")
		case e.Over:
			code := exit.Done
			if e.Why != "" {
				code = exit.Recipe
				s.output("stderr", e.Why+"\n")
			}
			if r, _ := session.Ended(); r != nil {
				code = r.Code
			}
			s.send(&dap.ExitedEvent{Event: event("exited"), Body: dap.ExitedEventBody{ExitCode: int(code)}})
			s.send(&dap.TerminatedEvent{Event: event("terminated")})
		}
	}
}

// reasons are DAP's words.
var reasons = map[string]string{engine.AtEntry: "entry", engine.AtBreakpoint: "breakpoint", engine.AtStep: "step", engine.AtPause: "pause", engine.AtGoal: "goto", engine.AtDeadlock: "deadlock"}

func stopped(rank int, at *engine.Stopped) *dap.StoppedEvent {
	body := dap.StoppedEventBody{Reason: reasons[at.Why], ThreadId: rank + 1, Text: at.Text, Description: at.Text}
	if at.Break > 0 {
		body.HitBreakpointIds = []int{at.Break}
	}
	return &dap.StoppedEvent{Event: event("stopped"), Body: body}
}

// goOn lets ranks go on.
func (s *Server) goOn(thread int, all bool, to string) {
	s.values = nil
	var ranks []int
	if !all {
		ranks = []int{thread - 1}
	}
	s.console.Frame = 0
	s.console.Go(ranks, to)
}

// goBack goes back. If that fails, the ranks stand where they did.
func (s *Server) goBack(thread int, back func(rank int) error) {
	s.values = nil
	s.console.Rank, s.console.Frame = thread-1, 0
	err := back(thread - 1)
	if err == nil {
		return
	}
	s.output("stderr", err.Error()+"\n")
	for rank, r := range s.console.Ranks() {
		if r.State == debug.Held {
			s.send(stopped(rank, r.Stop))
		}
	}
}

// setLines replaces the breakpoints of a file.
func (s *Server) setLines(args *dap.SetBreakpointsArguments) []dap.Breakpoint {
	file := s.shown(args.Source)
	answers := []dap.Breakpoint{}
	var placed []engine.Breakpoint
	for _, b := range args.Breakpoints {
		a := dap.Breakpoint{Source: &args.Source, Line: b.Line}
		own, moved, err := engine.Breakpoint{}, "", error(nil)
		if b.HitCondition != "" || b.LogMessage != "" {
			err = exit.Errorf(exit.Usage, "a breakpoint has a condition, and neither a hit count nor a message")
		} else {
			own, moved, err = s.console.Place(engine.Breakpoint{File: file, Line: int32(b.Line), Condition: b.Condition})
		}
		if err != nil {
			a.Message = err.Error()
		} else {
			a.Verified, a.Id, a.Line, a.Message = true, own.ID, int(own.Line), moved
			placed = append(placed, own)
		}
		answers = append(answers, a)
	}
	s.lines[file] = placed
	s.place()
	return answers
}

// setKinds replaces breakpoints that are not at lines.
func (s *Server) setKinds(by string, list []engine.Breakpoint) []dap.Breakpoint {
	answers := []dap.Breakpoint{}
	var placed []engine.Breakpoint
	for _, b := range list {
		own, _, err := s.console.Place(b)
		if err != nil {
			answers = append(answers, dap.Breakpoint{Message: err.Error()})
			continue
		}
		placed = append(placed, own)
		answers = append(answers, dap.Breakpoint{Verified: true, Id: own.ID})
	}
	s.kinds[by] = placed
	s.place()
	return answers
}

func (s *Server) place() {
	var all []engine.Breakpoint
	for _, lists := range []map[string][]engine.Breakpoint{s.lines, s.kinds} {
		for _, list := range lists {
			all = append(all, list...)
		}
	}
	s.console.SetBreakpoints(all)
}

// shown is the name under which positions show a file of the recipe.
func (s *Server) shown(source dap.Source) string {
	b := s.console.Bundle()
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
	b := s.console.Bundle()
	i := slices.IndexFunc(b.Sources, func(f records.Source) bool { return recipe.Display(b.Name, f.Path) == file })
	if i < 0 {
		return &dap.Source{Name: filepath.Base(file)}
	}
	path := filepath.Join(b.Dir, filepath.FromSlash(b.Sources[i].Path))
	src := &dap.Source{Name: filepath.Base(file), Path: path}
	changed, known := s.changed[file]
	if !known {
		content, err := os.ReadFile(path)
		changed = err != nil || !bytes.Equal(content, b.Sources[i].Content)
		s.changed[file] = changed
		if changed {
			s.output("console", fmt.Sprintf("%s has changed since the run began: the text that the run captured is shown\n", file))
		}
	}
	if changed {
		src.SourceReference, src.Origin = i+1, "captured with the run"
	}
	return src
}

// A frame's number has its rank and its place among the rank's calls.
func frameOf(rank, i int) int { return rank<<16 | i + 1 }

func unframe(id int) (rank, i int) { return id >> 16, id&0xffff - 1 }

func (s *Server) stack(rank int) ([]dap.StackFrame, error) {
	ranks := s.console.Ranks()
	if rank < 0 || rank >= len(ranks) || ranks[rank].State != debug.Held {
		return nil, exit.Errorf(exit.Usage, "rank %d does not stand still", rank)
	}
	frames := []dap.StackFrame{}
	for i, f := range ranks[rank].Stop.Frames {
		frames = append(frames, dap.StackFrame{Id: frameOf(rank, i), Name: f.Func, Source: s.source(f.File), Line: int(f.Line), Column: int(f.Col)})
	}
	return frames, nil
}

func (s *Server) reference(rank int, look engine.Look) int {
	s.values = append(s.values, value{rank, look})
	return len(s.values)
}

func (s *Server) variables(ctx context.Context, args *dap.VariablesArguments) (_ []dap.Variable, err error) {
	defer try.Caught(&err)
	try.FailIf(args.VariablesReference < 1 || args.VariablesReference > len(s.values), "the ranks have gone on since")
	v := s.values[args.VariablesReference-1]
	a := try.To(s.console.Look(ctx, v.rank, v.look))
	list := []dap.Variable{}
	for _, x := range a.Values {
		out := dap.Variable{Name: x.Name, Type: x.Type, Value: debug.ShowValue(x), EvaluateName: x.Name}
		if v.look.Of > 0 {
			out.EvaluateName = ""
		}
		if x.Of > 0 {
			out.VariablesReference = s.reference(v.rank, engine.Look{Of: x.Of})
		}
		list = append(list, out)
	}
	return list, nil
}

func (s *Server) evaluate(ctx context.Context, args *dap.EvaluateArguments) (body dap.EvaluateResponseBody, err error) {
	defer try.Caught(&err)
	if args.FrameId != 0 {
		s.console.Rank, s.console.Frame = unframe(args.FrameId)
	}
	if args.Context == "repl" && debug.Knows(args.Expression) {
		body.Result = try.To(s.console.Do(ctx, args.Expression))
		return body, nil
	}
	a := try.To(s.console.Look(ctx, s.console.Rank, engine.Look{Frame: s.console.Frame, Expr: args.Expression}))
	x := a.Values[0]
	body.Result, body.Type = debug.ShowValue(x), x.Type
	if x.Of > 0 {
		body.VariablesReference = s.reference(s.console.Rank, engine.Look{Of: x.Of})
	}
	return body, nil
}
