package worker

import (
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"drun/engine"
	"drun/internal/exit"
	"drun/kernel"
	"drun/starlib"
	"drun/starlib/lang"

	"github.com/zeebo/xxh3"
)

// disturb, in tests, is what a faulty processor does to what a rank computes: the kernels' operations, and "update", an
// optimizer's step. twice: the operation is computed twice.
var disturb func(rank int, op string, twice bool, result []byte)

// audit begins to look for processors that compute wrongly: see kernel.Audit and replicas.stepped.
func (w *worker) audit() {
	if w.job.Audit == 0 {
		return
	}
	leaveOut(w.job.Avoid)
	a := &kernel.Audit{Rate: w.job.Audit, Found: w.found}
	if disturb != nil {
		a.Disturb = func(op string, twice bool, result []byte) { disturb(w.job.Placement.Rank, op, twice, result) }
	}
	kernel.SetAudit(a)
}

// leaveOut keeps the process off some cores, unless it may use no others.
func leaveOut(cores []int) {
	var allowed unix.CPUSet
	if len(cores) == 0 || unix.SchedGetaffinity(0, &allowed) != nil {
		return
	}
	for _, core := range cores {
		allowed.Clear(core)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if allowed.Count() == 0 || err != nil {
		return
	}
	for range 2 { // threads may be started during the first pass; later ones inherit
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil {
				_ = unix.SchedSetaffinity(id, &allowed) // the run goes on all the same
			}
		}
		threads, _ = os.ReadDir("/proc/self/task")
	}
}

// found ends the recipe because of a wrong result.
func (w *worker) found(wrong *kernel.Wrong) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		w.wrong = wrong
		if w.thread != nil {
			lang.Cancel(w.thread, wrong)
		}
	}
}

// doubt is the error of a rank that has computed wrongly, or nil.
func (w *worker) doubt() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		return nil
	}
	return w.wrong
}

// doubted marks a failure of a rank that has computed wrongly: it may have failed of that.
func (w *worker) doubted(f *engine.Failure, err error) {
	wrong := w.doubt()
	if wrong == nil || f.Secondary {
		return
	}
	if !errors.Is(err, wrong) {
		f.Message += "; before that, " + wrong.Error()
	}
	host, _ := os.Hostname() // only shown
	f.Doubt, f.Code = &engine.Doubt{Host: host, Cores: slices.Clone(w.wrong.Cores)}, exit.RankLost
	f.Message += " on " + host
}

// sumOf is a digest of all parameters.
func sumOf(params []starlib.Memory) (sum uint64) {
	for _, p := range params {
		sum = xxh3.HashSeed(p.Bytes(0, p.Len()), sum) + uint64(p.Len())
	}
	return sum
}
