package host

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"

	"drun/internal/exit"
)

// Program is the program that starts plugins: a drun worker linked with everything that this needs.
const Program = "drun-plugin-host"

// FindProgram returns the path of Program, which lies next to drun: one from
// anywhere else, or from another build of drun, is not used. If there is a
// program that must not be used, it returns the path with an error.
func FindProgram() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(exe), Program)
	if err := executable(path); err != nil {
		return "", unusable("make build installs it there", "%s, which starts plugins, is not beside drun: %v", Program, err)
	}
	theirs, err := buildinfo.ReadFile(path)
	if err != nil {
		return path, unusable("make build installs it", "%s is not drun's: %v", path, err)
	}
	ours, ok := debug.ReadBuildInfo()
	if !ok {
		return path, nil
	}
	return path, sameBuild(path, ours, theirs)
}

// unusable says why Program cannot be used, and what to do.
func unusable(hint, format string, args ...any) error {
	return exit.Last(exit.WithHint(exit.Errorf(exit.Backend, format, args...), hint))
}

// sameBuild compares the builds of drun and of the program at path: the protocol between them may change with every commit.
func sameBuild(path string, ours, theirs *debug.BuildInfo) error {
	if theirs.Path != "drun/cmd/"+Program {
		return unusable("make build installs it", "%s is not drun's, but %s", path, theirs.Path)
	}
	if a, b := commit(ours), commit(theirs); a != b && a != "" && b != "" {
		return unusable("make build makes both", "%s was built from another version than drun: %.20s, not %.20s", path, b, a)
	}
	return nil
}

// commit is the commit that was built, if known.
func commit(info *debug.BuildInfo) string {
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
