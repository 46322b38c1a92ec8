// Package sqldb opens drun's SQLite files: numbered migrations, a writer that never reports "database is locked",
// readers that work where nothing can be written, and errors that say what happened and what to do. Packages
// history and checkpoints call it; runs/exchange and runs/backup use a helper each.
package sqldb

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/mattn/go-sqlite3"

	"drun/internal/exit"
)

// Error is a failure of drun's storage (exit code 7), as opposed to a mistake of the user or of a recipe.
type Error struct {
	Path string // the file or folder concerned
	What string // what happened
	Err  error  // the cause; may be nil
}

func (e *Error) Error() string {
	if e.Err == nil || e.What == full {
		return fmt.Sprintf("%s %s", e.Path, e.What)
	}
	return fmt.Sprintf("%s %s (%v)", e.Path, e.What, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) ExitCode() exit.Code { return exit.Storage }

// full is the text of the error of a full disk, whichever file and call it happened with.
const full = "could not grow: the disk is full or its quota is used up"

const hintElsewhere = "choose another place with --home DIR or $DRUN_HOME"

func hintRescue(path string) string {
	return "rescue what is left with: sqlite3 " + path + " .recover > rescued.sql"
}

// Wrap turns an error of SQLite or of the file system about path into an
// *Error; nil, and errors from neither, come back unchanged.
func Wrap(path string, err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if text, ok := strings.CutPrefix(err.Error(), "sql: Scan error on "); ok { // a value of another type than drun writes
		return exit.WithHint(&Error{Path: path, What: "is damaged", Err: errors.New(text)}, hintRescue(path))
	}
	var errno syscall.Errno
	var lite sqlite3.Error
	if errors.As(err, &lite) {
		errno = lite.SystemErrno
	} else if !errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	what, hint := explain(path, lite, errno)
	return exit.WithHint(&Error{Path: path, What: what, Err: err}, hint)
}

func explain(path string, lite sqlite3.Error, errno syscall.Errno) (what, hint string) {
	switch {
	case lite.Code == sqlite3.ErrFull, errno == syscall.ENOSPC, errno == syscall.EDQUOT, errno == syscall.EFBIG:
		return full,
			"free some space; what was recorded before stays readable"
	case lite.Code == sqlite3.ErrNotADB:
		return "is not a SQLite database", "move the file away, or " + hintElsewhere
	case lite.Code == sqlite3.ErrCorrupt:
		return "is damaged", hintRescue(path)
	case errno == syscall.ENOTDIR, errno == syscall.EEXIST:
		return "cannot be used: a file stands where a folder is needed", hintElsewhere
	case errno == syscall.EISDIR, lite.ExtendedCode == sqlite3.ErrCantOpenIsDir:
		return "cannot be opened: it is a folder", "move it away, or " + hintElsewhere
	case lite.Code == sqlite3.ErrReadonly, lite.Code == sqlite3.ErrPerm,
		errno == syscall.EACCES, errno == syscall.EPERM, errno == syscall.EROFS:
		return "cannot be opened or written: no permission, or a read-only file system",
			"change the permissions of the file and its folder, or " + hintElsewhere
	case lite.Code == sqlite3.ErrBusy, lite.Code == sqlite3.ErrLocked:
		return fmt.Sprintf("stayed locked by another process for %v", lockTimeout),
			"end the program that holds it (an open sqlite3 shell?) and try again"
	case lite.Code == sqlite3.ErrCantOpen:
		return "cannot be opened", "check that the folder exists and may be read and written, or " + hintElsewhere
	case lite.Code == sqlite3.ErrIoErr:
		return "could not be read or written", "check the disk beneath it (dmesg), or " + hintElsewhere
	}
	return "failed", hintElsewhere
}

// IsSQL reports whether err is SQLite rejecting a statement's text or rights, not the file.
func IsSQL(err error) bool {
	return isCode(err, sqlite3.ErrError, sqlite3.ErrAuth, sqlite3.ErrMismatch, sqlite3.ErrRange, sqlite3.ErrTooBig)
}

func isCode(err error, codes ...sqlite3.ErrNo) bool {
	var lite sqlite3.Error
	return errors.As(err, &lite) && slices.Contains(codes, lite.Code)
}

// IsFull reports whether err says that the disk is full.
func IsFull(err error) bool {
	var lite sqlite3.Error
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		errors.As(err, &lite) && (lite.Code == sqlite3.ErrFull || lite.SystemErrno == syscall.ENOSPC || lite.SystemErrno == syscall.EDQUOT)
}

// IsLocked reports whether err says that another process held the lock for longer than a writer waits.
func IsLocked(err error) bool { return isCode(err, sqlite3.ErrBusy, sqlite3.ErrLocked) }

// IsReadOnly reports whether err says that a handle may not write.
func IsReadOnly(err error) bool {
	return isCode(err, sqlite3.ErrReadonly)
}
