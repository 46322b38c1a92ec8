package collective

import (
	"strconv"
	"time"
	"unsafe"

	"drun/kernel/dtype"
)

// Kind is the operation of a call.
type Kind uint8

// The operations and their buffers. n is the number of elements in one rank's part; all_gather, gather, scatter and
// reduce_scatter take parts of different sizes from Call.Counts.
//
//	               Send              Recv
//	AllReduce      n                 n, may be the same memory as Send
//	Broadcast      root: n           others: n (the root's is ignored)
//	Reduce         n                 root: n, may be the same memory as Send
//	AllGather      n                 all parts in rank order
//	Gather         n                 root: all parts in rank order
//	Scatter        root: all parts   n
//	ReduceScatter  all parts         n
//	AllToAll       a part for each   a part from each
//	Barrier        -                 -
//	Send           n                 -
//	Recv           -                 n
const (
	NoKind Kind = iota
	AllReduce
	Broadcast
	Reduce
	AllGather
	Gather
	Scatter
	ReduceScatter
	AllToAll
	Barrier
	Send
	Recv
	NewGroup // not started by itself: Comm.Split, as the board shows it
	numKinds
)

var kinds = [numKinds]string{"-", "all_reduce", "broadcast", "reduce", "all_gather", "gather",
	"scatter", "reduce_scatter", "all_to_all", "barrier", "send", "recv", "new_group"}

func (k Kind) String() string {
	if k >= numKinds {
		return "kind(" + strconv.Itoa(int(k)) + ")"
	}
	return kinds[k]
}

// Reduces reports whether calls of this kind have a reduce operation.
func (k Kind) Reduces() bool { return k == AllReduce || k == Reduce || k == ReduceScatter }

// Rooted reports whether calls of this kind have a root.
func (k Kind) Rooted() bool { return k == Broadcast || k == Reduce || k == Gather || k == Scatter }

// PointToPoint reports whether calls of this kind have a peer and a tag.
func (k Kind) PointToPoint() bool { return k == Send || k == Recv }

// AnySource as the peer of a receive takes the first message with its tag, from any rank.
const AnySource = -1

// A Call describes one operation of one rank.
type Call struct {
	Kind   Kind
	Reduce dtype.ReduceOp
	Root   int
	Peer   int // Send: destination; Recv: source or AnySource
	Tag    int
	Send   Buffer
	Recv   Buffer

	// Counts has the number of elements in each rank's part, the same list on every rank; nil if all are equal. AllToAll
	// always has it: how many elements this rank sends to each rank, and RecvCounts, how many it receives from each.
	Counts     []int
	RecvCounts []int

	// Async: the caller may wait later or never, so the call must make progress by itself.
	Async bool
	// Paired: a Send or Recv whose peer is sure to make the matching call, with the same number of bytes, in the same
	// order as its other paired calls with this rank and tag. It matches only paired calls. A backend that does not
	// know Paired treats it as any message; one that does need not announce it, which saves a round trip.
	Paired bool
	// Limit bounds an asynchronous call that nobody waits for; 0: no limit.
	Limit time.Duration

	Origin // which builtin of the recipe made the call, and where
	Compared
	Guarded
}

// Compared is what the ranks compare besides the call itself, and what errors show of it.
type Compared struct {
	Shape []int // as the recipe sees the data
	// As is the element type of what the recipe passed, where the call itself carries only its size.
	As dtype.Type
	// Detail describes, when ranks disagree, what Shape cannot hold; may be nil.
	Detail func() string
	// Digest is a hash of the part of Detail that must be equal on every rank; 0: nothing.
	Digest uint64
	// Arguments is a hash of the builtin's arguments that must be equal on every rank; 0: only the call itself
	// is compared. If ranks called the same builtin but their Arguments or calls differ, the call ends with
	// [ErrArguments], so that the builtin can say what differs. Only an [ArgumentVerifier] reads it.
	Arguments uint64
}

