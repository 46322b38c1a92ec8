package board

import (
	"encoding/json"
	"errors"
	"time"

	"drun/collective"
)

// The states of header.aborting. The first process to claim it writes the cause.
const (
	notAborted = iota
	abortClaimed
	abortReady
)

// claimLimit is how long a cause may take to be written once it is claimed.
const claimLimit = 5 * time.Second

// cause carries an error through shared memory with its type.
type cause struct {
	Mismatch *collective.MismatchError `json:",omitempty"`
	Timeout  *collective.TimeoutError  `json:",omitempty"`
	Failed   *collective.FailedError   `json:",omitempty"`
	Lost     *collective.PeerLostError `json:",omitempty"`
	Backend  *collective.BackendError  `json:",omitempty"`
	Stopped  *collective.StoppedError  `json:",omitempty"`
	Text     string                    `json:",omitempty"`
}

// Abort ends the waits of all ranks with err, if it is the first cause, and reports whether it is. Errors of
// package collective's types reach the other ranks unchanged, other errors as their text. by is the rank that
// failed, or [Observer].
func (b *Board) Abort(by int, err error) bool {
	if b.head.aborting.Load() != notAborted {
		return false
	}
	c := causeOf(err)
	data := c.encode(err, b.causeSize) // before the claim, after which the others wait
	if !b.head.aborting.CompareAndSwap(notAborted, abortClaimed) {
		return false
	}
	b.publish(by, c, data)
	return true
}

// publish shows the others the cause that this process has claimed.
func (b *Board) publish(by int, c *cause, data []byte) {
	n := copy(b.mem[causeAt:causeAt+b.causeSize], data)
	b.keep(c)
	b.head.abortBy, b.head.causeLen, b.head.abortAt = int32(by), uint32(n), now()
	b.head.aborting.Store(abortReady)
}

// Aborted returns the first cause, or nil. A [MismatchError] and an error that this rank itself gave are unchanged,
// every other is in a [collective.AbortError]. It costs one load.
func (b *Board) Aborted() error {
	if b.head.aborting.Load() == notAborted {
		return nil
	}
	// The process that claimed it is still writing the cause, or was killed while doing so. On a busy machine it may not
	// run for a while.
	for end := time.Now().Add(claimLimit); b.head.aborting.Load() == abortClaimed; {
		if time.Now().After(end) {
			return &collective.AbortError{Rank: Observer, Cause: errors.New("a rank was killed while it reported an error")}
		}
		time.Sleep(50 * time.Microsecond)
	}
	err := decode(b.mem[causeAt:][:min(int(b.head.causeLen), b.causeSize)])
	var mismatch *collective.MismatchError
	if errors.As(err, &mismatch) {
		return mismatch
	}
	if int(b.head.abortBy) == b.rank && b.rank != Observer {
		return err
	}
	return &collective.AbortError{Rank: int(b.head.abortBy), Cause: err}
}

func causeOf(err error) *cause {
	c := new(cause)
	switch {
	case errors.As(err, &c.Mismatch), errors.As(err, &c.Timeout), errors.As(err, &c.Failed),
		errors.As(err, &c.Lost), errors.As(err, &c.Backend), errors.As(err, &c.Stopped):
	default:
		c.Text = err.Error()
	}
	return c
}

func (c *cause) encode(err error, most int) []byte {
	data, jsonErr := json.Marshal(c)
	if jsonErr != nil || len(data) > most {
		text := err.Error()
		data, _ = json.Marshal(cause{Text: text[:min(len(text), most/8)]})
	}
	return data
}

func decode(data []byte) error {
	var c cause
	if err := json.Unmarshal(data, &c); err != nil {
		return errors.New("unknown cause")
	}
	switch {
	case c.Mismatch != nil:
		return c.Mismatch
	case c.Timeout != nil:
		return c.Timeout
	case c.Failed != nil:
		return c.Failed
	case c.Lost != nil:
		return c.Lost
	case c.Backend != nil:
		return c.Backend
	case c.Stopped != nil:
		return c.Stopped
	}
	return errors.New(c.Text)
}
