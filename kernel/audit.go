package kernel

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"drun/kernel/dtype"
)

// Audit makes the kernels notice a processor that computes wrongly: the chosen share of their calls is computed twice, the
// second time by one thread on another core, where there is one.
type Audit struct {
	Rate float64 // the share of calls, from 0 to 1
	// Found is called in the goroutine of the call, which goes on with one of the results.
	Found func(*Wrong)
	// Disturb, in tests, is what a faulty processor does to a result. twice: the call is of the share.
	Disturb func(op string, twice bool, result []byte)

	alone   sync.Mutex // held by a second computation, which sets the number of threads of all
	spare   sync.Pool  // memory for what outputs were before, as []byte
	once    sync.Once
	process unix.CPUSet // the cores that it may use
}

// allowed are the cores that the process may use; without any, none is looked for.
func (a *Audit) allowed() unix.CPUSet {
	a.once.Do(func() { _ = unix.SchedGetaffinity(0, &a.process) })
	return a.process
}

// audit is set before any kernel runs; nil: nothing is computed twice.
var audit *Audit

// SetAudit begins an audit, or ends it with nil. No kernel may run meanwhile.
func SetAudit(a *Audit) { audit = a }

// Wrong says that a result differs from that of another core.
type Wrong struct {
	Op    string
	Cores []int // of the result that a third computation showed to be wrong; empty: unknown
	Third string
}

func (e *Wrong) Error() string {
	where := "no core can be told"
	if len(e.Cores) > 0 {
		where = fmt.Sprintf("core %d computed wrongly", e.Cores[0])
	}
	return fmt.Sprintf("the %s was computed twice and had two results: %s (%s)", e.Op, where, e.Third)
}

// A call of a kernel is made again if an audit wants it, which restores those outputs that matter to it before:
//
//	for c := begin("softmax"); c.again(array(dt, out, rows*n)); {
//		C.drun_softmax(…)
//	}
type call struct {
	*computed
	made bool
	err  error // of the kernel; it ends the call
}

func begin(op string) (c call) {
	if audit != nil {
		c.computed = audit.begin(op)
	}
	return c
}

// again reports whether to compute, now or once more. outs are the same each time.
func (c *call) again(outs ...output) bool {
	if c.computed != nil {
		return c.next(c.err, outs)
	}
	c.made = !c.made
	return c.made
}

// output is memory that a kernel writes; with gaps, it may leave some of it as it is.
type output struct {
	at    unsafe.Pointer // nil: it is not wanted
	bytes int
	whole bool // all of it is written, and it is not read: what was there does not matter
}

func (o output) view() []byte {
	if o.at == nil {
		return nil
	}
	return unsafe.Slice((*byte)(o.at), max(o.bytes, 0))
}

// kept is what must be there again before a second computation.
func (o output) kept() []byte {
	if o.whole {
		return nil
	}
	return o.view()
}

// array is an output to which a kernel may add, and whole one that it writes.
func array(dt dtype.Type, at unsafe.Pointer, n int) output { return output{at, n * dt.Size(), false} }
func whole(dt dtype.Type, at unsafe.Pointer, n int) output { return output{at, n * dt.Size(), true} }

func slice[E any](s []E) output {
	return output{unsafe.Pointer(unsafe.SliceData(s)), len(s) * int(unsafe.Sizeof(*new(E))), false}
}

// Audited has a function in Go, which calls no kernel, compute x in place, and once more if an audit wants it.
func Audited(op string, x []float64, compute func()) {
	for c := begin(op); c.again(slice(x)); {
		compute()
	}
}

// output is where a result of a shape is, of which some of the operands may be the memory. It is needed only where calls are audited.
func (v View) output(dt dtype.Type, shape []int, operands ...View) output {
	if audit == nil {
		return output{} // without an audit, this costs next to nothing
	}
	return v.extent(dt, shape, operands)
}

func (v View) extent(dt dtype.Type, shape []int, operands []View) output {
	low, high, elements := 0, 1, 1
	for i, n := range shape {
		if n == 0 {
			return output{}
		}
		elements *= n
		low, high = low+min((n-1)*v.Strides[i], 0), high+max((n-1)*v.Strides[i], 0)
	}
	o := array(dt, unsafe.Add(v.Data, low*dt.Size()), high-low)
	o.whole = high-low == elements
	for _, x := range operands {
		o.whole = o.whole && x.Data != v.Data
	}
	return o
}

