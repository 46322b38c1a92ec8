package main

import (
	"drun/collective"
	"drun/plugins/sdk"
)

// Do carries out a collective. All follow one pattern: each rank sends some of its bytes to some ranks, receives from
// some, and perhaps combines what arrived.
func (e *engine) Do(call *collective.Call) error {
	n := e.size
	send, recv := call.Send.Data, call.Recv.Data
	out, in := make([][]byte, n), make([][]byte, n) // what goes to, and comes from, each rank
	each := func(list [][]byte, data []byte) {
		for i := range list {
			list[i] = data
		}
	}
	root := e.rank == call.Root
	// If only the root receives, it tells the others that it has arrived.
	receipt := func() {
		if root {
			each(out, []byte{1})
		} else {
			in[call.Root] = make([]byte, 1)
		}
		out[call.Root] = send
	}
	switch call.Kind {
	case collective.Barrier:
		each(out, []byte{1})
		fresh(in, 1)
	case collective.Broadcast:
		if root {
			each(out, send)
		} else {
			in[call.Root] = recv
		}
	case collective.AllReduce:
		each(out, send)
		fresh(in, len(send))
	case collective.Reduce:
		receipt()
		if root {
			fresh(in, len(send))
		}
	case collective.AllGather:
		each(out, send)
		in = parts(call.Recv, call.Counts, n)
	case collective.Gather:
		receipt()
		if root {
			in = parts(call.Recv, call.Counts, n)
		}
	case collective.Scatter:
		in[call.Root] = recv
		if root {
			out = parts(call.Send, call.Counts, n)
		}
	case collective.ReduceScatter:
		out = parts(call.Send, call.Counts, n)
		fresh(in, len(recv))
	case collective.AllToAll:
		out, in = parts(call.Send, call.Counts, n), parts(call.Recv, call.RecvCounts, n)
	}
	if err := e.exchange(out, in); err != nil {
		return err
	}
	if call.Kind.Reduces() && in[e.rank] != nil {
		sdk.Reduce(call.Recv, in, call.Reduce)
	}
	return nil
}

// exchange sends out and fills in. Empty messages are not sent; both sides know the sizes.
func (e *engine) exchange(out, in [][]byte) error {
	number := uint64(e.calls.Add(1))
	for rank, data := range out {
		if rank == e.rank {
			copy(in[rank], data)
		} else if len(data) > 0 {
			if err := e.Give(rank, number, data); err != nil {
				return err
			}
		}
	}
	for rank, buffer := range in {
		if rank == e.rank || len(buffer) == 0 {
			continue
		}
		data, err := e.Take(rank, number)
		if err != nil {
			return err
		}
		copy(buffer, data)
	}
	return nil
}

func fresh(list [][]byte, bytes int) {
	for i := range list {
		list[i] = make([]byte, bytes)
	}
}

// parts are the pieces of a buffer that belong to each rank.
func parts(b collective.Buffer, counts []int, n int) [][]byte {
	list := make([][]byte, n)
	at := 0
	for i := range list {
		count := b.Count() / n
		if counts != nil {
			count = counts[i]
		}
		list[i] = b.Part(at, at+count).Data
		at += count
	}
	return list
}
