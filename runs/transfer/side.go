// Package transfer copies runs between homes: drun push and drun pull, and what drun serve hears of runs that go on.
// The other side is a folder of this machine, a folder of another that is reached by ssh, or a server. All three are
// the same [Side]; over ssh and to a server its methods are requests ([Handler], [Remote]).
//
// Only what the other side lacks travels: rows as history.Delta, checkpoints' chunks and artifacts' contents by their
// SHA-256. Every step can be repeated, so a copy that was broken off goes on where it was when it is started again.
package transfer

import (
	"context"
	"fmt"

	"drun/checkpoints"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
)

// Version of the requests. A side that has another refuses the other with words.
const Version = 1

// Hello is what a side says of itself.
type Hello struct {
	Version int    // of the requests
	Schema  int    // of the history: an older side cannot take what a newer one has
	Drun    string // its version
	User    string // as whom the server knows the caller; "": there is no server
}

// Choice says which runs are meant: those that are named or, without names, those that match all conditions.
type Choice struct {
	Refs        []string // ids, names or last
	Where, Tags []string
}

// Found is a run that a Choice means.
type Found struct {
	ID        int64
	UID, Name string
}

// Part asks for the first points and lines of a run.
type Part struct {
	UID           string
	Points, Lines int64 // -1: only the extent
}

// Known is what a side has of a run.
type Known struct {
	Extent history.Extent
	Digest []byte // of the points and lines that were asked for
}

// Arriving is a part of a run for a side to enter.
type Arriving struct {
	Delta   *history.Delta
	Project string            // of a run that is new there and has none; "": none
	Live    bool              // more follows soon
	Doing   *records.Snapshot // what the ranks do now, if somebody has asked for it
}

// Merged is what became of an [Arriving].
type Merged struct {
	ID      int64
	Name    string
	Watched bool // somebody wants to know what the ranks do
}

// Side is a home on one side of a copy. Its methods may be called again after any error.
type Side interface {
	Hello(ctx context.Context) (Hello, error)
	Find(ctx context.Context, c Choice) ([]Found, error)
	States(ctx context.Context, uids []string) ([]history.State, error)
	Extent(ctx context.Context, p Part) (Known, error)
	// Source gives what another side lacks of a run, one Delta after another.
	Source(uid string, secrets bool) Source
	// Contents returns the contents of artifacts by SHA-256, as many of the first as fit into one answer.
	Contents(ctx context.Context, uid string, sums []string) ([][]byte, error)
	// LackingContents and LackingChunks return which of these the side does not have.
	LackingContents(ctx context.Context, sums []string) ([]string, error)
	LackingChunks(ctx context.Context, sums []string) ([]string, error)
	// Merge's errors are *history.Moved and *history.Diverged, among others.
	Merge(ctx context.Context, a Arriving) (Merged, error)
	// Checkpoints lists those of a run, without their entries.
	Checkpoints(ctx context.Context, uid string) ([]checkpoints.Manifest, error)
	Manifest(ctx context.Context, uid string, step int64) (*checkpoints.Manifest, error)
	// Chunks returns chunks by SHA-256, as many of the first as fit into one answer.
	Chunks(ctx context.Context, uid string, sums []string) ([][]byte, error)
	Receive(ctx context.Context, uid string, chunks [][]byte) error
	// Enter adds a checkpoint whose chunks have arrived; if some are lacking, the error is *Lacking.
	Enter(ctx context.Context, m *checkpoints.Manifest) error
	Close() error
}

// Source is a run that is copied from a side.
type Source interface {
	Since(ctx context.Context, have history.Extent) (*history.Delta, error)
}

// Lacking is the error of a checkpoint of which chunks have not arrived, or were removed since.
type Lacking struct{ Step int64 }

func (e *Lacking) Error() string {
	return fmt.Sprintf("chunks of the checkpoint of step %d are not there", e.Step)
}

func (e *Lacking) ExitCode() exit.Code { return exit.Recipe }

// VersionError is the error of two sides that do not understand each other.
type VersionError struct{ Why, Do string }

func (e *VersionError) Error() string       { return e.Why }
func (e *VersionError) Hint() string        { return e.Do }
func (e *VersionError) ExitCode() exit.Code { return exit.Requirement }

// agree returns an error unless runs can be copied between two sides.
func agree(from, to Hello) error {
	switch {
	case from.Version != to.Version:
		return &VersionError{fmt.Sprintf("the two sides copy runs in different ways: %s on one, %s on the other", from.Drun, to.Drun), "bring the older drun up to date"}
	case from.Schema > to.Schema:
		return &VersionError{fmt.Sprintf("the receiving drun (%s) is older than the sending one (%s), and has no place for all that runs have now", to.Drun, from.Drun),
			"bring the receiving one up to date first"}
	}
	return nil
}

// mostAnswered limits the bytes of contents and chunks in one request or answer; one goes in any case.
const mostAnswered = 8 << 20
