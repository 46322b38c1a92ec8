package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"drun/starlib/universe"
)

// stubHead gives Python's meaning to the names of types that signatures use.
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
// module's builtins are static methods, as it is never made.
func printStub(out io.Writer, entries []universe.Entry) error {
	s := stub{members: map[string][]string{}, classes: map[string]bool{}}
	for _, e := range universe.Reference() {
		s.members[e.Owner] = append(s.members[e.Owner], e.Name)
		if e.Kind == universe.KindType {
			s.classes[e.Name] = true
		}
	}
	s.WriteString(stubHead)
	for _, e := range entries {
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

// class is a type's name in the stub: that of a value's type, which recipes never
// write, must not hide the module's attribute.
func (s *stub) class(name string) string {
	if s.classes[name] && name == strings.ToLower(name) {
		return "_" + name
	}
	return name
}

// annotated are a parameter's and the result's types: what stands between ":" and
// a default, the next parameter or the end, and after "->".
var (
	annotated = regexp.MustCompile(`: *[A-Za-z_.]+(?: *\| *[A-Za-z_.]+)*|-> .*$`)
	word      = regexp.MustCompile(`[A-Za-z_]+`)
	pair      = regexp.MustCompile(`\(([^)]*)\)`)
)

func (s *stub) signature(sig, owner string) string {
	return annotated.ReplaceAllStringFunc(sig, func(types string) string { return s.annotation(types, owner) })
}

// pythonBuiltins are the types that Python has under the same names.
var pythonBuiltins = []string{"int", "bool", "float", "str", "bytes", "list", "tuple", "dict", "set", "range"}

// annotation writes types as Python does. A name that a member of the class hides
// is spelled in full.
func (s *stub) annotation(types, owner string) string {
	types = pair.ReplaceAllString(types, "tuple[$1]")
	return word.ReplaceAllStringFunc(types, func(name string) string {
		if python := pythonTypes[name]; python != "" {
			name = python
		}
		switch {
		case slices.Contains(pythonBuiltins, name) && slices.Contains(s.members[owner], name):
			return "builtins." + name
		case slices.Contains(pythonBuiltins, name), s.classes[name], name == "None", name == "Callable", name == "Iterable":
			return s.class(name)
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
