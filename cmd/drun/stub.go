package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"drun/starlib/universe"
)

// stubHead imports the Python types that signatures use.
const stubHead = `from __future__ import annotations

import builtins
from typing import Any, Callable, Iterable

`

// pythonTypes are the types whose names differ in Python.
var pythonTypes = map[string]string{
	"string": "str", "number": "float", "callable": "Callable", "iterable": "Iterable", "any": "Any", "struct": "Any",
	"values": "Tensor", "indices": "Tensor",
}

// printStub writes entries as a Python stub. Modules and types are classes; a
// module's builtins are static methods, as modules have no instances.
func printStub(out io.Writer, entries universe.Entries) error {
	s := stub{members: map[string][]string{}, classes: map[string]bool{}}
	for _, e := range universe.Reference() {
		s.members[e.Owner] = append(s.members[e.Owner], e.Name)
		if e.Kind == universe.KindType {
			s.classes[e.Name] = true
		}
	}
	s.WriteString(stubHead)
	for _, e := range entries {
		if whole := len(entries) > 100; whole && e.Owner == "" && e.Kind == universe.KindBuiltin && e.Name != "fail" && e.Name != "struct" {
			continue // Python has it, and the stub's own annotations need it
		}
		s.entry(e)
	}
	_, err := io.WriteString(out, s.String())
	return err
}

type stub struct {
	strings.Builder
	members map[string][]string // of a module or type
	classes map[string]bool     // the types
	inside  string              // the class that is being written
}

func (s *stub) entry(e universe.Entry) {
	if e.Kind == universe.KindModule || e.Kind == universe.KindType {
		s.inside = e.Name
		fmt.Fprintf(s, "\nclass %s:\n", s.class(e.Name))
		s.doc(e.Doc, "    ")
		return
	}
	indent := ""
	if e.Owner != "" && e.Owner == s.inside {
		indent = "    "
	}
	if e.Kind == universe.KindAttribute {
		of := "Any"
		if s.classes[e.Doc] || slices.Contains(pythonBuiltins, e.Doc) || pythonTypes[e.Doc] != "" {
			of = s.annotation(e.Doc, e.Owner) // a module's value: what it is
		}
		fmt.Fprintf(s, "\n%s%s: %s\n", indent, e.Name, of)
		s.doc(e.Doc, indent)
		return
	}
	sig := s.signature(e.Signature, e.Owner)
	if s.classes[e.Owner] && indent != "" {
		head, rest, _ := strings.Cut(sig, "(")
		if !strings.HasPrefix(rest, ")") {
			rest = ", " + rest
		}
		sig = head + "(self" + rest
	}
	s.WriteByte('\n')
	if indent != "" && !s.classes[e.Owner] {
		s.WriteString(indent + "@staticmethod\n")
	}
	fmt.Fprintf(s, "%sdef %s:\n", indent, sig)
	s.doc(e.Doc, indent+"    ")
}

// class is a type's name in the stub. A lower-case name gets an underscore, so that
// it does not hide the module's attribute of that name.
func (s *stub) class(name string) string {
	if s.classes[name] && name == strings.ToLower(name) {
		return "_" + name
	}
	return name
}

var word = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z_]+`) })

// signature writes a declaration as Python does, with a type for every parameter and
// the result: Any where the declaration has none.
func (s *stub) signature(sig, owner string) string {
	name, rest, _ := strings.Cut(sig, "(")
	end := closing(rest)
	var params []string
	for _, p := range split(rest[:end], ',') {
		params = append(params, s.parameter(p, owner))
	}
	result := "Any"
	if _, types, ok := strings.Cut(rest[end:], "->"); ok {
		result = s.annotation(types, owner)
	}
	return name + "(" + strings.Join(params, ", ") + ") -> " + result
}

func (s *stub) parameter(text, owner string) string {
	if text == "*" {
		return text
	}
	declared, value, optional := strings.Cut(text, "=")
	name, types, typed := strings.Cut(declared, ":")
	name, of := strings.TrimSpace(name), "Any"
	if typed {
		of = s.annotation(types, owner)
	}
	if !optional {
		return name + ": " + of
	}
	value = strings.TrimSpace(value)
	if value == "None" && of != "Any" && !slices.Contains(strings.Split(of, " | "), "None") {
		of += " | None"
	}
	return name + ": " + of + " = " + value
}

// closing finds the parenthesis that closes the one opened before text.
func closing(text string) int {
	depth := 0
	for i, r := range text {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			if depth--; depth < 0 {
				return i
			}
		}
	}
	return len(text)
}

// split cuts a text at each separator that is outside parentheses and quotes.
func split(text string, at rune) (parts []string) {
	depth, from, quoted := 0, 0, false
	for i, r := range text + string(at) {
		if r == '"' {
			quoted = !quoted
		}
		if quoted {
			continue
		}
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case at:
			if part := strings.TrimSpace(text[from:min(i, len(text))]); depth == 0 {
				if from = i + 1; part != "" {
					parts = append(parts, part)
				}
			}
		}
	}
	return parts
}

// generic are the types that take type arguments in Python.
var generic = map[string]string{
	"list": "[Any]", "dict": "[Any, Any]", "tuple": "[Any, ...]", "set": "[Any]", "Callable": "[..., Any]", "Iterable": "[Any]",
}

// pythonBuiltins are the types that Python has under the same names.
var pythonBuiltins = []string{"int", "bool", "float", "str", "bytes", "list", "tuple", "dict", "set", "range"}

// annotation writes types as Python does. A builtin type that a member of the class
// hides is written as builtins.NAME; (A, B) is a tuple.
func (s *stub) annotation(types, owner string) string {
	if alternatives := split(types, '|'); len(alternatives) > 1 {
		for i, of := range alternatives {
			alternatives[i] = s.annotation(of, owner)
		}
		if slices.Contains(alternatives, "Any") {
			return "Any"
		}
		return strings.Join(alternatives, " | ")
	}
	types = strings.TrimSpace(types)
	if strings.HasPrefix(types, "(") && strings.HasSuffix(types, ")") {
		var of []string
		for _, part := range split(types[1:len(types)-1], ',') {
			of = append(of, s.annotation(part, owner))
		}
		return "tuple[" + strings.Join(of, ", ") + "]"
	}
	return word().ReplaceAllStringFunc(types, func(name string) string {
		if python := pythonTypes[name]; python != "" {
			name = python
		}
		switch {
		case slices.Contains(pythonBuiltins, name) && slices.Contains(s.members[owner], name):
			return "builtins." + name + generic[name]
		case slices.Contains(pythonBuiltins, name), s.classes[name], name == "None", name == "Callable", name == "Iterable":
			return s.class(name) + generic[name]
		}
		return "Any"
	})
}

// doc writes a docstring.
func (s *stub) doc(text, indent string) { s.WriteString(docstring(text, indent)) }

func docstring(text, indent string) string {
	text = strings.NewReplacer(`\`, `\\`, `"""`, `\"\"\"`).Replace(strings.TrimSpace(text))
	if strings.HasSuffix(text, `"`) {
		text = text[:len(text)-1] + `\"`
	}
	return indent + `"""` + strings.ReplaceAll(text, "\n", "\n"+indent) + `"""` + "\n"
}
