package lang

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"drun/internal/spelling"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// suggestNames adds the nearest known name to errors about unknown names.
// The resolver does so for names that the file binds, but does not know the others.
func suggestNames(e *Error, tree *syntax.File, env starlark.StringDict) *Error {
	var known []string
	for _, dict := range []starlark.StringDict{env, starlark.Universe} {
		for _, name := range dict.Keys() {
			if identifier(name) {
				known = append(known, name)
			}
		}
	}
	for _, fault := range append([]*Error{e}, e.Also...) {
		_ = surprised(fault)
		name, ok := strings.CutPrefix(fault.Msg, "undefined: ")
		if !ok || strings.Contains(name, " ") {
			continue
		}
		if hint, ok := foreignNames[name]; ok {
			fault.Msg += ": " + hint
		} else if hint := cmp.Or(Foreign(name), ofLibrary(name, fault.Pos, tree, env)); hint != "" {
			fault.Msg += ": " + hint
		} else if near := spelling.Nearest(name, known); near != "" {
			fault.Msg += fmt.Sprintf(" (did you mean %s?)", near)
		} else if module := moduleOf(name, env); module != "" {
			fault.Msg += fmt.Sprintf(" (did you mean %s.%s?)", module, name)
		}
	}
	return e
}

func identifier(s string) bool {
	for i, c := range s {
		if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsNumber(c)) {
			return false
		}
	}
	return s != ""
}

// moduleOf finds a module of the environment that has an attribute called name.
func moduleOf(name string, env starlark.StringDict) string {
	for _, module := range env.Keys() {
		if v, ok := env[module].(starlark.HasAttrs); ok && identifier(module) {
			if slices.Contains(v.AttrNames(), name) {
				return module
			}
		}
	}
	return ""
}

// foreignNames are Python names that have another form in a recipe.
var foreignNames = map[string]string{
	"divmod":     "write (x // y, x % y)",
	"iter":       "a loop takes the list, dict or loader itself",
	"next":       "index a list, or leave a loop with break",
	"hex":        "write \"%x\" % n",
	"oct":        "write \"%o\" % n",
	"pow":        "use math.pow(x, y) for numbers, x.pow(y) for tensors",
	"open":       "files are read with the readers of data, or dist.read_file(path)",
	"input":      "a recipe takes its input from run.params",
	"isinstance": `compare type(x) with a name, as in type(x) == "list"`,
	"map":        "write a comprehension, [f(x) for x in items]",
	"filter":     "write a comprehension, [x for x in items if f(x)]",
	"self":       "a function of nn.module takes it as its first parameter",
	"time":       "run.elapsed() gives seconds",
	"os":         "a recipe has no access to the system",
	"sys":        "a recipe has no access to the system",
}

// foreignSyntax is Python syntax that Starlark lacks, recognised by the text at the error's position.
var foreignSyntax = sync.OnceValue(func() []foreignForm {
	return []foreignForm{
		{regexp.MustCompile(`^with\b`), "there is no with:  a loop over tensor.no_grad(loader) records no gradients"},
		{regexp.MustCompile(`^(try|except|finally|raise)\b`), "there are no exceptions: fail(message) ends the run"},
		{regexp.MustCompile(`^class\b`), "there is no class: use nn.module(forward, …) for a model, struct(…) for a record"},
		{regexp.MustCompile(`^(import|from)\b`), `there is no import: modules are predeclared, and other files are read with load("file.star", "name")`},
		{regexp.MustCompile(`^is\b`), "there is no is: use == None, or != None"},
		{regexp.MustCompile(`^yield\b`), "there is no yield: return a list"},
		{regexp.MustCompile(`^del\b`), "there is no del: use d.pop(key)"},
		{regexp.MustCompile(`^(global|nonlocal)\b`), "there is no global or nonlocal: keep what changes in a list or dict"},
		{regexp.MustCompile(`^(async|await)\b`), "there is no async: collectives take async_op = True"},
		{regexp.MustCompile(`^\*\*`), "there is no **: use math.pow(x, y), or x.pow(y) of a tensor"},
		{regexp.MustCompile(`^@`), "there is no @: use a.matmul(b), and no decorators"},
		{regexp.MustCompile(`^:=`), "there is no :=: assign on a line of its own"},
		{regexp.MustCompile(`^->`), "there are no type annotations"},
	}
})

