// Package collective is the contract between recipes and the engines that
// move tensors between ranks.
//
// Whoever wants to communicate (starlib/distributed, through the guard of
// engine/board) builds a [Call], gives it to a [Comm] and waits for the
// [Work]. Whoever moves the bytes (collective/shm, the plugin host) implements
// [Backend] and [Comm]. Abilities that not every engine has are interfaces of
// their own: [Arena], [Verifier].
//
// Results are deterministic where the backend says so: contributions are
// combined in rank order, and every rank gets the same bits.
package collective

import (
	"context"

	"drun/kernel/element"
)

// A Backend is a communication engine that can join a world of ranks.
type Backend interface {
	// Name is what --backend calls it.
	Name() string
	// Open joins the world as one rank. It returns when every rank has
	// joined or ctx ends.
	Open(ctx context.Context, world World) (Comm, error)
}

// World says which rank of how many this process is.
type World struct {
	Rank, Size           int
	LocalRank, LocalSize int    // among the processes of this machine that open the backend
	Store                Store  // where ranks that share no memory find each other; may be nil
	NodeAddress          string // of this machine, as the other nodes of the run reach it; "" with one node
	// Deterministic asks for reductions in the order of the ranks, with the bits of
	// collective/shm. A backend that cannot do that returns an error from Open.
	Deterministic bool
}

// A Store is the little of a key-value store that backends need to meet.
type Store interface {
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until the key exists.
	Get(ctx context.Context, key string) ([]byte, error)
}

// A Comm is one rank's end of a group of ranks. Ranks, roots and peers in its
// calls count within the group, from 0 to Size-1.
//
// Collectives on one Comm happen in the order they were started, on every rank
// the same; send and receive are matched by (source, tag) instead and do not
// take part in that order. Start may be called by one goroutine at a time.
type Comm interface {
	Rank() int
	Size() int

	// Start begins a call and does not block. It may fill in the call's last
	// fields (Group, Seq, Fingerprint), and uses the call and its buffers
	// until the work is done. An error means that nothing was
	// started: the call is not well formed ([CallError]) or the Comm is closed
	// or aborted.
	Start(call *Call) (Work, error)

	// Split makes a group. Every rank of this Comm calls it; those that will
	// share the group pass the same ID and Ranks, in the same order, others
	// may pass another disjoint group. A rank that is not in group.Ranks gets
	// a nil Comm.
	Split(ctx context.Context, group Group) (Comm, error)

	// Abort ends every pending and future call of this rank with cause, Split
	// too, and asks the other ranks' waits on this Comm to end too. It can be
	// called from any goroutine, more than once, while Close runs and after it;
	// the first cause stays.
	Abort(cause error)

	// Close ends pending calls, then gives back what the Comm holds. No other
	// goroutine may be in Start, in Split or in the Wait of a synchronous call;
	// in a plugin they may be, and end. After it everything fails but Abort and
	// Close. The groups split from a Comm are closed before it; those that are
	// not can still be, and whether their calls work is not said.
	Close() error
}

// Group names some ranks of a Comm. ID is the caller's, the same on all of its
// ranks and never used twice in a world; 0 is the world itself.
type Group struct {
	ID     uint32
	Ranks  []int
	Origin // what in the recipe makes it

	// Internal: the engine makes it, not the recipe, so it is none of the
	// collectives that users count and see.
	Internal bool

	// Open makes the Comm with the backend of that name, where it is another than that
	// of the Comm that is split; nil: the Comm is split. The board's guard alone heeds
	// it. A rank that is not in the group gets a nil Comm here, too.
	Open    func(ctx context.Context) (Comm, error)
	Backend string
}

// Work is a call under way.
type Work interface {
	// Wait returns when the call is done, when it failed, or when ctx ends.
	// It is the only call of this package that blocks. A synchronous call
	// must be waited for, by the goroutine that started it; its Work is
	// invalid once Wait has returned. After a Wait that ended early the
	// buffers may still be in use: abort the Comm before they are touched.
	Wait(ctx context.Context) error
	// Done reports, without blocking, that Wait would return at once.
	Done() bool
}

// A Receipt is a Work of a receive that can tell which rank the message came
// from, for receives from [AnySource].
type Receipt interface {
	Work
	Source() int // once it is Done
}

// A Taker is a Comm whose messages arrive only while their receiver waits for something. TakeMessages makes
// room for their senders without waiting, and tells whether something came.
type Taker interface{ TakeMessages() bool }

// An Arena is a Comm with memory that it can reduce without copying it first.
type Arena interface {
	// Alloc gives zeroed memory for count elements. Calls on it need no copy
	// where all ranks' buffers are such memory. It is valid until the Comm is
	// closed.
	Alloc(dtype element.Type, count int) (Buffer, error)
}

// A Verifier is a Comm that compares [Call.Fingerprint] among the ranks before
// it touches data, and ends the call with [ErrFingerprint] where they differ.
// For other backends the board compares them, which costs a round of its own.
type Verifier interface {
	VerifiesFingerprints()
}

// An ArgumentVerifier is a Verifier that can compare [Call.Arguments] too. The builtin then
// needs no call of its own to see that the ranks passed the same.
type ArgumentVerifier interface {
	VerifiesArguments() bool // false: the Comm that this one stands before cannot
}

// VerifiesArguments tells whether calls on c can have Arguments.
func VerifiesArguments(c Comm) bool {
	v, ok := c.(ArgumentVerifier)
	return ok && v.VerifiesArguments()
}
