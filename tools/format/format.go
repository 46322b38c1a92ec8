// Package format formats recipes in one style: buildifier's, extended to the syntax that recipes add. `drun fmt` and
// the language server call it.
package format

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/bazelbuild/buildtools/build"
	"go.starlark.net/syntax"

	"drun/internal/try"
	"drun/starlib/lang"
)

// Source formats a recipe file. It cannot change the meaning: the result is parsed and compared with the source.
// Syntax errors of the source are *lang.Error.
func Source(name string, src []byte) (_ []byte, err error) {
	defer try.Caught(&err)
	file := try.To(lang.Parse(name, src))
	text := string(bytes.ReplaceAll(file.Source, []byte("\r\n"), []byte("\n")))
	loops := loopsOf(file.Syntax)
	edits, restore := literals(file.Syntax, text)
	edits = append(brackets(file.Syntax), edits...)
	for _, l := range loops {
		if l.while {
			edits = append(edits, edit{l.at, "while", stand})
		}
	}
	printed := try.To(layout(name, apply(text, edits)))
	foreign, err := lang.Parse(name, []byte(printed))
	if err != nil {
		return nil, fault(name, err)
	}
	// The result's loops are in the source's order, so those that were while become while again.
	now := loopsOf(foreign.Syntax)
	if len(now) != len(loops) {
		return nil, fault(name, fmt.Errorf("%d loops have become %d", len(loops), len(now)))
	}
	edits = nil
	for i := range now {
		if loops[i].while {
			edits = append(edits, edit{now[i].at, stand, "while"})
		}
	}
	out := []byte(restore.Replace(apply(printed, edits)))
	result, err := lang.Parse(name, out)
	if err != nil {
		return nil, fault(name, err)
	}
	if !same(reflect.ValueOf(file.Syntax.Stmts), reflect.ValueOf(result.Syntax.Stmts)) {
		return nil, fault(name, errors.New("the result would mean something else"))
	}
	if !slices.Equal(comments(name, file.Source), comments(name, out)) {
		return nil, fault(name, errors.New("a comment would be lost"))
	}
	return out, nil
}

func fault(name string, err error) error {
	return fmt.Errorf("%s: cannot be formatted, and stays as it is: %w", name, err)
}

// stand replaces while, which buildifier does not know, during formatting: it starts a loop, too.
const stand = "for _ in"

type loop struct {
	at    syntax.Position
	while bool
}

// loopsOf lists the loops in the order of the text.
func loopsOf(tree *syntax.File) []loop {
	var loops []loop
	syntax.Walk(tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ForStmt:
			loops = append(loops, loop{n.For, false})
		case *syntax.WhileStmt:
			loops = append(loops, loop{n.While, true})
		}
		return true
	})
	slices.SortFunc(loops, func(a, b loop) int { return before(a.at, b.at) })
	return loops
}

// literals replaces literals that buildifier does not know, or would write with other escapes, by names; restore puts
// the literals back.
func literals(tree *syntax.File, text string) (edits []edit, restore *strings.Replacer) {
	prefix := "_literal_"
	for strings.Contains(text, prefix) {
		prefix += "_"
	}
	var pairs []string
	syntax.Walk(tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.LoadStmt:
			return false // where names are not allowed
		case *syntax.Literal:
			raw := strings.ReplaceAll(n.Raw, "\r\n", "\n")
			if own, known := spelled(n.Token, raw); !known {
				name := fmt.Sprintf("%s%d_", prefix, len(edits))
				edits = append(edits, edit{n.TokenPos, raw, name})
				pairs = append(pairs, name, own)
			}
		}
		return true
	})
	return edits, strings.NewReplacer(pairs...)
}

// spelled returns how a literal is to be written; known says that buildifier writes it that way.
func spelled(token syntax.Token, raw string) (own string, known bool) {
	if token == syntax.BYTES {
		return raw, false
	}
	if token != syntax.STRING || raw[0] == 'r' {
		return raw, true
	}
	plain := strings.IndexFunc(raw, func(r rune) bool { return r == '\\' || r >= 0x7f }) < 0
	if raw[0] == '"' {
		return raw, plain || build.IsCorrectEscaping(raw)
	}
	if inner := strings.Trim(raw, "'"); !plain && !strings.ContainsAny(inner, `"'\`) {
		return strings.ReplaceAll(raw, "'", `"`), false
	}
	return raw, plain
}

