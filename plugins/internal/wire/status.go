package wire

import (
	"errors"
	"fmt"

	"drun/collective"
)

// How a call, or a request of the control service, ended.
const (
	OK           = iota
	BadCall      // collective.CallError
	Disagreement // collective.ErrFingerprint
	TimedOut     // collective.ErrTimeout
	Closed       // collective.ErrClosed
	Broken       // any other error of the engine
	Panicked
)

// Encode returns the status and the text of an error.
func Encode(err error) (status uint8, text string) {
	var bad *collective.CallError
	switch {
	case err == nil:
		return OK, ""
	case errors.As(err, &bad):
		return BadCall, bad.Problem
	case errors.Is(err, collective.ErrFingerprint):
		return Disagreement, ""
	case errors.Is(err, collective.ErrTimeout):
		return TimedOut, ""
	case errors.Is(err, collective.ErrClosed):
		return Closed, ""
	}
	if failed, ok := err.(*collective.BackendError); ok {
		return Broken, failed.Msg // Decode names the backend and the rank
	}
	return Broken, err.Error()
}

// Decode restores the error; the engine's own errors become a BackendError.
func Decode(status uint8, text string, kind collective.Kind, backend string, rank int) error {
	switch status {
	case OK:
		return nil
	case BadCall:
		return &collective.CallError{Kind: kind, Problem: text}
	case Disagreement:
		return collective.ErrFingerprint
	case TimedOut:
		return collective.ErrTimeout
	case Closed:
		return collective.ErrClosed
	case Broken:
	case Panicked:
		text = "it panicked: " + text
	default:
		text = fmt.Sprintf("the plugin answered with status %d, which does not exist", status)
	}
	return &collective.BackendError{Backend: backend, Rank: rank, Msg: text}
}
