package hier

import (
	"slices"
	"unsafe"

	"drun/collective"
	"drun/collective/reduction"
	"drun/collective/shm"
	"drun/internal/each"
	"drun/internal/try"
)

// transfer is a piece of one rank's data that another rank, or every other rank, gets; in bytes.
type transfer struct {
	src, dst int // dst -1: all
	from, to int // where it is in the source's data, and goes in the target's
	n        int
}

// transfers lists those of a call, including each rank's to itself.
func (r *run) transfers() (all []transfer) {
	c := r.call
	for rank := range r.ranks {
		from := r.offset(rank)
		n := r.offset(rank+1) - from
		switch c.Kind {
		case collective.AllGather:
			all = append(all, transfer{rank, -1, 0, from, n})
		case collective.Gather:
			all = append(all, transfer{rank, c.Root, 0, from, n})
		case collective.Scatter:
			all = append(all, transfer{c.Root, rank, from, 0, n})
		}
	}
	return all
}

// counts is this rank's row in the table of an all_to_all: how many elements it sends to each, and receives from each.
func (r *run) counts() []byte {
	row := each.Of(slices.Concat(r.call.Counts, r.call.RecvCounts), func(k int) int64 { return int64(k) })
	return collective.Of(row).Data
}

// gatherTables gathers all ranks' rows if they are too large for the agreement.
func (r *run) gatherTables(own []byte) (all [][]byte, err error) {
	joined, n := make([]byte, len(own)*len(r.ranks)), len(own)
	var rows []transfer
	for rank := range r.ranks {
		rows = append(rows, transfer{rank, -1, 0, rank * n, n})
		all = append(all, joined[rank*n:(rank+1)*n])
	}
	return all, r.moveBytes(rows, own, joined)
}

// moveBytes carries out transfers from and to memory other than the call's.
func (r *run) moveBytes(all []transfer, from, to []byte) error {
	call, inner := collective.Call{Send: octets(from), Recv: octets(to)}, *r
	inner.call, inner.borrowed = &call, nil
	err := inner.move(all)
	if err == nil {
		r.w.pool.put(inner.borrowed) // for the next piece
	}
	return err
}

// mostContributions is how many bytes a rank gathers at a time to reduce them, unless there are very many ranks.
const mostContributions = 32 << 20

// reduceParts is a large reduction that the nodes cannot do one after the other: the ranks of a node are not consecutive,
// or the average of integers needs their exact sum, which may overflow their type. Each rank gets all ranks' elements of
// one part of the data, reduces them, and sends the result to the ranks that want it, in pieces of at most mostChunk
// bytes, smaller ones among many ranks. Each node sends its ranks*bytes*(nodes-1)/nodes, plus its parts of the result.
func (r *run) reduceParts() (err error) {
	defer try.Caught(&err)
	c, n, total := r.call, len(r.ranks), r.call.Send.Count()
	counts := make([]int, n) // of the parts' elements
	for i := range counts {
		counts[i] = total*(i+1)/n - total*i/n
	}
	if c.Kind == collective.ReduceScatter {
		counts = collective.Evenly(c.Counts, total, n)
	}
	size := c.Send.DType.Size()
	longest := slices.Max(counts) * size
	piece := min(longest, mostChunk, max(leastChunk, mostContributions/n/64*64))
	contributions, result := r.memory(n*piece), r.memory(piece)
	for at := 0; at < longest; at += piece {
		var exchange, results []transfer
		own, begin := 0, 0
		for rank, count := range counts {
			bytes := max(0, min(piece, count*size-at))
			for src := range n {
				exchange = append(exchange, transfer{src, rank, begin + at, src * bytes, bytes})
			}
			switch c.Kind {
			case collective.AllReduce:
				results = append(results, transfer{rank, -1, 0, begin + at, bytes})
			case collective.Reduce:
				results = append(results, transfer{rank, c.Root, 0, begin + at, bytes})
			}
			if rank == r.rank {
				own = bytes
			}
			begin += count * size
		}
		try.Ok(r.moveBytes(exchange, c.Send.Data, contributions))
		sources, out := make([][]byte, n), result[:own]
		for i := range sources {
			sources[i] = contributions[i*own:][:own]
		}
		if c.Kind == collective.ReduceScatter && own > 0 {
			out = c.Recv.Data[at:][:own]
		}
		reduction.Combine(collective.Buffer{DType: c.Send.DType, Data: out}, sources, c.Reduce)
		try.Ok(r.moveBytes(results, out, c.Recv.Data))
	}
	return nil
}

// exchange is an all_to_all with these rows of counts.
func (r *run) exchange(rows [][]byte) error {
	n, elem := len(r.ranks), r.call.Send.DType.Size()
	table := make([][]int64, n)
	for rank, row := range rows {
		table[rank] = slices.Clone(unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(row))), 2*n))
	}
	var all []transfer
	at := make([]int, n) // in each target's data
	for src := range n {
		from := 0
		for dst := range n {
			k := int(table[src][dst]) * elem
			if table[src][dst] != table[dst][n+src] {
				return collective.ErrFingerprint
			}
			all = append(all, transfer{src, dst, from, at[dst], k})
			from += k
			at[dst] += k
		}
	}
	return r.move(all)
}

// stream is what one node sends to another, in the order of its transfers.
type stream []transfer

func (s stream) bytes() (n int) {
	for _, t := range s {
		n += t.n
	}
	return n
}

