package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"drun/kernel/dtype"
)

// Audit makes the kernels notice a processor that computes wrongly: of the matrix products and convolutions, the chosen
// share is computed twice, the second time by one thread on another core, where there is one.
type Audit struct {
	Rate float64 // the share of calls, from 0 to 1
	// Disturb, in tests, is what a faulty processor does to results.
	Disturb func(op string, result []byte)

	again sync.Mutex // held while something is computed again: by one thread, which changes their number for all
	mu    sync.Mutex
	spare [][]byte // memory for copies, which would be costly to get anew
}

// take returns memory for a copy, and give takes it back.
func (a *Audit) take(bytes int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, memory := range a.spare {
		if cap(memory) >= bytes {
			a.spare = slices.Delete(a.spare, i, i+1)
			return memory[:bytes]
		}
	}
	return make([]byte, bytes)
}

func (a *Audit) give(outs [2]output) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range outs {
		if o.memory != nil {
			a.spare = append(a.spare, o.memory)
		}
	}
	if n := len(a.spare); n > mostSpare {
		slices.SortFunc(a.spare, func(x, y []byte) int { return cap(x) - cap(y) })
		a.spare = slices.Delete(a.spare, 0, n-mostSpare) // the smallest
	}
}

// mostSpare is how many copies' memory is kept: a call takes up to four.
const mostSpare = 4

// audit is set before any kernel runs; nil: nothing is computed twice.
var audit *Audit

// SetAudit begins an audit, or ends it with nil. No kernel may run meanwhile.
func SetAudit(a *Audit) { audit = a }

// Wrong is the error of a result that differs from that of another core. The output has the first result.
type Wrong struct {
	Op    string
	Cores []int // of the result that a third computation showed to be wrong; empty: unknown
	Third string
}

func (e *Wrong) Error() string {
	where := "no core can be told"
	if len(e.Cores) > 0 {
		where = fmt.Sprintf("core %s computed wrongly", strings.Trim(fmt.Sprint(e.Cores), "[]"))
	}
	return fmt.Sprintf("the %s was computed twice and had two results: %s (%s)", e.Op, where, e.Third)
}

// coreNow is the core on which the thread runs at the moment.
func coreNow() int {
	var core uint32
	_, _, _ = unix.Syscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0) // it cannot fail
	return int(core)
}

// output is memory that a kernel writes, with gaps between its rows that it does not write.
type output struct {
	at    unsafe.Pointer // nil: it is not wanted
	bytes int
	adds  bool // what is there before matters, or some of it stays: the kernel adds to it, or leaves gaps

	memory []byte // of a copy
}

func (o output) view() []byte { return unsafe.Slice((*byte)(o.at), o.bytes) }

// span is the output of batch matrices of m rows.
func (c Matrix) span(dt dtype.Type, batch, m, n int, adds bool) output {
	if batch < 1 || m < 1 || n < 1 || c.Data == nil {
		return output{}
	}
	gaps := m > 1 && c.Stride != n || batch > 1 && c.Batch != m*n
	return output{at: c.Data, bytes: ((batch-1)*c.Batch + (m-1)*c.Stride + n) * dt.Size(), adds: adds || gaps}
}

// images is the output of images with that many elements, each next elements after the one before; 0: adjacent.
func images(dt dtype.Type, at unsafe.Pointer, batch, elements, next int) output {
	if batch < 1 || elements < 1 || at == nil {
		return output{}
	}
	if next == 0 {
		next = elements
	}
	return output{at: at, bytes: ((batch-1)*next + elements) * dt.Size(), adds: next != elements}
}

// adding is an output to which a kernel adds.
func adding(o output) output {
	o.adds = true
	return o
}

// input and result are the images that a convolution reads and makes.
func (w Window) input(dt dtype.Type, at unsafe.Pointer) output {
	return images(dt, at, w.Batch, w.Channels*w.Height*w.Width, w.NextX)
}

