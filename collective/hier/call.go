package hier

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"unsafe"

	"drun/collective"
	"drun/collective/reduction"
	"drun/collective/shm"
	"drun/internal/try"
)

// run is one collective call being carried out.
type run struct {
	*Comm
	ctx         context.Context
	call        *collective.Call
	fingerprint uint64
	rounds      *shm.Rounds
	borrowed    [][]byte // see memory
	lent        [][]byte // the data of all ranks of the node, if they can reach it; else nil
}

func newRun(ctx context.Context, c *Comm, call *collective.Call) *run {
	r := &run{Comm: c, ctx: ctx, call: call, fingerprint: call.Fingerprint}
	if r.fingerprint == 0 {
		r.fingerprint = call.Hash()
	}
	r.rounds = c.near.Rounds(ctx, r.fingerprint, call.Async || c.w.crowded)
	return r
}

const (
	// eager is the largest number of bytes, of all ranks together, that travel with the agreement, so that every rank
	// gets all data.
	eager = 64 << 10
	// eagerTable is the same limit for the counts of an all_to_all, which all ranks need.
	eagerTable = 256 << 10
)

func (r *run) do() (err error) {
	defer try.Caught(&err)
	call, table := r.call, []byte(nil)
	sizes, total := r.contributions()
	own, most := call.Send.Data, eager
	if call.Kind == collective.AllToAll {
		table = r.counts()
		own, most = table, eagerTable
	}
	if total > most {
		own, sizes = nil, nil
	}
	all := try.To(r.agree(own, sizes))
	switch {
	case call.Kind == collective.AllToAll:
		if all == nil {
			all = try.To(r.gatherTables(table))
		}
		err = r.exchange(all)
	case total <= most:
		r.finish(all)
		return nil
	case call.Kind.Reduces() && (!r.inOrder || reduction.Exact(call.Send.DType, call.Reduce)):
		err = r.reduceParts()
	case call.Kind.Reduces(), call.Kind == collective.Broadcast:
		err = r.pipeline()
	default:
		err = r.move(r.transfers())
	}
	if err == nil {
		r.w.pool.put(r.borrowed)
	}
	return err
}

// contributions returns how many bytes each rank contributes to the call, and their total.
func (r *run) contributions() (sizes []int, total int) {
	c, n := r.call, len(r.ranks)
	sizes = make([]int, n)
	for i := range sizes {
		switch c.Kind {
		case collective.AllReduce, collective.Reduce, collective.ReduceScatter:
			sizes[i] = len(c.Send.Data)
		case collective.AllGather, collective.Gather:
			sizes[i] = r.offset(i+1) - r.offset(i)
		case collective.Broadcast:
			if i == c.Root && i == r.rank {
				sizes[i] = len(c.Send.Data)
			} else if i == c.Root {
				sizes[i] = len(c.Recv.Data)
			}
		case collective.Scatter:
			if i == c.Root {
				sizes[i] = r.offset(n)
			}
		case collective.AllToAll:
			sizes[i] = 16 * n
		}
		total += sizes[i]
	}
	return sizes, total
}

// finish computes the result of a call from all ranks' contributions.
func (r *run) finish(all [][]byte) {
	c := r.call
	recv := c.Recv
	switch c.Kind {
	case collective.AllReduce, collective.Reduce:
		if c.Kind == collective.AllReduce || r.rank == c.Root {
			recv.Data = recv.Data[:len(c.Send.Data)]
			reduction.Combine(recv, all, c.Reduce)
		}
	case collective.ReduceScatter:
		from := r.offset(r.rank)
		for i := range all {
			all[i] = all[i][from : from+len(recv.Data)]
		}
		reduction.Combine(recv, all, c.Reduce)
	case collective.Broadcast:
		if r.rank != c.Root {
			copy(recv.Data, all[c.Root])
		}
	case collective.AllGather, collective.Gather:
		if c.Kind == collective.Gather && r.rank != c.Root {
			return
		}
		for rank, at := 0, 0; rank < len(all); rank++ {
			at += copy(recv.Data[at:], all[rank])
		}
	case collective.Scatter:
		copy(recv.Data, all[c.Root][r.offset(r.rank):])
	}
}

// offset is where a rank's part begins among all, in bytes. Sizes are from Counts; without them all parts are as
// large as this rank's.
func (r *run) offset(rank int) int {
	c := r.call
	own := c.Send
	if c.Kind == collective.Scatter || c.Kind == collective.ReduceScatter {
		own = c.Recv
	}
	if c.Counts == nil {
		return rank * len(own.Data)
	}
	return collective.Total(c.Counts[:rank]) * own.DType.Size()
}