type foreignForm struct {
	at   *regexp.Regexp // matched against the rest of the line
	hint string
}

var (
	gotToken   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^got (.+), want (.+)$`) })
	fstring    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|[^\pL\pN_])[fF]$`) })
	loading    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\.\s*load\s*$`) })
	assertion  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*assert $`) })
	annotation = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*def\s[^:]*$`) })
	subscript  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\pL\pN_)\]]\[[^\[\]]*$`) })
)

// explainSyntax corrects the position of a syntax error and adds what to write instead of Python's syntax.
func explainSyntax(e *Error, src []byte) *Error {
	atToken(e, src)
	line, ok := sourceLine(src, int(e.Pos.Line))
	runes := []rune(line)
	col := int(e.Pos.Col) - 1
	if !ok || col < 0 || col > len(runes) {
		return e
	}
	before, rest := string(runes[:col]), string(runes[col:])
	if hint := cmp.Or(surprisingSyntax(e.Msg, before, rest), hintAt(before, rest)); hint != "" {
		e.Msg += ": " + hint
	}
	return e
}

func hintAt(before, rest string) string {
	switch {
	case strings.HasPrefix(rest, `"`) || strings.HasPrefix(rest, "'"):
		if fstring().MatchString(before) {
			return `there are no f-strings: write "%s" % x, "%.3f" % x, or "{}".format(x)`
		}
	case loading().MatchString(before):
		return "load is a keyword: checkpoint.restore restores a state, checkpoint.load_file and the readers of data read files"
	case assertion().MatchString(before):
		return "there is no assert: use if and fail(message)"
	case annotation().MatchString(before) && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "->")):
		return "there are no type annotations"
	}
	if open := subscript().FindString(before); open != "" {
		inside, _, _ := strings.Cut(open+rest, "]")
		if strings.Contains(inside, ":") && strings.Contains(inside, ",") {
			return `a subscript of several dimensions is written as a string: x[":, 0"]`
		}
	}
	for _, f := range foreignSyntax() {
		if f.at.MatchString(rest) {
			return f.hint
		}
	}
	return ""
}

// atToken moves the position of "got X, want Y" to the beginning of X: the
// parser reports its end, which for a newline is on the next line.
func atToken(e *Error, src []byte) {
	match := gotToken().FindStringSubmatch(e.Msg)
	if match == nil || match[2] == "primary expression" {
		return
	}
	if match[1] == "newline" {
		for n := e.Pos.Line; n > 0; n-- {
			// The newline in question ends the last line with code before it.
			line, ok := sourceLine(src, int(n))
			if code := strings.TrimLeft(line, " \t"); !ok || code[0] == '#' || n == e.Pos.Line && e.Pos.Col == 1 {
				continue
			}
			e.Pos.Line, e.Pos.Col = n, int32(len([]rune(line)))+1
			return
		}
		return
	}
	line, ok := sourceLine(src, int(e.Pos.Line))
	runes := []rune(line)
	end := int(e.Pos.Col) - 1
	if !ok || end < 0 || end > len(runes) {
		return
	}
	start := end
	switch token := strings.Trim(match[1], "'"); token {
	case "identifier", "int literal", "float literal":
		for start > 0 && (runes[start-1] == '_' || runes[start-1] == '.' || unicode.IsLetter(runes[start-1]) || unicode.IsDigit(runes[start-1])) {
			start--
		}
	case "string literal":
		if start < 2 {
			return
		}
		quote := runes[start-1]
		for start -= 2; start > 0 && runes[start] != quote; start-- {
		}
	default:
		if text := string(runes[:end]); strings.HasSuffix(text, token) {
			start = end - len([]rune(token))
		}
	}
	e.Pos.Col = int32(start) + 1
}
