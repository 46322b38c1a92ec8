package collective

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"drun/internal/elapsed"
	"drun/internal/exit"
)

// ErrFingerprint is what a [Verifier] ends a call with when ranks of the group made different calls. The board turns it
// into a [MismatchError].
var ErrFingerprint = errors.New("collective: ranks made different calls")

// ErrArguments is what an [ArgumentVerifier] ends a call with, on all ranks, when they called the same
// builtin with different arguments. No data was touched, and the Comm stays usable.
var ErrArguments = errors.New("collective: ranks passed different arguments")

// ErrAborted is the error of a call whose group was aborted by another rank, which knows the cause.
var ErrAborted = errors.New("the group was aborted by another rank")

// ErrClosed is the error of a call on a Comm that has been closed.
var ErrClosed = errors.New("the group is closed")

// A CallError says that a call is wrong in itself, whatever other ranks do.
type CallError struct {
	Kind    Kind
	Problem string
}

func (e *CallError) Error() string { return e.Kind.String() + ": " + e.Problem }

// A MismatchError says that ranks disagree about what happens next: they made different calls, or some wait for a
// call that will never come.
type MismatchError struct {
	Group   uint32
	Backend string // of the group, where it has one of its own
	Seq     uint64
	Reason  string // "ranks disagree", "rank 1 returned from main while others wait", …
	Rows    []Row  // one per rank of the group
	Do      string // what to do about it, where that can be told
}

// Hint is what to do about it, or "".
func (e *MismatchError) Hint() string { return e.Do }

func (e *MismatchError) Error() string {
	which := ""
	if e.Seq > 0 { // 0: a message
		which = fmt.Sprintf("collective %d%s: ", e.Seq, GroupSuffix(e.Group, e.Backend))
	}
	return which + e.Reason + "\n" + Table(e.Rows)
}

// A TimeoutError says that some ranks did not reach a collective in time.
type TimeoutError struct {
	Call    Description
	After   time.Duration
	Arrived []int // global ranks
	Missing []Row // where each of the others is
	Present []Row // where all are, if all arrived: one of them is stopped, or very slow
}

func (e *TimeoutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s at %s timed out after %s", e.Call.Name(), GroupSuffix(e.Call.Group, e.Call.Backend), e.Call.Pos, elapsed.Text(e.After.Seconds()))
	switch {
	case e.Call.Kind.PointToPoint() && len(e.Missing) == 0:
		b.WriteString(": no rank has sent anything")
	case e.Call.Kind.PointToPoint():
		fmt.Fprintf(&b, ": no answer from %s", ranksOf(e.Missing))
	case len(e.Missing) == 0:
		b.WriteString(": every rank arrived, but one of them is stopped, or too slow")
	default:
		fmt.Fprintf(&b, ": waiting for %s; arrived: %s", ranksOf(e.Missing), RankList(e.Arrived))
	}
	if rows := append(e.Missing, e.Present...); len(rows) > 0 {
		b.WriteString("\n" + Table(rows))
	}
	return b.String()
}

// An AbortError ends the waits of a rank that did nothing wrong itself: the run was aborted, and Cause is the first
// reason for it.
type AbortError struct {
	Rank  int // whose failure it was; -1: the agent's decision
	Cause error
}

func (e *AbortError) Error() string { return "aborted: " + e.Cause.Error() }
func (e *AbortError) Unwrap() error { return e.Cause }

// A FailedError says that a rank's recipe ended with an error.
type FailedError struct {
	Rank int
	Msg  string // with position
	Code exit.Code
}

func (e *FailedError) Error() string { return fmt.Sprintf("rank %d failed: %s", e.Rank, e.Msg) }

// A PeerLostError says that a rank's process ended without giving a reason.
type PeerLostError struct {
	Rank int
	How  string // "killed by SIGKILL", "exited with status 3"
	Last Row    // what it did last
}

func (e *PeerLostError) Error() string {
	s := fmt.Sprintf("rank %d was lost: %s", e.Rank, e.How)
	if doing := e.Last.Doing(); doing != "" {
		s += "; it was last seen " + doing
	}
	return s
}

// A BackendError says that the engine beneath a Comm failed.
type BackendError struct {
	Backend string
	Group   uint32 // that has this backend for itself; 0: the run has it
	Rank    int
	Msg     string
	Own     bool `json:",omitempty"` // this rank's plugin itself failed, whatever other ranks did
}

// Suspects reports whether an error is only a rank's suspicion about another: an engine whose connection ended does
// not know why, and the agent that watches the processes may not have said yet.
func Suspects(err error) bool {
	var b *BackendError
	return errors.As(err, &b) && !b.Own || errors.Is(err, ErrAborted) || errors.As(err, new(*PeerLostError)) || errors.As(err, new(*Suspicion))
}

// A Suspicion is an error that the end of another rank may explain.
type Suspicion struct{ error }

func (s *Suspicion) Unwrap() error { return s.error }

// Suspect makes an error a suspicion.
func Suspect(err error) error { return &Suspicion{err} }

func (e *BackendError) Error() string {
	return fmt.Sprintf("backend %s%s failed on rank %d: %s", e.Backend, GroupSuffix(e.Group, ""), e.Rank, e.Msg)
}

// In restates the error of a group's own backend in terms of the world, since the backend numbers the ranks of the
// group. With nil for ranks the message does not change.
func (e *BackendError) In(group uint32, rank int, ranks []int) *BackendError {
	if e.Group != 0 {
		return e // it is already
	}
	return &BackendError{Backend: e.Backend, Group: group, Rank: rank, Msg: renameRanks(e.Msg, ranks), Own: e.Own}
}

// numbered matches a rank as a backend names it, perhaps followed by the number of ranks.
var numbered = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\brank (\d+)\b(?: of \d+\b)?`) })

// Renamed returns the error of a backend with each rank number replaced by the list's entry at that index.
func Renamed(err error, ranks []int) error { return &renamed{renameRanks(err.Error(), ranks), err} }

type renamed struct {
	text string
	error
}

func (r *renamed) Error() string { return r.text }
func (r *renamed) Unwrap() error { return r.error }

func renameRanks(text string, ranks []int) string {
	return numbered().ReplaceAllStringFunc(text, func(s string) string {
		if n, err := strconv.Atoi(strings.Fields(s)[1]); err == nil && n < len(ranks) {
			return fmt.Sprintf("rank %d", ranks[n])
		}
		return s
	})
}

// A StoppedError says that the run was asked to stop, and by whom.
type StoppedError struct{ By string }

func (e *StoppedError) Error() string { return "stopped by " + e.By }

// Permanent says that repeating the same call fails again.
func (e *CallError) Permanent() bool { return true }

// The exit codes and kinds of runs that end with these errors.

func (e *MismatchError) ExitCode() exit.Code { return exit.Mismatch }
func (e *TimeoutError) ExitCode() exit.Code  { return exit.Timeout }
func (e *PeerLostError) ExitCode() exit.Code { return exit.RankLost }
func (e *BackendError) ExitCode() exit.Code  { return exit.Backend }
func (e *StoppedError) ExitCode() exit.Code  { return exit.Interrupted }