// Guarded is what the board's guard sets: the call's number in its group, and what a [Verifier] compares.
type Guarded struct {
	Group       uint32
	Seq         uint64 // counts the collectives of the group, from 1
	Fingerprint uint64 // equal on all ranks that made the same call; 0: not checked
	Passed      uint64 // likewise, if there are Arguments: the fingerprint then covers only the builtin
}

// Origin is what made a call in a recipe. Ranks whose calls come from different builtins disagree, even if the calls
// themselves look alike.
type Origin struct {
	Builtin string // "dist.average_metrics"; "" stands for the call's own kind
	Form    Form
	Pos     Position
}

// In returns the same origin for a call of another form.
func (o Origin) In(f Form) Origin {
	o.Form = f
	return o
}

// Backward is the origin of what a builtin does in the backward pass.
func (o Origin) Backward() Origin {
	o.Builtin += " in backward"
	return o
}

// Form is what a call's data is to the recipe.
type Form uint8

// The forms of calls.
const (
	Direct Form = iota // what the recipe passed: a tensor, a number
	Plain              // the bytes of a plain value, or how many there are
	Step               // internal to the builtin
)

// Body is added to the tag of a message's second part: a message of unknown size is sent as its size, then its bytes.
const Body = 1 << 30

// Position is a position in a recipe; the zero value is unknown.
type Position struct {
	File      string
	Line, Col int32
}

func (p Position) String() string {
	if p.File == "" {
		return "unknown position"
	}
	s := p.File
	if p.Line > 0 {
		s += ":" + strconv.Itoa(int(p.Line))
		if p.Col > 0 {
			s += ":" + strconv.Itoa(int(p.Col))
		}
	}
	return s
}

// Data is the buffer that represents the call in descriptions: this rank's part if it has one, else what it receives.
func (c *Call) Data() Buffer {
	switch c.Kind {
	case Scatter, ReduceScatter, Recv:
		return c.Recv
	case Broadcast:
		if c.Send.DType == dtype.None {
			return c.Recv
		}
	}
	return c.Send
}

// Fingerprints computes what a Verifier compares: Fingerprint and Passed.
func (c *Call) Fingerprints() (fingerprint, passed uint64) {
	if c.Arguments == 0 {
		return c.Hash(), 0
	}
	return c.hashOrigin(numKinds) | 1, mixed(c.Hash(), c.Arguments) | 1
}

const prime = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio, as in Fibonacci hashing

func mixed(h, v uint64) uint64 {
	h = (h ^ v) * prime
	return h ^ h>>29
}

// Hash computes the fingerprint: a hash of everything that must be equal on every rank of a collective. It is never 0.
func (c *Call) Hash() uint64 {
	h := c.hashOrigin(c.Kind)
	mix := func(v uint64) { h = mixed(h, v) }
	if c.Kind == Barrier || c.Kind == NewGroup {
		mix(uint64(c.Tag))
		return h | 1
	}
	data := c.Data()
	mix(uint64(data.DType))
	if c.Kind.Reduces() {
		mix(uint64(c.Reduce) + 1)
	}
	if c.Kind.Rooted() {
		mix(uint64(c.Root) + 1)
	}
	if c.Kind != AllToAll { // there the splits may differ from rank to rank
		if c.Counts == nil {
			mix(uint64(data.Count()))
		}
		for _, n := range c.Counts {
			mix(uint64(n))
		}
	}
	for _, n := range c.Shape {
		mix(uint64(n))
	}
	if c.Digest != 0 {
		mix(c.Digest)
	}
	return h | 1
}

// hashOrigin is a hash of what made the call: kind, form and builtin.
func (c *Call) hashOrigin(kind Kind) uint64 {
	h := mixed(prime, uint64(kind)|uint64(c.Form)<<8|uint64(c.As)<<16|uint64(len(c.Builtin))<<24)
	name := c.Builtin
	for ; len(name) >= 8; name = name[8:] {
		h = mixed(h, uint64(name[0])|uint64(name[1])<<8|uint64(name[2])<<16|uint64(name[3])<<24|
			uint64(name[4])<<32|uint64(name[5])<<40|uint64(name[6])<<48|uint64(name[7])<<56) // one load
	}
	if name != "" {
		rest := uint64(0)
		for i := range len(name) {
			rest = rest<<8 | uint64(name[i])
		}
		h = mixed(h, rest)
	}
	return h
}

