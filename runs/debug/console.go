package debug

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/engine"
	"drun/internal/exit"
	"drun/internal/spelling"
	"drun/internal/terminal"
	"drun/internal/try"
)

// A Console carries out commands that a person types, at `drun debug`'s prompt or in an editor's debug console.
type Console struct {
	*Session
	Rank  int // that commands are about
	Frame int // of its calls, innermost first
	Say   Say // shows what is said before a command has ended

	found []found // by searches, numbered from 1
	past  bool    // the past was shown when the ranks were last told of
}

type command struct {
	names, args, about string
	do                 func(c *Console, ctx context.Context, args string) string // it fails as try.To does
}

// commands in the order of help. It is a function, since help is one of them.
func commands() []command {
	return []command{
		{"where, w", "", "what every rank does, and the calls of the current one", (*Console).where},
		{"rank, r", "N", "makes rank N the current one", (*Console).setRank},
		{"up", "", "looks at the caller", func(c *Console, ctx context.Context, _ string) string { return c.setFrame(c.Frame + 1) }},
		{"down", "", "looks at the callee", func(c *Console, ctx context.Context, _ string) string { return c.setFrame(c.Frame - 1) }},
		{"list, l", "", "the source around the current line", (*Console).list},
		{"break, b", "[FILE:]LINE [if CONDITION] [on RANK,…]", "stops ranks there; also: break collective [NAME], break update N, break nonfinite", (*Console).setBreak},
		{"breaks", "", "lists the breakpoints", (*Console).listBreaks},
		{"delete", "[N]", "removes breakpoint N; without a number, all", (*Console).deleteBreak},
		{"continue, c", "[RANK,…]", "goes on to the next breakpoint: all ranks, or these", going(engine.ToBreak)},
		{"next, n", "[RANK,…]", "goes on to the next statement of the function, all ranks alike, or these", going(engine.Over)},
		{"step, s", "[RANK,…]", "goes on to the next statement, also of a function that is called", going(engine.StepIn)},
		{"out", "[RANK,…]", "goes on to the caller's next statement", going(engine.Out)},
		{"pause", "[RANK,…]", "stops ranks where they are", (*Console).pause},
		{"print, p", "EXPRESSION", "its value on the current rank", (*Console).print},
		{"across, a", "EXPRESSION", "its value on all ranks, and where they differ", (*Console).across},
		{"locals", "", "the variables of the current call", scope(engine.Locals)},
		{"globals", "", "what the file defines", scope(engine.Globals)},
		{"waits", "", "which rank waits for which others", (*Console).waits},
		{"back", "[RANK,…]", "goes back to the beginning of the previous statement", (*Console).back},
		{"rcontinue, rc", "", "goes back to where the current rank last met a breakpoint", (*Console).reverse},
		{"changed", "[next] EXPRESSION", "when its value last changed on the current rank; with next, from the past: when it changes first from here", (*Console).changed},
		{"nonfinite", "[EXPRESSION]", "which operation first gave NaN or an infinity, or first made this value so", (*Console).notFinite},
		{"differ", "EXPRESSION", "the first moment at which ranks have different values", (*Console).differ},
		{"go", "N", "goes to the moment that a search has numbered N", (*Console).goBack},
		{"help, h", "[COMMAND]", "this list, or what a command does", (*Console).help},
	}
}

// Knows reports whether a line begins with a command's name.
func Knows(line string) bool { return commandOf(line) != nil }

func commandOf(line string) *command {
	name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
	path := strings.HasPrefix(strings.TrimSpace(args), "/") && strings.Contains(args, ":")
	if word, _, _ := strings.Cut(strings.TrimSpace(args), " "); word != "" && !path && (strings.ContainsRune("=!<>+*/%", rune(word[0])) || slices.Contains([]string{"in", "and", "or", "if", "not"}, word)) {
		return nil // an operator after a variable with a command's name
	}
	list := commands()
	if i := slices.IndexFunc(list, func(c command) bool { return slices.Contains(strings.Split(c.names, ", "), name) }); i >= 0 {
		return &list[i]
	}
	return nil
}