// brackets adds parentheses that buildifier needs: around a condition or lambda that is not the first element of an
// unparenthesised tuple.
func brackets(tree *syntax.File) (edits []edit) {
	syntax.Walk(tree, func(n syntax.Node) bool {
		tuple, ok := n.(*syntax.TupleExpr)
		if !ok || tuple.Lparen.IsValid() || len(tuple.List) == 0 {
			return true
		}
		for _, x := range tuple.List[1:] {
			switch x.(type) {
			case *syntax.CondExpr, *syntax.LambdaExpr:
				edits = append(edits, edit{syntax.Start(x), "", "("}, edit{end(x), "", ")"})
			}
		}
		return true
	})
	return edits
}

// end returns the position after an expression; End of an index is before its closing bracket.
func end(x syntax.Expr) syntax.Position {
	switch x := x.(type) {
	case *syntax.CondExpr:
		return end(x.False)
	case *syntax.LambdaExpr:
		return end(x.Body)
	case *syntax.BinaryExpr:
		return end(x.Y)
	case *syntax.UnaryExpr:
		return end(x.X)
	case *syntax.IndexExpr, *syntax.SliceExpr:
		at := syntax.End(x)
		at.Col++
		return at
	}
	return syntax.End(x)
}

type edit struct {
	at       syntax.Position
	old, now string
}

func apply(text string, edits []edit) string {
	lines := strings.SplitAfter(text, "\n")
	starts := make([]int, len(lines))
	for i := 1; i < len(lines); i++ {
		starts[i] = starts[i-1] + len(lines[i-1])
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return before(a.at, b.at) })
	var out strings.Builder
	done := 0
	for _, e := range edits {
		from := starts[e.at.Line-1] + len(string([]rune(lines[e.at.Line-1])[:e.at.Col-1]))
		out.WriteString(text[done:from])
		out.WriteString(e.now)
		done = from + len(e.old)
	}
	out.WriteString(text[done:])
	return out.String()
}

func before(a, b syntax.Position) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
}

func comments(name string, src []byte) []string {
	var list []string
	tree, err := (&syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: true}).Parse(name, src, syntax.RetainComments)
	if err != nil {
		return nil
	}
	syntax.Walk(tree, func(n syntax.Node) bool {
		if n == nil || n.Comments() == nil {
			return true
		}
		all := n.Comments()
		for _, c := range slices.Concat(all.Before, all.Suffix, all.After) {
			list = append(list, strings.TrimSpace(strings.TrimLeft(c.Text, "# ")))
		}
		return true
	})
	slices.Sort(list)
	return list
}

// layout returns a file as buildifier prints it, without its rewriting.
func layout(name, text string) (out string, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = "", fault(name, fmt.Errorf("%v", p))
		}
	}()
	tree, err := build.ParseBzl(name, []byte(text))
	if err != nil {
		return "", fault(name, err)
	}
	return string(build.FormatWithoutRewriting(tree)), nil
}

// same compares two syntax trees, ignoring positions, comments, parentheses and how literals are written.
func same(a, b reflect.Value) bool {
	a, b = bare(a), bare(b)
	if a.IsValid() != b.IsValid() || a.IsValid() && a.Type() != b.Type() {
		return false
	}
	if !a.IsValid() {
		return true
	}
	switch a.Kind() {
	case reflect.Pointer:
		return a.IsNil() == b.IsNil() && (a.IsNil() || same(a.Elem(), b.Elem()))
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Struct:
		if lit, ok := a.Interface().(syntax.Literal); ok {
			other := b.Interface().(syntax.Literal)
			return lit.Token == other.Token && reflect.DeepEqual(lit.Value, other.Value)
		}
		for i := range a.NumField() {
			f := a.Type().Field(i)
			if f.Type == reflect.TypeFor[syntax.Position]() || !f.IsExported() || strings.HasSuffix(f.Name, "commentsRef") {
				continue
			}
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// bare strips interfaces and parentheses.
func bare(v reflect.Value) reflect.Value {
	for v.IsValid() {
		if v.Kind() == reflect.Interface {
			v = v.Elem()
			continue
		}
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			if paren, ok := v.Interface().(*syntax.ParenExpr); ok {
				v = reflect.ValueOf(paren.X)
				continue
			}
		}
		return v
	}
	return v
}
