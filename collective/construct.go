package collective

import "drun/kernel/element"

// NewAllReduce combines b of all ranks and leaves the result in b of all ranks.
func NewAllReduce(b Buffer, op element.ReduceOp) Call {
	return Call{Kind: AllReduce, Reduce: op, Send: b, Recv: b}
}

// NewBroadcast copies b of the root into b of the others.
func NewBroadcast(b Buffer, root int) Call {
	return Call{Kind: Broadcast, Root: root, Send: b, Recv: b}
}

// NewReduce combines send of all ranks into recv of the root; other ranks'
// recv is ignored.
func NewReduce(send, recv Buffer, op element.ReduceOp, root int) Call {
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
func NewReduceScatter(send, recv Buffer, op element.ReduceOp) Call {
	return Call{Kind: ReduceScatter, Reduce: op, Send: send, Recv: recv}
}

// NewAllToAll sends part i of send to rank i; sent and received are the numbers of elements for and from each rank,
// nil if all are equal.
func NewAllToAll(send, recv Buffer, sent, received []int) Call {
	return Call{Kind: AllToAll, Send: send, Recv: recv, Counts: sent, RecvCounts: received}
}

// NewBarrier waits for all ranks.
func NewBarrier() Call { return Call{Kind: Barrier} }

// NewSend sends b to rank dst.
func NewSend(b Buffer, dst, tag int) Call { return Call{Kind: Send, Peer: dst, Tag: tag, Send: b} }

// NewRecv fills b with the next message from rank src (or [AnySource]) with that tag.
func NewRecv(b Buffer, src, tag int) Call { return Call{Kind: Recv, Peer: src, Tag: tag, Recv: b} }
