package disttest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"drun/collective"
	"drun/kernel/dtype"
)

// A trial is a collective with random data. Every rank can derive it from the seed, including all ranks' inputs and
// its own result.
type trial struct {
	kind   collective.Kind
	dtype  dtype.Type
	op     dtype.ReduceOp
	root   int
	counts []int // elements of each rank's part
	uneven bool  // whether the call says so, or takes them as equal
	seed   uint64
	exact  bool // floats have sums and products without rounding
}

func (tr trial) String() string {
	return fmt.Sprintf("%v %v %v root %d counts %v seed %d", tr.kind, tr.dtype, tr.op, tr.root, tr.counts, tr.seed)
}

// kindsOfCollective are the kinds that all ranks of a group call.
var kindsOfCollective = []collective.Kind{collective.AllReduce, collective.Broadcast, collective.Reduce,
	collective.AllGather, collective.Gather, collective.Scatter, collective.ReduceScatter, collective.AllToAll, collective.Barrier}

// input is what a rank sends.
func (tr trial) input(rank int) []byte {
	n := tr.counts[rank]
	switch tr.kind {
	case collective.AllReduce, collective.Reduce, collective.Broadcast:
		n = tr.counts[0]
	case collective.Scatter, collective.ReduceScatter:
		n = collective.Total(tr.counts)
	case collective.AllToAll:
		n = collective.Total(tr.splits(rank))
	}
	rng := rand.New(rand.NewPCG(tr.seed, uint64(rank)))
	if tr.exact && (tr.dtype == dtype.Float32 || tr.dtype == dtype.Float64) {
		return powers(rng, tr.dtype, n)
	}
	return random(rng, tr.dtype, n)
}

// splits is how much a rank sends to each rank in an all_to_all: even, or a rotation of the counts.
func (tr trial) splits(rank int) []int {
	n := len(tr.counts)
	out := make([]int, n)
	for i := range out {
		out[i] = tr.counts[0]
		if tr.uneven {
			out[i] = tr.counts[(rank+i)%n]
		}
	}
	return out
}

// call returns the rank's call, and the bytes that its receive buffer must hold afterwards.
func (tr trial) call(rank int) (collective.Call, []byte) {
	n, size := len(tr.counts), tr.dtype.Size()
	buffer := func(b []byte) collective.Buffer { return collective.Buffer{DType: tr.dtype, Data: b} }
	inputs := make([][]byte, n)
	for i := range inputs {
		inputs[i] = tr.input(i)
	}
	send := bytes.Clone(inputs[rank])
	c := collective.Call{Kind: tr.kind, Reduce: tr.op, Root: tr.root, Send: buffer(send)}
	if tr.uneven {
		c.Counts = tr.counts
	}
	var want []byte
	switch tr.kind {
	case collective.Barrier:
		return collective.NewBarrier(), nil
	case collective.Broadcast:
		c.Counts, want = nil, inputs[tr.root]
		c.Recv = c.Send
		return c, want
	case collective.AllReduce:
		c.Counts, want = nil, reduce(inputs, tr.dtype, tr.op)
		if tr.seed%2 == 0 { // half of them in place
			c.Recv = c.Send
			return c, want
		}
	case collective.Reduce:
		c.Counts = nil
		if rank == tr.root {
			want = reduce(inputs, tr.dtype, tr.op)
		}
	case collective.AllGather, collective.Gather:
		if tr.kind == collective.AllGather || rank == tr.root {
			want = bytes.Join(inputs, nil)
		}
	case collective.Scatter:
		want = part(inputs[tr.root], tr.counts, rank, size)
	case collective.ReduceScatter:
		want = part(reduce(inputs, tr.dtype, tr.op), tr.counts, rank, size)
	case collective.AllToAll:
		c.RecvCounts = nil
		for from := range n {
			splits := tr.splits(from)
			want = append(want, part(inputs[from], splits, rank, size)...)
			c.RecvCounts = append(c.RecvCounts, splits[rank])
		}
		c.Counts = tr.splits(rank)
		if !tr.uneven {
			c.Counts, c.RecvCounts = nil, nil
		}
	}
	c.Recv = buffer(make([]byte, len(want)))
	return c, want
}

// part cuts a rank's part out of all.
func part(all []byte, counts []int, rank, size int) []byte {
	from := collective.Total(counts[:rank]) * size
	return all[from : from+counts[rank]*size]
}

// check makes the call of a trial on comm and compares the result's bits.
func (tr trial) check(comm collective.Comm) error {
	call, want := tr.call(comm.Rank())
	if err := Do(comm, call); err != nil {
		return fmt.Errorf("%v: %w", tr, err)
	}
	return tr.compare(comm.Rank(), call, want)
}

func (tr trial) compare(rank int, call collective.Call, want []byte) error {
	if bytes.Equal(call.Recv.Data, want) {
		return nil
	}
	i := 0
	for i < min(len(want), len(call.Recv.Data)) && want[i] == call.Recv.Data[i] {
		i++
	}
	return fmt.Errorf("%v: rank %d: wrong from byte %d of %d on", tr, rank, i, len(want))
}
