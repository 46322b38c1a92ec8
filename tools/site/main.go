// Command site writes drun's documentation as pages for a browser: the guides in docs/ and the reference, with one search over
// both. `make site` runs it in the root of the repository.
package main

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"drun/internal/try"
	"drun/starlib/universe"
	"drun/starlib/universe/pages"
)

func main() {
	if err := write("docs", os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// first are the guides that a reader begins with; the others follow by name.
var first = []string{"tutorial.md", "from-pytorch.md", "commands.md", "comparison.md", "starlark.md", "recipes.md", "tensors.md", "models.md", "data.md", "cookbook.md"}

func write(from, dir string) (err error) {
	defer try.Caught(&err)
	names := try.To(fs.Glob(os.DirFS(from), "*.md"))
	names = append(names, try.To(fs.Glob(os.DirFS(from), "decisions/*.md"))...)
	try.FailIf(len(names) == 0, "there are no guides in %s", from)
	var guides []*pages.Guide
	done := map[string]bool{}
	for _, name := range append(first[:len(first):len(first)], names...) {
		if !done[name] {
			done[name] = true
			guides = append(guides, try.To(guide(from, name)))
		}
	}
	try.Ok(pages.Write(dir, universe.Reference(), guides))
	for _, picture := range try.To(filepath.Glob(filepath.Join(from, "*.png"))) {
		try.Ok(os.WriteFile(filepath.Join(dir, filepath.Base(picture)), try.To(os.ReadFile(picture)), 0o644))
	}
	return nil
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

func guide(from, name string) (_ *pages.Guide, err error) {
	defer try.Caught(&err)
	source := try.To(os.ReadFile(filepath.Join(from, name)))
	doc := markdown.Parser().Parse(text.NewReader(source))
	g := &pages.Guide{Title: strings.TrimSuffix(name, ".md"), File: file(name)}
	var elsewhere []*ast.Link // to what is no guide, such as a recipe in the repository
	try.Ok(ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, is := n.(*ast.Link); is && entering {
			to, is := target(name, string(link.Destination))
			if link.Destination = []byte(to); !is {
				elsewhere = append(elsewhere, link)
			}
		}
		return ast.WalkContinue, nil
	}))
	for _, link := range elsewhere {
		for n := link.FirstChild(); n != nil; n = link.FirstChild() {
			link.Parent().InsertBefore(link.Parent(), link, n)
		}
		link.Parent().RemoveChild(link.Parent(), link)
	}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, is := n.(*ast.Heading); is && h.Level == 1 {
			g.Title = plain(n, source)
		} else if is {
			id, _ := h.AttributeString("id")
			g.Sections = append(g.Sections, pages.Section{ID: string(id.([]byte)), Title: plain(n, source)})
		} else if last := len(g.Sections) - 1; last >= 0 {
			g.Sections[last].Text += " " + plain(n, source)
		}
	}
	var out bytes.Buffer
	try.Ok(markdown.Renderer().Render(&out, source, doc))
	g.Body = template.HTML(out.String()) //nolint:gosec // of our own guides; goldmark leaves raw HTML out
	return g, nil
}

// file is the page of a guide, which is named by its path in docs/.
func file(name string) string {
	return "guide-" + strings.ReplaceAll(strings.TrimSuffix(name, ".md"), "/", "-") + ".html"
}

// target is where a link in a guide leads on its page, and whether it leads there at all.
func target(from, link string) (string, bool) {
	to, err := url.Parse(link)
	if err != nil || to.IsAbs() || to.Path == "" {
		return link, err == nil
	}
	to.Path = path.Join(path.Dir(from), to.Path)
	if !strings.HasSuffix(to.Path, ".md") || strings.HasPrefix(to.Path, "../") {
		return "", false
	}
	to.Path = file(to.Path)
	return to.String(), true
}

// plain is the text of a node and what it contains.
func plain(n ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				out.Write(n.Segment.Value(source))
				out.WriteByte(' ')
			}
		case *ast.FencedCodeBlock:
			if entering {
				out.Write(n.Lines().Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(out.String())
}
