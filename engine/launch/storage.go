package launch

import (
	"fmt"
	"time"

	"drun/engine"
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

func (e *hungError) ExitCode() int { return int(engine.ExitStorage) }

func (e *hungError) Advice() string {
	return "look after the disk beneath it (dmesg, df), or choose another place with --home DIR or $DRUN_HOME"
}

// bounded does what waits for the disk beneath a folder. A disk may hang for
// ever: then the work is left behind.
func bounded(where string, atMost time.Duration, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return &hungError{where, atMost}
	}
}