// each calls do for every piece of bytes [from, to) of the stream: n bytes of a transfer, from its byte skip on, which
// are at offset at of the range.
func (s stream) each(from, to int, do func(t transfer, skip, at, n int)) {
	start := 0
	for _, t := range s {
		if first, end := max(start, from), min(start+t.n, to); first < end {
			do(t, first-start, first-from, end-first)
		}
		if start += t.n; start >= to {
			return
		}
	}
}

// move carries out transfers: first those within the nodes, then in phase i those of each node to the node i places
// further. In each step of a phase the ranks publish their bytes of the stream's next block; each lane's rank sends a
// piece of it, and publishes the piece of another block that has arrived. Nothing crosses the network twice.
func (r *run) move(all []transfer) error {
	nodes := len(r.nodes)
	of := make([]int, len(r.ranks))
	for node, here := range r.nodes {
		for _, rank := range here {
			of[rank] = node
		}
	}
	for phase := range nodes {
		to, from := (r.node+phase)%nodes, (r.node-phase+nodes)%nodes
		var out, in stream
		for _, t := range all {
			if t.n == 0 {
				continue
			}
			src, sent := of[t.src], t.dst < 0 || of[t.dst] == to
			if src == r.node && sent {
				if phase == 0 && t.src == t.dst { // its own
					if t.src == r.rank {
						copy(r.call.Recv.Data[t.to:t.to+t.n], r.call.Send.Data[t.from:])
					}
					continue
				}
				out = append(out, t)
			}
			if src == from && (t.dst < 0 || of[t.dst] == r.node) {
				in = append(in, t)
			}
		}
		var err error
		if phase == 0 {
			err = r.within(out)
		} else {
			err = r.across(out, in, to, from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// publish copies this rank's bytes of a block of the stream to their places in stage.
func (r *run) publish(s stream, from, to int, stage []byte) {
	s.each(from, to, func(t transfer, skip, at, n int) {
		if t.src == r.rank {
			copy(stage[at:at+n], r.call.Send.Data[t.from+skip:])
		}
	})
}

// fetch copies this rank's bytes out of a piece of the stream.
func (r *run) fetch(s stream, from, to int, piece func(t transfer, at int) []byte) {
	s.each(from, to, func(t transfer, skip, at, n int) {
		if t.dst == r.rank || t.dst < 0 {
			copy(r.call.Recv.Data[t.to+skip:t.to+skip+n], piece(t, at))
		}
	})
}

// within moves data that stays on the node.
func (r *run) within(s stream) error {
	for from, total := 0, s.bytes(); from < total; from += shm.RoundBytes {
		to := min(from+shm.RoundBytes, total)
		stage, _ := r.rounds.Next()
		r.publish(s, from, to, stage)
		if err := r.rounds.Arrive(); err != nil {
			return err
		}
		r.fetch(s, from, to, func(t transfer, at int) []byte {
			stage, _ := r.rounds.Of(slices.Index(r.nodes[r.node], t.src))
			return stage[at:]
		})
	}
	return nil
}

// across sends a stream to one node while receiving one from another.
func (r *run) across(out, in stream, to, from int) (err error) {
	defer try.Caught(&err)
	const delay = 2
	lanes := len(r.lanes)
	each := shm.RoundBytes / lanes / 64 * 64
	block := lanes * each
	goes, comes := out.bytes(), in.bytes()
	sends, receives := (goes+block-1)/block, (comes+block-1)/block
	steps := sends
	if receives > 0 {
		steps = max(sends, receives+delay)
	}
	piece := func(step, lane, total int) (from, to int) {
		from = min(step*block+lane*each, total)
		return from, min(from+each, total)
	}
	var coming *inbox
	going := outbox{run: r}
	var free [][]byte
	if r.lane >= 0 {
		coming = try.To(r.expecting(r.lanes[r.lane][from], parts, receives, ahead, each, func(step int) int {
			first, end := piece(step, r.lane, comes)
			return end - first
		}))
		for range min(ahead, sends) {
			free = append(free, r.memory(each))
		}
	}
	for step := range steps {
		stage, result := r.rounds.Next()
		if step < sends {
			r.publish(out, step*block, min((step+1)*block, goes), stage)
		}
		come := step - delay
		if first, end := piece(come, max(r.lane, 0), comes); r.lane >= 0 && come >= 0 && come < receives && first < end {
			data := try.To(coming.take())
			copy(result, data)
			try.Ok(coming.give(data))
		}
		try.Ok(r.rounds.Arrive())
		if come >= 0 && come < receives {
			for lane := range lanes {
				first, end := piece(come, lane, comes)
				_, result := r.rounds.Of(slices.Index(r.nodes[r.node], r.lanes[lane][r.node]))
				r.fetch(in, first, end, func(_ transfer, at int) []byte { return result[at:] })
			}
		}
		first, end := piece(step, max(r.lane, 0), goes)
		if r.lane < 0 || step >= sends || first == end {
			continue
		}
		if len(free) == 0 {
			try.Ok(going.settle(len(going.underway)-1, func(data []byte) error { free = append(free, data[:cap(data)]); return nil }))
		}
		data := free[len(free)-1][:end-first]
		free = free[:len(free)-1]
		out.each(first, end, func(t transfer, skip, at, n int) {
			stage, _ := r.rounds.Of(slices.Index(r.nodes[r.node], t.src))
			copy(data[at:at+n], stage[first-step*block+at:])
		})
		try.Ok(going.send(r.lanes[r.lane][to], parts, data))
	}
	return going.settle(0, nil)
}