func (w Window) result(dt dtype.Type, at unsafe.Pointer) output {
	height, width := w.Out()
	return images(dt, at, w.Batch, w.Filters*height*width, w.NextY)
}

// audited reports whether an audit covers convolutions of that type: in others, gradients may have another type.
func audited(dt dtype.Type) bool {
	return audit != nil && (dt == dtype.Float32 || dt == dtype.Float64)
}

// run computes, and now and then twice. compute is given where the outputs go.
func (a *Audit) run(op string, outs [2]output, compute func(to [2]unsafe.Pointer) error) error {
	disturbed := func(outs [2]output) error {
		err := compute([2]unsafe.Pointer{outs[0].at, outs[1].at})
		for _, o := range outs {
			if a.Disturb != nil && o.at != nil {
				a.Disturb(op, o.view())
			}
		}
		return err
	}
	if rand.Float64() >= a.Rate {
		return disturbed(outs)
	}
	before := a.copied(outs) // as far as it matters
	defer a.give(before)
	runtime.LockOSThread()
	from := coreNow()
	err := disturbed(outs)
	to := coreNow()
	runtime.UnlockOSThread()
	if err != nil {
		return err
	}
	first := []int{from}
	if to != from || Threads() > 1 {
		first = nil
	}
	second, core, err := a.elsewhere(before, []int{from}, disturbed)
	defer a.give(second)
	if err != nil || same(outs, second) {
		return err
	}
	third, last, err := a.elsewhere(before, []int{from, core}, disturbed)
	defer a.give(third)
	switch wrong := (&Wrong{Op: op}); {
	case err != nil:
		return err
	case same(second, third):
		wrong.Cores, wrong.Third = first, fmt.Sprintf("a third computation, on core %d, agrees with the second, on core %d", last, core)
		return wrong
	case same(outs, third):
		wrong.Cores, wrong.Third = []int{core}, fmt.Sprintf("a third computation, on core %d, agrees with the first", last)
		return wrong
	default:
		wrong.Third = fmt.Sprintf("a third computation, on core %d, agrees with neither", last)
		return wrong
	}
}

// copied is a copy of outputs, in memory aligned as theirs, or memory for one where what is there does not matter.
func (a *Audit) copied(outs [2]output) (to [2]output) {
	for i, o := range outs {
		if o.at == nil {
			continue
		}
		const align = 64
		memory := a.take(o.bytes + 2*align)
		skip := (int(uintptr(o.at)%align) - int(uintptr(unsafe.Pointer(&memory[0]))%align) + align) % align
		to[i] = output{at: unsafe.Pointer(&memory[skip]), bytes: o.bytes, adds: o.adds, memory: memory}
		if o.adds {
			copy(to[i].view(), o.view())
		}
	}
	return to
}

func same(a, b [2]output) bool {
	return slices.EqualFunc(a[:], b[:], func(a, b output) bool {
		return a.at == nil || bytes.Equal(a.view(), b.view())
	})
}

// elsewhere computes from a copy of what was there before, by one thread, on a core that is not among some, if there is
// another.
func (a *Audit) elsewhere(before [2]output, not []int, compute func(outs [2]output) error) (outs [2]output, core int, err error) {
	outs = a.copied(before)
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var allowed, only unix.CPUSet
		if unix.SchedGetaffinity(0, &allowed) == nil {
			var others []int
			for core := range 64 * len(allowed) {
				if allowed.IsSet(core) && !slices.Contains(not, core) {
					others = append(others, core)
				}
			}
			if len(others) > 0 {
				only.Set(others[rand.IntN(len(others))])
				if unix.SchedSetaffinity(0, &only) == nil {
					defer func() {
						if unix.SchedSetaffinity(0, &allowed) == nil {
							runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
						}
					}()
				}
			}
		}
		a.again.Lock()
		defer a.again.Unlock()
		threads := Threads()
		SetThreads(1) // results do not depend on it
		defer SetThreads(threads)
		core = coreNow()
		err = compute(outs)
	}()
	<-done
	return outs, core, err
}
