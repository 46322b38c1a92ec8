package main

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/universe"
)

var pythonKeywords = strings.Fields("False None True and as assert async await break class continue def del elif else except " +
	"finally for from global if import in is lambda nonlocal not or pass raise return try while with yield")

// The stub is read line by line, as Python would: every definition is parsed,
// every type in it is one that the stub defines or Python has.
func TestStubIsPython(t *testing.T) {
	var b bytes.Buffer
	if err := printStub(&b, universe.Reference()); err != nil {
		t.Fatal(err)
	}
	known := append([]string{"Any", "Callable", "Iterable", "None"}, pythonBuiltins...)
	for _, m := range regexp.MustCompile(`(?m)^class (\w+):$`).FindAllStringSubmatch(b.String(), -1) {
		known = append(known, m[1])
	}
	text := strings.TrimPrefix(b.String(), stubHead)
	if text == b.String() {
		t.Fatal("it does not begin with the imports")
	}
	definitions, after := 0, false
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		text = rest
		code := strings.TrimSpace(line)
		switch {
		case code == "" || code == "@staticmethod":
			continue
		case strings.HasPrefix(code, `"""`):
			if !after {
				t.Errorf("a docstring that belongs to nothing: %s", line)
			}
			text = skipDocstring(t, line+"\n"+rest)
		case strings.HasPrefix(code, "class "):
			after = true
			continue
		case strings.HasPrefix(code, "def "):
			definitions++
			checkDefinition(t, strings.TrimSuffix(strings.TrimPrefix(code, "def "), ":"), known)
			after = true
			continue
		default:
			name, of, ok := strings.Cut(code, ": ")
			if !ok || slices.Contains(pythonKeywords, name) || !slices.Contains(known, strings.TrimPrefix(of, "builtins.")) {
				t.Errorf("neither a definition nor an attribute: %s", line)
			}
			after = true
			continue
		}
		after = false
	}
	if definitions < 200 {
		t.Errorf("only %d definitions", definitions)
	}
}

func checkDefinition(t *testing.T, sig string, known []string) {
	t.Helper()
	params := (&starlib.Def{Sig: sig}).Params()
	if params == nil {
		t.Errorf("it does not parse: %s", sig)
	}
	name, _, _ := strings.Cut(sig, "(")
	for _, word := range append(params, name) {
		if slices.Contains(pythonKeywords, word) || !regexp.MustCompile(`^\w+$`).MatchString(word) {
			t.Errorf("%s: %q is no name in Python", sig, word)
		}
	}
	optional := false // Python wants what must be given first
	_, list, _ := strings.Cut(sig, "(")
	for _, p := range strings.Split(list, ", ") {
		switch {
		case strings.HasPrefix(p, "*"):
			optional = false
		case strings.Contains(p, "="):
			optional = true
		case optional && regexp.MustCompile(`^\w+(:.*)?$`).MatchString(p):
			t.Errorf("%s: %s stands behind one with a default", sig, p)
		}
	}
	for _, types := range annotated.FindAllString(sig, -1) {
		for _, word := range regexp.MustCompile(`(builtins\.)?\w+`).FindAllString(types, -1) {
			if !slices.Contains(known, strings.TrimPrefix(word, "builtins.")) {
				t.Errorf("%s: the type %s is not defined", sig, word)
			}
		}
	}
}

// skipDocstring reads a docstring and gives what follows it.
func skipDocstring(t *testing.T, text string) string {
	t.Helper()
	body := strings.TrimLeft(text, " ")[3:]
	for i := 0; i < len(body); i++ {
		switch {
		case body[i] == '\\':
			i++
		case strings.HasPrefix(body[i:], `"""`):
			line, rest, _ := strings.Cut(body[i+3:], "\n")
			if line != "" {
				t.Errorf("a docstring is followed by %q", line)
			}
			return rest
		}
	}
	t.Error("a docstring does not end")
	return ""
}

func TestDocstring(t *testing.T) {
	for text, want := range map[string]string{
		`plain`:                    `plain`,
		`the dtype "float32"`:      `the dtype "float32\"`,
		`a \n and a \`:             `a \\n and a \\`,
		`three """ in a row, """"`: `three \"\"\" in a row, \"\"\"\"`,
	} {
		got := strings.TrimSuffix(docstring(text, ""), "\n")
		if got != `"""`+want+`"""` {
			t.Errorf("%s is written %s", strconv.Quote(text), got)
		}
		if rest := skipDocstring(t, got+"\nx"); rest != "x" {
			t.Errorf("%s: %q is left", got, rest)
		}
	}
}