// agree compares the call among all ranks of the group before any data is touched, and gathers each rank's
// contribution, of the given sizes, on all of them; nil sizes: none. The result is valid until this rank's next round.
func (r *run) agree(own []byte, sizes []int) (_ [][]byte, err error) {
	defer try.Caught(&err)
	if sizes == nil {
		own, sizes = nil, make([]int, len(r.ranks))
	}
	stage, _ := r.rounds.Next()
	copy(stage[:sizes[r.rank]], own)
	data, inPlace := r.inPlace()
	if inPlace {
		r.rounds.Lend(data)
	}
	leader := r.lanes[0][r.node]
	err = r.rounds.Arrive()
	if err != nil && !(errors.Is(err, collective.ErrFingerprint) && leader == r.rank) {
		return nil, err
	}
	if inPlace && err == nil {
		r.lent = try.To(r.rounds.Lent(len(data)))
	}
	var blocks [][]byte
	agreed := err == nil
	if leader == r.rank {
		var block []byte
		for i, rank := range r.nodes[r.node] {
			stage, _ := r.rounds.Of(i)
			block = append(block, stage[:sizes[rank]]...)
		}
		var farErr error
		if blocks, agreed, farErr = r.tell(agreed, block, sizes); farErr != nil || err != nil {
			return nil, errors.Join(err, farErr)
		}
	}
	stage, _ = r.rounds.Next()
	if leader == r.rank {
		binary.NativeEndian.PutUint64(stage, 0)
		if agreed {
			binary.NativeEndian.PutUint64(stage, 1)
			at := 8
			for _, block := range blocks {
				at += copy(stage[at:], block)
			}
		}
	}
	try.Ok(r.rounds.Arrive())
	stage, _ = r.rounds.Of(slices.Index(r.nodes[r.node], leader))
	if binary.NativeEndian.Uint64(stage) == 0 {
		return nil, collective.ErrFingerprint
	}
	all, at := make([][]byte, len(r.ranks)), 8
	for _, here := range r.nodes {
		for _, rank := range here {
			all[rank] = stage[at : at+sizes[rank] : at+sizes[rank]]
			at += sizes[rank]
		}
	}
	return all, nil
}

// inPlace returns the data of a large all_reduce whose result replaces its input.
func (r *run) inPlace() (data []byte, ok bool) {
	send, recv := r.call.Send.Data, r.call.Recv.Data
	if r.call.Kind != collective.AllReduce || len(send)*len(r.ranks) <= eager || unsafe.SliceData(send) != unsafe.SliceData(recv) {
		return nil, false
	}
	return send, true
}

// tell exchanges the nodes' fingerprints and blocks among the nodes' leaders: in each step every leader passes on all
// it has, to the leader twice as far away as before. A message of unexpected size comes from a different call.
func (r *run) tell(agreed bool, own []byte, sizes []int) (blocks [][]byte, _ bool, err error) {
	nodes, me, leaders := len(r.nodes), r.node, r.lanes[0]
	blocks = make([][]byte, nodes)
	blocks[me] = own
	bytesOf := func(node int) (n int) {
		for _, rank := range r.nodes[node] {
			n += sizes[rank]
		}
		return n
	}
	const head = 16
	for have := 1; have < nodes; have *= 2 {
		count := min(have, nodes-have)
		to, from := (me+have)%nodes, (me-have+nodes)%nodes
		out, expected := make([]byte, head), head
		for i := range count {
			out = append(out, blocks[(me-i+nodes)%nodes]...)
			expected += bytesOf((from - i + nodes) % nodes)
		}
		binary.NativeEndian.PutUint64(out, r.fingerprint)
		if agreed {
			out[8] = 1
		}
		in := make([]byte, expected)
		coming, err := r.laneRecv(leaders[from], agreement, in)
		if err != nil {
			return nil, false, err
		}
		going, err := r.laneSend(leaders[to], agreement, out)
		if err != nil {
			return nil, false, err
		}
		err = coming.Wait(r.ctx)
		if errors.As(err, new(*collective.CallError)) {
			agreed = false
		} else if err != nil {
			return nil, false, err
		} else if binary.NativeEndian.Uint64(in) != r.fingerprint || in[8] == 0 {
			agreed = false
		}
		if err := going.Wait(r.ctx); err != nil {
			return nil, false, err
		}
		at := head
		for i := range count {
			node := (from - i + nodes) % nodes
			blocks[node] = in[at : at+bytesOf(node)]
			at += bytesOf(node)
		}
	}
	return blocks, agreed, nil
}
