// Package pages writes the reference of recipes, and guides beside it, as pages with a search field: index.html lists and
// searches everything, and each module, type and guide has a page. They work from a folder as well as from a server, so
// style and script are inline; a policy with their SHA-256 lets nothing else run or load.
package pages

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"os"
	"path/filepath"
	"strings"

	"drun/internal/try"
	"drun/starlib/universe"
)

//go:embed page.html
var pageText string

const (
	style = `:root{color-scheme:light dark;--line:#8884}` +
		`body{font:16px/1.55 system-ui,sans-serif;max-width:58rem;margin:2rem auto;padding:0 1rem}` +
		`code,pre{font:14px/1.5 ui-monospace,monospace;overflow-wrap:anywhere}pre{padding:.7rem;border:1px solid var(--line);overflow-x:auto}` +
		`input{font:inherit;width:100%;padding:.3rem;box-sizing:border-box}li{margin:.2rem 0}section{border-top:1px solid var(--line);margin-top:1rem}` +
		`.plain{white-space:pre-line}img{max-width:100%}table{border-collapse:collapse;display:block;overflow-x:auto}` +
		`th,td{border:1px solid var(--line);padding:.25rem .5rem;text-align:left;vertical-align:top}`
	script = `"use strict";const field=document.querySelector("input"),items=[...document.querySelectorAll("li")];` +
		`const find=()=>{const words=field.value.toLowerCase().split(/\s+/).filter(Boolean);` +
		`for(const i of items)i.hidden=words.length?!words.every(w=>i.dataset.text.includes(w)):i.dataset.deep==="1";` +
		`for(const l of document.querySelectorAll("ul"))l.parentElement.hidden=![...l.children].some(i=>!i.hidden)};` +
		`field.addEventListener("input",find);find();`
)

// Guide is a page of text.
type Guide struct {
	Title, File string
	Body        template.HTML
	Sections    []Section
}

// Section is what the search finds of a guide: a heading, its id, and all that stands beneath it.
type Section struct{ ID, Title, Text string }

// topic is a module or type and what it owns, or the language's own names.
type topic struct {
	Title, File, Doc string
	Entries          universe.Entries
}

// Write writes the pages into a folder.
func Write(dir string, reference universe.Entries, guides []*Guide) (err error) {
	defer try.Caught(&err)
	page := try.To(template.New("page").Funcs(template.FuncMap{
		"lower":  strings.ToLower,
		"style":  func() template.CSS { return style },
		"script": func() template.JS { return script },
		"policy": func() string {
			return "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self'; style-src " + digest(style) + "; script-src " + digest(script)
		},
	}).Parse(pageText))
	try.Ok(os.MkdirAll(dir, 0o755))
	topics := topicsOf(reference)
	write := func(name string, data map[string]any) error {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return errors.Join(page.Execute(f, data), f.Close())
	}
	for _, t := range topics {
		try.Ok(write(t.File, map[string]any{"Title": t.Title, "Topic": t}))
	}
	for _, g := range guides {
		try.Ok(write(g.File, map[string]any{"Title": g.Title, "Guide": g}))
	}
	return write("index.html", map[string]any{"Title": "reference", "Topics": topics, "Guides": guides})
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// topicsOf divides the reference by owner, modules in its order.
func topicsOf(reference universe.Entries) []*topic {
	language := &topic{Title: "The language", File: "language.html", Doc: "What is there without a module."}
	all, by := []*topic{language}, map[string]*topic{"": language}
	for _, e := range reference {
		if e.Kind == universe.KindModule || e.Kind == universe.KindType {
			t := &topic{Title: e.Name, File: string(e.Kind) + "-" + e.Name + ".html", Doc: e.Doc}
			all, by[e.Name] = append(all, t), t
			continue
		}
		if t := by[e.Owner]; t != nil {
			t.Entries = append(t.Entries, e)
		}
	}
	return all
}
