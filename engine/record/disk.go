package record

import (
	"errors"
	"fmt"
	"time"

	"drun/internal/exit"
)

// DiskTimeout is how long a run waits for the disk: longer than a history that
// another process has locked takes to say so. Saving checkpoints may take
// saveFactor times as long.
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

// IsHung tells whether an error says that a disk does not answer: work for it may still be under way.
func IsHung(err error) bool { return errors.As(err, new(*hungError)) }

// bounded does what waits for the disk beneath a folder, unless it is told to
// hurry. A disk may hang for ever: then the work is left behind.
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
		// What only needs a moment has it.
		select {
		case err := <-done:
			return err
		case <-time.After(hurryFor):
		}
	case <-timer.C:
	}
	return &hungError{where, time.Since(start).Round(10 * time.Millisecond)}
}

// hurryFor is what the disk has after a signal.
const hurryFor = 200 * time.Millisecond
