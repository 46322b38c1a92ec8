// Package collective is the contract between recipes and the engines that move tensors between ranks.
//
// Callers (starlib/distributed, through the guard of engine/board) build a [Call], give it to a [Comm] and wait for the
// [Work]. What moves the bytes (collective/shm, the plugin host) implements [Backend] and [Comm]. Optional abilities
// are separate interfaces: [Arena], [Verifier].
//
// Results are deterministic if the backend says so: contributions are combined in rank order, and every rank gets the
// same bits.
package collective

import (
	"context"

	"drun/kernel/dtype"
)

// A Backend is a communication engine that can join a world of ranks.
type Backend interface {
	// Name is what --backend calls it.
	Name() string
	// Open joins the world as one rank. It returns when every rank has joined or ctx ends.
	Open(ctx context.Context, world World) (Comm, error)
}

// Properties are what a backend says about itself, so that the engine need not know its name.
type Properties struct {
	// WholeWorld: it connects the ranks of a whole run only, because something else has numbered them (mpirun). Over
	// several nodes the ranks of a node then use it as well, instead of shared memory.
	WholeWorld bool `json:"whole_world,omitempty"`
	// BetweenNodes is how well it suits runs over several nodes that name no backend: the highest is used; 0: none is.
	BetweenNodes int `json:"between_nodes,omitempty"`
	// OwnOrder: it reduces in an order of its own unless World.Deterministic asks for that of the ranks, which would
	// slow it down too much. Other backends are asked by default.
	OwnOrder bool `json:"own_order,omitempty"`
}

// A Describer is a Backend that has Properties.
type Describer interface{ Properties() Properties }

// World tells this process its rank and the number of ranks.
type World struct {
	Rank, Size           int
	LocalRank, LocalSize int    // among the processes of this machine that open the backend
	Store                Store  // where ranks that share no memory find each other; may be nil
	NodeAddress          string // of this machine, as the other nodes of the run reach it; "" with one node
	// Deterministic asks for reductions in the order of the ranks, with the bits of collective/shm. A backend that cannot
	// do that returns an error from Open.
	Deterministic bool
}

// A Store is the part of a key-value store that backends need to find each other.
type Store interface {
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until the key exists.
	Get(ctx context.Context, key string) ([]byte, error)
}

// A Comm is one rank's end of a group of ranks. Ranks, roots and peers in its calls count within the group, from 0 to
// Size-1.
//
// Collectives on one Comm happen in the order they were started, the same on every rank; sends and receives are matched
// by (source, tag) instead, outside that order. Start may be called by one goroutine at a time.
type Comm interface {
	Rank() int
	Size() int

	// Start begins a call and does not block. It may fill in the call's last fields (Group, Seq, Fingerprint), and uses
	// the call and its buffers until the work is done. An error means that nothing was started: the call is malformed
	// ([CallError]), or the Comm is closed or aborted.
	Start(call *Call) (Work, error)

	// Split makes a group. Every rank of this Comm calls it; those that will share the group pass the same ID and
	// Ranks, in the same order; others may pass another, disjoint group. A rank that is not in group.Ranks gets a nil
	// Comm.
	Split(ctx context.Context, group Group) (Comm, error)

	// Abort ends every pending and future call of this rank with cause, Split included, and asks the other ranks' waits
	// on this Comm to end too. It may be called from any goroutine, more than once, during Close and after it; the
	// first cause is kept.
	Abort(cause error)

	// Close ends pending calls, then gives back what the Comm holds. No other goroutine may be in Start, in Split or in
	// the Wait of a synchronous call; in a plugin they may be, and end. After it everything but Abort and Close fails.
	// Groups split from a Comm are closed before it; they can still be closed later, but whether their calls work until
	// then is unspecified.
	Close() error
}

// Group names some ranks of a Comm. The caller chooses ID: the same on all of the group's ranks, never used twice in
// a world; 0 is the world itself.
type Group struct {
	ID     uint32
	Ranks  []int
	Origin // what in the recipe makes it

	// Internal: the engine makes the group, not the recipe, so it is not among the collectives that users count and
	// see.
	Internal bool

	// Open makes the group's Comm if its backend differs from that of the Comm being split; nil: the Comm is split.
	// Only the board's guard uses it. A rank that is not in the group gets a nil Comm here, too.
	Open    func(ctx context.Context) (Comm, error)
	Backend string
}

// Work is a call under way.
type Work interface {
	// Wait returns when the call is done, when it failed, or when ctx ends. It is the only call of this package that
	// blocks. A synchronous call must be waited for, by the goroutine that started it; its Work is invalid once Wait
	// has returned. After a Wait that ended early the buffers may still be in use: abort the Comm before they are
	// touched.
	Wait(ctx context.Context) error
	// Done reports, without blocking, that Wait would return at once.
	Done() bool
}

// A Receipt is a Work of a receive that can tell which rank the message came from, for receives from [AnySource].
type Receipt interface {
	Work
	Source() int // once it is Done
}

// A Taker is a Comm whose messages arrive only while their receiver waits for something. TakeMessages makes
// room for their senders without waiting, and reports whether something came.
type Taker interface{ TakeMessages() bool }

// An Arena is a Comm with memory that it can reduce without a copy.
type Arena interface {
	// Alloc returns zeroed memory for count elements. Calls on it need no copy if all ranks' buffers are such memory.
	// It is valid until the Comm is closed.
	Alloc(dt dtype.Type, count int) (Buffer, error)
}

// A Verifier is a Comm that compares [Call.Fingerprint] among the ranks before it touches data, and ends the call with
// [ErrFingerprint] where they differ. For other backends the board compares them, which costs an extra round.
type Verifier interface {
	VerifiesFingerprints()
}

// An ArgumentVerifier is a Verifier that can compare [Call.Arguments] too. The builtin then needs no extra call to
// check that all ranks passed the same arguments.
type ArgumentVerifier interface {
	VerifiesArguments() bool // false: the Comm that this one wraps cannot
}

// VerifiesArguments reports whether calls on c can have Arguments.
func VerifiesArguments(c Comm) bool {
	v, ok := c.(ArgumentVerifier)
	return ok && v.VerifiesArguments()
}
