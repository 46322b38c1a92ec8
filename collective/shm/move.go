package shm

import (
	"encoding/binary"

	"drun/collective"
	"drun/collective/sharedmem"
)

// broadcast: the root publishes a chunk, one round, the others fetch it. bytes out of the root, bytes into each other
// rank.
func (r *run) broadcast() error {
	data := r.call.Recv
	if r.rank == r.call.Root {
		data = r.call.Send
	}
	return r.chunks(len(data.Data), stageSize, func(from, to int) {
		if r.rank == r.call.Root {
			copy(r.outbox(r.rank, to-from), data.Data[from:to])
		}
	}, func(from, to int) {
		if r.rank != r.call.Root {
			r.deliver(data.Data[from:to], r.outbox(r.call.Root, to-from))
		}
	})
}

// chunks makes rounds over n bytes, at most chunk bytes each, and at least one round.
func (r *run) chunks(n, chunk int, publish, fetch func(from, to int)) error {
	for from := 0; from == 0 || from < n; from += chunk {
		to := min(from+chunk, n)
		r.begin()
		publish(from, to)
		if err := r.arrive(); err != nil {
			return err
		}
		fetch(from, to)
	}
	return nil
}

// deliver copies to where the caller wants it, bypassing the caches if it is too large for them.
func (r *run) deliver(dst, src []byte) {
	if len(src) < len(dst) {
		dst = dst[:len(src)]
	}
	if len(r.call.Recv.Data) < streamed {
		copy(dst, src)
		return
	}
	sharedmem.Stream(dst, src[:len(dst)])
}

// streamed is the size in bytes from which a result is too large for the caches.
const streamed = 8 << 20

// gather is gather and, where every rank keeps the parts, all_gather: every rank publishes a chunk of its part, one
// round, and the ranks that keep the result fetch all: bytes out of each rank, size*bytes into each of those.
func (r *run) gather(keep bool) error {
	send, recv := r.call.Send.Data, r.call.Recv.Data
	parts := r.parts(r.call.Send)
	return r.chunks(parts.largest(), stageSize, func(from, to int) {
		mine := clip(send, from, to)
		copy(r.outbox(r.rank, to-from), mine)
	}, func(from, to int) {
		if !keep {
			return
		}
		for i := range r.size {
			src := r.outbox(i, to-from)
			if i == r.rank {
				src = clip(send, from, to)
			}
			r.deliver(clip(parts.of(recv, i), from, to), src)
		}
	})
}

// eachPart is how much of every rank's part a rank can publish in a round.
func (r *run) eachPart() int { return stageSize / r.size / 64 * 64 }

// publishParts publishes a piece of every other rank's part of what this rank sends.
func (r *run) publishParts(p parts, from, to int) {
	stage := r.outbox(r.rank, (to-from)*r.size)
	for i := range r.size {
		if i != r.rank {
			copy(stage[i*(to-from):][:to-from], clip(p.of(r.call.Send.Data, i), from, to))
		}
	}
}

// ownPart is the piece of n bytes that another rank has published of this rank's part.
func (r *run) ownPart(of, n int) []byte { return r.outbox(of, n*r.size)[r.rank*n:] }

// scatter: the root publishes a chunk of every part, one round, each other rank fetches its own. size*bytes out of the
// root, bytes into each rank.
func (r *run) scatter() error {
	root := r.rank == r.call.Root
	parts := r.parts(r.call.Recv)
	return r.chunks(parts.largest(), r.eachPart(), func(from, to int) {
		if root {
			r.publishParts(parts, from, to)
		}
	}, func(from, to int) {
		src := r.ownPart(r.call.Root, to-from)
		if root {
			src = clip(parts.of(r.call.Send.Data, r.rank), from, to)
		}
		r.deliver(clip(r.call.Recv.Data, from, to), src)
	})
}

// reduceScatter: every rank publishes a chunk of every other rank's part, one round, each reduces its own.
// bytes*(size-1)/size out of each rank, bytes read to reduce.
func (r *run) reduceScatter() error {
	parts := r.parts(r.call.Recv)
	send := r.call.Send
	return r.chunks(parts.largest(), r.eachPart(), func(from, to int) { r.publishParts(parts, from, to) }, func(from, to int) {
		out := clip(r.call.Recv.Data, from, to)
		for i := range r.size {
			if i == r.rank {
				r.sources[i] = clip(parts.of(send.Data, i), from, to)
			} else {
				r.sources[i] = r.ownPart(i, to-from)[:len(out)]
			}
		}
		r.reducer.Combine(collective.Buffer{DType: send.DType, Data: out}, r.sources, r.call.Reduce)
	})
}

// allToAll: the ranks first tell each other how much goes where, in a round that also finds splits that do not fit
// together; then every rank publishes a chunk of its part for each other rank, one round, and fetches what is for it.
// bytes*(size-1)/size out of and into each rank.
func (r *run) allToAll() error {
	elem := r.call.Send.DType.Size()
	sent, received := r.call.Counts, r.call.RecvCounts
	r.begin()
	table := 16 * r.size
	mine := r.outbox(r.rank, table)
	for i := range r.size {
		binary.NativeEndian.PutUint64(mine[16*i:], uint64(sent[i]))
		binary.NativeEndian.PutUint64(mine[16*i+8:], uint64(received[i]))
	}
	if err := r.arrive(); err != nil {
		return err
	}
	largest := 0
	for from := range r.size {
		for to := range r.size {
			out := binary.NativeEndian.Uint64(r.outbox(from, table)[16*to:])
			in := binary.NativeEndian.Uint64(r.outbox(to, table)[16*from+8:])
			if in != out {
				return collective.ErrFingerprint
			}
			largest = max(largest, int(out)*elem)
		}
	}
	source, target := cut(sent, elem), cut(received, elem)
	return r.chunks(largest, r.eachPart(), func(from, to int) { r.publishParts(source, from, to) }, func(from, to int) {
		for i := range r.size {
			src := clip(source.of(r.call.Send.Data, i), from, to)
			if i != r.rank {
				src = r.ownPart(i, to-from)
			}
			r.deliver(clip(target.of(r.call.Recv.Data, i), from, to), src)
		}
	})
}

// parts says where in a buffer the ranks' parts lie, in bytes.
type parts struct {
	each   int   // if all are equal
	bounds []int // else: where each begins, and the last ends
}

// parts returns those of a call; mine is this rank's part.
func (r *run) parts(mine collective.Buffer) parts {
	if r.call.Counts == nil {
		return parts{each: len(mine.Data)}
	}
	return cut(r.call.Counts, mine.DType.Size())
}

func cut(counts []int, elem int) parts {
	p := parts{bounds: make([]int, 1, len(counts)+1)}
	for i, n := range counts {
		p.bounds = append(p.bounds, p.bounds[i]+n*elem)
	}
	return p
}

// of is rank's part of data.
func (p parts) of(data []byte, rank int) []byte {
	if p.bounds == nil {
		return data[rank*p.each : (rank+1)*p.each]
	}
	return data[p.bounds[rank]:p.bounds[rank+1]]
}

func (p parts) largest() int {
	n := p.each
	for i := 1; i < len(p.bounds); i++ {
		n = max(n, p.bounds[i]-p.bounds[i-1])
	}
	return n
}

// clip is data[from:to], as far as it exists.
func clip(data []byte, from, to int) []byte {
	return data[min(from, len(data)):min(to, len(data))]
}