// NewAllReduce combines b of all ranks and leaves the result in b of all ranks.
func NewAllReduce(b Buffer, op dtype.ReduceOp) Call {
	return Call{Kind: AllReduce, Reduce: op, Send: b, Recv: b}
}

// NewBroadcast copies b of the root into b of the others.
func NewBroadcast(b Buffer, root int) Call {
	return Call{Kind: Broadcast, Root: root, Send: b, Recv: b}
}

// NewReduce combines send of all ranks into recv of the root; other ranks' recv is ignored.
func NewReduce(send, recv Buffer, op dtype.ReduceOp, root int) Call {
	return Call{Kind: Reduce, Reduce: op, Root: root, Send: send, Recv: recv}
}

// NewAllGather concatenates send of all ranks, in rank order, into recv of all.
func NewAllGather(send, recv Buffer) Call {
	return Call{Kind: AllGather, Send: send, Recv: recv}
}

// NewGather concatenates send of all ranks, in rank order, into recv of the root.
func NewGather(send, recv Buffer, root int) Call {
	return Call{Kind: Gather, Root: root, Send: send, Recv: recv}
}

// NewScatter gives each rank its part of the root's send.
func NewScatter(send, recv Buffer, root int) Call {
	return Call{Kind: Scatter, Root: root, Send: send, Recv: recv}
}

// NewReduceScatter combines send of all ranks and gives each rank its part.
func NewReduceScatter(send, recv Buffer, op dtype.ReduceOp) Call {
	return Call{Kind: ReduceScatter, Reduce: op, Send: send, Recv: recv}
}

// NewAllToAll sends part i of send to rank i; sent and received are the numbers of elements for and from each rank.
func NewAllToAll(send, recv Buffer, sent, received []int) Call {
	return Call{Kind: AllToAll, Send: send, Recv: recv, Counts: sent, RecvCounts: received}
}

// NewBarrier waits for all ranks.
func NewBarrier() Call { return Call{Kind: Barrier} }

// NewSend sends b to rank dst.
func NewSend(b Buffer, dst, tag int) Call { return Call{Kind: Send, Peer: dst, Tag: tag, Send: b} }

// NewRecv fills b with the next message from rank src (or [AnySource]) with that tag.
func NewRecv(b Buffer, src, tag int) Call { return Call{Kind: Recv, Peer: src, Tag: tag, Recv: b} }

// A Buffer is typed memory: Data holds whole elements of DType, contiguous and aligned to the element.
type Buffer struct {
	DType dtype.Type
	Data  []byte
}

// Element is a Go type whose slices can be used as buffers.
type Element interface {
	float32 | float64 | int64 | int32 | int8 | uint8 | bool | complex64
}

// Of returns a buffer that shares s's memory.
func Of[T Element](s []T) Buffer {
	var zero T
	b := Buffer{DType: dtypeOf(any(zero))}
	if len(s) > 0 {
		b.Data = unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(zero)))
	}
	return b
}

func dtypeOf(v any) dtype.Type {
	switch v.(type) {
	case float32:
		return dtype.Float32
	case float64:
		return dtype.Float64
	case int64:
		return dtype.Int64
	case int32:
		return dtype.Int32
	case int8:
		return dtype.Int8
	case uint8:
		return dtype.Uint8
	case bool:
		return dtype.Bool
	}
	return dtype.Complex64
}

// Slice returns the elements of b as a Go slice over the same memory; T must be the Go type of b's element type.
func Slice[T Element](b Buffer) []T {
	var zero T
	n := len(b.Data) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b.Data[0])), n)
}

func (b Buffer) Count() int { return len(b.Data) / b.DType.Size() }

// Part returns the elements [from, to), over the same memory.
func (b Buffer) Part(from, to int) Buffer {
	size := b.DType.Size()
	return Buffer{DType: b.DType, Data: b.Data[from*size : to*size : to*size]}
}
