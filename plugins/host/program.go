package host

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"drun/internal/exit"
)

// Program is the program that starts plugins: a drun worker linked with everything that this needs.
const Program = "drun-plugin-host"

// FindProgram returns the path of Program, which lies next to drun: one from anywhere else, or from another build of
// drun, is not used. If there is a program that must not be used, it returns the path with an error.
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

// HowToGet says where a plugin for runs over several nodes comes from.
const HowToGet = "make plugins builds gloo, where libgloo-dev is installed (Debian, Ubuntu: apt-get install libgloo-dev g++); drun backends lists what is found, and --plugin-dir adds a folder"

// askLimit is longer than the limit of a plugin's start, so that Program reports that first.
const askLimit = 15 * time.Second

// Ask has the program at a path, which is Program, start a plugin and ask it: "probe" (its version, and whether it can
// run here) or "properties" (its collective.Properties).
func Ask(ctx context.Context, program, what string, p *Plugin, reply any) error {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var out, words bytes.Buffer
	if err := Run(ctx, program, what, p, &out, &words); err != nil {
		if text := strings.TrimSpace(words.String()); text != "" {
			return errors.New(text)
		}
		return err
	}
	return json.Unmarshal(out.Bytes(), reply)
}

// Run has Program do something with a plugin. It ends with this process, even if that is killed.
func Run(ctx context.Context, program, what string, p *Plugin, out, words io.Writer) error {
	cmd := exec.CommandContext(ctx, program, what, p.Name, p.Path, p.SHA256, p.Mark)
	cmd.Stdout, cmd.Stderr = out, words
	// On SIGTERM it ends its plugin and removes its files.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread() // the signal comes when the thread that starts it ends
	defer runtime.UnlockOSThread()
	return cmd.Run()
}
