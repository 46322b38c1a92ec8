package debug

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"drun/engine"
	"drun/internal/exit"
	"drun/internal/try"
)

// console is who has set the breakpoints of a Console.
const console = "console"

func (c *Console) setBreak(_ context.Context, args string) string {
	var b engine.Breakpoint
	args, on, _ := strings.Cut(args, " on ")
	b.Ranks = c.ranksOf(on)
	args, b.Condition, _ = strings.Cut(args, " if ")
	kind, rest, _ := strings.Cut(strings.TrimSpace(args), " ")
	switch rest = strings.TrimSpace(rest); kind {
	case "collective":
		b.Collective = cmp.Or(rest, "*")
	case "nonfinite":
		b.NotFinite = true
	case "update":
		if b.Updates, _ = strconv.ParseInt(rest, 10, 64); b.Updates < 1 {
			refuse("break update wants a number from 1, not %q", rest)
		}
	default:
		colon := strings.LastIndexByte(kind, ':')
		n, _ := strconv.ParseInt(kind[colon+1:], 10, 32)
		if n < 1 || rest != "" {
			try.Ok(exit.WithHint(exit.Errorf(exit.Usage, "break wants a line, not %q", args), "for example: break train.star:12 if loss > 3 on 0,1"))
		}
		b.File, b.Line = c.fileNamed(kind[:max(0, colon)]), int32(n)
	}
	list := c.SetBreakpoints(console, append(slices.Clone(c.breaks[console]), b))
	placed := list[len(list)-1]
	try.Ok(placed.Err)
	text := describeBreak(placed.Breakpoint)
	if placed.Moved != "" {
		text += " (" + placed.Moved + ")"
	}
	return text
}

// fileNamed finds the file that a person means: by its name, its end or its path; "" is the current one.
func (c *Console) fileNamed(name string) string {
	files := c.Files()
	if name == "" {
		if ranks := c.Now().Ranks; ranks[c.Rank].State == Held && len(ranks[c.Rank].Stop.Frames) > 0 {
			return c.frame().File
		}
		return files[0]
	}
	clean := filepath.Clean(name)
	if i := slices.IndexFunc(files, func(file string) bool { return file == clean || strings.HasSuffix(file, "/"+clean) }); i >= 0 {
		return files[i]
	}
	for i, src := range c.Bundle.Sources {
		if absolute, _ := filepath.Abs(name); filepath.Join(c.Bundle.Dir, filepath.FromSlash(src.Path)) == absolute {
			return files[i]
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

func (c *Console) listBreaks(context.Context, string) string {
	var lines []string
	for _, b := range c.Breakpoints() {
		lines = append(lines, describeBreak(b))
	}
	return cmp.Or(strings.Join(lines, "\n"), "there is none")
}

func (c *Console) deleteBreak(_ context.Context, args string) string {
	n, _ := strconv.Atoi(args)
	switch {
	case args == "":
		c.Delete(0)
		return "all breakpoints are removed"
	case n < 1 || c.Delete(n) == 0:
		refuse("there is no breakpoint %s", args)
	}
	return fmt.Sprintf("breakpoint %d is removed", n)
}