// Do carries out a line, and returns what it tells. What is no command is evaluated.
func (c *Console) Do(ctx context.Context, line string) (_ string, err error) {
	line = strings.TrimSpace(line)
	defer func() {
		if errors.Is(err, context.Canceled) || errors.Is(err, errInterrupted) {
			err = exit.Errorf(exit.Interrupted, "%s was given up", line)
		}
	}()
	defer try.Caught(&err)
	cmd := commandOf(line)
	switch _, args, _ := strings.Cut(line, " "); {
	case line == "":
		return "", nil
	case cmd == nil:
		c.frame()
		v, err := c.value(ctx, c.Rank, c.Frame, line)
		return v.Text, c.suggest(err, line)
	case args == "" && cmd.args != "" && !strings.HasSuffix(cmd.args, "]"):
		refuse("%s wants %s", strings.Split(cmd.names, ", ")[0], cmd.args)
		return "", nil
	case cmd.args == "" && args != "":
		refuse("%s takes nothing; print %s evaluates the line", strings.Split(cmd.names, ", ")[0], line)
		return "", nil
	default:
		text := cmd.do(c, ctx, strings.TrimSpace(args))
		c.change(func() {
			if c.untold {
				c.Say.tell(areLoose)
			}
			c.untold = false
		})
		return text, nil
	}
}

// suggest adds the command that was probably meant to the error of an expression, unless it begins with a name of the recipe.
func (c *Console) suggest(err error, line string) error {
	word, _, _ := strings.Cut(line, " ")
	for _, file := range c.Files() {
		if lines := c.Bundle.Lines(file, c.marks); lines != nil && slices.Contains(lines.Names, word) {
			return err
		}
	}
	var names []string
	for _, cmd := range commands() {
		names = append(names, strings.Split(cmd.names, ", ")[0])
	}
	if near := spelling.Nearest(word, append(names, "quit")); err != nil && near != "" {
		return exit.WithHint(err, "did you mean "+near+"?")
	}
	return err
}

func (c *Console) help(_ context.Context, args string) string {
	var b strings.Builder
	t := terminal.NewTable(&b)
	for _, cmd := range commands() {
		if args == "" || slices.Contains(strings.Split(cmd.names, ", "), args) {
			fmt.Fprintf(t, "%s %s\t%s\n", cmd.names, cmd.args, cmd.about)
		}
	}
	if args != "" {
		if t.Flush(); b.Len() == 0 {
			try.Ok(c.suggest(exit.Errorf(exit.Usage, "there is no command %s", args), args))
		}
		return strings.TrimSpace(b.String())
	}
	fmt.Fprintf(t, "quit, q\tends the session\n")
	t.Flush()
	return b.String() + "Anything else is an expression, whose value is shown; print shows that of a variable with a command's name, such as w."
}

// refuse fails as try.To does.
func refuse(format string, args ...any) { try.Ok(exit.Errorf(exit.Usage, format, args...)) }

// stop is where the current rank stands.
func (c *Console) stop() *engine.Stopped {
	if rank, failed := c.Failed(); failed {
		refuse("the run has ended: back goes to where rank %d failed", rank)
	}
	return try.To(c.Stands(c.Rank))
}

func (c *Console) frame() engine.DebugFrame {
	frames := c.stop().Frames
	if len(frames) == 0 {
		refuse("rank %d executes no function", c.Rank)
	}
	if c.Frame >= len(frames) {
		c.Frame = 0
	}
	return frames[c.Frame]
}

// place is where a frame is.
func place(f engine.DebugFrame) string { return fmt.Sprintf("%s:%d", f.File, f.Line) }

// doing says in a line what a rank does.
func doing(rank int, r Rank) string {
	text := fmt.Sprintf("rank %d: ", rank)
	switch {
	case r.State == Ended && r.Why != "":
		return text + "failed: " + r.Why
	case r.State == Ended:
		return text + "has ended"
	case r.State == Executes:
		return text + "executes"
	case r.State == Waits:
		return text + "waits for other ranks"
	case len(r.Stop.Frames) == 0:
		return text + "at its beginning"
	}
	f := r.Stop.Frames[0]
	text += place(f) + " in " + f.Func
	why := r.Stop.Why
	switch {
	case r.Stop.Break > 0:
		why = fmt.Sprintf("breakpoint %d", r.Stop.Break)
	case why == engine.AtGoal:
		why = "earlier"
	}
	if r.Stop.Text != "" {
		why += ": " + r.Stop.Text
	}
	if r.Stop.Waits {
		why += ", in a call that waits for other ranks"
	}
	return text + " (" + why + ")"
}

func (c *Console) where(context.Context, string) string {
	v := c.Now()
	lines := c.states(v)
	if c.Rank < len(v.Ranks) && v.Ranks[c.Rank].State == Held {
		for i, f := range v.Ranks[c.Rank].Stop.Frames {
			mark := "    "
			if i == c.Frame {
				mark = "  > "
			}
			lines = append(lines, mark+f.Func+" at "+place(f))
		}
	}
	return strings.Join(lines, "\n")
}

