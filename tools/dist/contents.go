package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"drun/internal/try"

	"github.com/google/licensecheck"
)

// part is what programs are made of: a module, or a library in another language.
type part struct {
	Path, Version, Dir string   // Dir: of its source
	purl               string   // how lists of contents name it
	licences           []string // the files
}

// The names of the packed documents.
const (
	sbomName     = "drun.cdx.json"
	licencesName = "LICENSES.txt"
)

// documents writes the list of what the programs are made of, in CycloneDX's form, and all its licences.
func (b build) documents(ctx context.Context, programs []file) (files []file, err error) {
	defer try.Caught(&err)
	parts := try.To(b.parts(ctx, programs))
	type object = map[string]any
	var components []object
	for _, p := range programs {
		components = append(components, object{"type": "file", "bom-ref": p.name, "name": p.name,
			"hashes": []object{{"alg": "SHA-256", "content": fmt.Sprintf("%x", try.To(p.sum()))}}})
	}
	var licences bytes.Buffer
	for _, p := range parts {
		var names []string
		fmt.Fprintf(&licences, "%s\n%s %s\n%[1]s\n", strings.Repeat("=", 80), p.Path, p.Version)
		for _, path := range p.licences {
			text := try.To(os.ReadFile(path))
			fmt.Fprintf(&licences, "\n%s\n", text)
			for _, match := range licensecheck.Scan(text).Match {
				if !match.IsURL && match.ID != "GooglePatentsFile" { // which SPDX has no name for
					names = append(names, match.ID)
				}
			}
		}
		if len(names) == 0 {
			try.Fail("the licence of %s %s is not known: %s", p.Path, p.Version, p.licences)
		}
		slices.Sort(names)
		components = append(components, object{"type": "library", "bom-ref": p.purl, "name": p.Path, "version": p.Version, "purl": p.purl,
			"licenses": []object{{"expression": strings.Join(slices.Compact(names), " AND ")}}})
	}
	list := try.To(json.MarshalIndent(object{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": object{"timestamp": b.made.Format("2006-01-02T15:04:05Z"), "component": object{"type": "application", "bom-ref": "drun", "name": "drun", "version": b.version,
			"licenses": []object{{"license": object{"id": "Apache-2.0"}}}}},
		"components": components}, "", "  "))
	for name, content := range map[string][]byte{sbomName: append(list, '\n'), licencesName: licences.Bytes()} {
		f := file{name: "share/doc/drun/" + name, path: filepath.Join(b.folder, name), mode: 0o644}
		try.Ok(os.WriteFile(f.path, content, 0o644))
		files = append(files, f)
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		files = append(files, file{name: "share/doc/drun/" + name, path: name, mode: 0o644})
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return files, nil
}

// parts are the modules that Go's linker wrote into the programs, and what is in them besides.
func (b build) parts(ctx context.Context, programs []file) (parts []part, err error) {
	defer try.Caught(&err)
	wanted := map[string]bool{}
	for _, p := range programs {
		for _, module := range try.To(buildinfo.ReadFile(p.path)).Deps {
			if module.Replace != nil {
				try.Fail("%s is replaced by %s", module.Path, module.Replace.Path)
			}
			wanted[module.Path+"@"+module.Version] = true
		}
	}
	arguments := []string{"mod", "download", "-json"}
	for module := range wanted {
		arguments = append(arguments, module)
	}
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Stderr = os.Stderr
	modules := json.NewDecoder(bytes.NewReader(try.To(cmd.Output())))
	for {
		var p part
		if err := modules.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		p.purl = "pkg:golang/" + p.Path + "@" + p.Version
		parts = append(parts, p)
		if p.Path == "github.com/mattn/go-sqlite3" {
			header := try.To(os.ReadFile(filepath.Join(p.Dir, "sqlite3-binding.h")))
			version := string(regexp.MustCompile(`#define SQLITE_VERSION +"([^"]+)"`).FindSubmatch(header)[1])
			parts = append(parts, part{"sqlite", version, "", "pkg:generic/sqlite@" + version, []string{"tools/dist/SQLITE.LICENSE"}})
		}
	}
	uplot := try.To(os.ReadFile("runs/ui/assets/uPlot.iife.min.js"))
	gloo := strings.TrimPrefix(filepath.Base(b.gloo), "gloo-")
	zig := strings.TrimSpace(string(try.To(exec.CommandContext(ctx, filepath.Join(b.zig, "zig"), "version").Output())))
	root := strings.TrimSpace(string(try.To(exec.CommandContext(ctx, "go", "env", "GOROOT").Output())))
	for _, p := range []part{
		{"go", strings.TrimPrefix(runtime.Version(), "go"), root, "pkg:generic/go@", nil},
		{"gloo", gloo, b.gloo, "pkg:deb/debian/gloo@", nil},
		{"uplot", string(regexp.MustCompile(`\d+\.\d+\.\d+`).Find(uplot)), "", "pkg:npm/uplot@", []string{"runs/ui/assets/uPlot.LICENSE"}},
		{"libcxx", zig, filepath.Join(b.zig, "lib/libcxx"), "pkg:pypi/ziglang@", nil},
		{"zig", zig, b.zig, "pkg:pypi/ziglang@", nil},
	} {
		p.purl += p.Version
		parts = append(parts, p)
	}
	for i, p := range parts {
		if p.licences == nil {
			parts[i].licences = try.To(licences(p.Dir))
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.Path, b.Path) })
	return parts, nil
}

var licenceName = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// licences are the files in a folder that say under which terms its content may be passed on.
func licences(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if licenceName.MatchString(e.Name()) && e.Type().IsRegular() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// examples are the recipes that git knows, and their data.
func examples(ctx context.Context) (files []file, err error) {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "examples", ":!*.go").Output()
	for path := range strings.FieldsSeq(string(list)) {
		files = append(files, file{name: "share/drun/" + path, path: path, mode: 0o644})
	}
	return files, err
}
