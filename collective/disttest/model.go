package disttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"

	"drun/collective"
	"drun/internal/each"
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
	inputs := each.UpTo(n, tr.input)
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
	}
	c.Recv = buffer(make([]byte, len(want)))
	return c, want
}

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

// random makes n elements. Floats have fractions, so that sums depend on their order; half precisions and complex
// numbers hold small integers, whose sums are exact.
func random(rng *rand.Rand, dt dtype.Type, n int) []byte {
	b := make([]byte, n*dt.Size())
	buffer := collective.Buffer{DType: dt, Data: b}
	switch dt {
	case dtype.Float32:
		s := collective.Slice[float32](buffer)
		for i := range s {
			s[i] = float32(int32(rng.Uint32()>>8)-1<<23) / (1 << 22)
		}
	case dtype.Float64:
		for i, s := 0, collective.Slice[float64](buffer); i < len(s); i++ {
			s[i] = rng.Float64()*4 - 2
		}
	case dtype.Complex64:
		for i, s := 0, collective.Slice[complex64](buffer); i < len(s); i++ {
			s[i] = complex(float32(rng.IntN(9)-4), float32(rng.IntN(9)-4))
		}
	case dtype.Float16, dtype.BFloat16:
		for i := range n {
			binary.LittleEndian.PutUint16(b[2*i:], uint16(halves[dt][rng.Uint32()%8]))
		}
	case dtype.Bool:
		for i := range b {
			b[i] = byte(rng.IntN(2))
		}
	default: // whole words, since the suite spends most of its time here
		for rest := b; len(rest) > 0; rest = rest[min(8, len(rest)):] {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], rng.Uint64())
			copy(rest, word[:])
		}
	}
	return b
}

// powers makes n floats of 1, -1, 2 and -2.
func powers(rng *rand.Rand, dt dtype.Type, n int) []byte {
	values := [...]float64{1, -1, 2, -2}
	b := make([]byte, n*dt.Size())
	buffer := collective.Buffer{DType: dt, Data: b}
	for i := range n {
		if v := values[rng.IntN(len(values))]; dt == dtype.Float32 {
			collective.Slice[float32](buffer)[i] = float32(v)
		} else {
			collective.Slice[float64](buffer)[i] = v
		}
	}
	return b
}

// halves are the bits of the integers from 0 on, as far as half precisions hold them exactly.
var halves = map[dtype.Type][]half{dtype.Float16: encoded(float16), dtype.BFloat16: encoded(bfloat16)}

func encoded(encode func(float64) half) (all []half) {
	for v := range 257 {
		all = append(all, encode(float64(v)))
	}
	return all
}

// integers is the model for integers: their average is that of the exact sum, truncated toward zero.
func integers[T int64 | int32 | int8 | uint8](out collective.Buffer, inputs [][]byte, op dtype.ReduceOp) {
	if op != dtype.Avg {
		fold(out, inputs, integer[T](op), nil, op)
		return
	}
	dst := collective.Slice[T](out)
	if out.DType.Size() < 8 { // the sum fits
		sums := make([]int64, len(dst))
		for _, in := range inputs {
			for i, v := range collective.Slice[T](collective.Buffer{DType: out.DType, Data: in}) {
				sums[i] += int64(v)
			}
		}
		for i, sum := range sums {
			dst[i] = T(sum / int64(len(inputs)))
		}
		return
	}
	for i := range dst {
		sum := new(big.Int)
		for _, in := range inputs {
			sum.Add(sum, big.NewInt(int64(collective.Slice[T](collective.Buffer{DType: out.DType, Data: in})[i])))
		}
		dst[i] = T(sum.Quo(sum, big.NewInt(int64(len(inputs)))).Int64())
	}
}

// reduce is the model of a reduction: it combines the ranks' values in rank order.
func reduce(inputs [][]byte, dt dtype.Type, op dtype.ReduceOp) []byte {
	out := collective.Buffer{DType: dt, Data: make([]byte, len(inputs[0]))}
	switch dt {
	case dtype.Float32:
		fold(out, inputs, number[float32](op), func(v float32) float32 { return v / float32(len(inputs)) }, op)
	case dtype.Float64:
		fold(out, inputs, number[float64](op), func(v float64) float64 { return v / float64(len(inputs)) }, op)
	case dtype.Int64:
		integers[int64](out, inputs, op)
	case dtype.Int32:
		integers[int32](out, inputs, op)
	case dtype.Int8:
		integers[int8](out, inputs, op)
	case dtype.Uint8:
		integers[uint8](out, inputs, op)
	case dtype.Bool:
		out.DType = dtype.Uint8
		fold(out, inputs, integer[uint8](op), nil, op)
	case dtype.Complex64:
		fold(out, inputs, func(a, b complex64) complex64 { return a + b },
			func(v complex64) complex64 { n := float32(len(inputs)); return complex(real(v)/n, imag(v)/n) }, op)
	default:
		f := number[int](op)
		for i := 0; i < len(out.Data); i += 2 {
			at := func(b []byte) int { return slices.Index(halves[dt], half(binary.LittleEndian.Uint16(b[i:]))) }
			v := at(inputs[0])
			for _, in := range inputs[1:] {
				v = f(v, at(in))
			}
			binary.LittleEndian.PutUint16(out.Data[i:], uint16(halves[dt][v]))
		}
	}
	return out.Data
}

func fold[T collective.Element](out collective.Buffer, inputs [][]byte, f func(a, b T) T, mean func(T) T, op dtype.ReduceOp) {
	dst := collective.Slice[T](out)
	for k, in := range inputs {
		for i, v := range collective.Slice[T](collective.Buffer{DType: out.DType, Data: in}) {
			if k > 0 {
				v = f(dst[i], v)
			}
			dst[i] = v
		}
	}
	if op == dtype.Avg {
		for i, v := range dst {
			dst[i] = mean(v)
		}
	}
}

func number[T float32 | float64 | int64 | int32 | int8 | uint8 | int](op dtype.ReduceOp) func(a, b T) T {
	switch op {
	case dtype.Product:
		return func(a, b T) T { return a * b }
	case dtype.Min:
		return func(a, b T) T { return min(a, b) }
	case dtype.Max:
		return func(a, b T) T { return max(a, b) }
	}
	return func(a, b T) T { return a + b }
}

func integer[T int64 | int32 | int8 | uint8](op dtype.ReduceOp) func(a, b T) T {
	switch op {
	case dtype.BAnd:
		return func(a, b T) T { return a & b }
	case dtype.BOr:
		return func(a, b T) T { return a | b }
	case dtype.BXor:
		return func(a, b T) T { return a ^ b }
	}
	return number[T](op)
}

// modelled reports whether the model of the reduction is exact: for half precisions, only if the result is again a
// small integer.
func modelled(dt dtype.Type, op dtype.ReduceOp) bool {
	if dt == dtype.Float16 || dt == dtype.BFloat16 {
		return op == dtype.Sum || op == dtype.Min || op == dtype.Max
	}
	return op.Valid(dt)
}
