package debug

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/engine"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
)

// A Console carries out commands that a person types, at `drun debug`'s prompt or in an editor's debug console.
type Console struct {
	*Session
	Rank  int // that commands are about
	Frame int // of its calls, innermost first
	Say   Say // shows what is said before a command has ended

	found []foundAt // by the latest search, numbered from 1
}

type command struct {
	names []string
	args  string
	about string
	do    func(c *Console, ctx context.Context, args string) (string, error)
}

// commands in the order of help. It is a function, since help is one of them.
func commands() []command {
	return []command{
		{[]string{"where", "w"}, "", "what every rank does, and the calls of the current one", (*Console).where},
		{[]string{"rank", "r"}, "N", "makes rank N the current one", (*Console).setRank},
		{[]string{"up"}, "", "looks at the caller", func(c *Console, ctx context.Context, _ string) (string, error) { return c.setFrame(c.Frame + 1) }},
		{[]string{"down"}, "", "looks at the callee", func(c *Console, ctx context.Context, _ string) (string, error) { return c.setFrame(c.Frame - 1) }},
		{[]string{"list", "l"}, "", "the source around the current line", (*Console).list},
		{[]string{"break", "b"}, "[FILE:]LINE [if CONDITION] [on RANK,…]", "stops ranks there; also: break collective [NAME], break update N, break nonfinite", (*Console).setBreak},
		{[]string{"breaks"}, "", "lists the breakpoints", (*Console).listBreaks},
		{[]string{"delete"}, "N", "removes breakpoint N; without a number, all", (*Console).deleteBreak},
		{[]string{"continue", "c"}, "[RANK,…]", "goes on to the next breakpoint: all ranks, or these", going(engine.ToBreak)},
		{[]string{"next", "n"}, "[RANK,…]", "goes on to the next statement of the function, all ranks alike, or these", going(engine.Over)},
		{[]string{"step", "s"}, "[RANK,…]", "goes on to the next statement, also of a function that is called", going(engine.StepIn)},
		{[]string{"out"}, "[RANK,…]", "goes on to the caller's next statement", going(engine.Out)},
		{[]string{"pause"}, "[RANK,…]", "stops ranks where they are", (*Console).pause},
		{[]string{"print", "p"}, "EXPRESSION", "its value on the current rank", (*Console).print},
		{[]string{"across", "a"}, "EXPRESSION", "its value on all ranks, and where they differ", (*Console).across},
		{[]string{"locals"}, "", "the variables of the current call", scope(engine.Locals)},
		{[]string{"globals"}, "", "what the file defines", scope(engine.Globals)},
		{[]string{"waits"}, "", "which rank waits for which others", (*Console).waits},
		{[]string{"back"}, "[RANK,…]", "goes back to the beginning of the previous statement", (*Console).back},
		{[]string{"rcontinue", "rc"}, "", "goes back to where the current rank last met a breakpoint", (*Console).reverse},
		{[]string{"changed"}, "EXPRESSION", "when its value last changed on the current rank", (*Console).changed},
		{[]string{"nonfinite"}, "[EXPRESSION]", "which operation first gave NaN or an infinity, or first made this value so", (*Console).notFinite},
		{[]string{"differ"}, "EXPRESSION", "the first moment at which ranks have different values", (*Console).differ},
		{[]string{"go"}, "N", "goes back to the moment that a search has numbered N", (*Console).goBack},
		{[]string{"help", "h"}, "", "this list", (*Console).help},
	}
}

// Knows reports whether a line begins with a command's name.
func Knows(line string) bool { return commandOf(line) != nil }

func commandOf(line string) *command {
	name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	for _, c := range commands() {
		if slices.Contains(c.names, name) {
			return &c
		}
	}
	return nil
}

// Do carries out a line, and returns what it tells. What is no command is evaluated.
func (c *Console) Do(ctx context.Context, line string) (string, error) {
	line = strings.TrimSpace(line)
	if line == "" {
		return "", nil
	}
	if cmd := commandOf(line); cmd != nil {
		_, args, _ := strings.Cut(line, " ")
		return cmd.do(c, ctx, strings.TrimSpace(args))
	}
	return c.print(ctx, line)
}

