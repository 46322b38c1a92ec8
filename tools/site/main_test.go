package main

import (
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every link on every page leads somewhere, pictures are there, and nothing is fetched from elsewhere.
func TestSite(t *testing.T) {
	dir := t.TempDir()
	if err := write("../../docs", dir); err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(path)] = string(content)
	}
	links := 0
	for name, content := range pages {
		for _, m := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(content, -1) {
			link := html.UnescapeString(m[1])
			if strings.HasPrefix(link, "https://") && strings.HasPrefix(m[0], "href") {
				continue
			}
			links++
			to, id, has := strings.Cut(link, "#")
			if to == "" {
				to = name
			}
			if strings.HasSuffix(to, ".png") {
				if _, err := os.Stat(filepath.Join(dir, to)); err != nil {
					t.Errorf("%s shows %s: %v", name, to, err)
				}
			} else if pages[to] == "" || has && !strings.Contains(pages[to], `id="`+id+`"`) {
				t.Errorf("%s leads to %s, which is not there", name, link)
			}
		}
	}
	if links < 1500 {
		t.Errorf("%d links were looked at", links)
	}
	for _, want := range []string{`href="guide-checkpoints.html`, `href="module-dist.html#all_reduce"`, "guide-decisions-small-all-reduce.html"} {
		if !strings.Contains(pages["index.html"], want) {
			t.Errorf("the index lacks %s", want)
		}
	}
	// The search covers what stands beneath a heading.
	if !regexp.MustCompile(`data-deep="1" data-text="[^"]*two interleaved half circles`).MatchString(pages["index.html"]) {
		t.Error("the search does not cover the guides' text")
	}
}
