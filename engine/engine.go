// Package engine holds what a run's processes share: how a run can end (Failure) and the messages that the agent
// and its workers exchange over their control channel. The agent is engine/run, a worker engine/worker.
package engine

import (
	"fmt"
	"os"
	"syscall"

	"drun/internal/exit"

	"golang.org/x/sys/unix"
)

// Numerics is the version of drun's arithmetic (docs/numerics.md). Every change that gives some recipe other bits
// raises it, which also changes the keys by which runs are found again.
const Numerics = 3

// Failure is why a rank ended, as the rank reports it to its agent.
type Failure struct {
	Rank      int
	Code      exit.Code
	Message   string // one line: position in the recipe, then what happened
	Traceback string // the recipe's frames, or a table by rank
	Hint      string
	When      int64 // CLOCK_MONOTONIC, nanoseconds: comparable between processes of a machine
	Permanent bool  // it would recur in another attempt
	// Secondary is set if the rank ended because another one did: the run never names it as the cause.
	Secondary bool
	// Suspected is set if the failure is only a rank's suspicion about another, such as one that closed its connection: it
	// is the cause only if no other failure is known.
	Suspected bool `cbor:",omitempty"`
	// Common is set if several ranks fail alike, such as ranks that disagree: the lowest of them reports it.
	Common bool `cbor:",omitempty"`
	// Doubt is set if a processor computed wrongly, as an audit found.
	Doubt *Doubt `cbor:",omitempty"`
}

// Doubt says where a processor computed wrongly, as far as that is known.
type Doubt struct {
	Host  string
	Cores []int
}

// NewFailure makes the failure of a rank from an error; rank -1 stands for no rank.
func NewFailure(rank int, err error, when int64) *Failure {
	return &Failure{Rank: rank, Code: exit.CodeOf(err), Message: err.Error(), Hint: exit.HintOf(err), Permanent: exit.IsPermanent(err), When: when}
}

// Err is the failure as an error that the command line can end with.
func (f *Failure) Err() error {
	return exit.WithHint(exit.Errorf(f.Code, "%s", f.Message), f.Hint)
}

// Text is the failure as the user reads it: who, where and what, then the recipe's frames. world is the number of ranks.
func (f *Failure) Text(world int) string {
	text := f.Message
	if world > 1 && f.Rank >= 0 {
		text = fmt.Sprintf("rank %d: %s", f.Rank, text)
	}
	if f.Traceback != "" {
		text += "\n" + f.Traceback
	}
	return text
}

// SignalName is a signal's name, such as SIGINT.
func SignalName(sig os.Signal) string {
	if n, ok := sig.(syscall.Signal); ok {
		return unix.SignalName(n)
	}
	return sig.String()
}

// First picks the cause of a run's end: the earliest failure that no other failure brought about or, if ranks
// failed alike, that of the lowest, since chance decides which comes first. It returns nil if there is none.
func First(failures []*Failure) *Failure {
	var earliest *Failure
	for _, f := range failures {
		if earliest == nil || before(f, earliest) {
			earliest = f
		}
	}
	first := earliest
	for _, f := range failures {
		if f.Rank < first.Rank && alike(f, earliest) {
			first = f
		}
	}
	return first
}

func alike(a, b *Failure) bool {
	return a.Secondary == b.Secondary && a.Suspected == b.Suspected && a.Code == b.Code && (a.Common && b.Common || a.Message == b.Message && a.Traceback == b.Traceback)
}

func before(a, b *Failure) bool {
	if a.Secondary != b.Secondary {
		return b.Secondary
	}
	if a.Suspected != b.Suspected {
		return b.Suspected
	}
	if a.When != b.When {
		return a.When < b.When
	}
	return a.Rank < b.Rank
}
