package launch

import (
	"fmt"
	"os"
	"time"

	"drun/internal/exit"
)

// patience is how long the agent waits for the disk: longer than a history that
// another process has locked takes to say so. Saving checkpoints may take
// saveFactor times as long.
const (
	patience   = 2 * time.Minute
	saveFactor = 10
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
	return "look after the disk beneath it (dmesg, df), or choose another place with --home DIR or $DRUN_HOME"
}

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

// hurried gives a channel that is closed when a signal asks for the end, and the
// signal then; stop ends the listening.
func (a *agent) hurried() (hurry chan struct{}, sig *os.Signal, stop func()) {
	hurry, sig = make(chan struct{}), new(os.Signal)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case s, ok := <-a.o.Signals:
				if !ok {
					return
				}
				if ends(s) {
					*sig = s
					close(hurry)
					return
				}
			case <-quit:
				return
			}
		}
	}()
	return hurry, sig, func() {
		close(quit)
		<-ended
	}
}