func (c *Console) help(context.Context, string) (string, error) {
	var b strings.Builder
	t := terminal.NewTable(&b)
	for _, cmd := range commands() {
		fmt.Fprintf(t, "%s %s\t%s\n", strings.Join(cmd.names, ", "), cmd.args, cmd.about)
	}
	fmt.Fprintf(t, "quit, q\tends the session\n")
	t.Flush()
	b.WriteString("Anything else is an expression, whose value is shown.")
	return b.String(), nil
}

// stop is where the current rank stands.
func (c *Console) stop() (*engine.Stopped, error) {
	ranks := c.Ranks()
	if c.Rank >= len(ranks) {
		return nil, exit.Errorf(exit.Usage, "there is no rank %d", c.Rank)
	}
	if r := ranks[c.Rank]; r.State == Held {
		return r.Stop, nil
	}
	return nil, exit.Errorf(exit.Usage, "rank %d does not stand still: pause stops it", c.Rank)
}

func (c *Console) frame() (engine.DebugFrame, error) {
	s, err := c.stop()
	if err != nil {
		return engine.DebugFrame{}, err
	}
	if c.Frame >= len(s.Frames) {
		c.Frame = 0
	}
	if len(s.Frames) == 0 {
		return engine.DebugFrame{}, exit.Errorf(exit.Usage, "rank %d executes no function", c.Rank)
	}
	return s.Frames[c.Frame], nil
}

