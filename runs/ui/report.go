package ui

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"drun/internal/try"
)

var (
	scripts = regexp.MustCompile(`<script src="([^"]+)" defer></script>\n`)
	styles  = regexp.MustCompile(`<link rel="stylesheet" href="([^"]+)">\n`)
	icons   = regexp.MustCompile(`<link rel="icon"[^>]*>\n`)
)

// Report writes some runs as one HTML file, which needs no other: the page of the run if it is one, and their comparison otherwise. It
// holds what Export writes, within the page, whose policy allows no other script and no request.
func (s *Server) Report(w io.Writer, refs []string) (err error) {
	defer try.Caught(&err)
	dir := try.To(os.MkdirTemp("", "drun-report-"))
	defer os.RemoveAll(dir)
	n := try.To(s.Export(filepath.Join(dir, "pages"), refs))
	pages := os.DirFS(filepath.Join(dir, "pages"))
	name := "compare.html"
	if n == 1 {
		name = "run.html"
	}
	page := string(try.To(fs.ReadFile(pages, name)))
	var inline, data strings.Builder
	var sums []string
	script := func(text []byte) {
		sum := sha256.Sum256(text)
		sums = append(sums, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
		fmt.Fprintf(&inline, "<script>%s</script>\n", text)
	}
	for _, m := range scripts.FindAllStringSubmatch(page, -1) {
		// A script must not end its element; within their texts, these characters can be written so.
		script(bytes.ReplaceAll(try.To(fs.ReadFile(pages, m[1])), []byte("</script"), []byte(`<\/script`)))
		if m[1] == "export.js" {
			for _, file := range try.To(fs.Glob(pages, "data/*.js")) {
				script(try.To(fs.ReadFile(pages, file)))
			}
			images := map[string]string{}
			for _, file := range try.To(fs.Glob(pages, "files/*.png")) {
				images[file] = "data:image/png;base64," + base64.StdEncoding.EncodeToString(try.To(fs.ReadFile(pages, file)))
			}
			script(fmt.Appendf(nil, "exportedAlone(%s);\n", try.To(json.Marshal(images))))
		}
	}
	for _, m := range styles.FindAllStringSubmatch(page, -1) {
		fmt.Fprintf(&data, "<style>\n%s</style>\n", try.To(fs.ReadFile(pages, m[1])))
	}
	policy := "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src " + strings.Join(sums, " ") + "; base-uri 'none'; form-action 'none'"
	page = icons.ReplaceAllString(styles.ReplaceAllString(scripts.ReplaceAllString(page, ""), ""), "")
	page = strings.Replace(page, `<html lang="en">`, `<html lang="en" data-alone>`, 1)
	page = strings.Replace(page, "<meta charset=\"utf-8\">\n", "<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\""+html.EscapeString(policy)+"\">\n"+data.String(), 1)
	page = strings.Replace(page, "</body>", inline.String()+"</body>", 1) // after what they work on: they are not deferred
	_, err = io.WriteString(w, page)
	return err
}
