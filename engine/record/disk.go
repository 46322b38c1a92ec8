package record

import (
	"errors"
	"fmt"
	"time"

	"drun/internal/exit"
)

// DiskTimeout is how long a run waits for the disk: longer than a history that another process has locked takes to
// report that. Saving checkpoints may take saveFactor times as long.
const (
	DiskTimeout = 2 * time.Minute
	saveFactor  = 10
)

// hungError says that a disk does not answer.
type hungError struct {
	where string
	after time.Duration
}

func (e *hungError) Error() string {
	return fmt.Sprintf("%s has not answered for %s: what the run recorded last is lost", e.where, e.after)
}

func (e *hungError) ExitCode() exit.Code { return exit.Storage }

func (e *hungError) Hint() string {
	return "check the disk beneath it (dmesg, df), or choose another place with --home DIR or $DRUN_HOME"
}

// IsHung reports whether an error says that a disk does not answer, so that work on it may still be under way.
func IsHung(err error) bool { return errors.As(err, new(*hungError)) }

// bounded runs work that waits for the disk beneath a folder, until atMost has passed or hurry is closed. A disk
// may hang for ever: the work is then left behind.
func bounded(where string, atMost time.Duration, hurry <-chan struct{}, work func() error) error {
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- work() }()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	default:
	}
	select {
	case err := <-done:
		return err
	case <-hurry:
		// Work that needs only a moment still gets it.
		select {
		case err := <-done:
			return err
		case <-time.After(hurryFor):
		}
	case <-timer.C:
	}
	return &hungError{where, time.Since(start).Round(10 * time.Millisecond)}
}

// hurryFor is how long the disk has after a signal.
const hurryFor = 200 * time.Millisecond
