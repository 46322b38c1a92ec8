package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"drun/internal/exit"
	"drun/internal/try"
)

// LockFile keeps the checksums of the plugins that were used, in the history's folder.
const LockFile = "plugins.lock"

// pin is the lock file's entry for a plugin's name. It applies to that checksum, wherever the program lies.
type pin struct {
	SHA256  string    `json:"sha256"`
	Path    string    `json:"path"` // where it was then
	Trusted time.Time `json:"trusted"`
}

// A ChangedError says that a plugin's program is not the one that was used before, and in its hint how to trust it.
type ChangedError struct{ error }

func (e ChangedError) Unwrap() error { return e.error }

// compare reports whether a plugin is pinned; it is an error if another program of its name is.
func compare(pins map[string]pin, p *Plugin) (known bool, err error) {
	old, known := pins[p.Name]
	if known && old.SHA256 != p.SHA256 {
		return false, ChangedError{unusable("if you changed it yourself: drun backends trust "+p.Name,
			"the plugin %s has changed since it was first used: %s has the SHA-256 %.12s…, trusted is %.12s…", p.Name, p.Path, p.SHA256, old.SHA256)}
	}
	return known, nil
}

// Verify computes the plugin's checksum and compares it with the one pinned in home, which it pins on first use.
func Verify(home string, p *Plugin) error {
	return locked(home, func(pins map[string]pin) (bool, error) {
		if err := p.Sum(); err != nil {
			return false, err
		}
		known, err := compare(pins, p)
		if !known && err == nil {
			pins[p.Name] = pinOf(p)
		}
		return !known, err
	})
}

// Check is Verify without pinning. It reports whether the plugin, as it is now, was used or trusted before.
func Check(home string, p *Plugin) (trusted bool, err error) {
	defer try.Caught(&err)
	try.Ok(p.Sum())
	return compare(try.To(readPins(filepath.Join(home, LockFile))), p)
}

// Trust pins the plugin's checksum, whatever was pinned before.
func Trust(home string, p *Plugin) error {
	return locked(home, func(pins map[string]pin) (bool, error) {
		if err := p.Sum(); err != nil {
			return false, err
		}
		pins[p.Name] = pinOf(p)
		return true, nil
	})
}

func pinOf(p *Plugin) pin { return pin{p.SHA256, p.Path, time.Now().UTC().Truncate(time.Second)} }

// locked reads the lock file, lets edit change it, and writes it if edit says so, while holding the lock.
func locked(home string, edit func(pins map[string]pin) (write bool, err error)) (err error) {
	defer try.Caught(&err)
	try.Ok(os.MkdirAll(home, 0o700))
	path := filepath.Join(home, LockFile)
	dir := try.To(os.Open(home))
	defer dir.Close() // and with it the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	pins := try.To(readPins(path))
	write, err := edit(pins)
	if err != nil || !write {
		return err
	}
	data := try.To(json.MarshalIndent(pins, "", "  "))
	tmp := path + ".new"
	try.Ok(os.WriteFile(tmp, append(data, '\n'), 0o600))
	return os.Rename(tmp, path)
}

func readPins(path string) (map[string]pin, error) {
	pins := map[string]pin{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return pins, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &pins)
	}
	if err != nil {
		return nil, exit.WithHint(exit.Errorf(exit.Storage, "%s cannot be read: %w", path, err),
			"put it right, or remove it: then each plugin is trusted as it is when it is next used")
	}
	return pins, nil
}