// Where says in a line what a rank does.
func Where(rank int, r Rank) string {
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
	}
	if len(r.Stop.Frames) == 0 {
		return text + "at its beginning"
	}
	f := r.Stop.Frames[0]
	text += fmt.Sprintf("%s:%d in %s", f.File, f.Line, f.Func)
	why := r.Stop.Why
	if r.Stop.Break > 0 {
		why = fmt.Sprintf("breakpoint %d", r.Stop.Break)
	}
	if r.Stop.Why == engine.AtGoal {
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

func (c *Console) where(context.Context, string) (string, error) {
	var lines []string
	ranks := c.Ranks()
	for rank, r := range ranks {
		mark := "  "
		if rank == c.Rank {
			mark = "* "
		}
		lines = append(lines, mark+Where(rank, r))
	}
	if c.InPast() {
		lines = append(lines, "in the past: the run itself stands still, later")
	}
	if c.Rank < len(ranks) && ranks[c.Rank].State == Held {
		for i, f := range ranks[c.Rank].Stop.Frames {
			mark := "    "
			if i == c.Frame {
				mark = "  > "
			}
			lines = append(lines, fmt.Sprintf("%s%s at %s:%d", mark, f.Func, f.File, f.Line))
		}
	}
	return strings.Join(lines, "\n"), nil
}

func (c *Console) setRank(ctx context.Context, args string) (string, error) {
	n, err := strconv.Atoi(args)
	if err != nil || n < 0 || n >= len(c.Ranks()) {
		return "", exit.Errorf(exit.Usage, "there is no rank %s: there are 0 to %d", args, len(c.Ranks())-1)
	}
	c.Rank, c.Frame = n, 0
	return Where(n, c.Ranks()[n]), nil
}

func (c *Console) setFrame(n int) (string, error) {
	s, err := c.stop()
	if err != nil {
		return "", err
	}
	if n < 0 || n >= len(s.Frames) {
		return "", exit.Errorf(exit.Usage, "there is no further call")
	}
	c.Frame = n
	return fmt.Sprintf("%s at %s:%d", s.Frames[n].Func, s.Frames[n].File, s.Frames[n].Line), nil
}

func (c *Console) list(context.Context, string) (string, error) {
	f, err := c.frame()
	if err != nil {
		return "", err
	}
	return c.around(f.File, int(f.Line), 5), nil
}

// around shows lines of a file around one, which is marked.
func (c *Console) around(file string, line, lines int) string {
	src := strings.Split(string(c.Bundle().Text(file)), "\n")
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
func (c *Console) ranksOf(text string) (list []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n >= len(c.Ranks()) {
			return nil, exit.Errorf(exit.Usage, "there is no rank %s", part)
		}
		list = append(list, n)
	}
	return list, nil
}

// going makes a command that lets ranks go on and waits for what comes of it.
func going(to string) func(*Console, context.Context, string) (string, error) {
	return func(c *Console, ctx context.Context, args string) (_ string, err error) {
		defer try.Caught(&err)
		ranks := try.To(c.ranksOf(args))
		c.Frame = 0
		c.Go(ranks, to)
		if to == engine.ToBreak && ranks == nil {
			err = c.Stopped(ctx)
		} else {
			err = c.Settle(ctx, ranks)
		}
		if err != nil { // interrupted
			c.Pause(nil)
			_ = c.Stopped(context.Background())
		}
		return c.here(), nil
	}
}

// here says where the ranks are, and shows the current one's line.
func (c *Console) here() string {
	if over, why := c.Over(); over {
		if why == "" {
			return "the run has ended"
		}
		return "the run has ended: " + why
	}
	var lines []string
	ranks := c.Ranks()
	for rank, r := range ranks {
		lines = append(lines, Where(rank, r))
	}
	if ranks[min(c.Rank, len(ranks)-1)].State != Held {
		if other := slices.IndexFunc(ranks, func(r Rank) bool { return r.State == Held }); other >= 0 {
			c.Rank, c.Frame = other, 0
			lines = append(lines, fmt.Sprintf("rank %d is the current one now", other))
		}
	}
	if r := ranks[min(c.Rank, len(ranks)-1)]; r.State == Held && len(r.Stop.Frames) > 0 {
		lines = append(lines, c.around(r.Stop.Frames[0].File, int(r.Stop.Frames[0].Line), 0))
	}
	return strings.Join(lines, "\n")
}

func (c *Console) pause(ctx context.Context, args string) (_ string, err error) {
	defer try.Caught(&err)
	ranks := try.To(c.ranksOf(args))
	c.Pause(ranks)
	try.Ok(c.Settle(ctx, ranks))
	return c.here(), nil
}

func (c *Console) waits(ctx context.Context, _ string) (_ string, err error) {
	defer try.Caught(&err)
	w := c.shown()
	db := try.To(history.OpenReadOnly(w.home))
	defer db.Close()
	s := try.To(db.Doing(ctx, w.id))
	if s == nil {
		return "the ranks have not started, or have ended", nil
	}
	ranks := c.Ranks()
	var lines []string
	for _, r := range s.Ranks {
		text := Where(r.Rank, ranks[r.Rank])
		if ranks[r.Rank].State != Ended && r.Call != "" && r.State == "waiting" {
			text = fmt.Sprintf("rank %d: waits in %s at %s", r.Rank, r.Call, r.Position)
			var missing []string
			for _, other := range s.Ranks {
				reached := other.Rank == r.Rank || r.Number == 0 || other.Group == r.Group && other.Number >= r.Number
				for _, p := range other.Recent {
					reached = reached || p.Group == r.Group && p.Number >= r.Number
				}
				if !reached {
					missing = append(missing, strconv.Itoa(other.Rank))
				}
			}
			if missing != nil {
				text += ", for rank " + strings.Join(missing, ", ")
			}
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n"), nil
}

func (c *Console) back(ctx context.Context, args string) (_ string, err error) {
	defer try.Caught(&err)
	ranks := try.To(c.ranksOf(args))
	try.To(c.stop())
	try.Ok(c.StepBack(ctx, c.Rank, ranks, c.Say))
	return c.after(ctx), nil
}

// after waits a moment for all ranks of a repetition to come to a stop.
func (c *Console) after(ctx context.Context) string {
	soon, cancel := context.WithTimeout(ctx, together)
	defer cancel()
	c.Frame = 0
	_ = c.Settle(soon, nil)
	return c.here()
}

func (c *Console) reverse(ctx context.Context, _ string) (_ string, err error) {
	defer try.Caught(&err)
	try.To(c.stop())
	try.Ok(c.ReverseContinue(ctx, c.Rank, c.Say))
	return c.after(ctx), nil
}
