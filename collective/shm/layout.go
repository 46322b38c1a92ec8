package shm

import (
	"sync/atomic"
	"unsafe"

	"drun/collective/sharedmem"
)

const (
	// MaxRanks is the largest number of ranks in a region, all on one machine.
	MaxRanks = 1024
	// stageSize is how much a rank can publish in a round: small enough that
	// the stages of a few ranks stay in a core's second-level cache, large
	// enough that a round costs little compared with the copy.
	stageSize = 512 << 10
	// skew keeps the stages of different ranks out of each other's cache sets.
	skew     = 4096 + 256
	ringSize = 64 << 10 // of messages from one rank to another; see ring
)

// layout gives the offsets within a group's area:
//
//	control    abort, gate, count of the ranks that hold it
//	arrivals   per rank and parity: the round it has arrived at
//	stages     per rank and parity: what it publishes
//	results    per rank and parity: what it has reduced
//	doorbells  per rank: messages came; and on which core it is
//	rings      per pair of ranks: messages on their way
//
// Only what is used costs memory.
type layout struct {
	ranks                                    int
	stages, results, doorbells, rings, total int
}

func newLayout(ranks int) layout {
	l := layout{ranks: ranks}
	l.stages = sharedmem.PageRound(arrivalsAt + 2*ranks*int(unsafe.Sizeof(arrival{})))
	l.results = l.stages + sharedmem.PageRound(2*ranks*(stageSize+skew))
	l.doorbells = l.results + sharedmem.PageRound(2*ranks*(stageSize+skew))
	l.rings = l.doorbells + sharedmem.PageRound(ranks*sharedmem.CacheLine)
	l.total = l.rings + ranks*ranks*ringSize
	return l
}

type control struct {
	aborted atomic.Uint32
	_       [sharedmem.CacheLine - 4]byte
	gate    sharedmem.Gate
	_       [sharedmem.CacheLine - 8]byte
	closed  atomic.Int32 // ranks that are done with the area
}

const (
	arrivalsAt = 4096
	coreAt     = 64 // behind a doorbell
)

// arrival is what a rank announces in a round. A small contribution travels in it: then a round moves a single cache
// line from rank to rank.
type arrival struct {
	round       atomic.Uint64
	fingerprint uint64           // of the call, in its first round
	passed      uint64           // likewise
	arena       uint64           // offset of the call's buffer in the arena + 1, 0 if it is elsewhere
	_           [inlineSize]byte // from inlineAt on
}

const (
	inlineAt   = 32
	inlineSize = sharedmem.CacheLine - inlineAt
)
