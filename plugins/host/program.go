package host

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"

	"drun/internal/exit"
)

// Program is what starts plugins: a worker of drun with all that this needs.
const Program = "drun-plugin-host"

// FindProgram gives the path of Program. It lies beside drun: one from anywhere
// else, or from another build of drun, is not used. The path comes with an error
// where there is a program which must not be used.
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

// sameBuild compares the builds of drun and of the program at path: the two
// speak to each other in words that may change with every commit.
func sameBuild(path string, ours, theirs *debug.BuildInfo) error {
	if theirs.Path != "drun/cmd/"+Program {
		return unusable("make build installs it", "%s is not drun's, but %s", path, theirs.Path)
	}
	if a, b := commit(ours), commit(theirs); a != b && a != "" && b != "" {
		return unusable("make build makes both", "%s was built from another version than drun: %.20s, not %.20s", path, b, a)
	}
	return nil
}

// commit is what was built, as far as that is known.
func commit(info *debug.BuildInfo) string {
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
