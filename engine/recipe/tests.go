package recipe

import (
	"bytes"
	"slices"
	"strings"

	"drun/history/records"
	"drun/starlib/lang"
	"drun/starlib/testing"

	"go.starlark.net/syntax"
)

// A Test is a function test_* at the top level of a recipe.
type Test struct {
	Name string
	Line int
}

// Tests lists the tests in the recipe's own file, in file order.
func (b *Bundle) Tests() ([]Test, error) {
	main := b.Source(b.Main)
	parsed, err := lang.Parse(Display(b.Name, b.Main), main.Content)
	if err != nil {
		return nil, err
	}
	var list []Test
	for _, stmt := range parsed.Syntax.Stmts {
		if def, ok := stmt.(*syntax.DefStmt); ok && strings.HasPrefix(def.Name.Name, testing.Prefix) {
			list = append(list, Test{def.Name.Name, int(def.Name.NamePos.Line)})
		}
	}
	return list, nil
}

var (
	firstTest = []byte("def " + testing.Prefix)
	laterTest = []byte("\ndef " + testing.Prefix)
)

// HaveTests reports whether any of a recipe's files has functions test_*. If so, all of them can use module
// testing.
func HaveTests(sources []records.Source) bool {
	return slices.ContainsFunc(sources, func(s records.Source) bool {
		return bytes.HasPrefix(s.Content, firstTest) || bytes.Contains(s.Content, laterTest)
	})
}
