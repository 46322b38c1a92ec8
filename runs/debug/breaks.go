package debug

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/engine"
	"drun/internal/exit"
	"drun/internal/try"
)

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
