package debug

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"drun/engine"
	agent "drun/engine/debug"
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

type foundAt struct {
	rank int
	engine.FoundMoment
	others map[int]engine.Moment // where other ranks are to be then
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

func (c *Console) setBreak(_ context.Context, args string) (_ string, err error) {
	defer try.Caught(&err)
	var b engine.Breakpoint
	args, on, _ := strings.Cut(args, " on ")
	b.Ranks = try.To(c.ranksOf(on))
	args, b.Condition, _ = strings.Cut(args, " if ")
	args = strings.TrimSpace(args)
	kind, rest, _ := strings.Cut(args, " ")
	switch rest = strings.TrimSpace(rest); kind {
	case "collective":
		b.Collective = cmp.Or(rest, "*")
	case "nonfinite":
		b.NotFinite = true
	case "update":
		b.Updates, err = strconv.ParseInt(rest, 10, 64)
		if err != nil || b.Updates < 1 {
			return "", exit.Errorf(exit.Usage, "break update wants a number from 1, not %q", rest)
		}
	default:
		file, line := "", args
		if i := strings.LastIndexByte(args, ':'); i >= 0 {
			file, line = args[:i], args[i+1:]
		}
		n, err := strconv.Atoi(line)
		if err != nil || n < 1 {
			return "", exit.WithHint(exit.Errorf(exit.Usage, "break wants a line, not %q", args), "for example: break train.star:12 if loss > 3 on 0,1")
		}
		b.Line = int32(n)
		b.File = c.fileNamed(file)
	}
	b, moved := try.To2(c.Place(b))
	c.SetBreakpoints(append(c.Breakpoints(), b))
	text := describeBreak(b)
	if moved != "" {
		text += " (" + moved + ")"
	}
	return text, nil
}

// fileNamed finds the file that a person means: by its name or its end; "" is the current one.
func (c *Console) fileNamed(name string) string {
	if name == "" {
		if f, err := c.frame(); err == nil {
			return f.File
		}
		return c.Files()[0]
	}
	for _, file := range c.Files() {
		if file == name || strings.HasSuffix(file, "/"+name) {
			return file
		}
	}
	return name
}

func describeBreak(b engine.Breakpoint) string {
	text := fmt.Sprintf("breakpoint %d ", b.ID)
	switch {
	case b.Collective == "*":
		text += "before each collective"
	case b.Collective != "":
		text += "before each " + b.Collective
	case b.NotFinite:
		text += "where a value is not finite"
	case b.Updates > 0:
		text += fmt.Sprintf("after update %d", b.Updates)
	default:
		text += fmt.Sprintf("at %s:%d", b.File, b.Line)
	}
	if b.Condition != "" {
		text += " if " + b.Condition
	}
	if b.Ranks != nil {
		text += " on ranks " + strings.Trim(fmt.Sprint(b.Ranks), "[]")
	}
	return text
}

func (c *Console) listBreaks(context.Context, string) (string, error) {
	var lines []string
	for _, b := range c.Breakpoints() {
		lines = append(lines, describeBreak(b))
	}
	return cmp.Or(strings.Join(lines, "\n"), "there is none"), nil
}

func (c *Console) deleteBreak(_ context.Context, args string) (string, error) {
	if args == "" {
		c.SetBreakpoints(nil)
		return "all breakpoints are removed", nil
	}
	n, _ := strconv.Atoi(args)
	left := slices.DeleteFunc(c.Breakpoints(), func(b engine.Breakpoint) bool { return b.ID == n })
	if len(left) == len(c.Breakpoints()) {
		return "", exit.Errorf(exit.Usage, "there is no breakpoint %s", args)
	}
	c.SetBreakpoints(left)
	return fmt.Sprintf("breakpoint %d is removed", n), nil
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

func (c *Console) print(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	try.Ok(c.checkExpression(expr, nil))
	try.To(c.frame())
	a := try.To(c.Look(ctx, c.Rank, engine.Look{Frame: c.Frame, Expr: expr}))
	return ShowValue(a.Values[0]), nil
}

func scope(name string) func(*Console, context.Context, string) (string, error) {
	return func(c *Console, ctx context.Context, _ string) (_ string, err error) {
		defer try.Caught(&err)
		try.To(c.frame())
		a := try.To(c.Look(ctx, c.Rank, engine.Look{Frame: c.Frame, Scope: name}))
		var lines []string
		for _, v := range a.Values {
			lines = append(lines, v.Name+" = "+ShowValue(v))
		}
		return cmp.Or(strings.Join(lines, "\n"), "there are none"), nil
	}
}

// ShowValue is a value in a line.
func ShowValue(v engine.DebugValue) string {
	t := v.Tensor
	if t == nil {
		text, _, more := strings.Cut(v.Text, "\n")
		if more {
			text += " …"
		}
		return terminal.Escape(text)
	}
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	var values []string
	for _, x := range t.Values {
		values = append(values, strconv.FormatFloat(x, 'g', 6, 64))
	}
	if n > len(t.Values) {
		values = append(values, "…")
	}
	text := fmt.Sprintf("%s [%s]", v.Type, strings.Join(values, " "))
	if !math.IsNaN(t.Min) {
		text += fmt.Sprintf(", min %.6g, max %.6g", t.Min, t.Max)
	}
	if t.NaN > 0 {
		text += fmt.Sprintf(", %d NaN", t.NaN)
	}
	if t.Inf > 0 {
		text += fmt.Sprintf(", %d infinite", t.Inf)
	}
	return text + fmt.Sprintf(", digest %016x", v.Digest)
}

// Compare shows an expression on all ranks that stand still, in the call of the same function.
func (c *Console) across(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	try.Ok(c.checkExpression(expr, nil))
	frame := try.To(c.frame())
	ranks := c.Ranks()
	values := make([]*engine.Debugged, len(ranks))
	frames := make([]int, len(ranks))
	var lines []string
	for rank, r := range ranks {
		if r.State != Held {
			lines = append(lines, fmt.Sprintf("rank %d: does not stand still", rank))
			continue
		}
		frames[rank] = max(0, slices.IndexFunc(r.Stop.Frames, func(f engine.DebugFrame) bool { return f.Func == frame.Func && f.At == frame.At }))
		a, err := c.Look(ctx, rank, engine.Look{Frame: frames[rank], Expr: expr})
		if err != nil {
			lines = append(lines, fmt.Sprintf("rank %d: %v", rank, err))
			continue
		}
		values[rank] = a
		lines = append(lines, fmt.Sprintf("rank %d: %s", rank, ShowValue(a.Values[0])))
	}
	first := slices.IndexFunc(values, func(a *engine.Debugged) bool { return a != nil })
	if first < 0 {
		return strings.Join(lines, "\n"), nil
	}
	var other []int
	for rank, a := range values {
		if a != nil && a.Values[0].Digest != values[first].Values[0].Digest {
			other = append(other, rank)
		}
	}
	if len(other) == 0 {
		return strings.Join(append(lines, "they are equal"), "\n"), nil
	}
	lines = append(lines, fmt.Sprintf("they differ: rank %d and rank %d%s", first, other[0], c.difference(ctx, expr, first, other[0], values, frames)))
	return strings.Join(lines, "\n"), nil
}

// difference says in which element the tensors of two ranks differ first.
func (c *Console) difference(ctx context.Context, expr string, a, b int, values []*engine.Debugged, frames []int) string {
	x, y := values[a].Values[0].Tensor, values[b].Values[0].Tensor
	if x == nil || y == nil || x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) {
		return ""
	}
	n := 1
	for _, d := range x.Shape {
		n *= d
	}
	per := agent.BlockSize(n)
	for i := range min(len(values[a].Blocks), len(values[b].Blocks)) {
		if values[a].Blocks[i] == values[b].Blocks[i] {
			continue
		}
		var parts [2][]float64
		for k, rank := range []int{a, b} {
			got, err := c.Look(ctx, rank, engine.Look{Frame: frames[rank], Expr: expr, From: i * per, Count: per})
			if err != nil {
				return ""
			}
			parts[k] = got.Numbers
		}
		for k := range min(len(parts[0]), len(parts[1])) {
			if p, q := parts[0][k], parts[1][k]; math.Float64bits(p) != math.Float64bits(q) {
				return fmt.Sprintf(", first at element %s: %v and %v", index(i*per+k, x.Shape), p, q)
			}
		}
	}
	return ""
}

// index is an element's place in a tensor of that shape, such as [2, 0].
func index(n int, shape []int) string {
	at := make([]string, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		at[i] = strconv.Itoa(n % shape[i])
		n /= shape[i]
	}
	return "[" + strings.Join(at, ", ") + "]"
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

// remember numbers a moment for go.
func (c *Console) remember(rank int, m engine.FoundMoment) int {
	c.found = append(c.found, foundAt{rank: rank, FoundMoment: m})
	return len(c.found)
}

func (c *Console) goBack(ctx context.Context, args string) (_ string, err error) {
	defer try.Caught(&err)
	n, err := strconv.Atoi(args)
	if err != nil || n < 1 || n > len(c.found) {
		return "", exit.Errorf(exit.Usage, "no search has found a moment %s", args)
	}
	m := c.found[n-1]
	c.Rank = m.rank
	to := map[int]engine.Moment{m.rank: m.Moment}
	maps.Copy(to, m.others)
	try.Ok(c.GoTo(ctx, m.rank, to, c.Say))
	return c.after(ctx), nil
}

// at describes a moment.
func (c *Console) at(rank int, m engine.FoundMoment) string {
	text := fmt.Sprintf("%s:%d", m.File, m.Line)
	if m.Updates > 0 {
		text += fmt.Sprintf(", after update %d", m.Updates)
	}
	text += fmt.Sprintf(" (go %d)", c.remember(rank, m))
	return text + "\n" + c.around(m.File, int(m.Line), 0)
}

func (c *Console) changed(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	frame := try.To(c.frame())
	c.found = nil
	list := try.To(c.Changes(ctx, []int{c.Rank}, frame, expr, true, c.Say))[c.Rank]
	if len(list) == 0 {
		return expr + " has had no value yet", nil
	}
	m := list[len(list)-1]
	verb := "last changed"
	if len(list) == 1 {
		verb = "got its value"
	}
	return fmt.Sprintf("%s %s on rank %d at %s", expr, verb, c.Rank, c.at(c.Rank, m)), nil
}

func (c *Console) notFinite(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	c.found = nil
	if expr == "" {
		all := try.To(c.NotFinite(ctx, c.living(), c.Say))
		var lines []string
		for rank, list := range all {
			if len(list) > 0 {
				lines = append(lines, fmt.Sprintf("rank %d: %s, at %s", rank, list[0].Text, c.at(rank, list[0])))
			}
		}
		return cmp.Or(strings.Join(lines, "\n"), "no operation has given NaN or an infinity so far"), nil
	}
	frame := try.To(c.frame())
	list := try.To(c.Changes(ctx, []int{c.Rank}, frame, expr, false, c.Say))[c.Rank]
	i := slices.IndexFunc(list, func(m engine.FoundMoment) bool { return m.NotFinite })
	if i < 0 {
		return expr + " has always been finite", nil
	}
	text := fmt.Sprintf("%s was not finite first on rank %d at %s", expr, c.Rank, c.at(c.Rank, list[i]))
	if list[i].Text != "" {
		text += "\n" + list[i].Text
	}
	return text, nil
}

// living lists the ranks that have not ended.
func (c *Console) living() (list []int) {
	for rank, r := range c.Ranks() {
		if r.State != Ended {
			list = append(list, rank)
		}
	}
	return list
}

func (c *Console) differ(ctx context.Context, expr string) (_ string, err error) {
	defer try.Caught(&err)
	frame := try.To(c.frame())
	c.found = nil
	ranks := c.living()
	all := try.To(c.Changes(ctx, ranks, frame, expr, false, c.Say))
	for i := 0; ; i++ {
		first := -1
		for _, rank := range ranks {
			switch {
			case i >= len(all[rank]):
				return expr + " has had the same values on all ranks so far", nil
			case first < 0:
				first = rank
			case all[rank][i].Value != all[first][i].Value:
				text := fmt.Sprintf("%s differs first between rank %d and rank %d: at %s", expr, first, rank, c.at(rank, all[rank][i]))
				c.found[0].others = map[int]engine.Moment{}
				for _, r := range ranks {
					if i < len(all[r]) {
						c.found[0].others[r] = all[r][i].Moment
					}
				}
				if other := all[first][i]; other.Line != all[rank][i].Line || other.Updates != all[rank][i].Updates {
					text += fmt.Sprintf("\nrank %d was at %s", first, c.at(first, other))
				}
				return text, nil
			}
		}
	}
}
