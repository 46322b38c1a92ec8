package host

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
)

// Program is what starts plugins: a worker of drun with all that this needs.
const Program = "drun-plugin-host"

// A ProgramError says why Program cannot be used.
type ProgramError struct{ Msg, Hint string }

func (e *ProgramError) Error() string { return e.Msg }

// Advice says what to do.
func (e *ProgramError) Advice() string { return e.Hint }

// ExitCode is that of a backend that failed.
func (e *ProgramError) ExitCode() int { return 6 }

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
		return "", &ProgramError{Msg: fmt.Sprintf("%s, which starts plugins, is not beside drun: %v", Program, err), Hint: "make build installs it there"}
	}
	theirs, err := buildinfo.ReadFile(path)
	if err != nil {
		return path, &ProgramError{Msg: fmt.Sprintf("%s is not drun's: %v", path, err), Hint: "make build installs it"}
	}
	ours, ok := debug.ReadBuildInfo()
	if !ok {
		return path, nil
	}
	return path, sameBuild(path, ours, theirs)
}

// sameBuild compares the builds of drun and of the program at path: the two
// speak to each other in words that may change with every commit.
func sameBuild(path string, ours, theirs *debug.BuildInfo) error {
	if theirs.Path != "drun/cmd/"+Program {
		return &ProgramError{Msg: fmt.Sprintf("%s is not drun's, but %s", path, theirs.Path), Hint: "make build installs it"}
	}
	if a, b := commit(ours), commit(theirs); a != b && a != "" && b != "" {
		return &ProgramError{Msg: fmt.Sprintf("%s was built from another version than drun: %.20s, not %.20s", path, b, a), Hint: "make build makes both"}
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
