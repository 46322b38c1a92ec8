// Package transfer copies runs between homes: drun push and drun pull, and what drun serve hears of runs that go on.
// The other side is a folder of this machine, a folder of another that is reached by ssh, or a server. All three are
// a [Side], which is asked by the requests below, such as [States]; over ssh and to a server they are HTTP.
//
// Only what the other side lacks travels: rows as history.Delta, checkpoints' chunks, artifacts' contents and files by their
// SHA-256. Every step can be repeated, so a copy that was broken off goes on where it was when it is started again.
package transfer

import (
	"context"
	"fmt"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// Side is a home on one side of a copy: a [Home], or a [Remote] that reaches one.
type Side interface {
	// Ask makes a request, which may be made again after any error; out is where the answer is put.
	Ask(ctx context.Context, request string, in, out any) error
	Close() error
}

// The requests, by their names on the way.
var (
	Greet  = request("hello", (*Home).hello)
	Find   = request("find", (*Home).find)
	States = request("states", (*Home).states)
	Extent = request("extent", (*Home).extent)
	// Since gives what another side lacks of a run, one Delta after another.
	Since = request("since", (*Home).since)
	// Merge's errors are *history.Moved, *history.Diverged and *history.Gone, among others.
	Merge = request("merge", (*Home).merge)
	// Contents and Chunks return those of artifacts and checkpoints by SHA-256, as many of the first as fit into one answer.
	Contents = request("contents", (*Home).contents)
	Chunks   = request("chunks", (*Home).chunks)
	// LackingContents and LackingChunks return which of these the side does not have.
	LackingContents = request("lacking-contents", (*Home).lackingContents)
	LackingChunks   = request("lacking-chunks", (*Home).lackingChunks)
	// Checkpoints lists those of a run, without their entries.
	Checkpoints = request("checkpoints", (*Home).checkpointsOf)
	Manifest    = request("manifest", (*Home).manifest)
	Receive     = request("receive", (*Home).receive)
	// Enter adds a checkpoint whose chunks have arrived; if some are lacking, the error is *Lacking.
	Enter = request("enter", (*Home).enter)
	// Files lists the files of a run, ReadFile reads a part of one, and PutFile keeps a part and returns how much is there.
	Files    = request("files", (*Home).files)
	ReadFile = request("read-file", (*Home).readFile)
	Doing    = request("doing", (*Home).doing) // what the ranks of a running run do now; nil: they have not started, or have ended
	PutFile  = request("put-file", (*Home).putFile)
)

// asked is a request: how its arguments are read, and what a home does.
type asked struct {
	read func(body []byte) (any, error)
	do   func(ctx context.Context, h *Home, in any) (any, error)
}

var requests = map[string]asked{}

// request makes the function by which any side is asked, of what a home does.
func request[In, Out any](name string, do func(*Home, context.Context, In) (Out, error)) func(context.Context, Side, In) (Out, error) {
	requests[name] = asked{
		read: func(body []byte) (any, error) {
			var in In
			if err := decoder.Unmarshal(body, &in); err != nil {
				return nil, exit.Errorf(exit.Usage, "the request cannot be read: %v", err)
			}
			return in, nil
		},
		do: func(ctx context.Context, h *Home, in any) (out any, err error) {
			defer try.Caught(&err)
			return do(h, ctx, in.(In))
		},
	}
	return func(ctx context.Context, s Side, in In) (out Out, err error) {
		err = s.Ask(ctx, name, in, &out)
		return out, err
	}
}

// Version of the requests. A side that has another refuses the other with words.
const Version = 2

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

// State says whether two sides have the same of a run.
type State struct {
	history.State
	Files bool // it may have some
}

// Lacks asks for what a side with an extent lacks of a run.
type Lacks struct {
	UID     string
	Have    history.Extent
	Secrets bool // also the values of secret parameters
}

// Arriving is a part of a run for a side to enter.
type Arriving struct {
	Delta   *history.Delta
	Project string            // of a run that is new there and has none; "": none
	Live    bool              // more follows soon
	Again   bool              // also if the run was removed there for good
	Doing   *records.Snapshot // what the ranks do now, if somebody has asked for it
}

// Merged is what became of an [Arriving].
type Merged struct {
	ID      int64
	Name    string
	Watched bool // somebody wants to know what the ranks do
}

// Sums names contents or chunks of a run by their SHA-256.
type Sums struct {
	UID  string
	Sums []string
}

// Step names a checkpoint.
type Step struct {
	UID  string
	Step int64
}

// Parts are chunks of a run's checkpoints.
type Parts struct {
	UID    string
	Chunks [][]byte
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
func agree(ctx context.Context, from, to Side) (err error) {
	defer try.Caught(&err)
	a, b := try.To(Greet(ctx, from, struct{}{})), try.To(Greet(ctx, to, struct{}{}))
	switch {
	case a.Version != b.Version:
		return &VersionError{fmt.Sprintf("the two sides copy runs in different ways: %s on one, %s on the other", a.Drun, b.Drun), "bring the older drun up to date"}
	case a.Schema > b.Schema:
		return &VersionError{fmt.Sprintf("the receiving drun (%s) is older than the sending one (%s), and has no place for all that runs have now", b.Drun, a.Drun),
			"bring the receiving one up to date first"}
	}
	return nil
}
