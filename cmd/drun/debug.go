package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/peterh/liner"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"drun/engine"
	"drun/engine/run"
	"drun/history"
	"drun/internal/elapsed"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/debug"
	"drun/tools/dap"
)

func newDebug() *cobra.Command {
	var o run.Options
	var nproc, attach string
	var join joinFlags
	cmd := &cobra.Command{
		Use:   "debug RECIPE.star | RUN@STEP | --attach RUN",
		Short: "Debug all ranks of a run at a prompt, also backwards",
		Long: `Runs a recipe under the debugger, takes a recorded run up at a step, or comes to a run that goes on. Every rank can be
stopped, looked at and stepped; help lists the commands of the prompt. Ranks that wait for one that stands still do not
time out. Going back repeats the run, in a temporary home, up to the earlier moment.
A run that was attached to goes on when the session ends, with the bits that it would have had; the others end with it.
Commands may also come through a pipe. docs/debugging.md has examples; drun dap is the same debugger for editors.`,
		Example: `  drun debug train.star -n 4
  drun debug calm-otter@1200
  drun debug --attach last`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer try.Caught(&err)
			if wantsJSON(cmd) {
				return usage("drun show --json prints the run; drun dap is the debugger for programs", "drun debug has no --json")
			}
			if (len(args) == 1) == (attach != "") {
				return usage("for example: drun debug train.star -n 2", "want a recipe, RUN@STEP, or --attach RUN")
			}
			o.Nproc = try.To(ranks(nproc))
			o.Join = try.To(join.joining(cmd, &o.Nproc))
			if o.Join != nil && o.Join.Index > 0 {
				return usage("", "the debugger is where node 0 is: start the others with drun run and the same flags")
			}
			stop := try.To(prepare(cmd, &o))
			defer stop()
			ctx, cancel := context.WithCancel(cmd.Context())
			p := &prompt{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), cancel: func() {
				cancel()
				time.AfterFunc(interruptedWithin, func() { os.Exit(int(exit.Interrupted)) })
			}}
			go p.obey(o.Signals)
			o.Signals = nil
			o.Terminal = false // no progress bar beside the prompt
			s := try.To(begin(ctx, cmd, o, strings.Join(args, ""), attach))
			defer s.Close()
			p.mu.Lock()
			p.Console = &debug.Console{Session: s, Say: func(text string) { fmt.Fprintln(p.err, "drun: "+text) }}
			p.mu.Unlock()
			if s.Leaves {
				s.Pause(nil)
				_ = s.Stopped(ctx)
			} else {
				s.Start(true)
				_ = s.Settle(ctx, nil)
			}
			p.mu.Lock()
			interrupted := ctx.Err() != nil
			p.cancel = func() {}
			p.mu.Unlock()
			if interrupted {
				s.Close()
				return cmp.Or(p.outcome(), error(exitStatus(exit.Interrupted)))
			}
			return p.converse(cmd.InOrStdin())
		},
	}
	f := cmd.Flags()
	addRecipeFlags(f, &o, &nproc)
	join.add(f)
	f.StringVar(&attach, "attach", "", "debug a `run` that goes on, on this machine")
	return cmd
}

// begin begins a session: on a recipe, on RUN@STEP, or on a run that goes on.
func begin(ctx context.Context, cmd *cobra.Command, o run.Options, what, attach string) (s *debug.Session, err error) {
	defer try.Caught(&err)
	ref, step, is := strings.Cut(what, "@")
	if _, there := os.Stat(what); attach == "" && (!is || there == nil) {
		o.Recipe = what
		return debug.Launch(ctx, o)
	}
	n, err := strconv.ParseInt(step, 10, 64)
	if attach == "" && err != nil {
		return nil, usage("for example: drun debug last@100", "STEP wants a whole number, not %q", step)
	}
	secrets := try.To(o.Given()) // a recorded run takes no other values
	o.Params = nil
	err = withRun(cmd, cmp.Or(attach, ref), func(db *history.DB, id int64) (err error) {
		if attach != "" {
			s, err = debug.Attach(ctx, o, db, homeOf(cmd), id, secrets)
		} else {
			s, err = debug.TakeUp(ctx, o, db, homeOf(cmd), id, n, secrets)
		}
		return err
	})
	return s, err
}

// prompt reads commands of the debugger.
type prompt struct {
	*debug.Console
	out, err io.Writer
	piped    *bufio.Reader // of the commands; nil: a person types them

	mu     sync.Mutex // guards cancel, and Console against a signal that comes early
	cancel func()     // ends the command that is carried out or, before there is a prompt, drun
}

// interruptedWithin is how long what has begun may take to end after a signal.
const interruptedWithin = 10 * time.Second

// obey carries out signals: the first ends the command under way, SIGTERM and SIGHUP the session.
func (p *prompt) obey(signals <-chan os.Signal) {
	for sig := range signals {
		p.mu.Lock()
		p.cancel()
		console := p.Console
		p.mu.Unlock()
		if console != nil && (sig == syscall.SIGTERM || sig == syscall.SIGHUP) {
			console.Close()
			os.Exit(int(exit.Interrupted))
		}
	}
}