// states says what the run and its ranks do.
func (c *Console) states(v View) (lines []string) {
	switch {
	case v.Over:
		lines = append(lines, strings.TrimSuffix("the run has ended: "+v.Why, ": "))
	case v.Past && c.mortem:
		lines = append(lines, "in the past: the run has failed since")
	case v.Past:
		lines = append(lines, "in the past: the run itself stands still, later")
	case c.past:
		lines = append(lines, "this is the present again: the run itself goes on from here")
	}
	c.past = v.Past
	for rank, r := range v.Ranks {
		lines = append(lines, doing(rank, r))
	}
	return lines
}

func (c *Console) setRank(_ context.Context, args string) string {
	ranks := c.Now().Ranks
	n, err := strconv.Atoi(args)
	if err != nil || n < 0 || n >= len(ranks) {
		refuse("there is no rank %s: there are 0 to %d", args, len(ranks)-1)
	}
	c.Rank, c.Frame = n, 0
	return doing(n, ranks[n])
}

func (c *Console) setFrame(n int) string {
	frames := c.stop().Frames
	if n < 0 || n >= len(frames) {
		refuse("there is no further call")
	}
	c.Frame = n
	return frames[n].Func + " at " + place(frames[n])
}

func (c *Console) list(context.Context, string) string {
	return c.around(c.frame(), 5)
}

// around shows a frame's line, which is marked, with lines around it.
func (c *Console) around(f engine.DebugFrame, lines int) string {
	src, line := strings.Split(string(c.Bundle.Text(f.File)), "\n"), int(f.Line)
	var out []string
	for n := max(1, line-lines); n <= min(len(src), line+lines); n++ {
		mark := "  "
		if n == line {
			mark = "->"
		}
		out = append(out, fmt.Sprintf("%s %4d  %s", mark, n, terminal.Escape(src[n-1])))
	}
	return strings.Join(out, "\n")
}

// ranksOf parses a list of ranks; "" gives nil.
func (c *Console) ranksOf(text string) (list []int) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n >= len(c.Now().Ranks) {
			refuse("there is no rank %s", part)
		}
		list = append(list, n)
	}
	return list
}

// going makes a command that lets ranks go on and waits for what comes of it.
func going(to string) func(*Console, context.Context, string) string {
	return func(c *Console, ctx context.Context, args string) string {
		ranks := c.ranksOf(args)
		c.Go(ranks, engine.Go{To: to})
		past := c.Now().Past
		var err error
		if to == engine.ToBreak && ranks == nil && !past {
			err = c.Stopped(ctx)
		} else {
			err = c.Settle(ctx, ranks)
		}
		for past && err == nil && c.released(ctx) {
			err = c.Settle(ctx, ranks)
		}
		if err != nil { // interrupted
			c.Pause(nil)
			_ = c.Stopped(context.Background())
		}
		return c.here()
	}
}

// here says where the ranks are, and shows the current one's line.
func (c *Console) here() string {
	c.Frame = 0
	v := c.Now()
	lines := c.states(v)
	if rank, failed := c.Failed(); failed {
		return fmt.Sprintf("%s\nback goes to where rank %d failed", lines[0], rank)
	}
	if v.Over {
		return lines[0]
	}
	if c.Rank = min(c.Rank, len(v.Ranks)-1); v.Ranks[c.Rank].State != Held {
		if other := slices.IndexFunc(v.Ranks, func(r Rank) bool { return r.State == Held }); other >= 0 {
			c.Rank = other
			lines = append(lines, fmt.Sprintf("rank %d is the current one now", other))
		}
	}
	if r := v.Ranks[c.Rank]; r.State == Held && len(r.Stop.Frames) > 0 {
		lines = append(lines, c.around(r.Stop.Frames[0], 0))
	}
	return strings.Join(lines, "\n")
}

func (c *Console) pause(ctx context.Context, args string) string {
	ranks := c.ranksOf(args)
	c.Pause(ranks)
	soon, cancel := context.WithTimeout(ctx, pausing)
	defer cancel()
	_ = c.await(soon, func() bool {
		w := c.shown()
		for rank, r := range w.ranks {
			if (r.State == Executes || r.State == Waits) && (ranks == nil || slices.Contains(ranks, rank)) {
				return w.over
			}
		}
		return true
	})
	return c.here()
}
