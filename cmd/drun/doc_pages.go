package main

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

// The reference as pages: index.html lists and searches all entries, and each module and type has a page. They work
// from a folder as well as from a server, so style and script are inline; a policy with their SHA-256 lets nothing
// else run or load.

//go:embed doc_page.html
var pageText string

const (
	pageStyle = `body{font:16px/1.5 sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}code{font:14px/1.5 monospace;overflow-wrap:anywhere}` +
		`input{font:inherit;width:100%;padding:.3rem;box-sizing:border-box}li{margin:.2rem 0}section{border-top:1px solid #ccc;margin-top:1rem}p{white-space:pre-line}`
	pageScript = `"use strict";const field=document.querySelector("input"),items=[...document.querySelectorAll("li")];` +
		`const find=()=>{const words=field.value.toLowerCase().split(/\s+/).filter(Boolean);` +
		`for(const i of items)i.hidden=!words.every(w=>i.dataset.text.includes(w));` +
		`for(const l of document.querySelectorAll("ul"))l.parentElement.hidden=![...l.children].some(i=>!i.hidden)};` +
		`field.addEventListener("input",find);find();`
)

// topic is a module or type and what it owns, or the language's own names.
type topic struct {
	Title, File, Doc string
	Entries          universe.Entries
}

func writePages(dir string, reference universe.Entries) (err error) {
	defer try.Caught(&err)
	if old, err := os.ReadDir(dir); err == nil && len(old) > 0 {
		return usage("name a folder that is new or empty", "%s is not empty", dir)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	page := try.To(template.New("page").Funcs(template.FuncMap{
		"lower":  strings.ToLower,
		"style":  func() template.CSS { return pageStyle },
		"script": func() template.JS { return pageScript },
		"policy": func() string {
			return "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + digest(pageStyle) + "; script-src " + digest(pageScript)
		},
	}).Parse(pageText))
	try.Ok(os.MkdirAll(dir, 0o755))
	all := topics(reference)
	write := func(name string, data any) error {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return errors.Join(page.Execute(f, data), f.Close())
	}
	for _, t := range all {
		try.Ok(write(t.File, map[string]any{"Topic": t}))
	}
	return write("index.html", map[string]any{"Topics": all})
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// topics divides the reference by owner, modules in its order.
func topics(reference universe.Entries) []*topic {
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
