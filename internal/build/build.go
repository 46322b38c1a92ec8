// Package build names builds of drun's programs: two that may behave differently have different names.
package build

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
)

// Own names this program: "unknown" if the program cannot be read.
var Own = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	name, err := named(info, "/proc/self/exe")
	if err != nil {
		return "unknown"
	}
	return name
})

// Of names the program at path.
func Of(path string) (string, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", err
	}
	return named(info, path)
}

// named returns the module's version, or the commit from which the program was built. If that does not identify the build,
// because files were changed or version control was not consulted, the name ends in a hash of the program.
func named(info *debug.BuildInfo, path string) (string, error) {
	revision, modified := "", false
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified":
			modified = s.Value == "true"
		}
	}
	name := info.Main.Version
	if name == "" || name == "(devel)" {
		switch {
		case revision == "":
			name, modified = "devel", true
		case modified:
			name = "devel-" + revision + "+dirty"
		default:
			name = "devel-" + revision
		}
	}
	if !modified {
		return name, nil
	}
	sum, err := hash(path)
	return name + "." + sum, err
}

// hash identifies the program's content: it is a short hash of the build ID computed by Go's linker, or of the whole
// file if there is none.
func hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if program, err := elf.NewFile(f); err == nil {
		if note := program.Section(".note.go.buildid"); note != nil {
			if id, err := note.Data(); err == nil && bytes.Contains(id, []byte("/")) { // not empty
				h.Write(id)
				return hex.EncodeToString(h.Sum(nil)[:6]), nil
			}
		}
	}
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)[:6]), nil
}