// converse carries out lines until the session ends.
func (p *prompt) converse(in io.Reader) error {
	readline := p.reader(in)
	failed, mortem := !p.do("where"), false // the run itself has failed
	for {
		if _, now := p.Failed(); now {
			mortem = true
		}
		if over, _ := p.Over(); over && !mortem {
			return cmp.Or(p.outcome(), failedIf(failed))
		}
		line, err := readline()
		switch line = strings.TrimSpace(line); {
		case errors.Is(err, liner.ErrPromptAborted):
		case (errors.Is(err, io.EOF) || line == "quit" || line == "q") && mortem:
			return p.outcome()
		case errors.Is(err, io.EOF), line == "quit", line == "q":
			return failedIf(failed)
		case err != nil:
			return err
		default:
			failed = !p.do(line) || failed
		}
	}
}

// outcome says how the run has ended, as drun run does, and which commands were not carried out.
func (p *prompt) outcome() error {
	if p.piped != nil {
		text, _ := p.piped.Peek(p.piped.Buffered())
		if left := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(text)), "quit")); left != "" {
			fmt.Fprintf(p.err, "drun: the run has ended: not carried out: %s\n", terminal.Escape(strings.ReplaceAll(left, "\n", "; ")))
		}
	}
	r, err := p.Ended()
	if err != nil || r == nil {
		return err
	}
	if r.ID > 0 {
		fmt.Fprintf(p.err, "run %d %s: %s in %s\n", r.ID, terminal.Escape(r.Name), r.Code.Status(), elapsed.Text(r.Seconds))
	}
	if r.Code != exit.Done {
		return exitStatus(r.Code)
	}
	return nil
}

// do carries out a line, and reports whether that succeeded.
func (p *prompt) do(line string) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.mu.Lock()
	p.cancel = cancel
	p.mu.Unlock()
	text, err := p.Do(ctx, line)
	if err != nil {
		reportError(p.err, err)
	} else if text != "" {
		fmt.Fprintln(p.out, terminal.Lines(text))
	}
	return err == nil
}

// reader gives the lines, with a prompt where a person types them.
func (p *prompt) reader(in io.Reader) func() (string, error) {
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		line := liner.NewLiner()
		line.SetCtrlCAborts(true)
		return func() (string, error) {
			text, err := line.Prompt(fmt.Sprintf("(rank %d) ", p.Rank))
			if err == nil && strings.TrimSpace(text) != "" {
				line.AppendHistory(text)
			}
			if errors.Is(err, io.EOF) {
				line.Close()
			}
			return text, err
		}
	}
	p.piped = bufio.NewReader(in)
	return func() (string, error) {
		text, err := p.piped.ReadString('\n')
		if text != "" {
			err = nil
		}
		return text, err
	}
}

func newDAP() *cobra.Command {
	return &cobra.Command{
		Use:   "dap",
		Short: "Serve editors: the debugger for recipes",
		Long: "Speaks the Debug Adapter Protocol on stdin and stdout, for an editor that starts it. launch takes program, nproc, params and\n" +
			"stopOnEntry, attach takes run. A thread is a rank. docs/debugging.md says how to set up VS Code, Zed and Neovim.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(syscall.SIGPIPE, syscall.SIGINT) // the editor ends the session
			return dap.New(cmd.InOrStdin(), cmd.OutOrStdout(), func(args *dap.Arguments, out func(category, text string)) (*debug.Session, error) {
				return open(cmd, args, out)
			}).Serve()
		},
	}
}

// lineWriter passes on what the ranks print.
type lineWriter func(text string)

func (w lineWriter) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

// open begins the session of an editor.
func open(cmd *cobra.Command, args *dap.Arguments, out func(category, text string)) (_ *debug.Session, err error) {
	defer try.Caught(&err)
	if args.Cwd != "" {
		try.Ok(os.Chdir(args.Cwd))
	}
	var o run.Options
	var nproc string
	addRecipeFlags(pflag.NewFlagSet("dap", pflag.ContinueOnError), &o, &nproc) // the defaults
	try.To(prepare(cmd, &o))
	o.Stdout = lineWriter(func(text string) { out("stdout", text) })
	o.Stderr = lineWriter(func(text string) { out("stderr", text) })
	o.Signals, o.Terminal = nil, false
	if args.Attach {
		return begin(cmd.Context(), cmd, o, "", cmp.Or(args.Run, "last"))
	}
	if args.Program == "" {
		return nil, usage(`for example {"program": "train.star", "nproc": 2}`, "launch wants program, a recipe")
	}
	if args.Nproc != 0 {
		nproc = strconv.Itoa(args.Nproc)
	}
	o.Nproc = try.To(ranks(nproc))
	if args.Seed != nil {
		o.Seed, o.SeedGiven = *args.Seed, true
	}
	o.Backend, o.DataDirs = cmp.Or(args.Backend, o.Backend), args.Data
	for _, name := range slices.Sorted(maps.Keys(args.Params)) {
		kind, value, err := paramOf(args.Params[name])
		if err != nil {
			return nil, usage("", "params: %s: %v", name, err)
		}
		o.Filed = append(o.Filed, engine.Param{Name: name, Kind: kind, Value: value, File: "the launch request"})
	}
	return begin(cmd.Context(), cmd, o, args.Program, "")
}