// output is where batch matrices of m rows are, to which a product may add.
func (c Matrix) output(dt dtype.Type, batch, m, n int, adds bool) output {
	if audit == nil {
		return output{}
	}
	return c.extent(dt, batch, m, n, adds)
}

func (c Matrix) extent(dt dtype.Type, batch, m, n int, adds bool) output {
	if batch < 1 || m < 1 || n < 1 {
		return output{}
	}
	o := array(dt, c.Data, (batch-1)*c.Batch+(m-1)*c.Stride+n)
	o.whole = !adds && o.bytes == batch*m*n*dt.Size()
	return o
}

// computed is a call that is computed twice, or that a test disturbs.
type computed struct {
	*Audit
	op      string
	twice   bool
	made    int      // computations begun
	cores   []int    // where each computation began, or its complement if it went elsewhere, too
	sums    []uint64 // of each result
	before  []byte   // what the outputs were before the first
	moved   bool     // the thread keeps off the cores of earlier computations
	bound   bool     // for good, since it could not be let go
	threads int
}

func (a *Audit) begin(op string) *computed {
	twice := rand.Float64() < a.Rate
	if !twice && a.Disturb == nil {
		return nil
	}
	return &computed{Audit: a, op: op, twice: twice}
}

func (c *computed) next(err error, outs []output) bool {
	if c.made > 0 && c.Disturb != nil {
		for _, o := range outs {
			result := bytes.Clone(o.view()) // so that no output need be on the heap
			c.Disturb(c.op, c.twice, result)
			copy(o.view(), result)
		}
	}
	switch {
	case !c.twice:
		c.made++
		return c.made == 1
	case c.made == 0:
		runtime.LockOSThread()
		c.before, _ = c.spare.Get().([]byte)
		c.before = c.before[:0]
		for _, o := range outs {
			c.before = append(c.before, o.kept()...)
		}
		c.cores = append(c.cores, coreNow())
		c.made++
		return true
	}
	c.note(outs)
	if err == nil && (c.made == 1 || c.made == 2 && c.sums[0] != c.sums[1]) {
		rest := c.before
		for _, o := range outs {
			rest = rest[copy(o.kept(), rest):]
		}
		c.elsewhere()
		return true
	}
	if !c.bound {
		runtime.UnlockOSThread() // otherwise the thread ends with its goroutine
	}
	c.spare.Put(c.before) //nolint:staticcheck // its header is small
	if err == nil && c.made == 3 {
		c.Found(c.judge())
	}
	return false
}

var seed = maphash.MakeSeed()

// note ends a computation.
func (c *computed) note(outs []output) {
	if last := c.made - 1; coreNow() != c.cores[last] || last == 0 && Threads() > 1 {
		c.cores[last] = ^c.cores[last]
	}
	if c.made > 1 {
		SetThreads(c.threads)
		c.alone.Unlock()
		if allowed := c.allowed(); c.moved {
			c.bound = unix.SchedSetaffinity(0, &allowed) != nil || c.bound
		}
	}
	sum := uint64(0)
	for _, o := range outs {
		sum = 31*sum + maphash.Bytes(seed, o.view())
	}
	c.sums = append(c.sums, sum)
}

// elsewhere begins a computation by one thread, on the core that the system chooses among those that have not computed this, if
// there are any.
func (c *computed) elsewhere() {
	others := c.allowed()
	for _, core := range c.cores {
		others.Clear(max(core, ^core))
	}
	c.moved = others.Count() > 0 && unix.SchedSetaffinity(0, &others) == nil
	c.cores = append(c.cores, coreNow())
	c.made++
	c.alone.Lock()
	c.threads = Threads()
	SetThreads(1) // results do not depend on it
}

// judge compares three results, of which the first two differ.
func (c *computed) judge() *Wrong {
	named := func(n int) string {
		if c.cores[n] < 0 {
			return "a core that is not known"
		}
		return fmt.Sprintf("core %d", c.cores[n])
	}
	w, wrong := &Wrong{Op: c.op, Third: "a third computation, on " + named(2) + ", agrees with "}, -1
	switch c.sums[2] {
	case c.sums[1]:
		wrong, w.Third = 0, w.Third+"the second, on "+named(1)
	case c.sums[0]:
		wrong, w.Third = 1, w.Third+"the first"
	default:
		w.Third += "neither"
	}
	if wrong >= 0 && c.cores[wrong] >= 0 {
		w.Cores = c.cores[wrong : wrong+1]
	}
	return w
}

// coreNow is the core on which the thread runs at the moment.
func coreNow() int {
	var core uint32
	_, _, _ = unix.Syscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0) // it cannot fail
	return int(core)
}
