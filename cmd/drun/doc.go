package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/starlib/universe"
)

func newDoc() *cobra.Command {
	var search, html string
	c := &cobra.Command{
		Use:   "doc [NAME]",
		Short: "Print the reference of the builtins, search it, or write it as pages",
		Long: "Prints the signatures and documentation of NAME: a module (dist), a builtin (dist.all_reduce), a type\n" +
			"(Tensor) or a method, or what there is instead of a name of PyTorch's. Without a name it lists the modules, the\n" +
			"types and the names without a module; with --json, everything.\n" +
			"--search lists the builtins that have all words of a text in their name, signature or documentation, the\n" +
			"best match first. --html writes the reference as pages with a search field, which need no server and no network.",
		Example: `  drun doc checkpoint.save_file
  drun doc DataLoader
  drun doc --search "save weights"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			if search, html := flags.Changed("search"), flags.Changed("html"); search && html || len(args) > 0 && (search || html) {
				return usage("one of them at a time", "a name, --search and --html exclude each other")
			}
			switch {
			case flags.Changed("search"):
				entries := universe.Reference().Search(search)
				if says, instead := universe.Reference().Instead(search); says != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "PyTorch's %s: %s\n", terminal.Escape(search), says)
					entries = append(instead, entries.Without(instead)...)
				} else if len(entries) == 0 {
					return exit.WithHint(fmt.Errorf("nothing in the reference has all of %q", search), "drun doc lists the modules; fewer words find more")
				}
				return show(cmd, entries, printFound)
			case flags.Changed("html"):
				return writePages(html, universe.Reference())
			}
			if len(args) == 0 {
				return show(cmd, universe.Reference(), printIndex)
			}
			name := args[0]
			entries := universe.Reference().Find(name)
			says, instead := universe.Reference().Instead(name)
			if len(entries) == 0 && says == "" {
				entries = universe.Reference().Find(strings.TrimPrefix(name, "torch."))
			}
			if len(entries) == 0 && says != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "PyTorch's %s: %s\n", terminal.Escape(name), says)
				entries = instead
			} else if len(entries) == 0 {
				return usage("drun doc lists the modules; drun doc --search "+name+" looks for it everywhere", "there is no builtin %q", name)
			}
			return show(cmd, entries, printReference)
		},
	}
	c.Flags().StringVar(&search, "search", "", "list the builtins that have all words of `TEXT`, the best match first")
	c.Flags().StringVar(&html, "html", "", "write the reference as pages into the new or empty folder `DIR`")
	return c
}

// printReference writes each entry's declaration, with its documentation beneath it.
func printReference(out io.Writer, entries universe.Entries) error {
	for i, e := range entries {
		title, between := e.Declaration(), "\n"
		if e.Kind == universe.KindModule || e.Kind == universe.KindType {
			title = string(e.Kind) + " " + title
		}
		if i == 0 {
			between = ""
		}
		fmt.Fprintf(out, "%s%s\n    %s\n", between, title, strings.ReplaceAll(strings.TrimSpace(e.Doc), "\n", "\n    "))
	}
	return nil
}

// printIndex lists the modules and types, each with a line, and the names without a module.
func printIndex(out io.Writer, entries universe.Entries) error {
	var names []string
	for _, kind := range []universe.Kind{universe.KindModule, universe.KindType} {
		fmt.Fprintf(out, "%sS\n", strings.ToUpper(string(kind)))
		for _, e := range entries {
			if e.Kind == kind {
				fmt.Fprintf(out, "  %-17s %s\n", e.Name, e.Summary())
			} else if e.Owner == "" && e.Kind == universe.KindBuiltin && kind == universe.KindType {
				names = append(names, e.Name)
			}
		}
		fmt.Fprintln(out)
	}
	_, err := fmt.Fprintf(out, "WITHOUT A MODULE\n  %s\n\ndrun doc NAME prints what one of these has, drun doc --search TEXT finds what does something.\n", strings.Join(names, " "))
	return err
}

func printFound(out io.Writer, entries universe.Entries) error {
	for _, e := range entries {
		fmt.Fprintf(out, "%-28s %s\n", e.Path(), e.Summary())
	}
	return nil
}

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

func writePages(dir string, reference universe.Entries) error {
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
